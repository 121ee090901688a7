/* SPDX-License-Identifier: MIT
 *
 * A folder of files that processes of one user share: each file is written once, whole, and may go
 * at any time. No function here fails a caller: a line of the log (INFO) has the reason. Thread
 * safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_CACHE_FOLDER_H
#define GPUALLOC_INTERPOSE_CUDA_CACHE_FOLDER_H

#include "../images/image.h"

#include <stdbool.h>

enum {
    GA_CACHE_SIZE_MOST = 256 << 20,     /* bytes of all files */
    GA_CACHE_FILE_SIZE_MOST = 64 << 20, /* bytes of one */
    GA_CACHE_FILES_MOST = 1 << 14,
    GA_CACHE_UNIT = 64 << 10,            /* bytes; a file counts as one unit more than it fills */
    GA_CACHE_UNITS_UNSEEN = 256,         /* between two scans of the folder */
    GA_CACHE_TEMPORARY_SECONDS = 60 * 60 /* a temporary file of this age has no writer */
};

/* The content of file `name`, to be given to ga_libc.free(). False: there is none, or the folder or
 * the file cannot be trusted: others may write to it. */
bool ga_cache_folder_read(ga_image *out, uint64_t name);

/* Write file `name`, or replace it. After GA_CACHE_UNITS_UNSEEN units of files were written, the
 * folder is scanned, and the oldest files go if it has too many: so the bounds may be exceeded by
 * 16 MiB and 256 files, and by those that other processes write at that moment. */
void ga_cache_folder_write(uint64_t name, ga_image content);

#endif
