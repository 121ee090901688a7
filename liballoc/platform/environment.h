/* SPDX-License-Identifier: MIT
 *
 * Environment variables. All code of gpualloc reads them through here.
 */
#ifndef GPUALLOC_PLATFORM_ENVIRONMENT_H
#define GPUALLOC_PLATFORM_ENVIRONMENT_H

/* The value of a variable, or NULL if it is not set. Always NULL in a process that
 * runs with more privileges than its caller (AT_SECURE: setuid, setgid, file capabilities), because
 * the caller must not choose which library such a process loads or which file it writes. The text
 * belongs to the environment: the program may change or free it. Thread safe as getenv() is. */
const char *ga_environment(const char *name);

/* A copy of the value that is never freed. For settings that are read once and used later, when the
 * program may have cleared or overwritten its environment. NULL if the variable is not set or
 * empty, or without memory. */
char *ga_environment_copy(const char *name);

#endif
