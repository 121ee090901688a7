/* SPDX-License-Identifier: MIT
 *
 * Matrix Market files into memory.
 *
 *     ga_matrix_read    read_banner -> read_sizes -> read_entries -> ga_matrix_build
 *
 * The sizes in a file are not trusted: entries are allocated for as many lines as the file has
 * bytes for, and rows up to a limit that depends on these bytes, too.
 */
#include "lines.h"
#include "matrix.h"
#include "numbers.h"

#include <locale.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum {
    ROWS_MAX_LEAST = 1 << 24, /* rows_max by default, or ROWS_MAX_EACH_BYTE */
    ROWS_MAX_EACH_BYTE = 16,
    WORDS = 5 /* of the banner */
};

typedef enum field {
    REAL,
    INTEGER,
    PATTERN
} field;

typedef struct reader {
    ga_lines lines;
    locale_t c_locale;
    ga_matrix *matrix;
    ga_matrix_options options;
    bool is_array;
    field field;
    ga_entries entries; /* `count` entries once all are read */
    uint64_t expected;  /* entries that the file must have */
} reader;

/* ---- banner --------------------------------------------------------------------------------- */

/* The number of the word in `words`, or -1. */
static int find_word(const reader *r, const char *word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcasecmp_l(word, words[i], r->c_locale) == 0) {
            return i;
        }
    }
    return -1;
}

/* Copies the words of the line into `room` and returns their number, WORDS + 1 if there are more.
 * The line stays as it is, for sentences. */
static int split_line(const reader *r, char room[GA_LINE_MAX + 1], char *words[WORDS])
{
    int count = 0;
    char *rest = NULL;
    memcpy(room, r->lines.line, (size_t)(r->lines.line_end - r->lines.line) + 1);
    for (char *word = strtok_r(room, " \t\r", &rest); word && count <= WORDS;
         word = strtok_r(NULL, " \t\r", &rest)) {
        if (count < WORDS) {
            words[count] = word;
        }
        count++;
    }
    return count;
}

static ga_status read_kind(reader *r, char *const words[WORDS])
{
    static const char *const formats[] = {"coordinate", "array"};
    static const char *const fields[] = {"real", "integer", "pattern"};
    static const char *const symmetries[] = {"general", "symmetric", "skew-symmetric"};
    int format = find_word(r, words[2], formats, 2);
    int field_number = find_word(r, words[3], fields, 3);
    int symmetry = find_word(r, words[4], symmetries, 3);
    const char *expected = strcasecmp_l(words[1], "matrix", r->c_locale) ? "the object \"matrix\""
                           : format < 0       ? "the format \"coordinate\" or \"array\""
                           : field_number < 0 ? "the field \"real\", \"integer\" or \"pattern\""
                           : symmetry < 0     ? "the symmetry \"general\", \"symmetric\" or "
                                                "\"skew-symmetric\""
                           : field_number == PATTERN && (format || symmetry == GA_SKEW_SYMMETRIC)
                               ? "a pattern as \"coordinate\", \"general\" or \"symmetric\""
                               : NULL;
    if (expected) {
        return ga_lines_fail(&r->lines, GA_ERR_IO, "%s", expected);
    }
    r->is_array = format == 1;
    r->field = (field)field_number;
    r->entries.symmetry = (ga_symmetry)symmetry;
    return GA_OK;
}

