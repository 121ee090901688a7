/* SPDX-License-Identifier: MIT
 *
 * The lines of a text file, read in large blocks, and sentences about them.
 */
#ifndef GPUALLOC_SPGEMM_LINES_H
#define GPUALLOC_SPGEMM_LINES_H

#include <gpualloc/gpualloc.h>

enum {
    GA_LINE_MAX = 1024 /* bytes of a line without its end */
};

typedef struct ga_lines {
    const char *path;
    int file;
    uint64_t bytes;  /* of the file when it was opened */
    uint64_t number; /* of the current line, from 1 */
    char *line;      /* the current line, with a NUL in place of its end */
    char *line_end;  /* that NUL; a line may contain others */
    char *block;     /* of a heap: bytes [begin, end) are still to be read */
    size_t room;     /* bytes of the block, at least those of two lines */
    size_t begin, end;
    bool complete; /* the block ends with the file */
} ga_lines;

/* Opens a regular file. `heap` is for the block. GA_ERR_IO, GA_ERR_MEMORY. */
ga_status ga_lines_open(ga_lines *lines, ga_heap *heap, const char *path);

/* Closes it; also after a failed open, and if all is zero. */
void ga_lines_close(ga_lines *lines, ga_heap *heap);

/* Goes to the next line; `*more` is false behind the last one. GA_ERR_IO if the file cannot be read
 * or the line is longer than GA_LINE_MAX. */
ga_status ga_lines_next(ga_lines *lines, bool *more);

/* Sets a sentence that names the file and the current line with its text, and ends with "expected "
 * and the format's text. Returns `status`. */
ga_status ga_lines_fail(const ga_lines *lines, ga_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
