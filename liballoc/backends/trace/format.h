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
 */
#ifndef GPUALLOC_TRACE_FORMAT_H
#define GPUALLOC_TRACE_FORMAT_H

#include <stdint.h>

#define GA_TRACE_MAGIC "GATRACE" /* 8 bytes with its NUL */
#define GA_TRACE_ABI   1u
#define GA_TRACE_CHUNK_BYTES                                                                       \
    (48u * 4096u) /* a multiple of the record size and of pages of 4, 16
                                            * and 64 KiB */

typedef struct ga_trace_header {
    char magic[8];
    uint32_t abi;
    uint32_t record_size;
    uint32_t data_offset;
    uint32_t chunk_bytes;
    uint32_t pid;
    uint32_t reserved;
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
    GA_TRACE_OP_COUNT
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
} ga_trace_record;

_Static_assert(sizeof(ga_trace_header) == 40, "the header has no padding");
_Static_assert(sizeof(ga_trace_record) == 48, "the record has no padding");

#endif
