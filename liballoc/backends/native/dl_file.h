/* SPDX-License-Identifier: MIT
 *
 * Checks a library's file before it is loaded, because its constructors could already do harm.
 */
#ifndef GPUALLOC_NATIVE_DL_FILE_H
#define GPUALLOC_NATIVE_DL_FILE_H

/* The reason for which the library at `path` must not be loaded as a malloc library, or NULL.
 * Static. A `path` without a slash is searched for as the dynamic linker does. A file that cannot
 * be read is left to the linker. Thread safe. */
const char *ga_dl_file_refusal(const char *path);

#endif
