/* SPDX-License-Identifier: MIT
 *
 * The call stacks of a trace: each different stack has an id and is recorded once, with the modules
 * that its addresses are in.
 *
 * Thread safe. In a signal handler, or in a call that the unwinder itself makes, that interrupts
 * ga_stacks_here() in the same thread, there is no stack.
 */
#ifndef GPUALLOC_TRACE_STACKS_H
#define GPUALLOC_TRACE_STACKS_H

#include "recorder.h"

typedef struct ga_stacks ga_stacks;

/* Stacks of up to `depth` frames, 1 to GA_TRACE_DEPTH_MAX. NULL without memory. */
ga_stacks *ga_stacks_new(unsigned depth);
void ga_stacks_delete(ga_stacks *stacks); /* NULL is ignored */

/* Forget all, in a forked child, whose file defines them anew. */
void ga_stacks_begin_child(ga_stacks *stacks);

/* The id of the caller's stack, of the functions that are not gpualloc's own; 0 if there is none,
 * or if the table is full, which one line of the log says. Notes the definitions of a new stack.
 * Keeps errno. */
uint32_t ga_stacks_here(ga_stacks *stacks, ga_recorder *recorder, uint64_t now_ns);

/* The id of a stack with these frames, of which `*is_new` tells whether it was added. 0: the table
 * is full. With the recorder's lock held. */
uint32_t ga_stacks_put(ga_stacks *stacks, const ga_trace_stack *stack, bool *is_new);

/* Free this thread's memo, as it ends. */
void ga_stacks_leave_thread(void);

#endif
