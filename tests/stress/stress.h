/* SPDX-License-Identifier: MIT
 *
 * What the stress programs share. Each runs its threads for a while (two seconds, or as many as its
 * argument says) and then checks what must hold; exit status 0, 77 where it cannot be tried, or 1
 * with a line that says what does not hold. An alarm ends one that hangs. Plain programs, because
 * the thread sanitizer is their other half.
 */
#ifndef GPUALLOC_TESTS_STRESS_STRESS_H
#define GPUALLOC_TESTS_STRESS_STRESS_H

#include "../support/mutant.h"

#include <gpualloc/gpualloc.h>

#include <stdbool.h>
#include <stddef.h>

enum {
    STRESS_SKIP = 77
};

/* Read the arguments and start the clock. */
void stress_begin(int argc, char **argv);

/* Whether there is time left. */
bool stress_goes_on(void);

/* Where `holds` is false, say what and the thread's error sentence, and exit 1. */
void stress_need(bool holds, const char *what);

/* The same, saying the condition and where it stands. */
#define NEED(condition)               stress_need(condition, STRESS_PLACE(#condition, __LINE__))
#define STRESS_PLACE(condition, line) STRESS_TEXT(condition, line)
#define STRESS_TEXT(condition, line)  __FILE__ ":" #line ": not so: " condition

/* A host heap of that spec, which must open. */
ga_heap *stress_open(const char *spec);

/* Run so many threads and wait for them; each gets its number, from 0. */
void stress_threads(size_t count, void (*body)(size_t number));

#endif
