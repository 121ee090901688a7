/* SPDX-License-Identifier: MIT
 *
 * `gpualloc trace`: prints a trace file as a summary, as lines or as JSON.
 */
#include "../../liballoc/backends/trace/reader.h"
#include "cli.h"
#include "stack_report.h"
#include "suggest.h"
#include "summary.h"

#include <gpualloc/backend.h>

#include <argp.h>
#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum trace_form {
    UNSAID = 0,
    SUMMARY = 's',
    DUMP = 'd',
    JSON = 'j',
    LEAKS = 'l',
    FOLDED = 'f',
    TOP = 't'
} trace_form;

enum {
    KEY_SYMBOLIZER = 0x100,
    TOP_DEFAULT = 10,
    TOP_MAX = 100000
};

typedef struct trace_args {
    trace_form form;
    ga_stack_request stacks;
    const char *file;
} trace_args;

static uint64_t alignment(const ga_trace_record *record)
{
    return record->align_log2 ? (uint64_t)1 << record->align_log2 : 0;
}

/* ---- a line a record ----------------------------------------------------------------------- */

static void print_record(const ga_trace_record *record)
{
    printf("%" PRIu64 ".%09" PRIu64 " %7" PRIu32 " %-7s", record->time_ns / 1000000000,
           record->time_ns % 1000000000, record->thread, ga_trace_op_text(record->operation));
    if (record->operation == GA_TRACE_REALLOC) {
        printf(" 0x%" PRIx64 " ->", record->previous);
    }
    if (record->pointer) {
        printf(" 0x%" PRIx64, record->pointer);
    }
    if (record->operation != GA_TRACE_FREE && record->operation != GA_TRACE_RETIRE) {
        printf(" %" PRIu64, record->size);
    }
    if (record->align_log2) {
        printf(" align %" PRIu64, alignment(record));
    }
    if (record->place != GA_PLACE_HOST) {
        printf(" %s %d", ga_place_text((ga_place)record->place), record->device);
    }
    if (record->stream) {
        printf(" stream 0x%" PRIx64, record->stream);
    }
    if (record->stack) {
        printf(" stack %" PRIu32, record->stack);
    }
    putchar('\n');
}

/* The next record that is no part of a stack or module. */
static const ga_trace_record *next_operation(ga_trace_reader *reader)
{
    const ga_trace_record *record = ga_trace_reader_next(reader);
    while (record && record->operation >= GA_TRACE_STACK) {
        record = ga_trace_reader_next(reader);
    }
    return record;
}

static ga_status dump(ga_trace_reader *reader)
{
    const ga_trace_record *record;
    while (!ferror(stdout) && (record = next_operation(reader))) {
        print_record(record);
    }
    return GA_OK;
}

/* ---- a line of JSON a record --------------------------------------------------------------- */

/* Pointers are text, because JSON readers may round numbers above 2^53. */
static json_t *json_pointer(uint64_t pointer)
{
    return json_sprintf("0x%" PRIx64, pointer);
}

/* A refused request may have a size beyond jansson's integers. */
static json_t *json_size(uint64_t size)
{
    return size <= INT64_MAX ? json_integer((json_int_t)size) : json_real((double)size);
}

