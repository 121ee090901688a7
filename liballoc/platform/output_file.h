/* SPDX-License-Identifier: MIT
 *
 * Files that gpualloc writes because a user named them: statistics, traces, saved tables, results.
 *
 * All of them are opened here, by the same rules (docs/security.md):
 *   - a new file has mode 0600, because traces and statistics hold addresses and program names;
 *   - a symbolic link as the last component of the path is refused, so that another user who may
 *     write to the directory cannot redirect the output;
 *   - the open never blocks, and descriptors are closed on exec;
 *   - directories, block devices and sockets are refused. A character device, a FIFO that has a
 *     reader, and the process's own descriptors (/dev/stdout, /dev/stderr, /dev/fd/N) are accepted
 *     where the caller allows devices, because the user named them.
 */
#ifndef GPUALLOC_PLATFORM_OUTPUT_FILE_H
#define GPUALLOC_PLATFORM_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

typedef enum ga_output_mode {
    GA_OUTPUT_NEW = 0, /* a regular file that does not exist yet; EEXIST otherwise */
    GA_OUTPUT_APPEND,  /* a regular file, existing or new, or a device */
    GA_OUTPUT_REPLACE  /* as GA_OUTPUT_APPEND, but a regular file becomes empty */
} ga_output_mode;

/* The descriptor that a path names in this process ("/dev/stdout", "/dev/fd/3", ...), or -1. */
int ga_output_descriptor(const char *path);

/* A new descriptor for writing, or -1 with errno: ELOOP for a symbolic link, ENXIO for a FIFO that
 * nobody reads, EISDIR, EINVAL for other kinds that are refused. A FIFO and a terminal stay in
 * non-blocking mode. Safe inside malloc. */
int ga_output_open(const char *path, ga_output_mode mode);

/* A stream of GA_OUTPUT_REPLACE whose writes may block; NULL with errno. */
FILE *ga_output_stream(const char *path);

/* Whether `path` could be opened for GA_OUTPUT_APPEND; errno says why not. Opens nothing that
 * exists and is no regular file. */
bool ga_output_possible(const char *path);

/* Write all of it; false with errno. */
bool ga_output_write(int fd, const char *text, size_t length);

#endif
