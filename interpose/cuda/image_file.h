/* SPDX-License-Identifier: MIT
 *
 * Device code in files.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_IMAGE_FILE_H
#define GPUALLOC_INTERPOSE_CUDA_IMAGE_FILE_H

#include <gpualloc/gpualloc.h>

#include <stddef.h>

/* The content of a file of `*size` bytes, with a NUL behind it; give it to ga_libc.free(). The
 * driver may be able to read a file that this function cannot.
 *
 * GA_ERR_IO      it cannot be opened or read, is no regular file, is empty, or has more than 1 GiB
 * GA_ERR_MEMORY  no memory for its content */
ga_status ga_image_file_read(void **out, size_t *size, const char *path);

#endif
