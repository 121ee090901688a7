/* SPDX-License-Identifier: MIT
 *
 * Matrix Market files: each format, and beside a plain dense matrix; numbers to the last bit; each
 * refusal; files that cannot be written; memory that ends at each request; the check of a matrix.
 */
#include "support/matrix_scene.h"
#include "support/random.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BANNER "%%MatrixMarket matrix "

TestSuite(matrix, .init = (void (*)(void))scene_enter_folder, .fini = scene_leave_folder);

static ga_matrix *read_with(const char *text, ga_matrix_options options)
{
    ga_matrix *matrix;
    options.options_size = sizeof options;
    assert_ok(ga_matrix_read(&matrix, matrix_file(text), &options));
    ga_csr view = ga_matrix_view(matrix);
    assert_ok(ga_csr_check(&view));
    return matrix;
}

static void expect_with(const char *text, ga_matrix_options options, const char *wanted)
{
    ga_matrix *matrix = read_with(text, options);
    ga_csr view = ga_matrix_view(matrix);
    cr_assert_str_eq(matrix_text(&view), wanted, "%s\ngives %s\ninstead of %s", text,
                     matrix_text(&view), wanted);
    ga_matrix_free(matrix);
}

static void expect(const char *text, const char *wanted)
{
    expect_with(text, (ga_matrix_options){0}, wanted);
    expect_with(text, (ga_matrix_options){.type = GA_FLOAT32}, wanted);
}

/* ---- formats -------------------------------------------------------------------------------- */

Test(matrix, coordinate_files)
{
    expect(BANNER "coordinate real general\n% a comment\n\n%\n2 3 3\n2 3 -1\n1 2 5\n\n2 1 2.5\n",
           "2x3: 0,1=5 1,0=2.5 1,2=-1");
    expect(BANNER "coordinate integer general\n2 2 2\n1 1 -7\n2 2 +8", "2x2: 0,0=-7 1,1=8");
    expect(BANNER "coordinate pattern general\n3 2 2\n3 1\n1 2\n", "3x2: 0,1=1 2,0=1");
    expect(BANNER "coordinate real symmetric\n3 3 3\n1 1 4\n3 1 5\n3 2 6\n",
           "3x3: 0,0=4 0,2=5 1,2=6 2,0=5 2,1=6");
    expect(BANNER "coordinate integer skew-symmetric\n3 3 2\n2 1 4\n3 1 -5\n",
           "3x3: 0,1=-4 0,2=5 1,0=4 2,0=-5");
    expect(BANNER "coordinate pattern symmetric\n2 2 1\n2 1\n", "2x2: 0,1=1 1,0=1");
}

Test(matrix, array_files)
{
    expect(BANNER "array real general\n2 3\n1\n2\n3\n4\n5\n6\n",
           "2x3: 0,0=1 0,1=3 0,2=5 1,0=2 1,1=4 1,2=6");
    expect(BANNER "array integer symmetric\n2 2\n1\n2\n3\n", "2x2: 0,0=1 0,1=2 1,0=2 1,1=3");
    expect(BANNER "array real skew-symmetric\n3 3\n1\n2\n3\n",
           "3x3: 0,1=-1 0,2=-2 1,0=1 1,2=-3 2,0=2 2,1=3");
    expect(BANNER "array real skew-symmetric\n1 1\n", "1x1:");
    expect(BANNER "array real general\n0 7\n", "0x7:");
}

Test(matrix, the_form_of_lines_is_free)
{
    expect(
        "%%MatrixMarket  MATRIX\tCoordinate Real GENERAL \r\n%c\r\n 2 2\t1 \r\n\t2  1 3 \r\n\r\n",
        "2x2: 1,0=3");
    expect(BANNER "coordinate real general\n0 0 0", "0x0:");
    expect(BANNER "coordinate real general\n2 4294967295 1\n2 4294967295 1\n",
           "2x4294967295: 1,4294967294=1");
}

Test(matrix, duplicates_are_added_and_zeros_kept)
{
    const char *text = BANNER "coordinate real general\n2 2 6\n1 2 1\n2 1 0\n1 2 2\n1 1 -4\n1 1 4\n"
                              "2 2 9\n";
    expect(text, "2x2: 0,0=0 0,1=3 1,0=0 1,1=9");
    expect_with(text, (ga_matrix_options){.flags = GA_MATRIX_DROP_ZEROS}, "2x2: 0,1=3 1,1=9");
    expect_with(BANNER "array real general\n2 2\n0\n0\n5\n0\n",
                (ga_matrix_options){.flags = GA_MATRIX_DROP_ZEROS, .type = GA_FLOAT32},
                "2x2: 0,1=5");
}

