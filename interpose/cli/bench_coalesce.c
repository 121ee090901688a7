/* SPDX-License-Identifier: MIT
 *
 * `gpualloc bench coalesce`: the benchmarks of warp-coalescing-gpumpi-2022. They run in kernels, in
 * separate programs that use the CUDA runtime. This command finds the programs, runs one for each
 * part, and prints a table of the JSON lines that they write.
 */
#include "cli.h"
#include "suggest.h"

#include "paths.h"
#include "runner/lists.h"

#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RUNS_MAX = 1000,
    SKIPPED = 77 /* the programs' exit status without a GPU */
};

extern char **environ;

typedef struct part {
    const char *name, *program, *help;
} part;

static const part parts[] = {
    {"floats", "bench-coalesce-unit",
     "12 x 1024 threads, 25 to 400 floats each, five kinds of work"},
    {"small", "bench-coalesce-unit", "the same for 1 to 24 floats, two kinds of work"},
    {"shapes", "bench-coalesce-unit", "12288 threads in blocks of 32 to 1024"},
    {"anatomy", "bench-coalesce-unit", "CUDA's malloc for 1 to 100 floats: cycles and distances"},
    {"reduce", "bench-coalesce-mpi", "Reduce, 30 x 512 ranks, 16 doubles"},
    {"broadcast", "bench-coalesce-mpi", "Broadcast, 30 x 512 ranks, 16 doubles"},
    {"alltoall", "bench-coalesce-mpi", "All-to-All, 8 x 32 ranks and more, 4 doubles for each"},
};

enum {
    PARTS = sizeof parts / sizeof *parts,
    KEY_RUNS = 256,
    KEY_JSON,
    KEY_LIST
};

static const struct argp_option options[] = {
    {"runs", KEY_RUNS, "N", 0, "runs that count, after 2 that do not (default: 20)", 0},
    {"json", KEY_JSON, "FILE", 0, "write the results to FILE as JSON lines", 0},
    {"list", KEY_LIST, NULL, 0, "list the parts and exit", 0},
    {0},
};

static const char doc[] =
    "Measure malloc in kernels as the paper on warp coalescing does: each PART (all, where none is "
    "named) with CUDA's malloc, the paper's allocators over it, and the same over slabs.\v"
    "  gpualloc bench coalesce\n"
    "  gpualloc bench coalesce alltoall --runs 5 --json new.json\n"
    "\n"
    "A line has the median over the runs, the 5th and 95th percentile, and the ratio to CUDA's "
    "malloc in the same run. bench/README.md describes the parts and the keys of the JSON "
    "lines.";

typedef struct request {
    bool wanted[PARTS], any, list;
    const char *runs, *json;
    FILE *file;
} request;

