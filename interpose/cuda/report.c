/* SPDX-License-Identifier: MIT
 *
 * How often each function of the table was called, as GPUALLOC_STATS says, when the process ends.
 */
#include "lookup.h"

#include "../../liballoc/runtime/report.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MOST_TEXT = 8192 /* more than all rows need */
};

typedef struct text {
    char buffer[MOST_TEXT];
    size_t length;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(t->buffer + t->length, sizeof t->buffer - t->length, format, args);
    va_end(args);
    size_t room = sizeof t->buffer - 1 - t->length;
    t->length += length < 0 ? 0 : (size_t)length < room ? (size_t)length : room;
}

/* A name as the inside of a JSON string; what is not plain in it is a question mark. */
static void add_escaped(text *t, const char *name)
{
    for (; *name; name++) {
        bool is_plain = *name >= ' ' && *name <= '~' && *name != '"' && *name != '\\';
        add(t, "%c", is_plain ? *name : '?');
    }
}

static void add_rows(text *t, const char *format, const char *between)
{
    const char *before = "";
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        uint64_t calls = ga_cuda_calls_of((ga_cuda_hook_index)i);
        if (calls) {
            add(t, "%s", before);
            add(t, format, ga_cuda_hooks[i].symbol, calls);
            before = between;
        }
    }
}

static void report(void)
{
    static text plain, json;
    add(&plain, "gpualloc: CUDA calls of %.200s, process %d\n", program_invocation_short_name,
        (int)getpid());
    add_rows(&plain, "%-32s %20" PRIu64 "\n", "");
    add(&json, "{\"abi\":1,\"pid\":%d,\"program\":\"", (int)getpid());
    add_escaped(&json, program_invocation_short_name);
    add(&json, "\",\"place\":\"device\",\"calls\":{");
    add_rows(&json, "\"%s\":%" PRIu64, ",");
    add(&json, "}}\n");
    ga_report_text(plain.buffer, json.buffer);
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