/* The order in which duplicates are added: exact in float64, whatever the type. */
Test(matrix, duplicates_are_added_in_order)
{
    expect(BANNER "coordinate real general\n1 2 5\n1 1 1e20\n1 2 4\n1 1 1\n1 1 -1e20\n1 1 3\n",
           "1x2: 0,0=3 0,1=4");
    expect(BANNER "coordinate real general\n1 1 3\n1 1 16777216\n1 1 1\n1 1 -16777216\n",
           "1x1: 0,0=1");
}

/* ---- beside a dense matrix ------------------------------------------------------------------ */

enum {
    SIDE = 37,
    ENTRIES_MAX = 900
};

static void add_dense(double dense[SIDE][SIDE], bool there[SIDE][SIDE], size_t row, size_t column,
                      double value)
{
    dense[row][column] += value;
    there[row][column] = true;
}

static void expect_dense(const ga_csr *m, double dense[SIDE][SIDE], bool there[SIDE][SIDE])
{
    for (uint64_t row = 0; row < SIDE; row++) {
        uint64_t at = m->offsets[row];
        for (uint32_t column = 0; column < SIDE; column++) {
            if (there[row][column]) {
                cr_assert_lt(at, m->offsets[row + 1]);
                cr_assert_eq(m->indices[at], column);
                cr_assert_eq(matrix_value(m, at++), dense[row][column]);
            }
        }
        cr_assert_eq(at, m->offsets[row + 1]);
    }
}

/* Small integers, so that sums are exact in any order. */
static void random_file(uint64_t *random, int kind, size_t count)
{
    static const char *const symmetries[] = {"general", "symmetric", "skew-symmetric"};
    static char text[32 * ENTRIES_MAX];
    double dense[SIDE][SIDE] = {{0}};
    bool there[SIDE][SIDE] = {{0}};
    int length = sprintf(text, "%scoordinate real %s\n%d %d %zu\n", BANNER, symmetries[kind], SIDE,
                         SIDE, count);
    for (size_t i = 0; i < count; i++) {
        size_t row = 1 + random_below(random, SIDE - 1);
        size_t column = random_below(random, kind ? row : SIDE);
        double value = (double)random_below(random, 9) - 4;
        length += sprintf(text + length, "%zu %zu %g\n", row + 1, column + 1, value);
        add_dense(dense, there, row, column, value);
        if (kind) {
            add_dense(dense, there, column, row, kind == 1 ? value : -value);
        }
    }
    ga_matrix *matrix = read_with(text, (ga_matrix_options){.type = (ga_value_type)(count % 2)});
    ga_csr view = ga_matrix_view(matrix);
    expect_dense(&view, dense, there);
    ga_matrix_free(matrix);
}

Test(matrix, entries_in_any_order)
{
    uint64_t random = 7;
    for (int kind = 0; kind < 3; kind++) {
        for (size_t count = 0; count <= ENTRIES_MAX; count += 1 + count / 3) {
            random_file(&random, kind, count);
        }
    }
}

