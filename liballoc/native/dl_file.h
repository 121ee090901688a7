/* SPDX-License-Identifier: MIT
 *
 * A look at a library's file before it is loaded: once its constructors run it is too late.
 */
#ifndef GPUALLOC_NATIVE_DL_FILE_H
#define GPUALLOC_NATIVE_DL_FILE_H

/* Why the library at `path` must not be loaded as a malloc library, or NULL. A `path` without a slash
 * is searched for as the dynamic linker would. A file that cannot be read is left to the linker. */
const char *ga_dl_file_refusal(const char *path);

#endif
