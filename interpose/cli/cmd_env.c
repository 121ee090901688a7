/* SPDX-License-Identifier: MIT
 *
 * `gpualloc env`: prints the environment of `gpualloc run` as commands for a shell.
 */
#include "../../liballoc/platform/environment.h"
#include "cli.h"
#include "settings.h"
#include "suggest.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_UNSET = 0x200
};

typedef struct env_args {
    ga_settings settings;
    bool unset;
} env_args;

/* In quotes, so that the shell takes the value as it is, but for quotes and, because fish takes
 * them for escapes in quotes, too, backslashes. */
static void print_quoted(const char *value)
{
    putchar('\'');
    for (; *value; value++) {
        printf(*value == '\'' || *value == '\\' ? "'\\%c'" : "%c", *value);
    }
    putchar('\'');
}

/* The semicolons are for an eval without quotes, which joins the lines. */
static void print_variable(const char *variable, const char *before, bool changed_only)
{
    const char *now = ga_environment(variable);
    bool changed = !now || !before || strcmp(now, before) != 0;
    if (now && (changed || !changed_only)) {
        printf("export %s=", variable);
        print_quoted(now);
        puts(";");
    } else if (!now && before) {
        printf("unset %s;\n", variable);
    }
}

static bool change(env_args *args)
{
    if (args->unset) {
        return ga_settings_remove();
    }
    args->settings.children = true; /* this process's id is of no interest to others */
    return ga_settings_export(&args->settings);
}

/* Whether to print a variable that had its value before. The output may be kept in a file, for
 * shells that do not have it. */
static bool is_own(const env_args *args, const char *variable)
{
    return strcmp(variable, "LD_LIBRARY_PATH") != 0 || *args->settings.libraries.folder;
}

static int env(env_args *args)
{
    static char *before[GA_SETTINGS_VARIABLES];
    for (size_t i = 0; i < GA_SETTINGS_VARIABLES; i++) {
        const char *value = ga_environment(ga_settings_variables[i]);
        before[i] = value ? strdup(value) : NULL;
    }
    if (!args->unset &&
        (!ga_settings_try(&args->settings) || !ga_settings_try_files(&args->settings))) {
        return GA_CLI_USAGE;
    }
    if (!change(args)) {
        ga_fail(GA_ERR_MEMORY, "no memory for the environment");
        ga_settings_refuse(&args->settings, NULL);
        return GA_CLI_FAILED;
    }
    for (size_t i = 0; i < GA_SETTINGS_VARIABLES; i++) {
        const char *variable = ga_settings_variables[i];
        print_variable(variable, before[i], args->unset || !is_own(args, variable));
    }
    return GA_CLI_OK;
}

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "What to print:", 1},
    {"unset", KEY_UNSET, NULL, 0,
     "commands that remove what this command has set, and restore what variables were before; "
     "other "
     "libraries in LD_PRELOAD stay",
     0},
    {NULL, 0, NULL, 0, "Help:", -1},
    {0},
};

static const char doc[] =
    "Print shell commands that set the environment of \"gpualloc run\".\v"
    "The programs that the shell then starts have their malloc replaced, and each reports where "
    "statistics are requested. For sh, bash and zsh; fish takes them by \"| source\".\n\n"
    "Examples:\n"
    "  eval \"$(gpualloc env --host=jemalloc)\"\n"
    "  eval \"$(gpualloc env --unset)\"\n"
    "  gpualloc env --device=vmm >settings.sh";

static error_t parse(int key, char *arg, struct argp_state *state)
{
    env_args *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->settings;
        return 0;
    case KEY_UNSET:
        args->unset = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "expected no argument, got \"%s\"; \"gpualloc run\" runs a program", arg);
        return 0;
    case ARGP_KEY_END:
        if (args->unset && state->argc > 2) {
            argp_error(state, "--unset: expected no other option, got %d", state->argc - 2);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int ga_cmd_env(int argc, char **argv)
{
    static const struct argp_child children[] = {{&ga_settings_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {options, parse, NULL, doc, children, NULL, NULL};
    static env_args args;
    args.settings.command = "env";
    args.settings.shell = true;
    args.settings.argc = argc;
    args.settings.argv = argv;
    ga_suggest_parse(&argp, argc, argv, 0, &args);
    return env(&args);
}
