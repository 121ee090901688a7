/* SPDX-License-Identifier: MIT
 *
 * `gpualloc trace`: prints a trace file as a summary, as lines or as JSON.
 */
#include "../../liballoc/backends/trace/reader.h"
#include "cli.h"
#include "summary.h"

#include <gpualloc/backend.h>

#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef enum trace_form {
    UNSAID = 0,
    SUMMARY = 's',
    DUMP = 'd',
    JSON = 'j'
} trace_form;

typedef struct trace_args {
    trace_form form;
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
    putchar('\n');
}

static ga_status dump(ga_trace_reader *reader)
{
    const ga_trace_record *record;
    while (!ferror(stdout) && (record = ga_trace_reader_next(reader))) {
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
    bool written = line && json_dumpf(line, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF;
    json_decref(line);
    return written;
}

static ga_status dump_json(ga_trace_reader *reader)
{
    const ga_trace_record *record;
    while ((record = ga_trace_reader_next(reader))) {
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
    {0},
};

static const char doc[] =
    "Read FILE, a trace that \"gpualloc run --trace FILE\" made.\v"
    "Records come in the order of the file; where several threads wrote it, that is not the order "
    "of time.\n\n"
    "Examples:\n"
    "  gpualloc run --trace ls.trace -- ls\n"
    "  gpualloc trace ls.trace\n"
    "  gpualloc trace --json ls.trace | jq 'select(.size > 4096)'";

static error_t parse(int key, char *arg, struct argp_state *state)
{
    trace_args *args = state->input;
    switch (key) {
    case SUMMARY:
    case DUMP:
    case JSON:
        if (args->form && args->form != (trace_form)key) {
            argp_error(state, "expected one of --summary, --dump and --json, got two");
        }
        args->form = (trace_form)key;
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

static ga_status show(ga_trace_reader *reader, const trace_args *args)
{
    return args->form == DUMP   ? dump(reader)
           : args->form == JSON ? dump_json(reader)
                                : ga_summary_print(stdout, reader, size_of(args->file));
}

int ga_cmd_trace(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "FILE", doc, NULL, NULL, NULL};
    trace_args args = {0};
    ga_trace_reader *reader;
    argp_parse(&argp, argc, argv, 0, NULL, &args);
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