/* 3 MiB, so that lines lie across the blocks in which a file is read. */
Test(matrix, files_of_several_blocks)
{
    enum {
        LINES = 200000,
        LINE_BYTES = 16
    };
    char *text = malloc(LINE_BYTES * LINES + 100);
    size_t length = (size_t)sprintf(text, "%scoordinate pattern general\n%d %d %d\n", BANNER, LINES,
                                    LINES, LINES);
    for (int i = LINES; i > 0; i--) {
        length +=
            (size_t)sprintf(text + length, "%d\t%d %s\n", i, LINES + 1 - i, i % 3 ? "" : "\r\n");
    }
    ga_matrix *matrix = read_with(text, (ga_matrix_options){0});
    ga_csr view = ga_matrix_view(matrix);
    for (uint32_t i = 0; i < LINES; i++) {
        cr_assert(view.offsets[i] == i && view.indices[i] == LINES - 1 - i);
    }
    ga_matrix_free(matrix);
    free(text);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static double read_number(const char *number)
{
    char text[2000];
    snprintf(text, sizeof text, "%sarray real general\n1 1\n%s\n", BANNER, number);
    ga_matrix *matrix = read_with(text, (ga_matrix_options){0});
    ga_csr view = ga_matrix_view(matrix);
    double value = matrix_value(&view, 0);
    ga_matrix_free(matrix);
    return value;
}

static void expect_number(const char *number)
{
    double value = read_number(number);
    double wanted = strtod(number, NULL);
    cr_assert(memcmp(&value, &wanted, sizeof value) == 0, "%s: %a, not %a", number, value, wanted);
}

Test(matrix, numbers_are_rounded_as_by_the_c_library)
{
    static const char *const numbers[] = {
        "0",
        "-0",
        "+0.0",
        "1",
        "-1.",
        ".5",
        "-.5e1",
        "5.E-1",
        "007",
        "1e22",
        "1e23",
        "1e-22",
        "1e-23",
        "9007199254740992",
        "9007199254740993",
        "9007199254740993.0000000000000000001",
        "9007199254740992e22",
        "0.1",
        "3.141592653589793",
        "123456789012345678901234567890",
        "0.000000000000000000000000000000000000000123456",
        "2.2250738585072014e-308",
        "5e-324",
        "1e-400",
        "-1e-999999999999999999999",
        "1.7976931348623157e308",
        "0e99999999999999999999",
        "1.00000000000000011102230246251565404236316680908203125",
        "1.00000000000000011102230246251565404236316680908203124",
        "1.00000000000000011102230246251565404236316680908203126"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        expect_number(numbers[i]);
    }
    uint64_t random = 3;
    for (int i = 0; i < 3000; i++) {
        char number[64];
        uint64_t bits = random_next(&random);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            snprintf(number, sizeof number, "%.*g", 1 + i % 20, value);
            value = isinf(strtod(number, NULL)) ? 0 : read_number(number);
            cr_assert(value == 0 || value == strtod(number, NULL), "%s", number);
            snprintf(number, sizeof number, "%.*f", i % 9, (double)(int64_t)bits / 1e6);
            expect_number(number);
        }
    }
}

