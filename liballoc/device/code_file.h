/* SPDX-License-Identifier: MIT
 *
 * Device code in a file that several libraries share, in a build with -Ddevice_code=file.
 */
#ifndef GPUALLOC_DEVICE_CODE_FILE_H
#define GPUALLOC_DEVICE_CODE_FILE_H

#include <gpualloc/gpualloc.h>

typedef struct ga_code_file {
    void *code;
    size_t size;
} ga_code_file;

/* Of the build's file: its size, and its checksum as of POSIX cksum. */
typedef struct ga_code_sum {
    uint64_t size; /* 0: the build has no file */
    uint64_t crc;
} ga_code_sum;

/* Map gpualloc-device-code.fatbin, which is beside the library, or for a program in ../lib of its
 * folder. The caller closes it; a file of zeros is ignored. GA_ERR_DEVICE: it cannot be read, or is
 * not the `expected` one; the error names the path. */
ga_status ga_code_file_open(ga_code_file *out, const ga_code_sum *expected);
void ga_code_file_close(ga_code_file *file);

#endif
