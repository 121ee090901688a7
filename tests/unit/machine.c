/* SPDX-License-Identifier: MIT
 *
 * How much memory the process can have: read from a tree of files as the kernel writes them, and
 * from the machine that the tests run on.
 */
#include "platform/machine.h"
#include "support/sanitized.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static char root[] = "/tmp/gpualloc-machine-XXXXXX";

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

static void put(const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", root, path);
    make_folders(name);
    FILE *file = fopen(name, "w");
    cr_assert(file, "%s", name);
    fputs(text, file);
    fclose(file);
}

/* 16 GiB of memory, 8 available; 4 GiB of swap, 2 free; of promises 10 GiB are left. */
static void make_root(void)
{
    cr_assert(mkdtemp(root));
    put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\n"
                         "MemAvailable:    8388608 kB\nSwapTotal:       4194304 kB\n"
                         "SwapFree:        2097152 kB\nCommitLimit:    12582912 kB\n"
                         "Committed_AS:    2097152 kB\n");
    put("/proc/sys/vm/overcommit_memory", "0\n");
}

static void remove_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

static void expect(uint64_t available, uint64_t total)
{
    cr_expect_eq(ga_machine_memory_available_in(root), available, "%.3f GiB available",
                 (double)ga_machine_memory_available_in(root) / (double)GIB);
    cr_expect_eq(ga_machine_memory_total_in(root), total, "%.3f GiB in all",
                 (double)ga_machine_memory_total_in(root) / (double)GIB);
}

TestSuite(machine, .init = make_root, .fini = remove_root);

Test(machine, memory_and_swap)
{
    expect(10 * GIB, 20 * GIB);
}

Test(machine, overcommit_always)
{
    put("/proc/sys/vm/overcommit_memory", "1\n");
    expect(10 * GIB, UINT64_MAX);
}

Test(machine, overcommit_never)
{
    put("/proc/sys/vm/overcommit_memory", "2\n");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapFree: 0 kB\n"
                         "CommitLimit: 4194304 kB\nCommitted_AS: 3145728 kB\n");
    expect(1 * GIB, 4 * GIB);
}

Test(machine, more_promised_than_the_limit)
{
    put("/proc/sys/vm/overcommit_memory", "2\n");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapFree: 0 kB\n"
                         "CommitLimit: 1024 kB\nCommitted_AS: 3145728 kB\n");
    expect(0, 1 * MIB);
}

Test(machine, cgroup_2)
{
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "4294967296\n");
    put("/sys/fs/cgroup/a/memory.current", "3221225472\n");
    put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1073741824\nactive_file 1048576\n");
    expect(4 * GIB + MIB, 20 * GIB);
    put("/sys/fs/cgroup/a/memory.swap.max", "1073741824\n");
    put("/sys/fs/cgroup/a/memory.swap.current", "1073741824\n");
    expect(2 * GIB + MIB, 20 * GIB);
    put("/sys/fs/cgroup/a/b/memory.max", "1048576\n");
    put("/sys/fs/cgroup/a/b/memory.swap.max", "0\n");
    expect(1 * MIB, 20 * GIB);
}

Test(machine, cgroup_1)
{
    put("/proc/self/cgroup", "9:name=systemd:/\n4:hugetlb,memory:/job\n0::/\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n");
    expect(3 * GIB, 20 * GIB);
    put("/sys/fs/cgroup/memory/job/memory.memsw.limit_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/memory/job/memory.memsw.usage_in_bytes", "2147483647\n");
    put("/sys/fs/cgroup/memory/job/memory.stat", "cache 9\ntotal_inactive_file 4096\n");
    expect(4097, 20 * GIB);
}

/* The path of a container that sees its own group as the root of all. */
Test(machine, cgroup_of_a_container)
{
    put("/proc/self/cgroup", "4:memory:/docker/0123456789\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1048577\n");
    put("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "1048576\n");
    put("/sys/fs/cgroup/memory/memory.memsw.usage_in_bytes", "1048577\n");
    expect(0, 20 * GIB);
}

Test(machine, files_that_say_nothing)
{
    char path[400];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    memcpy(path, "0::/", 4);
    put("/proc/self/cgroup", path);
    put("/proc/sys/vm/overcommit_memory", "");
    put("/proc/meminfo", "nothing\n");
    expect(UINT64_MAX, UINT64_MAX);
    put("/proc/self/cgroup", "\n:\n::\n0:\n0::\n");
    put("/proc/meminfo", "MemAvailable: 99999999999999999999999 kB\nSwapFree: -\n");
    expect(UINT64_MAX, UINT64_MAX);
}

/* ---- this machine -------------------------------------------------------------------------- */

Test(machine, tells_of_this_one)
{
    errno = 77;
    uint64_t available = ga_machine_memory_available();
    uint64_t total = ga_machine_memory_total();
    cr_expect_eq(errno, 77);
    cr_expect_gt(available, 1 * MIB);
    cr_expect_lt(available, UINT64_MAX);
    cr_expect_gt(total, 1 * MIB);
}

/* Shadow memory exceeds any limit. */
Test(machine, addresses_are_limited, .disabled = UNDER_ASAN || UNDER_TSAN)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = 8 * GIB;
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    cr_expect_lt(ga_machine_memory_available(), 8 * GIB);
    void *max = mmap(NULL, 6 * GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(max, MAP_FAILED);
    cr_expect_leq(ga_machine_memory_available(), 2 * GIB);
    munmap(max, 6 * GIB);
}

Test(machine, data_is_limited, .disabled = UNDER_ASAN || UNDER_TSAN)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = 1 * GIB;
    cr_assert_eq(setrlimit(RLIMIT_DATA, &limit), 0);
    cr_expect_lt(ga_machine_memory_available(), 1 * GIB);
}
