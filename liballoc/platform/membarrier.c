/* SPDX-License-Identifier: MIT
 *
 * MEMBARRIER_CMD_PRIVATE_EXPEDITED: Linux 4.14 and later.
 */
#include "membarrier.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static bool enroll(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static bool issue(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* Arm's processors broadcast what they drop from their TLBs, and so do those of AMD that have
 * INVLPGB: nobody is interrupted there. */
static bool is_interrupted_by_unmapping(void)
{
#if defined(__x86_64__)
    const unsigned leaf = 0x80000008u;
    const unsigned invlpgb = 1u << 3;
    unsigned eax, ebx, ecx, edx;
    return !(__get_cpuid(leaf, &eax, &ebx, &ecx, &edx) && ebx & invlpgb);
#else
    return false;
#endif
}

/* As folly's asymmetric fence. The page has to be there and written to, and to stay, so that the
 * right to write is in some TLB as far as the kernel knows. */
static bool take_right(char *page, size_t size)
{
    if (mlock(page, size) != 0) {
        return false;
    }
    *(volatile char *)page = 1;
    return mprotect(page, size, PROT_READ) == 0;
}

static bool interrupt(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    if (!is_interrupted_by_unmapping()) {
        return false;
    }
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return false;
    }
    bool taken = take_right(page, size);
    munmap(page, size);
    return taken;
}

ga_membarrier_table ga_membarrier = {.enroll = enroll, .issue = issue, .interrupt = interrupt};
