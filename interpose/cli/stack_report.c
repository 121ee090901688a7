/* SPDX-License-Identifier: MIT
 *
 * ga_stack_report
 *   read_all               count the requests of each stack, and collect its definition
 *   ga_replay_each_live    count the blocks live at the peak and at the end
 *   ga_symbols_resolve     the names of all frames
 *   make_groups            the text of each stack; stacks with equal texts become one group
 *   print_leaks, print_folded, print_top
 */
#include "stack_report.h"

#include "replay.h"
#include "stack_text.h"

#include "runner/progress.h"

#include <gpualloc/backend.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEP_RECORDS = 1 << 16 /* per step of the progress line */
};

typedef struct group {
    char *text;
    ga_figures figures[GA_FIGURE_COUNT];
} group;

typedef struct report {
    const ga_stack_request *request;
    ga_trace_stacks stacks;
    ga_symbols symbols;
    ga_replay replay;
    bool no_memory;
    group *groups;
    size_t count;
} report;

static ga_status no_memory(void)
{
    return ga_fail(GA_ERR_MEMORY, "no memory for the call stacks");
}

/* ---- counting -------------------------------------------------------------------------------- */

static bool count_record(report *r, const ga_trace_record *record)
{
    if (record->operation >= GA_TRACE_STACK) {
        ga_trace_part part;
        memcpy(&part, record, sizeof part);
        return ga_trace_stacks_add(&r->stacks, &part);
    }
    bool request = record->operation == GA_TRACE_ALLOC || record->operation == GA_TRACE_ZEROED ||
                   record->operation == GA_TRACE_REALLOC;
    return ga_replay_add(&r->replay, record) &&
           (!request ||
            ga_trace_stacks_count(&r->stacks, record->stack, GA_FIGURE_REQUESTED, record->size));
}

static ga_status read_all(report *r, ga_trace_reader *reader, ga_bench_progress *progress)
{
    const ga_trace_record *record;
    uint64_t count = 0;
    while ((record = ga_trace_reader_next(reader))) {
        if (++count % STEP_RECORDS == 0) {
            ga_bench_progress_step(progress, "reading");
        }
        if (!count_record(r, record)) {
            return no_memory();
        }
    }
    return GA_OK;
}

static void count_live(void *context, ga_replay_moment moment, uint32_t stack, uint64_t bytes)
{
    report *r = context;
    ga_figure figure = moment == GA_REPLAY_PEAK ? GA_FIGURE_PEAK : GA_FIGURE_LEFT;
    r->no_memory = !ga_trace_stacks_count(&r->stacks, stack, figure, bytes) || r->no_memory;
}

static ga_status count_all(report *r, ga_trace_reader *reader)
{
    ga_bench_progress progress;
    ga_replay_result result;
    uint64_t steps = r->request->file_bytes / (STEP_RECORDS * sizeof(ga_trace_record));
    ga_bench_progress_begin(&progress, (size_t)(2 * steps + 1));
    ga_status status = read_all(r, reader, &progress);
    if (status == GA_OK) {
        ga_bench_progress_step(&progress, "sorting");
        ga_replay_run(&r->replay, &result);
        ga_replay_each_live(&r->replay, &result, count_live, r);
        ga_trace_stacks_finish(&r->stacks);
        status = r->no_memory ? no_memory() : GA_OK;
    }
    ga_bench_progress_clear(&progress);
    return status;
}

/* ---- names and groups ------------------------------------------------------------------------ */

/* The figure that the report is about, or NULL for one that shows all. */
static const ga_figures *figures_of(const report *r, const ga_figures figures[GA_FIGURE_COUNT])
{
    static const ga_figure of[GA_FOLD_COUNT] = {
        [GA_FOLD_BYTES] = GA_FIGURE_REQUESTED,
        [GA_FOLD_BLOCKS] = GA_FIGURE_REQUESTED,
        [GA_FOLD_PEAK] = GA_FIGURE_PEAK,
        [GA_FOLD_LEAKS] = GA_FIGURE_LEFT,
    };
    return r->request->form == GA_STACK_LEAKS    ? &figures[GA_FIGURE_LEFT]
           : r->request->form == GA_STACK_FOLDED ? &figures[of[r->request->fold]]
                                                 : NULL;
}

