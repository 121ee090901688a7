/* SPDX-License-Identifier: MIT
 *
 * The heavy fence by MEMBARRIER_CMD_PRIVATE_EXPEDITED (Linux 4.14 and later), or by unmapping a
 * page.
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

/* Arm processors, and AMD processors with INVLPGB, broadcast TLB invalidations, so that unmapping
 * interrupts no processor there. */
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

/* As folly's asymmetric fence does. The page must be present, written and locked, so that the
 * kernel assumes a writable entry for it in some processor's TLB. mprotect() then has to invalidate
 * it. */
static bool revoke_write(char *page, size_t size)
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
    bool revoked = revoke_write(page, size);
    munmap(page, size);
    return revoked;
}

ga_membarrier_table ga_membarrier = {.enroll = enroll, .issue = issue, .interrupt = interrupt};
