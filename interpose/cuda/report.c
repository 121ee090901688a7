/* SPDX-License-Identifier: MIT
 *
 * The report of calls per hook, written as GPUALLOC_STATS says when the process exits.
 */
#include "kernel_place.h"
#include "lookup.h"
#include "modules.h"

#include "../../liballoc/runtime/report.h"
#include "../version_note.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

static void add_rows(ga_text *text, const char *format, const char *between)
{
    const char *before = "";
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        uint64_t calls = ga_cuda_calls_of((ga_cuda_hook_index)i);
        if (calls) {
            ga_text_add(text, "%s", before);
            ga_text_add(text, format, ga_cuda_hooks[i].symbol, calls);
            before = between;
        }
    }
}

static void add_modules(ga_text *text, bool json)
{
    ga_cuda_module_counts modules = ga_cuda_modules_counted();
    ga_text_add(text,
                json ? ",\"modules\":{\"served\":%" PRIu64 ",\"passed\":%" PRIu64
                       ",\"refused\":%" PRIu64 ",\"unread\":%" PRIu64 "}"
                     : "modules with in-kernel malloc        served %" PRIu64 ", without %" PRIu64
                       ", refused %" PRIu64 ", unread %" PRIu64 "\n",
                modules.served, modules.passed, modules.refused, modules.unread);
}

static void compose(ga_text *text, bool json, const void *unused)
{
    (void)unused;
    if (json) {
        ga_report_json_head(text, GA_PLACE_DEVICE);
        ga_text_add(text, ",\"calls\":{");
        add_rows(text, "\"%s\":%" PRIu64, ",");
        ga_text_add(text, "}");
        if (ga_cuda_kernel_wanted()) {
            add_modules(text, json);
        }
        ga_text_add(text, "}\n");
    } else {
        ga_report_head(text, "CUDA calls of ");
        ga_text_add(text, "\n");
        add_rows(text, "%-32s %20" PRIu64 "\n", "");
        if (ga_cuda_kernel_wanted()) {
            add_modules(text, json);
        }
    }
}

static void report(void)
{
    ga_report_composed(compose, NULL);
}

/* In a constructor, because a fork in progress does not run handlers that are registered during
 * it. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, ga_cuda_calls_child);
    pthread_atfork(NULL, NULL, ga_cuda_modules_child);
}

void ga_cuda_report_at_exit(void)
{
    static int begun;
    int before = 0;
    /* relaxed: elects the thread that registers */
    bool first =
        __atomic_compare_exchange_n(&begun, &before, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    if (first && ga_report_wanted()) {
        ga_report_when_exiting(); /* keeps a copy of standard error open; heaps report after this */
        atexit(report);
    }
}
