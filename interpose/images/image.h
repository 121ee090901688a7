/* SPDX-License-Identifier: MIT
 *
 * Device code as programs hand it to the driver: by its address alone, in one of the forms below.
 * No function here trusts the content: it reads within the bounds that ga_image has, and refuses
 * the rest with GA_ERR_UNSUPPORTED and a sentence in ga_error_text().
 */
#ifndef GPUALLOC_INTERPOSE_IMAGES_IMAGE_H
#define GPUALLOC_INTERPOSE_IMAGES_IMAGE_H

#include <gpualloc/gpualloc.h>

#include <stddef.h>
#include <stdint.h>

typedef struct ga_image {
    const uint8_t *bytes;
    size_t size;
} ga_image;

typedef enum ga_image_kind {
    GA_IMAGE_UNKNOWN = 0,
    GA_IMAGE_PTX,    /* text */
    GA_IMAGE_CUBIN,  /* ELF with machine code of one architecture */
    GA_IMAGE_FATBIN, /* a container of both, for several architectures */
    GA_IMAGE_WRAPPER /* __fatBinC_Wrapper_t: the address of a fat binary */
} ga_image_kind;

/* The functions of CUDA that kernels allocate with: bits of a set. */
enum {
    GA_CALLS_MALLOC = 1,
    GA_CALLS_FREE = 2,
    GA_CALLS_ALIGNED = 4, /* __cuda_syscall_aligned_malloc: new of over-aligned types */
    GA_CALLS_COUNT = 3
};

/* The bit of the function called `name`, which need not be terminated; 0: none of them. */
unsigned ga_image_call_of(const char *name, size_t length);

/* The kind, by its first bytes. */
ga_image_kind ga_image_kind_of(ga_image image);

/* Find the image behind an address that a program passes to cuModuleLoadData() and the like, and
 * read `limit` bytes at most; SIZE_MAX: the size is not known. A wrapper is followed to its fat
 * binary. PTX is measured with its terminating NUL.
 *
 * GA_ERR_UNSUPPORTED  the content is of no known kind, or claims bytes that cannot be read
 */
ga_status ga_image_measure(ga_image *out, const void *address, size_t limit);

#endif
