/* SPDX-License-Identifier: MIT
 *
 * Counts a trace and prints the summary.
 */
#include "summary.h"

#include "replay.h"

#include "runner/progress.h"

#include <gpualloc/backend.h>

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    STEP_RECORDS = 1 << 16, /* per step of the progress line */
    SIZE_CLASSES = 65,      /* 0, 1, 2 to 3, 4 to 7, ... */
    BAR_LENGTH = 40
};

typedef struct summary {
    uint64_t operations[GA_TRACE_OP_COUNT];
    uint64_t sizes[SIZE_CLASSES];
    uint64_t requests; /* the sum of `sizes` */
    uint64_t requested_bytes;
    uint64_t first_ns, last_ns;
    uint32_t *threads; /* the thread of each run of records; sorted later */
    size_t thread_count, thread_room;
    ga_replay replay;
    ga_replay_result result;
} summary;

const char *ga_trace_op_text(unsigned operation)
{
    static const char *const texts[GA_TRACE_OP_COUNT] = {
        [GA_TRACE_NONE] = "none",       [GA_TRACE_ALLOC] = "alloc",   [GA_TRACE_ZEROED] = "zeroed",
        [GA_TRACE_REALLOC] = "realloc", [GA_TRACE_GROW] = "grow",     [GA_TRACE_FREE] = "free",
        [GA_TRACE_RETIRE] = "retire",   [GA_TRACE_FAILED] = "failed",
    };
    return operation < GA_TRACE_OP_COUNT ? texts[operation] : "?";
}

/* ---- counting ------------------------------------------------------------------------------ */

static void count_time(summary *s, uint64_t time_ns)
{
    s->first_ns = time_ns < s->first_ns ? time_ns : s->first_ns;
    s->last_ns = time_ns > s->last_ns ? time_ns : s->last_ns;
}

static void count_size(summary *s, const ga_trace_record *record)
{
    if (record->operation == GA_TRACE_ALLOC || record->operation == GA_TRACE_ZEROED ||
        record->operation == GA_TRACE_REALLOC) {
        s->sizes[record->size ? 64 - __builtin_clzll(record->size) : 0]++;
        s->requests++;
        s->requested_bytes += record->size;
    }
}

static bool count_thread(summary *s, uint32_t thread)
{
    if (s->thread_count && s->threads[s->thread_count - 1] == thread) {
        return true;
    }
    if (s->thread_count == s->thread_room) {
        size_t room = s->thread_room ? 2 * s->thread_room : 256;
        uint32_t *threads = realloc(s->threads, room * sizeof *threads);
        if (!threads) {
            return false;
        }
        s->threads = threads;
        s->thread_room = room;
    }
    s->threads[s->thread_count++] = thread;
    return true;
}

static int by_number(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static void merge_threads(summary *s)
{
    size_t kept = 0;
    if (s->thread_count) {
        qsort(s->threads, s->thread_count, sizeof *s->threads, by_number);
    }
    for (size_t i = 0; i < s->thread_count; i++) {
        if (kept == 0 || s->threads[i] != s->threads[kept - 1]) {
            s->threads[kept++] = s->threads[i];
        }
    }
    s->thread_count = kept;
}

static bool count_record(summary *s, const ga_trace_record *record)
{
    s->operations[record->operation]++;
    count_time(s, record->time_ns);
    count_size(s, record);
    return count_thread(s, record->thread) && ga_replay_add(&s->replay, record);
}

static ga_status read_all(summary *s, ga_trace_reader *reader, ga_bench_progress *progress)
{
    const ga_trace_record *record;
    uint64_t count = 0;
    s->first_ns = UINT64_MAX;
    while ((record = ga_trace_reader_next(reader))) {
        if (++count % STEP_RECORDS == 0) {
            ga_bench_progress_step(progress, "reading");
        }
        if (record->operation < GA_TRACE_OP_COUNT && !count_record(s, record)) {
            return ga_fail(GA_ERR_MEMORY, "no memory for more than %" PRIu64 " records", count);
        }
    }
    s->first_ns = count ? s->first_ns : 0;
    return GA_OK;
}

static ga_status count_all(summary *s, ga_trace_reader *reader, uint64_t file_bytes)
{
    ga_bench_progress progress;
    uint64_t steps = file_bytes / (STEP_RECORDS * GA_TRACE_PLAIN_BYTES);
    ga_bench_progress_begin(&progress,
                            (size_t)(2 * steps + 1)); /* sorting takes about as long as reading */
    ga_status status = read_all(s, reader, &progress);
    if (status == GA_OK) {
        ga_bench_progress_step(&progress, "sorting");
        merge_threads(s);
        ga_replay_run(&s->replay, &s->result);
    }
    ga_bench_progress_clear(&progress);
    return status;
}

/* ---- printing ------------------------------------------------------------------------------ */

typedef struct bytes_text {
    char text[24];
} bytes_text;

/* In the largest unit that leaves at least 1 before the point. */
static bytes_text short_bytes(uint64_t bytes)
{
    static const char units[] = "BKMGTPE";
    bytes_text out;
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && units[unit + 1]) {
        value /= 1024;
        unit++;
    }
    if (unit) {
        snprintf(out.text, sizeof out.text, "%.1f %ciB", value, units[unit]);
    } else {
        snprintf(out.text, sizeof out.text, "%" PRIu64 " B", bytes);
    }
    return out;
}

