/* SPDX-License-Identifier: MIT
 *
 * The lines of a text file. The part of a line at the end of a block moves to the block's front,
 * and the file continues behind it.
 */
#include "lines.h"

#include "matrix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCK_MAX = 1 << 20,
    BLOCK_MIN = 2 * GA_LINE_MAX,
    QUOTED_BYTES = 60, /* of a line in a sentence */
    SENTENCE_BYTES = 200
};

static ga_status system_error(const ga_lines *l, const char *verb, int error)
{
    return ga_fail(GA_ERR_IO, "matrix: %s: cannot %s it: %s", l->path, verb, strerror(error));
}

ga_status ga_lines_fail(const ga_lines *lines, ga_status status, const char *format, ...)
{
    char expected[SENTENCE_BYTES];
    const char *line = lines->line ? lines->line : "";
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    return ga_fail(status, "matrix: %s:%llu: \"%.*s%s\": expected %s", lines->path,
                   (unsigned long long)lines->number, QUOTED_BYTES, line,
                   strnlen(line, QUOTED_BYTES + 1) > QUOTED_BYTES ? "..." : "", expected);
}

/* ---- open and close ------------------------------------------------------------------------- */

/* Without O_NONBLOCK, opening a FIFO would wait for a writer. */
static ga_status open_regular(ga_lines *l)
{
    struct stat info;
    l->file = open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (l->file < 0 || fstat(l->file, &info)) {
        return system_error(l, "open", errno);
    }
    if (!S_ISREG(info.st_mode)) {
        return ga_fail(GA_ERR_IO, "matrix: %s: no regular file: expected a Matrix Market file",
                       l->path);
    }
    l->bytes = (uint64_t)info.st_size;
    return GA_OK;
}

ga_status ga_lines_open(ga_lines *lines, ga_heap *heap, const char *path)
{
    *lines = (ga_lines){.path = path};
    ga_status status = open_regular(lines);
    lines->room = lines->bytes < BLOCK_MIN   ? BLOCK_MIN
                  : lines->bytes > BLOCK_MAX ? BLOCK_MAX
                                             : (size_t)lines->bytes;
    /* One byte more, for the NUL behind a last line without an end. */
    return status ? status : ga_matrix_alloc(heap, lines->room + 1, 1, &lines->block);
}

void ga_lines_close(ga_lines *lines, ga_heap *heap)
{
    if (lines->path && lines->file >= 0) {
        close(lines->file);
    }
    ga_free(heap, lines->block);
    *lines = (ga_lines){0};
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Fills the block behind the bytes that are left. */
static ga_status fill_block(ga_lines *l)
{
    memmove(l->block, l->block + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
    while (l->end < l->room && !l->complete) {
        ssize_t got = read(l->file, l->block + l->end, l->room - l->end);
        if (got < 0 && errno != EINTR) {
            return system_error(l, "read", errno);
        }
        l->complete = got == 0;
        l->end += got > 0 ? (size_t)got : 0;
    }
    return GA_OK;
}

/* The end of the line that begins at `begin`; NULL if the block has no end of it. */
static char *find_end(const ga_lines *l)
{
    char *begin = l->block + l->begin;
    char *found = memchr(begin, '\n', l->end - l->begin);
    bool last = !found && l->complete && l->begin < l->end;
    return last ? l->block + l->end : found;
}

ga_status ga_lines_next(ga_lines *lines, bool *more)
{
    char *end = find_end(lines);
    if (!end && !lines->complete) {
        ga_status status = fill_block(lines);
        if (status != GA_OK) {
            return status;
        }
        end = find_end(lines);
    }
    lines->number++;
    *more = lines->begin < lines->end;
    lines->line = lines->block + lines->begin;
    lines->line_end = end ? end : lines->block + lines->end;
    size_t length = (size_t)(lines->line_end - lines->line);
    *lines->line_end = 0;
    lines->begin += length + 1;
    lines->begin = lines->begin < lines->end ? lines->begin : lines->end;
    return length > GA_LINE_MAX
               ? ga_lines_fail(lines, GA_ERR_IO, "lines of at most %d bytes", GA_LINE_MAX)
               : GA_OK;
}