static bool is_wanted(const report *r, const ga_stack_entry *entry)
{
    const ga_figures *shown = figures_of(r, entry->figures);
    return shown ? shown->blocks > 0
                 : entry->figures[GA_FIGURE_REQUESTED].blocks ||
                       entry->figures[GA_FIGURE_LEFT].blocks;
}

static ga_status find_names(report *r)
{
    r->symbols.program = r->request->symbolizer;
    for (size_t i = 0; i < r->stacks.stack_count; i++) {
        if (is_wanted(r, &r->stacks.stacks[i]) &&
            !ga_stack_text_add_symbols(&r->symbols, &r->stacks, r->stacks.stacks[i].stack)) {
            return no_memory();
        }
    }
    return ga_symbols_resolve(&r->symbols);
}

static int by_text(const void *left, const void *right)
{
    return strcmp(((const group *)left)->text, ((const group *)right)->text);
}

static void sort(report *r, int compare_groups(const void *, const void *))
{
    if (r->count) { /* else there is no array */
        qsort(r->groups, r->count, sizeof *r->groups, compare_groups);
    }
}

static void merge_groups(report *r)
{
    size_t kept = 0;
    sort(r, by_text);
    for (size_t i = 0; i < r->count; i++) {
        if (kept == 0 || by_text(&r->groups[i], &r->groups[kept - 1]) != 0) {
            r->groups[kept++] = r->groups[i];
            continue;
        }
        for (unsigned k = 0; k < GA_FIGURE_COUNT; k++) {
            r->groups[kept - 1].figures[k].bytes += r->groups[i].figures[k].bytes;
            r->groups[kept - 1].figures[k].blocks += r->groups[i].figures[k].blocks;
        }
        free(r->groups[i].text);
    }
    r->count = kept;
}

static ga_status make_groups(report *r)
{
    r->groups = calloc(r->stacks.stack_count + 1, sizeof *r->groups);
    for (size_t i = 0; r->groups && i < r->stacks.stack_count; i++) {
        const ga_stack_entry *entry = &r->stacks.stacks[i];
        if (!is_wanted(r, entry)) {
            continue;
        }
        char *text = ga_stack_text(&r->symbols, &r->stacks, entry, r->request->form);
        if (!text) {
            return no_memory();
        }
        r->groups[r->count].text = text;
        memcpy(r->groups[r->count++].figures, entry->figures, sizeof entry->figures);
    }
    merge_groups(r);
    return r->groups ? GA_OK : no_memory();
}

/* ---- printing -------------------------------------------------------------------------------- */

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* The largest first; of equal ones, in the order of their texts. */
static int order(const void *left, const void *right, ga_figure figure, bool by_blocks)
{
    const ga_figures *a = &((const group *)left)->figures[figure];
    const ga_figures *b = &((const group *)right)->figures[figure];
    int bytes = compare(b->bytes, a->bytes);
    int blocks = compare(b->blocks, a->blocks);
    int first = by_blocks ? blocks : bytes;
    int second = by_blocks ? bytes : blocks;
    return first ? first : second ? second : by_text(left, right);
}

static int by_left(const void *left, const void *right)
{
    return order(left, right, GA_FIGURE_LEFT, false);
}

static int by_peak(const void *left, const void *right)
{
    return order(left, right, GA_FIGURE_PEAK, false);
}

static int by_bytes(const void *left, const void *right)
{
    return order(left, right, GA_FIGURE_REQUESTED, false);
}

static int by_requests(const void *left, const void *right)
{
    return order(left, right, GA_FIGURE_REQUESTED, true);
}

