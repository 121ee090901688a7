/* SPDX-License-Identifier: MIT
 *
 * A malloc library as a file and as symbols. The file is checked before it is loaded, because the
 * library's constructors could already do harm.
 */
#ifndef GPUALLOC_NATIVE_DL_FILE_H
#define GPUALLOC_NATIVE_DL_FILE_H

/* The reason for which the library at `path` must not be loaded as a malloc library, or NULL.
 * Static. A `path` without a slash is searched for as the dynamic linker does. A file that cannot
 * be read is left to the linker. Thread safe. */
const char *ga_dl_file_refusal(const char *path);

/* The own definition of a symbol in a library that dlopen() returned, or NULL. dlsym() also
 * searches the library's dependencies, and would find the C library's malloc. Thread safe. */
void *ga_dl_own_symbol(void *library, const char *name);

#endif
