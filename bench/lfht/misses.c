/* SPDX-License-Identifier: MIT
 *
 * perf_event_open(2).
 */
#include "misses.h"

#include <linux/perf_event.h>
#include <math.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

ga_bench_misses ga_bench_misses_begin(void)
{
    struct perf_event_attr what = {
        .type = PERF_TYPE_HARDWARE,
        .size = sizeof what,
        .config = PERF_COUNT_HW_CACHE_MISSES,
        .disabled = 1,
        .inherit = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    return (ga_bench_misses){(int)syscall(SYS_perf_event_open, &what, 0, -1, -1, 0)};
}

void ga_bench_misses_start(ga_bench_misses *misses)
{
    if (misses->file >= 0) {
        ioctl(misses->file, PERF_EVENT_IOC_ENABLE, 0);
    }
}

double ga_bench_misses_end(ga_bench_misses *misses)
{
    uint64_t count;
    if (misses->file < 0) {
        return NAN;
    }
    ioctl(misses->file, PERF_EVENT_IOC_DISABLE, 0);
    double answer = read(misses->file, &count, sizeof count) == sizeof count ? (double)count : NAN;
    close(misses->file);
    misses->file = -1;
    return answer;
}