static bool write_json(const ga_trace_record *record)
{
    json_t *line = json_pack(
        "{s:I, s:I, s:s, s:o, s:o, s:o, s:I, s:s, s:i, s:o}", "time_ns",
        (json_int_t)record->time_ns, "thread", (json_int_t)record->thread, "operation",
        ga_trace_op_text(record->operation), "pointer", json_pointer(record->pointer), "previous",
        json_pointer(record->previous), "size", json_size(record->size), "align",
        (json_int_t)alignment(record), "place", ga_place_text((ga_place)record->place), "device",
        (int)record->device, "stream", json_pointer(record->stream));
    if (line && record->stack) {
        json_object_set_new(line, "stack", json_integer(record->stack));
    }
    bool written = line && json_dumpf(line, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF;
    json_decref(line);
    return written;
}

static ga_status dump_json(ga_trace_reader *reader)
{
    const ga_trace_record *record;
    while ((record = next_operation(reader))) {
        if (!write_json(record) && !ferror(stdout)) {
            return ga_fail(GA_ERR_MEMORY, "no memory for a line of JSON");
        }
    }
    return GA_OK;
}

/* ---- the command --------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    {"summary", SUMMARY, NULL, 0,
     "write figures (default): operations, threads, sizes, the peak, blocks never freed", 0},
    {"dump", DUMP, NULL, 0, "write a line for each record", 0},
    {"json", JSON, NULL, 0, "write a line of JSON for each record", 0},
    {NULL, 0, NULL, 0, "Of a trace with call stacks:", 1},
    {"leaks", LEAKS, NULL, 0, "write the blocks never freed, by the call stack that requested them",
     0},
    {"folded", FOLDED, "FIGURE", OPTION_ARG_OPTIONAL,
     "write folded stacks for a flame graph: bytes (default) or blocks requested, bytes live at "
     "the peak, or leaks",
     0},
    {"top", TOP, "COUNT", OPTION_ARG_OPTIONAL,
     "write the lines of code with the most memory at the peak, and that requested the most bytes "
     "and blocks (default: 10 of each)",
     0},
    {"symbolizer", KEY_SYMBOLIZER, "PROGRAM", 0,
     "the program that names functions and lines: llvm-symbolizer, addr2line, or none (default: "
     "the first one found)",
     0},
    {NULL, 0, NULL, 0, "Help:", -1},
    {0},
};

static const char doc[] =
    "Read FILE, a trace that \"gpualloc run --trace FILE\" made.\v"
    "Records come in the order of the file; where several threads wrote it, that is not the order "
    "of time.\n\n"
    "Examples:\n"
    "  gpualloc run --trace ls.trace -- ls\n"
    "  gpualloc trace ls.trace\n"
    "  gpualloc trace --json ls.trace | jq 'select(.size > 4096)'\n"
    "  gpualloc run --trace x.trace --stacks -- ./x\n"
    "  gpualloc trace --leaks x.trace\n"
    "  gpualloc trace --folded=peak x.trace | flamegraph.pl >x.svg";

static void take_form(struct argp_state *state, trace_args *args, trace_form form)
{
    if (args->form && args->form != form) {
        argp_error(state, "expected one of --summary, --dump, --json, --leaks, --folded and --top, "
                          "got two");
    }
    args->form = form;
}

static void take_fold(struct argp_state *state, trace_args *args, const char *name)
{
    static const char *const names[GA_FOLD_COUNT] = {[GA_FOLD_BYTES] = "bytes",
                                                     [GA_FOLD_BLOCKS] = "blocks",
                                                     [GA_FOLD_PEAK] = "peak",
                                                     [GA_FOLD_LEAKS] = "leaks"};
    for (unsigned i = 0; i < GA_FOLD_COUNT; i++) {
        if (!name || strcmp(name, names[i]) == 0) {
            args->stacks.fold = (ga_fold)i;
            return;
        }
    }
    argp_error(state, "--folded: expected bytes, blocks, peak or leaks, got \"%s\"", name);
}

static void take_count(struct argp_state *state, trace_args *args, const char *text)
{
    char *end = NULL;
    unsigned long count = text ? strtoul(text, &end, 10) : TOP_DEFAULT;
    if (text && (!isdigit((unsigned char)*text) || *end || !count || count > TOP_MAX)) {
        argp_error(state, "--top: expected a number from 1 to %d, got \"%s\"", TOP_MAX, text);
    }
    args->stacks.count = (unsigned)count;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    trace_args *args = state->input;
    switch (key) {
    case SUMMARY:
    case DUMP:
    case JSON:
    case LEAKS:
        take_form(state, args, (trace_form)key);
        return 0;
    case FOLDED:
        take_form(state, args, FOLDED);
        take_fold(state, args, arg);
        return 0;
    case TOP:
        take_form(state, args, TOP);
        take_count(state, args, arg);
        return 0;
    case KEY_SYMBOLIZER:
        args->stacks.symbolizer = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (args->file) {
            argp_error(state, "expected one FILE, got \"%s\" and \"%s\"", args->file, arg);
        }
        args->file = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "expected a FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Through ga_error_text(), which replaces control characters in the file's name. */
static void say_error(void)
{
    fprintf(stderr, "gpualloc trace: %s\n", ga_error_text());
}

/* Reports missing records after showing the others. */
static void say_what_is_missing(const ga_trace_reader *reader, const char *file)
{
    uint64_t damaged = ga_trace_reader_damaged(reader);
    fflush(stdout);
    if (ga_trace_reader_cut(reader)) {
        ga_fail(GA_ERR_IO, "\"%.300s\" is cut short; the records above are all that it has", file);
        say_error();
    }
    if (damaged) {
        ga_fail(GA_ERR_IO, "\"%.300s\": passed over %" PRIu64 " damaged records", file, damaged);
        say_error();
    }
}

static uint64_t size_of(const char *file)
{
    struct stat there;
    return stat(file, &there) == 0 && there.st_size > 0 ? (uint64_t)there.st_size : 0;
}

static void say_undefined(uint64_t damaged, const char *file)
{
    fflush(stdout);
    if (damaged) {
        ga_fail(GA_ERR_IO,
                "\"%.300s\": %" PRIu64 " call stacks or modules are damaged, or not in the file",
                file, damaged);
        say_error();
    }
}

static ga_status report(ga_trace_reader *reader, const trace_args *args)
{
    uint64_t damaged = 0;
    ga_stack_request request = args->stacks;
    request.file_bytes = size_of(args->file);
    request.form = args->form == LEAKS    ? GA_STACK_LEAKS
                   : args->form == FOLDED ? GA_STACK_FOLDED
                                          : GA_STACK_TOP;
    ga_status status = ga_stack_report(stdout, reader, &request, &damaged);
    say_undefined(damaged, args->file);
    return status;
}

static ga_status show(ga_trace_reader *reader, const trace_args *args)
{
    if (args->form == LEAKS || args->form == FOLDED || args->form == TOP) {
        return report(reader, args);
    }
    return args->form == DUMP   ? dump(reader)
           : args->form == JSON ? dump_json(reader)
                                : ga_summary_print(stdout, reader, size_of(args->file));
}

int ga_cmd_trace(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "FILE", doc, NULL, NULL, NULL};
    trace_args args = {0};
    ga_trace_reader *reader;
    ga_suggest_parse(&argp, argc, argv, 0, &args);
    ga_status status = ga_trace_reader_open(&reader, args.file);
    if (status == GA_OK) {
        status = show(reader, &args);
    }
    if (status != GA_OK) {
        say_error();
    } else {
        say_what_is_missing(reader, args.file);
    }
    ga_trace_reader_close(reader);
    return status == GA_OK ? GA_CLI_OK : GA_CLI_FAILED;
}
