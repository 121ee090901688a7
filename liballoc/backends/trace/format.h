/* SPDX-License-Identifier: MIT
 *
 * The trace file: one header, then chunks of fixed-size records, all little-endian.
 *
 *   offset 0            ga_trace_header, zeros up to data_offset
 *   data_offset         chunk 0: chunk_bytes / record_size records
 *   + chunk_bytes       chunk 1, ...
 *
 * A chunk belongs to one thread at a time and is filled from its start. A record whose operation is
 * GA_TRACE_NONE was not written. Nothing refers to a later offset, so a file that is cut anywhere
 * is valid up to the cut, and the file of a killed writer is valid as it is. Records are in the
 * order of time within a chunk and a thread, not across chunks: a thread may continue the chunk
 * that another thread left.
 *
 * With call stacks (GA_TRACE_STACKS_ABI) a record is 8 bytes longer and has the id of its stack.
 * Stacks and modules are defined by parts among the records: a definition's bytes are cut into
 * parts of GA_TRACE_PART_BYTES, which may be anywhere in the file and in any order.
 */
#ifndef GPUALLOC_TRACE_FORMAT_H
#define GPUALLOC_TRACE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define GA_TRACE_MAGIC "GATRACE" /* 8 bytes with its NUL */
#define GA_TRACE_ABI   1u

#define GA_TRACE_STACKS_ABI 2u

/* Without stacks; `stack` and `part` are not written. */
#define GA_TRACE_PLAIN_BYTES 48u

/* Chunks: multiples of the record's size and of pages of 4, 16 and 64 KiB. */
#define GA_TRACE_CHUNK_BYTES        (48u * 4096u)
#define GA_TRACE_STACKS_CHUNK_BYTES (56u * 8192u)

#define GA_TRACE_DEPTH_MAX  128u /* frames of a stack */
#define GA_TRACE_OWN_FRAMES 12u  /* of gpualloc, in addition, where it is linked statically */
#define GA_TRACE_FRAMES_MAX (GA_TRACE_DEPTH_MAX + GA_TRACE_OWN_FRAMES)
#define GA_TRACE_PART_BYTES 32u

typedef struct ga_trace_header {
    char magic[8];
    uint32_t abi;
    uint32_t record_size;
    uint32_t data_offset;
    uint32_t chunk_bytes;
    uint32_t pid;
    uint32_t depth;    /* frames of a stack at most; 0 without stacks */
    uint64_t start_ns; /* CLOCK_REALTIME at the start of the trace; times of records count from
                        * here */
} ga_trace_header;

typedef enum ga_trace_op {
    GA_TRACE_NONE = 0,
    GA_TRACE_ALLOC,   /* pointer, size, alignment */
    GA_TRACE_ZEROED,  /* pointer, size, alignment; filled with zeros */
    GA_TRACE_REALLOC, /* previous became pointer, of size bytes */
    GA_TRACE_GROW,    /* pointer grew in place to size bytes */
    GA_TRACE_FREE,    /* pointer */
    GA_TRACE_RETIRE,  /* pointer */
    GA_TRACE_FAILED,  /* a request for size bytes failed; pointer is 0 */
    GA_TRACE_OP_COUNT,
    GA_TRACE_STACK = GA_TRACE_OP_COUNT, /* a part of a ga_trace_stack */
    GA_TRACE_MODULE,                    /* a part of a ga_trace_module */
    GA_TRACE_UNLOAD,                    /* a part of a ga_trace_unload */
    GA_TRACE_KIND_COUNT
} ga_trace_op;

typedef struct ga_trace_record {
    uint64_t time_ns;
    uint64_t pointer;
    uint64_t previous;  /* GA_TRACE_REALLOC: the old block; else 0 */
    uint64_t size;      /* requested bytes; 0 for frees */
    uint64_t stream;    /* 0 on the host */
    uint32_t thread;    /* kernel thread id */
    uint8_t operation;  /* ga_trace_op */
    uint8_t align_log2; /* 0: default alignment */
    uint8_t place;      /* ga_place */
    int8_t device;
    uint32_t stack; /* the id of the call stack; 0: none, or a free */
    uint32_t part;  /* 0 */
} ga_trace_record;

/* A record of a kind from GA_TRACE_STACK on: bytes [part * GA_TRACE_PART_BYTES, ...) of the
 * definition of stack or module `id`. */
typedef struct ga_trace_part {
    uint64_t time_ns;
    uint8_t bytes[GA_TRACE_PART_BYTES];
    uint32_t thread;
    uint8_t kind; /* ga_trace_op */
    uint8_t zeros[3];
    uint32_t id; /* from 1 */
    uint32_t part;
} ga_trace_part;

/* Definitions. Each begins with its size in bytes and the epoch, which counts the unloads: a frame
 * of a stack is in a module that was loaded in the stack's epoch. */
#define GA_TRACE_STACK_DEEPER 1u /* the stack has outer frames that are left out */
#define GA_TRACE_STACK_OWN    2u /* the innermost frames are gpualloc's: it is linked statically */

typedef struct ga_trace_stack {
    uint32_t bytes;
    uint32_t epoch;
    uint32_t frames;
    uint32_t flags;   /* GA_TRACE_STACK_... */
    uint64_t frame[]; /* innermost first; addresses within the calling instructions */
} ga_trace_stack;

typedef struct ga_trace_module {
    uint32_t bytes;
    uint32_t epoch; /* loaded from this epoch on */
    uint64_t bias;  /* address in memory less that in the file's symbol table */
    uint64_t start, end;
    uint32_t id_bytes; /* the build ID: at most GA_TRACE_BUILD_ID_MAX */
    char text[];       /* the build ID, then the path and a NUL */
} ga_trace_module;

typedef struct ga_trace_unload {
    uint32_t bytes;
    uint32_t epoch; /* not loaded from this epoch on */
} ga_trace_unload;

#define GA_TRACE_BUILD_ID_MAX 32u
#define GA_TRACE_DEFINITION_MAX                                                                    \
    (36u + GA_TRACE_BUILD_ID_MAX + 4096u) /* bytes: a module with the longest path */

_Static_assert(sizeof(ga_trace_header) == 40, "the header has no padding");
_Static_assert(sizeof(ga_trace_record) == 56, "the record has no padding");
_Static_assert(sizeof(ga_trace_part) == sizeof(ga_trace_record), "a part is a record");
_Static_assert(offsetof(ga_trace_record, stack) == GA_TRACE_PLAIN_BYTES, "stacks are appended");
_Static_assert(offsetof(ga_trace_part, kind) == offsetof(ga_trace_record, operation),
               "the operation tells a part from a record");

#endif