static ga_figures sum(const report *r, ga_figure figure)
{
    ga_figures all = {0};
    for (size_t i = 0; i < r->count; i++) {
        all.bytes += r->groups[i].figures[figure].bytes;
        all.blocks += r->groups[i].figures[figure].blocks;
    }
    return all;
}

static void print_leaks(FILE *stream, report *r)
{
    ga_figures all = sum(r, GA_FIGURE_LEFT);
    fprintf(
        stream, "never freed: %" PRIu64 " byte%s in %" PRIu64 " block%s, from %zu call stack%s\n",
        all.bytes, plural(all.bytes), all.blocks, plural(all.blocks), r->count, plural(r->count));
    sort(r, by_left);
    for (size_t i = 0; i < r->count; i++) {
        const ga_figures *left = &r->groups[i].figures[GA_FIGURE_LEFT];
        fprintf(stream, "\n%" PRIu64 " byte%s in %" PRIu64 " block%s\n%s", left->bytes,
                plural(left->bytes), left->blocks, plural(left->blocks), r->groups[i].text);
    }
}

static void print_folded(FILE *stream, const report *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const ga_figures *shown = figures_of(r, r->groups[i].figures);
        uint64_t value = r->request->fold == GA_FOLD_BLOCKS ? shown->blocks : shown->bytes;
        if (value) {
            fprintf(stream, "%s %" PRIu64 "\n", r->groups[i].text, value);
        }
    }
}

static void print_list(FILE *stream, report *r, const char *title, ga_figure figure,
                       int compare_groups(const void *, const void *))
{
    ga_figures all = sum(r, figure);
    fprintf(stream, "%s: %" PRIu64 " byte%s in %" PRIu64 " block%s\n", title, all.bytes,
            plural(all.bytes), all.blocks, plural(all.blocks));
    sort(r, compare_groups);
    for (size_t i = 0; i < r->count && i < r->request->count; i++) {
        const ga_figures *shown = &r->groups[i].figures[figure];
        if (shown->blocks) {
            fprintf(stream, "  %14" PRIu64 " bytes %12" PRIu64 " blocks  %s\n", shown->bytes,
                    shown->blocks, r->groups[i].text);
        }
    }
}

static void print_top(FILE *stream, report *r)
{
    print_list(stream, r, "live at the peak", GA_FIGURE_PEAK, by_peak);
    fputc('\n', stream);
    print_list(stream, r, "requested, by bytes", GA_FIGURE_REQUESTED, by_bytes);
    fputc('\n', stream);
    print_list(stream, r, "requested, by blocks", GA_FIGURE_REQUESTED, by_requests);
}

static void print(FILE *stream, report *r)
{
    switch (r->request->form) {
    case GA_STACK_LEAKS:
        print_leaks(stream, r);
        break;
    case GA_STACK_FOLDED:
        print_folded(stream, r);
        break;
    case GA_STACK_TOP:
        print_top(stream, r);
        break;
    }
}

static void clear(report *r)
{
    for (size_t i = 0; i < r->count; i++) {
        free(r->groups[i].text);
    }
    free(r->groups);
    ga_symbols_clear(&r->symbols);
    ga_trace_stacks_clear(&r->stacks);
    ga_replay_clear(&r->replay);
}

ga_status ga_stack_report(FILE *stream, ga_trace_reader *reader, const ga_stack_request *request,
                          uint64_t *damaged)
{
    report r = {.request = request, .replay.keeps_stacks = true};
    if (!ga_trace_reader_header(reader)->depth) {
        return ga_fail(GA_ERR_UNSUPPORTED, "the trace has no call stacks; \"gpualloc run --trace "
                                           "FILE --stacks\" records them");
    }
    ga_status status = count_all(&r, reader);
    if (status == GA_OK) {
        status = find_names(&r);
    }
    if (status == GA_OK) {
        status = make_groups(&r);
    }
    if (status == GA_OK) {
        print(stream, &r);
        *damaged = r.stacks.damaged;
    }
    clear(&r);
    return status;
}
