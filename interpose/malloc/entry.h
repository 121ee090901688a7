/* SPDX-License-Identifier: MIT
 *
 * Attributes of functions that the process calls by their public names.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_ENTRY_H
#define GPUALLOC_INTERPOSE_MALLOC_ENTRY_H

#define EXPORT __attribute__((visibility("default")))

/* Memory debuggers (valgrind, heaptrack) replace entry points one by one, each by its address. An
 * entry point must not contain the body of another, or such a tool sees a block come and not go. So
 * those that another entry point uses are not inlined and are called by their public names. */
#ifdef __clang__
#define ENTRY EXPORT __attribute__((noinline))
#else
#define ENTRY EXPORT __attribute__((noipa))
#endif

#endif
