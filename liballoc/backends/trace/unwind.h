/* SPDX-License-Identifier: MIT
 *
 * Call stacks of the calling thread, by the unwinder of libgcc, which is loaded when it is needed
 * first. A memo keeps the stacks that a thread has unwound lately: a stack that is still as it was
 * is recognised without unwinding, and of one whose inner part differs only that is unwound.
 */
#ifndef GPUALLOC_TRACE_UNWIND_H
#define GPUALLOC_TRACE_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ga_unwind_frame {
    uintptr_t ip; /* the return address */
    uintptr_t sp, fp;
    bool exact;     /* a signal interrupted the frame at `ip`, which is no return address */
    bool matters;   /* `fp` decides about a frame further outside */
    uint8_t checks; /* number of words of the stack that decide about the next frame's registers */
} ga_unwind_frame;

/* An unwound stack. */
typedef struct ga_unwound {
    uint64_t key;   /* as the caller of ga_unwind() passed it */
    uintptr_t sp;   /* of the first frame */
    uint32_t id;    /* of the caller of ga_unwind(); 0 in a new one */
    uint16_t count; /* frames */
    uint16_t rigid; /* frames from this one on were reached by words that are all in `check` */
    bool complete;  /* the last frame is the outermost one */
    uint32_t *check;
    ga_unwind_frame *frame; /* innermost first */
} ga_unwound;

typedef struct ga_unwind_memo ga_unwind_memo;

/* Load libgcc. False: not possible now, or at all, which one line of the log says. */
bool ga_unwind_ready(void);

/* True if the unwinder takes no lock of the loader: with glibc 2.35 or newer. */
bool ga_unwind_takes_no_lock(void);

/* A memo for stacks of up to `frames` frames; NULL without memory. */
ga_unwind_memo *ga_unwind_memo_new(unsigned frames);
void ga_unwind_memo_delete(ga_unwind_memo *memo);
unsigned ga_unwind_memo_frames(const ga_unwind_memo *memo);

/* The stack of the caller: one of the memo with this key, or a new one with id 0 that replaces the
 * oldest. The innermost `wanted` frames are valid, until the next call. After
 * ga_unwind_ready(). */
ga_unwound *ga_unwind(ga_unwind_memo *memo, uint64_t key, unsigned wanted);

#endif
