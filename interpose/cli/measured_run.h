/* SPDX-License-Identifier: MIT
 *
 * Runs a program and measures it: time, memory, and whether it prints what it printed before.
 */
#ifndef INTERPOSE_CLI_MEASURED_RUN_H
#define INTERPOSE_CLI_MEASURED_RUN_H

#include <stdbool.h>

/* A program, and the files that its runs share. */
typedef struct ga_measured_program {
    const char *path; /* of its file */
    char **arguments; /* its name first */
    bool any_output;  /* its standard output is not compared */
    bool has_run;
    int output, expected, errors; /* files; `expected` has the output of the first run */
} ga_measured_program;

typedef struct ga_measured_run {
    double wall, processor; /* seconds, with all processes that it waited for */
    double peak;            /* resident bytes of the largest of them */
    int status;             /* of waitpid(2) */
    bool differs;           /* the output is not that of the first run */
} ga_measured_run;

/* Create the files. False: that failed, errno has the reason. */
bool ga_measured_open(ga_measured_program *program);
void ga_measured_close(const ga_measured_program *program);

/* Run the program with these variables, without input. False: it cannot be started, errno has the
 * reason. After ga_measured_interrupted(), the run may have been ended early. */
bool ga_measured_run_once(ga_measured_program *program, char **variables, ga_measured_run *out);

/* Copy the last run's standard error to this process's. */
void ga_measured_show_errors(const ga_measured_program *program);

/* From now on SIGINT and SIGTERM end the running program instead of this process: by SIGTERM, the
 * second time by SIGKILL. */
void ga_measured_catch_signals(void);

/* The signal that arrived, or 0. */
int ga_measured_interrupted(void);

#endif
