/* SPDX-License-Identifier: MIT
 *
 * Device code in files.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_IMAGE_FILE_H
#define GPUALLOC_INTERPOSE_CUDA_IMAGE_FILE_H

#include <stddef.h>

/* The content of a file of `*size` bytes, with a NUL behind it; give it to ga_libc.free(). NULL: it
 * cannot be read, which the driver will find, or is too large. */
void *ga_image_file_read(const char *path, size_t *size);

#endif