static void print_bytes(FILE *stream, const char *name, uint64_t bytes)
{
    fprintf(stream, "  %-18s %" PRIu64 " bytes", name, bytes);
    if (bytes >= 1024) {
        fprintf(stream, " (%s)", short_bytes(bytes).text);
    }
}

static void print_head(FILE *stream, const summary *s, const ga_trace_header *header)
{
    time_t start = (time_t)(header->start_ns / 1000000000);
    struct tm parts;
    char date[40] = "?";
    if (localtime_r(&start, &parts)) {
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S %z", &parts);
    }
    fprintf(stream, "process %" PRIu32 ", begun %s\n", header->pid, date);
    fprintf(stream, "  %-18s %.6f s\n", "duration", (double)(s->last_ns - s->first_ns) / 1e9);
    fprintf(stream, "  %-18s %zu\n", "threads", s->thread_count);
}

static void print_operations(FILE *stream, const summary *s)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < GA_TRACE_OP_COUNT; i++) {
        all += s->operations[i];
    }
    fprintf(stream, "\noperations           %" PRIu64 "\n", all);
    for (unsigned i = GA_TRACE_NONE + 1; i < GA_TRACE_OP_COUNT; i++) {
        if (s->operations[i]) {
            fprintf(stream, "  %-18s %" PRIu64 "\n", ga_trace_op_text(i), s->operations[i]);
        }
    }
}

static void print_memory(FILE *stream, const summary *s)
{
    const ga_replay_result *r = &s->result;
    fputs("\nmemory, as requested\n", stream);
    print_bytes(stream, "requested", s->requested_bytes);
    fputc('\n', stream);
    print_bytes(stream, "peak live", r->peak_bytes);
    fprintf(stream, " in %" PRIu64 " blocks, %.6f s after the start\n", r->peak_blocks,
            (double)(r->peak_blocks ? r->peak_ns - s->first_ns : 0) / 1e9);
    print_bytes(stream, "never freed", r->left_bytes);
    fprintf(stream, " in %" PRIu64 " blocks\n", r->left_blocks);
    fprintf(stream, "  %-18s %" PRIu64 " frees or resizes\n", "of unknown blocks", r->unknown);
    if (r->reused) {
        fprintf(stream, "  %-18s %" PRIu64 " addresses handed out again without a free\n",
                "missing frees", r->reused);
    }
}

static void print_class(FILE *stream, const summary *s, unsigned class)
{
    uint64_t low = class ? (uint64_t)1 << (class - 1) : 0;
    uint64_t high = class ? low - 1 + low : 0;
    double share = (double)s->sizes[class] / (double)s->requests;
    char range[64];
    snprintf(range, sizeof range, low == high ? "%" PRIu64 : "%" PRIu64 " to %" PRIu64, low, high);
    fprintf(stream, "  %-30s %12" PRIu64 " %5.1f %% ", range, s->sizes[class], 100 * share);
    for (int i = 0; i < (int)(share * BAR_LENGTH + 0.5); i++) {
        fputc('#', stream);
    }
    fputc('\n', stream);
}

static void print_sizes(FILE *stream, const summary *s)
{
    unsigned first = 0;
    unsigned last = SIZE_CLASSES;
    if (!s->requests) {
        return;
    }
    while (!s->sizes[first]) {
        first++;
    }
    while (!s->sizes[last - 1]) {
        last--;
    }
    fprintf(stream, "\nrequested sizes, in bytes\n");
    for (unsigned i = first; i < last; i++) {
        print_class(stream, s, i);
    }
}

static void print_all(FILE *stream, const summary *s, const ga_trace_header *header)
{
    print_head(stream, s, header);
    print_operations(stream, s);
    print_memory(stream, s);
    print_sizes(stream, s);
}

ga_status ga_summary_print(FILE *stream, ga_trace_reader *reader, uint64_t file_bytes)
{
    summary s = {0};
    ga_status status = count_all(&s, reader, file_bytes);
    if (status == GA_OK) {
        print_all(stream, &s, ga_trace_reader_header(reader));
    }
    ga_replay_clear(&s.replay);
    free(s.threads);
    return status;
}
