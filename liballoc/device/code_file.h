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

/* Map gpualloc-device-code.fatbin, which is beside the library, or for a program in ../lib of its
 * folder. The caller closes it; a file of zeros is ignored. GA_ERR_DEVICE: it cannot be read, or is
 * no whole fat binary; the error names the path. */
ga_status ga_code_file_open(ga_code_file *out);
void ga_code_file_close(ga_code_file *file);

#endif
