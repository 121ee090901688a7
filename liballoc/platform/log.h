/* SPDX-License-Identifier: MIT
 *
 * The log: lines on standard error, up to the level in GPUALLOC_LOG (error, warn, info, debug;
 * default warn). Never allocates, because it is called inside malloc. Thread safe.
 */
#ifndef GPUALLOC_PLATFORM_LOG_H
#define GPUALLOC_PLATFORM_LOG_H

#include <stdbool.h>

typedef enum ga_log_level {
    GA_LOG_ERROR = 0,
    GA_LOG_WARN,
    GA_LOG_INFO,
    GA_LOG_DEBUG
} ga_log_level;

/* The level of GPUALLOC_LOG, as the variable was at the first call. */
ga_log_level ga_log_level_in_force(void);

/* True with GPUALLOC_STRICT=1: what cannot be served ends the program. Logs a line if the variable
 * is something else than 1 or 0. */
bool ga_is_strict(void);

/* Print "gpualloc: ..." and a newline in one write; control characters within the line become
 * question marks. Keeps errno. */
void ga_log(ga_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