static int complain(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int complain(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("gpualloc bench coalesce: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return status;
}

/* ---- arguments ----------------------------------------------------------------------------- */

static void parse_runs(const char *text, request *r)
{
    ga_bench_list one;
    if (!ga_bench_list_parse(text, false, RUNS_MAX, &one) || one.count != 1) {
        exit(complain(GA_CLI_USAGE, "--runs: bad number \"%s\"; expected 1 to %d", text, RUNS_MAX));
    }
    r->runs = text;
}

static void parse_part(const char *name, request *r)
{
    for (size_t i = 0; i < PARTS; i++) {
        if (strcmp(name, parts[i].name) == 0) {
            r->wanted[i] = r->any = true;
            return;
        }
    }
    exit(complain(GA_CLI_USAGE, "unknown part \"%s\"; --list shows those there are", name));
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case KEY_RUNS:
        parse_runs(value, r);
        return 0;
    case KEY_JSON:
        r->json = value;
        return 0;
    case KEY_LIST:
        r->list = true;
        return 0;
    case ARGP_KEY_ARG:
        parse_part(value, r);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int list_parts(void)
{
    for (size_t i = 0; i < PARTS; i++) {
        printf("%-10s %s\n", parts[i].name, parts[i].help);
    }
    return GA_CLI_OK;
}

/* ---- output of the programs ------------------------------------------------------------------ */

static double number(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key));
}

static const char *word(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

static void print_row(const json_t *line)
{
    const json_t *ratio = json_object_get(line, "ratio");
    char grid[32], size[32], ratio_text[32] = "";
    snprintf(grid, sizeof grid, "%.0f x %.0f", number(line, "blocks"), number(line, "threads"));
    snprintf(size, sizeof size, "%.0f B", number(line, "size"));
    if (json_is_number(ratio)) {
        snprintf(ratio_text, sizeof ratio_text, "  %.4g of CUDA's", json_number_value(ratio));
    }
    printf("%-26s %-10s %-7s %-21s %-9s %10.4g (%.4g to %.4g) %s%s", word(line, "bench"), grid,
           size, word(line, "way"), word(line, "metric"), number(line, "value"), number(line, "p5"),
           number(line, "p95"), word(line, "unit"), ratio_text);
    if (number(line, "failed") > 0) {
        printf("  FAILED: %.0f", number(line, "failed"));
    }
    putchar('\n');
}

/* Print a line as a result if it is one, else as it is. Returns the number of threads that
 * failed. */
static double handle_line(const char *text, const request *r)
{
    json_t *line = json_loads(text, 0, NULL);
    if (!json_is_object(line)) {
        fputs(text, stdout);
        json_decref(line);
        return 0;
    }
    print_row(line);
    fflush(stdout);
    if (r->file) {
        fputs(text, r->file);
        fflush(r->file);
    }
    double failed = number(line, "failed");
    json_decref(line);
    return failed;
}

/* ---- running the programs -------------------------------------------------------------------- */

/* Start a program with `*out` as its standard output. Returns 0 or errno. */
static int start(const char *path, char *const *arguments, pid_t *child, FILE **out)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe(ends) != 0) {
        return errno;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int error = posix_spawn(child, path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *out = error ? NULL : fdopen(ends[0], "r");
    if (!*out) {
        close(ends[0]);
    }
    return error;
}

/* The program itself has reported why it failed, and its message was passed on. */
static int report_exit(const part *p, int status, double failed)
{
    if (WIFSIGNALED(status)) {
        return complain(GA_CLI_FAILED, "%s: %s ended by signal %d (%s)", p->name, p->program,
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    if (WEXITSTATUS(status) == SKIPPED) {
        return complain(GA_CLI_FAILED, "%s: there is no GPU here", p->name);
    }
    if (WEXITSTATUS(status) != 0) {
        return complain(GA_CLI_FAILED, "%s: %s ended with status %d", p->name, p->program,
                        WEXITSTATUS(status));
    }
    return failed > 0 ? complain(GA_CLI_FAILED, "%s: %.0f threads got nothing, or a wrong result",
                                 p->name, failed)
                      : GA_CLI_OK;
}

static int run_part(const part *p, const request *r)
{
    ga_path path;
    pid_t child;
    FILE *out = NULL;
    char *text = NULL;
    size_t room = 0;
    double failed = 0;
    int status = 0;
    char runs[32];
    snprintf(runs, sizeof runs, "%s", r->runs ? r->runs : "20");
    if (ga_bench_program_find(&path, p->program) != GA_OK) {
        return complain(GA_CLI_FAILED, "%s", ga_error_text());
    }
    char *const arguments[] = {path.text, "--only", (char *)p->name, "--runs", runs, NULL};
    int error = start(path.text, arguments, &child, &out);
    if (error || !out) {
        return complain(GA_CLI_FAILED, "\"%s\": %s", path.text, strerror(error ? error : errno));
    }
    while (getline(&text, &room, out) > 0) {
        failed += handle_line(text, r);
    }
    free(text);
    fclose(out);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return report_exit(p, status, failed);
}

/* Stops at the first part that fails. */
static int run_parts(const request *r)
{
    int status = GA_CLI_OK;
    for (size_t i = 0; i < PARTS && status == GA_CLI_OK; i++) {
        if (r->wanted[i] || !r->any) {
            status = run_part(&parts[i], r);
        }
    }
    return status;
}

int ga_cmd_bench_coalesce(int argc, char **argv)
{
    static const struct argp parser = {options, parse, "[PART...]", doc, NULL, NULL, NULL};
    request r = {.runs = NULL};
    argp_err_exit_status = GA_CLI_USAGE;
    ga_suggest_parse(&parser, argc, argv, 0, &r);
    if (r.list) {
        return list_parts();
    }
    r.file = r.json ? fopen(r.json, "we") : NULL;
    if (r.json && !r.file) {
        return complain(GA_CLI_FAILED, "--json: \"%s\": %s", r.json, strerror(errno));
    }
    int status = run_parts(&r);
    if (r.file && fclose(r.file) != 0 && status == GA_CLI_OK) {
        status = complain(GA_CLI_FAILED, "--json: \"%s\": %s", r.json, strerror(errno));
    }
    return status;
}
