/* SPDX-License-Identifier: MIT
 *
 * How often each function of the table was called, as GPUALLOC_STATS says, when the process ends.
 */
#include "lookup.h"

#include "../../liballoc/platform/text.h"
#include "../../liballoc/runtime/report.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MOST_TEXT = 16384 /* more than all rows and any program's name need */
};

static void add_rows(ga_text *t, const char *format, const char *between)
{
    const char *before = "";
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        uint64_t calls = ga_cuda_calls_of((ga_cuda_hook_index)i);
        if (calls) {
            ga_text_add(t, "%s", before);
            ga_text_add(t, format, ga_cuda_hooks[i].symbol, calls);
            before = between;
        }
    }
}

static void report(void)
{
    static char rows[MOST_TEXT], line[MOST_TEXT];
    ga_text plain = {rows, sizeof rows, 0};
    ga_text json = {line, sizeof line, 0};
    ga_text_add(&plain, "gpualloc: CUDA calls of ");
    ga_text_add_printable(&plain, program_invocation_short_name);
    ga_text_add(&plain, ", process %d\n", (int)getpid());
    add_rows(&plain, "%-32s %20" PRIu64 "\n", "");
    ga_text_add(&json, "{\"abi\":1,\"pid\":%d,\"program\":\"", (int)getpid());
    ga_text_add_json(&json, program_invocation_short_name);
    ga_text_add(&json, "\",\"place\":\"device\",\"calls\":{");
    add_rows(&json, "\"%s\":%" PRIu64, ",");
    ga_text_add(&json, "}}\n");
    ga_report_text(rows, line);
}

/* From the start, since a fork that has begun does not run what is registered meanwhile. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, ga_cuda_calls_child);
}

void ga_cuda_lookup_begun(void)
{
    static int begun;
    int before = 0;
    /* relaxed: elects the one that registers */
    bool first =
        __atomic_compare_exchange_n(&begun, &before, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    if (first && ga_report_wanted()) {
        ga_report_when_exiting(); /* keeps standard error; heaps are reported after this */
        atexit(report);
    }
}
