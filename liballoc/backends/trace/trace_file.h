/* SPDX-License-Identifier: MIT
 *
 * The file of a trace (format.h): created under a name of its own, extended by chunks, and opened
 * again for each write. The recorder's lock guards a ga_trace_file.
 */
#ifndef GPUALLOC_TRACE_TRACE_FILE_H
#define GPUALLOC_TRACE_TRACE_FILE_H

#include "format.h"

#include <gpualloc/gpualloc.h>

#include <limits.h>
#include <sys/types.h>
#include <time.h>

typedef struct ga_trace_file {
    char name[PATH_MAX];      /* as the user wrote it */
    char path[PATH_MAX + 32]; /* absolute path of the file */
    bool begun;               /* the file exists; false in a forked child until its first record */
    pid_t pid;                /* the process that the file is of */
    unsigned depth;           /* frames of a call stack at most; 0: no stacks */
    dev_t device;
    ino_t inode;
    off_t end;  /* offset of the next chunk */
    off_t size; /* bytes of the file, as this process has extended it */
    /* Start of the trace on two clocks; times in the file of a forked child count from it, too. */
    uint64_t start_ns, mono_ns;
} ga_trace_file;

/* Bytes of a record and of a chunk. */
static inline size_t ga_trace_file_record(const ga_trace_file *file)
{
    return file->depth ? sizeof(ga_trace_record) : GA_TRACE_PLAIN_BYTES;
}

static inline size_t ga_trace_file_chunk(const ga_trace_file *file)
{
    return file->depth ? GA_TRACE_STACKS_CHUNK_BYTES : GA_TRACE_CHUNK_BYTES;
}

uint64_t ga_trace_clock_ns(clockid_t clock);

/* Create the file for process `pid` and write its header. GA_ERR_IO: cannot be written, or its name
 * is not that of a regular file. */
ga_status ga_trace_file_start(ga_trace_file *file, pid_t pid);

/* True if the file can be opened and is the one that ga_trace_file_start() created. */
bool ga_trace_file_is_there(const ga_trace_file *file);

/* Open the file, which must still have `size` bytes, and call `write`. Returns the reason of a
 * failure, or NULL. */
const char *ga_trace_file_use(const ga_trace_file *file, off_t size,
                              bool write(int fd, void *context), void *context);

/* False, with errno, if a write up to `end` would raise SIGXFSZ, which ends a process. */
bool ga_trace_file_allows(off_t end);

/* Write all bytes at offset `at`; false with errno. */
bool ga_trace_file_write(int fd, const void *bytes, size_t size, off_t at);

#endif
