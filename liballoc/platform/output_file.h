/* SPDX-License-Identifier: MIT
 *
 * Files that a user named, to which reports are appended. Thread safe.
 */
#ifndef GPUALLOC_PLATFORM_OUTPUT_FILE_H
#define GPUALLOC_PLATFORM_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The process's own descriptor that `path` names ("/dev/stdout", "/dev/fd/3", ...), or -1. */
int ga_output_descriptor(const char *path);

/* A descriptor that appends to `path`, or -1 with errno. Never blocks, closed on exec, safe inside
 * malloc.
 *
 *   - A new file has mode 0600, because reports hold program names and sizes of memory.
 *   - A symbolic link as the last component is refused (ELOOP), so that another user who may write
 *     to the directory cannot redirect the output.
 *   - Character devices are opened, and FIFOs that have a reader (else ENXIO). Directories give
 *     EISDIR, other kinds EINVAL.
 *   - /dev/stdout, /dev/stderr and /dev/fd/N, which are links, mean the process's own descriptors.
 */
int ga_output_open(const char *path);

/* Write all of `text`, in one write(2) if the kernel accepts it; false with errno. Waits at most 1
 * s for a pipe or a terminal that accepts nothing (EAGAIN). A pipe without a reader and the limit
 * on file sizes are errors (EPIPE, EFBIG) and raise no signal, which would end the program. */
bool ga_output_write(int fd, const char *text, size_t length);

#endif
