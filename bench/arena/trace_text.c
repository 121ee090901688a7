/* SPDX-License-Identifier: MIT
 *
 * Traces as text. The reader checks the range of each number and the end of each line.
 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIELDS_MAX = 3
};

/* Read the numbers of a line, each after white space. False if the line has more, fewer or other
 * fields. */
static bool read_fields(const char *text, unsigned count, uint64_t *fields)
{
    for (unsigned i = 0; i < count; i++) {
        char *end;
        size_t space = strspn(text, " \t");
        if (!space || text[space] < '0' || text[space] > '9') {
            return false;
        }
        fields[i] = strtoull(text + space, &end, 10); /* ULLONG_MAX on overflow, which no bound
                                                       * allows */
        text = end;
    }
    return text[strspn(text, " \t\r\n")] == '\0';
}

static bool put(trace *t, char kind, const uint64_t *f)
{
    bool has_block = kind == 'a' || kind == 'f';
    uint64_t stream = kind == 'a' ? f[2] : kind == 'f' ? f[1] : f[0];
    uint64_t other = kind == 'w' ? f[1] : 0;
    if (stream >= TRACE_STREAMS || other >= TRACE_STREAMS ||
        (has_block && f[0] >= TRACE_BLOCKS_MAX) || (kind == 'a' && (!f[1] || f[1] > PTRDIFF_MAX))) {
        return false;
    }
    uint32_t highest = t->blocks;
    if (kind == 'a') {
        t->blocks = (uint32_t)f[0];
        trace_alloc(t, f[1], (unsigned)stream);
        t->blocks = t->blocks > highest ? t->blocks : highest;
    } else if (kind == 'f') {
        trace_free(t, (uint32_t)f[0], (unsigned)stream);
        return f[0] < highest;
    } else if (kind == 'w') {
        trace_wait(t, (unsigned)stream, (unsigned)other);
    } else {
        trace_sync(t, (unsigned)stream);
    }
    return true;
}

static bool read_line(trace *t, char *line)
{
    static const char kinds[] = "afws";
    static const unsigned counts[] = {3, 2, 2, 1};
    uint64_t fields[FIELDS_MAX] = {0};
    line[strcspn(line, "#")] = '\0';
    const char *text = line + strspn(line, " \t\r\n");
    const char *kind = *text ? strchr(kinds, *text) : NULL;
    return !*text ||
           (kind && read_fields(text + 1, counts[kind - kinds], fields) && put(t, *kind, fields));
}

bool trace_read(trace *t, FILE *file, char why[TRACE_WHY])
{
    char *line = NULL;
    size_t room = 0;
    size_t number = 0;
    bool good = true;
    while (good && getline(&line, &room, file) >= 0) {
        number++;
        good = read_line(t, line);
    }
    if (!good) {
        snprintf(why, TRACE_WHY,
                 "line %zu: expected \"a BLOCK SIZE STREAM\", \"f BLOCK STREAM\", \"w STREAM "
                 "OTHER\" or \"s STREAM\", streams below %d, and blocks got before they are freed",
                 number, TRACE_STREAMS);
    } else if (ferror(file)) {
        snprintf(why, TRACE_WHY, "it cannot be read");
        good = false;
    }
    free(line);
    return good;
}

static int write_op(const trace_op *op, FILE *file)
{
    switch (op->kind) {
    case TRACE_ALLOC:
        return fprintf(file, "a %u %llu %u\n", op->block, (unsigned long long)op->size, op->stream);
    case TRACE_FREE:
        return fprintf(file, "f %u %u\n", op->block, op->stream);
    case TRACE_WAIT:
        return fprintf(file, "w %u %u\n", op->stream, op->other);
    default:
        return fprintf(file, "s %u\n", op->stream);
    }
}

bool trace_write(const trace *t, FILE *file)
{
    for (size_t i = 0; i < t->count; i++) {
        if (write_op(&t->ops[i], file) < 0) {
            return false;
        }
    }
    return fflush(file) == 0;
}
