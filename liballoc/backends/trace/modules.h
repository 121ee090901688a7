/* SPDX-License-Identifier: MIT
 *
 * The programs and libraries that are loaded, as a trace with call stacks records them: each is
 * defined once, and when it was unloaded that is recorded, too.
 */
#ifndef GPUALLOC_TRACE_MODULES_H
#define GPUALLOC_TRACE_MODULES_H

#include "format.h"

#include <stdbool.h>

typedef struct ga_modules ga_modules;

/* Record a definition: `bytes` of it, of GA_TRACE_MODULE or GA_TRACE_UNLOAD. */
typedef void ga_modules_define(void *context, ga_trace_op kind, uint32_t id, const void *definition,
                               size_t bytes);

/* NULL without memory. */
ga_modules *ga_modules_new(void);
void ga_modules_delete(ga_modules *modules);

/* In a forked child, before ga_modules_begin_child(): its file defines them anew. If its parent had
 * other threads, the child knows the parent's modules only. */
void ga_modules_reset(ga_modules *modules);

/* True in such a child, in which nothing must wait for the loader's lock. */
bool ga_modules_are_kept_only(const ga_modules *modules);

/* Define the modules that were loaded or unloaded since the last call. Returns the epoch, which an
 * unload has raised. If another thread is in this call for any trace, it returns at once. */
uint32_t ga_modules_update(ga_modules *modules, ga_modules_define *define, void *context);

/* Call ga_modules_update(), unless the last call of this function was less than
 * GA_MODULES_FRESH_NS before `now_ns`. In that time no library can be unloaded and another be
 * loaded in its place: that takes a dozen system calls. */
#define GA_MODULES_FRESH_NS 10000u
uint32_t ga_modules_refresh(ga_modules *modules, uint64_t now_ns, ga_modules_define *define,
                            void *context);

/* True if the address is in the library that this function is in. False everywhere in a program
 * that is linked with it statically: there it cannot be told from the program. */
bool ga_modules_is_own(uintptr_t address);

/* Around a fork, so that no thread is inside the loader's list of modules. */
void ga_modules_fork_prepare(void);
void ga_modules_fork_parent(void);
void ga_modules_begin_child(void); /* also in a child of _Fork() or clone() */

#endif
