/* SPDX-License-Identifier: MIT
 *
 * The environment in which `gpualloc run` would execute a program, for `gpualloc compare`, which
 * executes it many times.
 */
#ifndef INTERPOSE_CLI_PREPARED_H
#define INTERPOSE_CLI_PREPARED_H

#include "settings.h"

/* Initialise with zeros. */
typedef struct ga_prepared {
    char **variables; /* for execve(2) */
    char *text;       /* that they point into */
} ga_prepared;

/* Try the settings and the program as `gpualloc run --strict` does. Settings of NULL give an
 * environment without a preload. All is done in a child, because the peak of a process that this
 * one starts begins with the memory of this one, which so has none of trial heaps. False, and the
 * reason is printed, if the settings are bad or do not reach the program. */
bool ga_prepared_make(ga_prepared *out, ga_settings *settings, const char *program);

void ga_prepared_clear(ga_prepared *prepared);

#endif
