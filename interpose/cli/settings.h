/* SPDX-License-Identifier: MIT
 *
 * The settings that `gpualloc run`, `env` and `compare` make: the options of the first two, and the
 * environment that results. The specs are tried first, then the libraries, and last the files,
 * because that replaces an old trace.
 */
#ifndef INTERPOSE_CLI_SETTINGS_H
#define INTERPOSE_CLI_SETTINGS_H

#include "paths.h"
#include "preload_list.h"
#include "trial.h"

#include <argp.h>

/* A text is NULL if its option was not given. */
typedef struct ga_settings {
    const char *command; /* "run", "env" or "compare", whose arguments these are: */
    int argc;            /* 0: the command must not be started again */
    char **argv;
    const char *host, *device, *kernel, *log;
    const char *stats, *trace; /* absolute; stats: or "1", standard error, or "-", output */
    const char *stacks;        /* the number of functions of a call stack */
    char stacks_text[8];
    bool strict, children; /* children: report their statistics, too */
    bool shell;            /* a shell's programs inherit the settings */
    ga_path stats_path, trace_path;
    ga_library preloadable; /* the library of --host=dl:, if it can take the place of ours */
    ga_path malloc;         /* the library that serves malloc */
    ga_preload_list libraries;
} ga_settings;

enum {
    GA_SETTINGS_VARIABLES = 22
};

/* The variables that these functions set or remove. */
extern const char *const ga_settings_variables[GA_SETTINGS_VARIABLES];

/* The parser of the options, for argp_child; its input is a ga_settings. */
extern const struct argp ga_settings_argp;

/* Print the error of the last call, after the name of an option or variable (NULL: none). Always
 * returns false. */
bool ga_settings_refuse(const ga_settings *settings, const char *name);

/* Try the specs, and find the libraries. False, and the reason is printed, if one is bad. May start
 * this command again, in this process. */
bool ga_settings_try(ga_settings *settings);

/* Try the files for statistics and a trace. False, and the reason is printed, if one is bad. */
bool ga_settings_try_files(const ga_settings *settings);

/* Start this command again, in this process, with more space for the thread-local storage of
 * libraries that `dl` loads. Returns if it has been given more already. */
void ga_settings_restart_with_tls(const ga_settings *settings);

/* Remove that space from the environment. The program needs it only where our library loads that of
 * `dl`. False: out of memory. */
bool ga_settings_drop_tls(void);

/* Set the environment. False: out of memory. */
bool ga_settings_export(const ga_settings *settings);

/* Remove from the environment what an earlier `gpualloc env` or `run` has set, and restore what the
 * variables were before; nothing where none has. False: out of memory. */
bool ga_settings_remove(void);

#endif
