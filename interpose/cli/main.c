/* SPDX-License-Identifier: MIT
 *
 * `gpualloc`: finds the command and calls it.
 */
#include "cli.h"
#include "suggest.h"

#include <gpualloc/gpualloc.h>

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HELP_AS_ERROR = (ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK) | ARGP_HELP_EXIT_ERR,
    NAME_LENGTH = 16 /* longer than any command's name */
};

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} command;

static int cmd_help(int argc, char **argv);

static const command commands[] = {
    {"run", ga_cmd_run, "run a program on another allocator"},
    {"env", ga_cmd_env, "print the environment of \"run\" for a shell"},
    {"compare", ga_cmd_compare, "run a program on several allocators, side by side"},
    {"bench", ga_cmd_bench, "measure backends side by side"},
    {"trace", ga_cmd_trace, "read the trace of a program's allocations"},
    {"replay", ga_cmd_replay, "perform a trace on several allocators, side by side"},
    {"rewrite", ga_cmd_rewrite, "coalesce the allocations of a kernel's source"},
    {"list", ga_cmd_list, "list the backends and their options"},
    {"check", ga_cmd_check, "report the features that this machine supports"},
    {"help", cmd_help, "explain a command"},
};

enum {
    COMMANDS = sizeof commands / sizeof *commands
};

/* ---- help ---------------------------------------------------------------------------------- */

static const char doc[] =
    "Choose a program's memory allocator, and measure the difference.\v"
    "Examples:\n"
    "  gpualloc list                                  the allocators to choose from\n"
    "  gpualloc run --host=jemalloc -- python3 x.py   run a program on one of them\n"
    "  gpualloc run --stats -- ls -l                  with statistics at exit\n"
    "  gpualloc compare -- python3 x.py               which allocator suits a program\n"
    "  gpualloc help run                              all options of \"run\"\n"
    "\n"
    "Each command has a manual page, too: gpualloc-run(1).";

static void print_commands(FILE *stream, const char *before)
{
    fprintf(stream, "%s\n\nCommands:\n", before);
    for (size_t i = 0; i < COMMANDS; i++) {
        fprintf(stream, "  %-8s %s\n", commands[i].name, commands[i].help);
    }
}

/* Insert the table of commands after the first sentence. argp frees the result. */
static char *filter_help(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_PRE_DOC) {
        return (char *)text;
    }
    char *with_commands = NULL;
    size_t size;
    FILE *stream = open_memstream(&with_commands, &size);
    if (!stream) {
        return (char *)text;
    }
    print_commands(stream, text);
    fclose(stream);
    return with_commands;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "gpualloc %s\n", ga_version_text());
}

/* ---- names --------------------------------------------------------------------------------- */

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static const command *nearest_command(const char *name)
{
    const command *nearest = NULL;
    size_t best = GA_SUGGEST_NEAR + 1;
    for (size_t i = 0; i < COMMANDS; i++) {
        size_t far = ga_suggest_distance(name, commands[i].name);
        if (far < best) {
            best = far;
            nearest = &commands[i];
        }
    }
    return nearest;
}

static int unknown_command(const char *name)
{
    const command *nearest = nearest_command(name);
    ga_suggest_unknown("gpualloc", "command", name);
    if (nearest) {
        fprintf(stderr, "did you mean \"%s\"?\n", nearest->name);
    } else {
        for (size_t i = 0; i < COMMANDS; i++) {
            fprintf(stderr, "%s%s", i ? ", " : "known: ", commands[i].name);
        }
        fputc('\n', stderr);
    }
    return GA_CLI_USAGE;
}

/* ---- running ------------------------------------------------------------------------------- */

static int run_command(int argc, char **argv)
{
    const command *found = find_command(argv[0]);
    if (!found) {
        return unknown_command(argv[0]);
    }
    char name[sizeof "gpualloc " + NAME_LENGTH];
    char help[] = "--help";
    snprintf(name, sizeof name, "gpualloc %s", found->name);
    argv[0] = name; /* argp's messages begin with argv[0] */
    if (argc > 1 && strcmp(argv[1], "-h") == 0) {
        argv[1] = help; /* argp has -?, people type -h */
    }
    return found->run(argc, argv);
}

/* Shared by both parsers: stop at the first argument and leave the rest unparsed. */
static error_t parse_first(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key != ARGP_KEY_ARG) {
        return ARGP_ERR_UNKNOWN;
    }
    *(int *)state->input = state->next - 1;
    state->next = state->argc;
    return 0;
}

static error_t parse_main(int key, char *arg, struct argp_state *state)
{
    if (key == ARGP_KEY_NO_ARGS) {
        argp_state_help(state, stderr, HELP_AS_ERROR);
    }
    return parse_first(key, arg, state);
}

static int parse_program(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_main,
        .args_doc = "COMMAND [ARG...]",
        .doc = doc,
        .help_filter = filter_help,
    };
    int first = 0;
    ga_suggest_parse(&argp, argc, argv, ARGP_IN_ORDER, &first);
    return first;
}

static int cmd_help(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_first,
        .args_doc = "[COMMAND]",
        .doc = "Explain a command, or say which there are.",
    };
    int first = 0;
    char help[] = "--help";
    char program[] = "gpualloc";
    ga_suggest_parse(&argp, argc, argv, ARGP_IN_ORDER, &first);
    if (first) {
        return run_command(2, (char *[]){argv[first], help, NULL});
    }
    return parse_program(2, (char *[]){program, help, NULL});
}

/* Writing to a full disk must not exit with success. */
static void check_output(void)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "gpualloc: cannot write to standard output: %s\n", strerror(errno));
        _exit(GA_CLI_FAILED);
    }
}

int main(int argc, char **argv)
{
    char help[] = "help";
    char program[] = "gpualloc";
    argv[0] = program; /* messages begin with the name, not with the path of the call */
    argp_program_version_hook = print_version;
    argp_err_exit_status = GA_CLI_USAGE;
    atexit(check_output);
    if (argc > 1 && strcmp(argv[1], "-h") == 0) {
        return run_command(1, (char *[]){help, NULL});
    }
    int first = parse_program(argc, argv);
    return run_command(argc - first, argv + first);
}
