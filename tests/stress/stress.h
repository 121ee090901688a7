/* SPDX-License-Identifier: MIT
 *
 * Shared by the stress programs. Each runs its threads for a while (two seconds, one under the
 * address sanitizer, or the seconds of its argument) and then checks its invariants. Exit status:
 * 0, 77 if the machine cannot run it, or 1 with a line that names the violation. An alarm ends a
 * program that hangs. They are plain programs, because they run under the thread sanitizer, too.
 */
#ifndef GPUALLOC_TESTS_STRESS_STRESS_H
#define GPUALLOC_TESTS_STRESS_STRESS_H

#include <gpualloc/detail/simt/planted.h>
#include <gpualloc/gpualloc.h>

#include <stdbool.h>
#include <stddef.h>

/* True in a program with a planted bug (tests/support/planted.h). */
#ifndef GA_PLANTED_ANY
#define GA_PLANTED_ANY false
#endif

enum {
    STRESS_SKIP = 77
};

/* Read the arguments and start the clock. With a planted bug, stress_threads() also makes threads
 * sleep at random moments. */
#define stress_begin(argc, argv) stress_start(argc, argv, GA_PLANTED_ANY)
void stress_start(int argc, char **argv, bool interrupts);

/* Returns true while there is time left. */
bool stress_goes_on(void);

/* If `holds` is false, print `what` and the thread's error sentence, and exit 1. */
void stress_need(bool holds, const char *what);

/* stress_need() that prints the condition and its location. */
#define NEED(condition)               stress_need(condition, STRESS_PLACE(#condition, __LINE__))
#define STRESS_PLACE(condition, line) STRESS_TEXT(condition, line)
#define STRESS_TEXT(condition, line)  __FILE__ ":" #line ": not so: " condition

/* Open a host heap by its spec, or fail. */
ga_heap *stress_open(const char *spec);

/* Run `count` threads and join them; each gets its number, from 0. */
void stress_threads(size_t count, void (*body)(size_t number));

#endif