static ga_status read_banner(reader *r)
{
    char room[GA_LINE_MAX + 1];
    char *words[WORDS];
    bool more;
    ga_status status = ga_lines_next(&r->lines, &more);
    if (status != GA_OK) {
        return status;
    }
    int count = split_line(r, room, words);
    if (count != WORDS || strcmp(words[0], "%%MatrixMarket") != 0) {
        return ga_lines_fail(&r->lines, GA_ERR_IO,
                             "\"%%%%MatrixMarket matrix FORMAT FIELD SYMMETRY\"");
    }
    static const char *const complex_words[] = {"complex", "hermitian"};
    if (find_word(r, words[3], complex_words, 1) == 0 ||
        find_word(r, words[4], complex_words, 2) == 1) {
        return ga_lines_fail(&r->lines, GA_ERR_UNSUPPORTED,
                             "real values: complex and hermitian matrices are not supported");
    }
    return read_kind(r, words);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* Goes to the next line that is neither blank nor, if `comments` is set, a comment. */
static ga_status next_line(reader *r, bool comments, bool *more)
{
    ga_status status;
    const char *at;
    do {
        status = ga_lines_next(&r->lines, more);
        if (status != GA_OK || !*more) {
            return status;
        }
        at = r->lines.line;
        ga_skip_blanks(&at);
    } while (at == r->lines.line_end || (comments && *at == '%'));
    return GA_OK;
}

static bool is_line_end(const reader *r, const char *at)
{
    ga_skip_blanks(&at);
    return at == r->lines.line_end;
}

static uint64_t rows_max(const reader *r)
{
    uint64_t by_size;
    if (__builtin_mul_overflow(r->lines.bytes, ROWS_MAX_EACH_BYTE, &by_size)) {
        by_size = UINT64_MAX;
    }
    uint64_t usual = by_size > ROWS_MAX_LEAST ? by_size : ROWS_MAX_LEAST;
    uint64_t max = r->options.rows_max ? r->options.rows_max : usual;
    return max < UINT32_MAX ? max : UINT32_MAX;
}

/* The values that an array of these sizes and symmetry has. Sizes are below 2^32, so that no
 * product overflows. */
static uint64_t array_count(const reader *r)
{
    uint64_t rows = r->matrix->rows;
    if (r->entries.symmetry == GA_GENERAL) {
        return rows * r->matrix->columns;
    }
    uint64_t below = rows ? rows * (rows - 1) / 2 : 0;
    return r->entries.symmetry == GA_SYMMETRIC ? below + rows : below;
}

/* The most entries that the file has bytes for: "1", "1 1" or "1 1 1" and an end of the line, which
 * the last line may lack. */
static uint64_t count_max(const reader *r)
{
    uint64_t line = r->is_array ? 2 : r->field == PATTERN ? 4 : 6;
    return (r->lines.bytes + 1) / line;
}

static ga_status check_sizes(const reader *r)
{
    const ga_matrix *m = r->matrix;
    if (m->rows > rows_max(r)) {
        return ga_lines_fail(&r->lines, GA_ERR_IO, "at most %llu rows (the option rows_max)",
                             (unsigned long long)rows_max(r));
    }
    if (m->columns > UINT32_MAX) {
        return ga_lines_fail(&r->lines, GA_ERR_IO, "at most %u columns", UINT32_MAX);
    }
    if (r->entries.symmetry != GA_GENERAL && m->rows != m->columns) {
        return ga_lines_fail(&r->lines, GA_ERR_IO, "as many rows as columns");
    }
    return GA_OK;
}

static ga_status check_count(const reader *r)
{
    if (r->expected > count_max(r)) {
        return ga_lines_fail(&r->lines, GA_ERR_IO,
                             "at most %llu entries in a file of %llu bytes, got %llu",
                             (unsigned long long)count_max(r), (unsigned long long)r->lines.bytes,
                             (unsigned long long)r->expected);
    }
    return GA_OK;
}

static ga_status read_sizes(reader *r)
{
    bool more;
    ga_status status = next_line(r, true, &more);
    if (status != GA_OK) {
        return status;
    }
    const char *at = r->lines.line;
    if (!more || !ga_parse_count(&at, &r->matrix->rows) ||
        !ga_parse_count(&at, &r->matrix->columns) ||
        (!r->is_array && !ga_parse_count(&at, &r->expected)) || !is_line_end(r, at)) {
        return ga_lines_fail(&r->lines, GA_ERR_IO, "%s",
                             r->is_array ? "the numbers of rows and columns"
                                         : "the numbers of rows, columns and entries");
    }
    status = check_sizes(r);
    if (status == GA_OK) {
        r->expected = r->is_array ? array_count(r) : r->expected;
        status = check_count(r);
    }
    return status;
}

/* ---- entries -------------------------------------------------------------------------------- */

static ga_status read_value(const reader *r, const char **at, double *out)
{
    *out = 1;
    bool good = r->field == PATTERN   ? true
                : r->field == INTEGER ? ga_parse_integer(at, r->c_locale, out)
                                      : ga_parse_real(at, r->c_locale, out);
    if (good && r->options.type == GA_FLOAT32 && !isinf(*out)) {
        good = !isinf((float)*out);
    }
    if (!good) {
        return ga_lines_fail(&r->lines, GA_ERR_IO, "%s that %s can hold",
                             r->field == INTEGER ? "an integer" : "a real number",
                             ga_value_type_text(r->options.type));
    }
    return is_line_end(r, *at) ? GA_OK : ga_lines_fail(&r->lines, GA_ERR_IO, "the end of the line");
}

static ga_status read_index(const reader *r, const char **at, const char *name, uint64_t max,
                            uint32_t *out)
{
    uint64_t number;
    if (!ga_parse_count(at, &number) || number < 1 || number > max) {
        return ga_lines_fail(&r->lines, GA_ERR_IO, "a %s from 1 to %llu", name,
                             (unsigned long long)max);
    }
    *out = (uint32_t)(number - 1);
    return GA_OK;
}

static ga_status check_triangle(const reader *r, const ga_entry *e)
{
    if (r->entries.symmetry != GA_GENERAL && e->row < e->column) {
        return ga_lines_fail(&r->lines, GA_ERR_IO,
                             "an entry of the lower triangle, because the matrix is symmetric");
    }
    if (r->entries.symmetry == GA_SKEW_SYMMETRIC && e->row == e->column) {
        return ga_lines_fail(&r->lines, GA_ERR_IO,
                             "an entry below the diagonal, because the matrix is skew-symmetric");
    }
    return GA_OK;
}

static ga_status read_coordinates(reader *r, ga_entry *e)
{
    const char *at = r->lines.line;
    ga_status status = read_index(r, &at, "row", r->matrix->rows, &e->row);
    status = status ? status : read_index(r, &at, "column", r->matrix->columns, &e->column);
    status = status ? status : read_value(r, &at, &e->value);
    return status ? status : check_triangle(r, e);
}

/* Arrays list their values column by column. `position` has the position of the next one. */
static ga_status read_array_value(reader *r, ga_entry *position, ga_entry *e)
{
    const char *at = r->lines.line;
    *e = *position;
    ga_status status = read_value(r, &at, &e->value);
    if (++position->row == r->matrix->rows) {
        uint32_t next = ++position->column;
        position->row = r->entries.symmetry == GA_GENERAL     ? 0
                        : r->entries.symmetry == GA_SYMMETRIC ? next
                                                              : next + 1;
    }
    return status;
}

static ga_status fail_count(const reader *r)
{
    return ga_lines_fail(&r->lines, GA_ERR_IO, "%llu entries, found %llu",
                         (unsigned long long)r->expected, (unsigned long long)r->entries.count);
}

static ga_status check_end(reader *r)
{
    bool more;
    ga_status status = next_line(r, false, &more);
    return status == GA_OK && more
               ? ga_lines_fail(&r->lines, GA_ERR_IO, "the end of the file after %llu entries",
                               (unsigned long long)r->expected)
               : status;
}

static ga_status read_entries(reader *r)
{
    ga_entry position = {.row = r->entries.symmetry == GA_SKEW_SYMMETRIC ? 1 : 0};
    bool more = true;
    ga_status status =
        ga_matrix_alloc(r->matrix->heap, r->expected, sizeof *r->entries.at, &r->entries.at);
    while (status == GA_OK && r->entries.count < r->expected) {
        ga_entry *e = &r->entries.at[r->entries.count];
        status = next_line(r, false, &more);
        if (status == GA_OK && !more) {
            return fail_count(r);
        }
        status = status        ? status
                 : r->is_array ? read_array_value(r, &position, e)
                               : read_coordinates(r, e);
        r->entries.count += status == GA_OK ? 1 : 0;
    }
    return status ? status : check_end(r);
}

/* ---- the call ------------------------------------------------------------------------------- */

static ga_status check_options(const ga_matrix_options *o)
{
    if (o->options_size != sizeof *o) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: options_size=%u: expected %zu", o->options_size,
                       sizeof *o);
    }
    if (o->flags & ~(uint32_t)GA_MATRIX_DROP_ZEROS) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "matrix: flags=0x%x: expected GA_MATRIX_DROP_ZEROS, or none", o->flags);
    }
    if (!ga_value_size(o->type)) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: type=%u: expected GA_FLOAT64 or GA_FLOAT32",
                       (unsigned)o->type);
    }
    if (o->reserved) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: reserved=%u: expected 0", o->reserved);
    }
    return !o->heap || ga_heap_place(o->heap) == GA_PLACE_HOST
               ? GA_OK
               : ga_fail(GA_ERR_PLACE, "matrix: a heap for the %s: expected one for the host",
                         ga_place_text(ga_heap_place(o->heap)));
}

