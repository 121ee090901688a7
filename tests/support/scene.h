/* SPDX-License-Identifier: MIT
 *
 * The surroundings of a test: a folder of its own, its standard error, a child process. Without
 * Criterion, because the stress programs use it, too. A failed setup ends the process.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_SCENE_H

#include <stddef.h>
#include <stdint.h>

/* A new empty folder, removed with its files by scene_leave_folder(). */
const char *scene_enter_folder(void);
void scene_leave_folder(void);

/* "FOLDER/name"; the text stays valid for the life of the process. */
const char *scene_path(const char *name);

/* Write a whole file, or read one (cut to size - 1 bytes, with a NUL); a file that cannot be read
 * is "". */
void scene_write_file(const char *path, const void *bytes, size_t size);
size_t scene_read_file(const char *path, char *room, size_t size);

/* Capture standard error from now on; the second call returns the text, with a NUL. */
void scene_capture_begin(void);
const char *scene_capture_end(void);

/* Run `body` in a forked child: its result is the child's exit status, and is returned here. A
 * child that a signal ended gives 128 + the signal. */
int scene_in_child(int (*body)(void *context), void *context);

#endif
