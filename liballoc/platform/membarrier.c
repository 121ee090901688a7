/* SPDX-License-Identifier: MIT
 *
 * MEMBARRIER_CMD_PRIVATE_EXPEDITED: Linux 4.14 and later.
 */
#include "membarrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool enroll(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static bool issue(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

ga_membarrier_table ga_membarrier = {.enroll = enroll, .issue = issue};