static ga_status open_reader(reader *r, const char *path)
{
    ga_status status = ga_matrix_new(&r->matrix, r->options.heap);
    if (status != GA_OK) {
        return status;
    }
    r->matrix->type = r->options.type;
    r->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return r->c_locale ? ga_lines_open(&r->lines, r->matrix->heap, path)
                       : ga_fail(GA_ERR_MEMORY, "matrix: %s: no memory for a locale", path);
}

static ga_status read_all(reader *r)
{
    ga_status status = read_banner(r);
    status = status ? status : read_sizes(r);
    status = status ? status : read_entries(r);
    return status ? status : ga_matrix_build(r->matrix, &r->entries, r->options.flags);
}

/* Frees all but the matrix, and the matrix after a failure. */
static void close_reader(reader *r, bool failed)
{
    if (!r->matrix) {
        return;
    }
    ga_free(r->matrix->heap, r->entries.at);
    ga_lines_close(&r->lines, r->matrix->heap);
    if (r->c_locale) {
        freelocale(r->c_locale);
    }
    if (failed) {
        ga_matrix_free(r->matrix);
    }
}

ga_status ga_matrix_read(ga_matrix **out, const char *path, const ga_matrix_options *options)
{
    static const ga_matrix_options defaults = {.options_size = sizeof defaults};
    if (!out || !path) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: no %s: expected a pointer",
                       out ? "path of a file" : "place for the matrix");
    }
    *out = NULL;
    reader r = {.options = options ? *options : defaults};
    ga_status status = check_options(&r.options);
    status = status ? status : open_reader(&r, path);
    status = status ? status : read_all(&r);
    close_reader(&r, status != GA_OK);
    *out = status ? NULL : r.matrix;
    return status;
}
