/* SPDX-License-Identifier: MIT
 *
 * Lines for people, on standard error, as far as GPUALLOC_LOG (error, warn, info, debug; default
 * warn) lets them through. Never allocates: it is called from inside malloc.
 */
#ifndef GPUALLOC_PLATFORM_LOG_H
#define GPUALLOC_PLATFORM_LOG_H

typedef enum ga_log_level {
    GA_LOG_ERROR = 0,
    GA_LOG_WARN,
    GA_LOG_INFO,
    GA_LOG_DEBUG
} ga_log_level;

/* The level of GPUALLOC_LOG, as the variable was at the first call. */
ga_log_level ga_log_level_in_force(void);

/* Prints "gpualloc: ..." and a newline in one write; control characters within the line become
 * question marks. Keeps errno. */
void ga_log(ga_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