Test(matrix, nan_and_infinities_are_kept)
{
    cr_assert(isnan(read_number("NaN")) && isnan(read_number("-nan")));
    cr_assert(signbit(read_number("-nan")) && !signbit(read_number("nan")));
    cr_assert_eq(read_number("inf"), INFINITY);
    cr_assert_eq(read_number("-Infinity"), -INFINITY);
    expect(BANNER "coordinate real general\n1 2 2\n1 2 inf\n1 1 -inf\n", "1x2: 0,0=-inf 0,1=inf");
    expect_with(BANNER "coordinate real symmetric\n2 2 2\n2 1 nan\n1 1 0\n",
                (ga_matrix_options){.flags = GA_MATRIX_DROP_ZEROS}, "2x2: 0,1=nan 1,0=nan");
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void refuse_with(const char *text, ga_matrix_options options, ga_status status,
                        const char *sentence)
{
    char whole[512];
    ga_matrix *matrix = (ga_matrix *)&matrix;
    const char *path = matrix_file(text);
    options.options_size = sizeof options;
    snprintf(whole, sizeof whole, "matrix: %s:%s", path, sentence);
    assert_fails(ga_matrix_read(&matrix, path, &options), status, whole);
    cr_assert_null(matrix);
}

static void refuse(const char *text, const char *sentence)
{
    refuse_with(text, (ga_matrix_options){0}, GA_ERR_IO, sentence);
}

Test(matrix, banners_that_are_refused)
{
    const char *banner = "expected \"%%MatrixMarket matrix FORMAT FIELD SYMMETRY\"";
    char sentence[200];
    snprintf(sentence, sizeof sentence, "1: \"\": %s", banner);
    refuse("", sentence);
    refuse("\n" BANNER "array real general\n", sentence);
    snprintf(sentence, sizeof sentence, "1: \"%%MatrixMarket matrix array real general\": %s",
             banner);
    refuse("%MatrixMarket matrix array real general\n", sentence);
    snprintf(sentence, sizeof sentence, "1: \"%%%%MatrixMarket matrix array real general 5\": %s",
             banner);
    refuse(BANNER "array real general 5\n", sentence);
    refuse("%%MatrixMarket vector array real general\n",
           "1: \"%%MatrixMarket vector array real general\": expected the object \"matrix\"");
    refuse(BANNER "list real general\n", "1: \"%%MatrixMarket matrix list real general\": expected "
                                         "the format \"coordinate\" or \"array\"");
    refuse(BANNER "array text general\n",
           "1: \"%%MatrixMarket matrix array text general\": expected the field \"real\", "
           "\"integer\" or \"pattern\"");
    refuse(BANNER "array real odd\n",
           "1: \"%%MatrixMarket matrix array real odd\": expected the symmetry \"general\", "
           "\"symmetric\" or \"skew-symmetric\"");
    refuse(BANNER "array pattern general\n",
           "1: \"%%MatrixMarket matrix array pattern general\": expected a pattern as "
           "\"coordinate\", \"general\" or \"symmetric\"");
}

Test(matrix, complex_matrices_are_refused)
{
    const char *expected = "expected real values: complex and hermitian matrices are not supported";
    char sentence[200];
    snprintf(sentence, sizeof sentence, "1: \"%%%%MatrixMarket matrix array complex general\": %s",
             expected);
    refuse_with(BANNER "array complex general\n", (ga_matrix_options){0}, GA_ERR_UNSUPPORTED,
                sentence);
    snprintf(sentence, sizeof sentence,
             "1: \"%%%%MatrixMarket matrix coordinate Complex Hermitian\": %s", expected);
    refuse_with(BANNER "coordinate Complex Hermitian\n", (ga_matrix_options){0}, GA_ERR_UNSUPPORTED,
                sentence);
    snprintf(sentence, sizeof sentence, "1: \"%%%%MatrixMarket matrix array real hermitian\": %s",
             expected);
    refuse_with(BANNER "array real hermitian\n", (ga_matrix_options){0}, GA_ERR_UNSUPPORTED,
                sentence);
}

#define COORDINATE BANNER "coordinate real general\n"

Test(matrix, sizes_that_are_refused)
{
    refuse(COORDINATE, "2: \"\": expected the numbers of rows, columns and entries");
    refuse(COORDINATE "% 1 1 1\n5 5\n",
           "3: \"5 5\": expected the numbers of rows, columns and entries");
    refuse(COORDINATE "5 -5 1\n",
           "2: \"5 -5 1\": expected the numbers of rows, columns and entries");
    refuse(COORDINATE "1 1 1 1\n",
           "2: \"1 1 1 1\": expected the numbers of rows, columns and entries");
    refuse(COORDINATE "1 1 18446744073709551616\n",
           "2: \"1 1 18446744073709551616\": expected the numbers of rows, columns and entries");
    refuse(BANNER "array real general\n1 2 3\n",
           "2: \"1 2 3\": expected the numbers of rows and columns");
    refuse(COORDINATE "1 4294967296 0\n",
           "2: \"1 4294967296 0\": expected at most 4294967295 columns");
    refuse(COORDINATE "16777217 1 0\n",
           "2: \"16777217 1 0\": expected at most 16777216 rows (the option rows_max)");
    refuse_with(COORDINATE "18446744073709551615 1 0\n",
                (ga_matrix_options){.rows_max = UINT64_MAX}, GA_ERR_IO,
                "2: \"18446744073709551615 1 0\": expected at most 4294967295 rows (the option "
                "rows_max)");
    refuse_with(COORDINATE "8 1 0\n", (ga_matrix_options){.rows_max = 7}, GA_ERR_IO,
                "2: \"8 1 0\": expected at most 7 rows (the option rows_max)");
    expect_with(COORDINATE "7 1 0\n", (ga_matrix_options){.rows_max = 7}, "7x1:");
    refuse(BANNER "coordinate real symmetric\n2 3 0\n",
           "2: \"2 3 0\": expected as many rows as columns");
}

/* Nothing is allocated for entries that the file has no bytes for. */
Test(matrix, counts_that_the_file_cannot_hold_are_refused)
{
    refuse(COORDINATE "9 9 9\n", "2: \"9 9 9\": expected at most 8 entries in a file of 52 bytes, "
                                 "got 9");
    refuse(COORDINATE "9 9 18446744073709551615\n",
           "2: \"9 9 18446744073709551615\": expected at most 12 entries in a file of 71 bytes, "
           "got 18446744073709551615");
    refuse(BANNER "array real general\n16777216 4294967295\n",
           "2: \"16777216 4294967295\": expected at most 31 entries in a file of 61 bytes, got "
           "72057594021150720");
    refuse(BANNER "array real symmetric\n7777 7777\n",
           "2: \"7777 7777\": expected at most 27 entries in a file of 53 bytes, got 30244753");
}

Test(matrix, entries_that_are_refused)
{
    refuse(COORDINATE "3 4 1\n0 1 1\n", "3: \"0 1 1\": expected a row from 1 to 3");
    refuse(COORDINATE "3 4 1\n4 1 1\n", "3: \"4 1 1\": expected a row from 1 to 3");
    refuse(COORDINATE "3 4 1\n1.5 1 1\n", "3: \"1.5 1 1\": expected a row from 1 to 3");
    refuse(COORDINATE "3 4 1\n3 5 1\n", "3: \"3 5 1\": expected a column from 1 to 4");
    refuse(COORDINATE "3 4 1\n3\n", "3: \"3\": expected a column from 1 to 4");
    refuse(COORDINATE "3 4 1\n3 4\n", "3: \"3 4\": expected a real number that float64 can hold");
    refuse(COORDINATE "3 4 1\n3 4 1 1\n", "3: \"3 4 1 1\": expected the end of the line");
    refuse(COORDINATE "3 4 1\n% 3 4\n3 4 1\n", "3: \"% 3 4\": expected a row from 1 to 3");
    refuse(BANNER "coordinate pattern general\n3 4 1\n3 4 1\n",
           "3: \"3 4 1\": expected the end of the line");
    refuse(
        BANNER "coordinate real symmetric\n3 3 1\n1 2 1\n",
        "3: \"1 2 1\": expected an entry of the lower triangle, because the matrix is symmetric");
    refuse(BANNER "coordinate real skew-symmetric\n3 3 1\n2 2 1\n",
           "3: \"2 2 1\": expected an entry below the diagonal, because the matrix is "
           "skew-symmetric");
}

Test(matrix, numbers_that_are_refused)
{
    static const char *const numbers[] = {"x",
                                          "-",
                                          "1e",
                                          "1e+",
                                          ".",
                                          "-.e1",
                                          "1,5",
                                          "0x10",
                                          "1d3",
                                          "nan0",
                                          "nan(1)",
                                          "infinit",
                                          "--1",
                                          "1_0",
                                          "1e309",
                                          "-1e400",
                                          "1e99999999999999999999"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[200], sentence[200];
        snprintf(text, sizeof text, "%s3 4 1\n3 4 %s\n", COORDINATE, numbers[i]);
        snprintf(sentence, sizeof sentence,
                 "3: \"3 4 %s\": expected a real number that float64 can hold", numbers[i]);
        refuse(text, sentence);
    }
    refuse(BANNER "coordinate integer general\n1 1 1\n1 1 2.0\n",
           "3: \"1 1 2.0\": expected an integer that float64 can hold");
    refuse_with(COORDINATE "1 1 1\n1 1 -3.5e38\n", (ga_matrix_options){.type = GA_FLOAT32},
                GA_ERR_IO, "3: \"1 1 -3.5e38\": expected a real number that float32 can hold");
    expect_with(COORDINATE "1 1 1\n1 1 3.4e38\n", (ga_matrix_options){.type = GA_FLOAT32},
                "1x1: 0,0=3.39999995e+38");
}

Test(matrix, truncated_and_overlong_files_are_refused)
{
    refuse(COORDINATE "3 4 2\n1 1 1\n\n", "5: \"\": expected 2 entries, found 1");
    refuse(COORDINATE "3 4 1\n1 1 1\n1 2 1\n",
           "4: \"1 2 1\": expected the end of the file after 1 entries");
    refuse(BANNER "array real general\n2 2\n1\n2\n3\n", "6: \"\": expected 4 entries, found 3");
    refuse(BANNER "array real general\n1 1\n1 2\n", "3: \"1 2\": expected the end of the line");
    static char text[3000];
    size_t begin = (size_t)sprintf(text, "%s3 4 1\n1 1 1", COORDINATE);
    memset(text + begin, ' ', 1019);
    expect(text, "3x4: 0,0=1");
    memset(text + begin, ' ', 1020);
    refuse(text, "3: \"1 1 1                                                       ...\": expected "
                 "lines of at most "
                 "1024 bytes");
}

Test(matrix, bytes_that_are_no_text_are_refused)
{
    static const char text[] = COORDINATE "3 4 1\n1 1 1\0 1\n";
    ga_matrix *matrix;
    char sentence[300];
    scene_write_file(scene_path("m.mtx"), text, sizeof text - 1);
    const char *path = scene_path("m.mtx");
    snprintf(sentence, sizeof sentence, "matrix: %s:3: \"1 1 1\": expected the end of the line",
             path);
    assert_fails(ga_matrix_read(&matrix, path, NULL), GA_ERR_IO, sentence);
    refuse("\x1b[2J\n", "1: \"?[2J\": expected \"%%MatrixMarket matrix FORMAT FIELD SYMMETRY\"");
}

Test(matrix, only_regular_files_are_read, .timeout = 20)
{
    ga_matrix *matrix;
    char sentence[300];
    const char *path = scene_path("pipe");
    cr_assert_eq(mkfifo(path, 0600), 0);
    snprintf(sentence, sizeof sentence,
             "matrix: %s: no regular file: expected a Matrix Market file", path);
    assert_fails(ga_matrix_read(&matrix, path, NULL), GA_ERR_IO, sentence);
    assert_fails(ga_matrix_read(&matrix, "/", NULL), GA_ERR_IO,
                 "matrix: /: no regular file: expected a Matrix Market file");
    assert_fails(ga_matrix_read(&matrix, "/nowhere", NULL), GA_ERR_IO,
                 "matrix: /nowhere: cannot open it: No such file or directory");
}

Test(matrix, options_that_are_refused)
{
    ga_matrix *matrix;
    ga_matrix_options o = {.options_size = 3};
    const char *path = matrix_file(COORDINATE "0 0 0\n");
    assert_fails(ga_matrix_read(NULL, path, NULL), GA_ERR_ARGUMENT,
                 "matrix: no place for the matrix: expected a pointer");
    assert_fails(ga_matrix_read(&matrix, NULL, NULL), GA_ERR_ARGUMENT,
                 "matrix: no path of a file: expected a pointer");
    assert_fails_with(ga_matrix_read(&matrix, path, &o), GA_ERR_ARGUMENT,
                      "matrix: options_size=3: expected ");
    o = (ga_matrix_options){.options_size = sizeof o, .flags = 2};
    assert_fails(ga_matrix_read(&matrix, path, &o), GA_ERR_ARGUMENT,
                 "matrix: flags=0x2: expected GA_MATRIX_DROP_ZEROS, or none");
    o = (ga_matrix_options){.options_size = sizeof o, .type = GA_VALUE_TYPE_COUNT};
    assert_fails(ga_matrix_read(&matrix, path, &o), GA_ERR_ARGUMENT,
                 "matrix: type=2: expected GA_FLOAT64 or GA_FLOAT32");
    o = (ga_matrix_options){.options_size = sizeof o, .reserved = 1};
    assert_fails(ga_matrix_read(&matrix, path, &o), GA_ERR_ARGUMENT,
                 "matrix: reserved=1: expected 0");
    ga_matrix_free(NULL);
    cr_assert_null(ga_matrix_view(NULL).offsets);
}

/* ---- the locale ----------------------------------------------------------------------------- */

Test(matrix, a_decimal_comma_of_the_locale_has_no_effect)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",  "fr_FR.UTF-8", "de_DE",
                                        "fr_FR",       "es_ES.UTF-8", "it_IT.UTF-8", "ru_RU.UTF-8"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) {
        found = setlocale(LC_ALL, names[i]) && *localeconv()->decimal_point == ',';
    }
    if (!found) {
        cr_skip_test("no locale with a decimal comma");
    }
    ga_matrix *matrix =
        read_with(COORDINATE "1 2 2\n1 1 1.5\n1 2 3.14159265358979312\n", (ga_matrix_options){0});
    ga_csr view = ga_matrix_view(matrix);
    cr_assert_eq(matrix_value(&view, 0), 1.5);
    cr_assert_eq(matrix_value(&view, 1), 0x1.921fb54442d18p+1);
    char text[200];
    assert_ok(ga_matrix_write(&view, scene_path("w.mtx")));
    scene_read_file(scene_path("w.mtx"), text, sizeof text);
    cr_assert_str_eq(text, COORDINATE "1 2 2\n1 1 1.5\n1 2 3.1415926535897931\n");
    cr_assert_eq(*localeconv()->decimal_point, ',');
    ga_matrix_free(matrix);
}
