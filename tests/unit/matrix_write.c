/* SPDX-License-Identifier: MIT
 *
 * Matrices that are written, and read again to the last bit; files that cannot be written; memory
 * that ends at each request of the reader; the check of a matrix.
 */
#include "support/folder.h"
#include "support/matrix_scene.h"
#include "support/random.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(matrix_write, .init = (void (*)(void))scene_enter_folder, .fini = scene_leave_folder);

enum {
    ROWS = 100,
    EACH = 40,
    COUNT = ROWS * EACH
};

static uint64_t offsets[ROWS + 1];
static uint32_t indices[COUNT];
static double wide[COUNT];
static float narrow[COUNT];

/* Values of any bits; one NaN, because its payload is lost. */
static ga_csr random_matrix(ga_value_type type)
{
    uint64_t random = 5;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t bits = random_next(&random);
        memcpy(&wide[i], &bits, sizeof wide[i]);
        memcpy(&narrow[i], &bits, sizeof narrow[i]);
        wide[i] = isnan(wide[i]) ? (double)NAN : wide[i];
        narrow[i] = isnan(narrow[i]) ? NAN : narrow[i];
        indices[i] = i % EACH * 9 + i % 7;
        offsets[1 + i / EACH] = i + 1;
    }
    wide[0] = -0.0;
    wide[1] = -INFINITY;
    narrow[0] = -0.0f;
    const void *values = type == GA_FLOAT32 ? (const void *)narrow : (const void *)wide;
    return (ga_csr){ROWS, 9 * EACH, offsets, indices, values, type};
}

static void expect_equal(const ga_csr *a, const ga_csr *b)
{
    uint64_t count = a->offsets[a->rows];
    cr_assert(a->rows == b->rows && a->columns == b->columns && a->type == b->type);
    cr_assert_arr_eq(a->offsets, b->offsets, (a->rows + 1) * sizeof *a->offsets);
    cr_assert_arr_eq(a->indices, b->indices, count * sizeof *a->indices);
    cr_assert_arr_eq(a->values, b->values, count * ga_value_size(a->type));
}

Test(matrix_write, values_are_read_again_to_the_last_bit)
{
    for (int type = 0; type < GA_VALUE_TYPE_COUNT; type++) {
        ga_csr a = random_matrix((ga_value_type)type);
        ga_matrix_options options = {.options_size = sizeof options, .type = a.type};
        ga_matrix *matrix;
        assert_ok(ga_matrix_write(&a, scene_path("w.mtx")));
        assert_ok(ga_matrix_read(&matrix, scene_path("w.mtx"), &options));
        ga_csr b = ga_matrix_view(matrix);
        expect_equal(&a, &b);
        ga_matrix_free(matrix);
    }
}

Test(matrix_write, matrices_without_entries)
{
    uint64_t zeros[4] = {0};
    ga_csr a = {.rows = 3, .columns = 0, .offsets = zeros};
    ga_matrix *matrix;
    assert_ok(ga_matrix_write(&a, scene_path("w.mtx")));
    assert_ok(ga_matrix_read(&matrix, scene_path("w.mtx"), NULL));
    ga_csr b = ga_matrix_view(matrix);
    cr_assert_str_eq(matrix_text(&b), "3x0:");
    ga_matrix_free(matrix);
}

/* ---- files that cannot be written ----------------------------------------------------------- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

Test(matrix_write, a_write_that_fails_leaves_no_file_and_keeps_an_old_one)
{
    ga_csr a = random_matrix(GA_FLOAT64);
    const char *path = scene_path("w.mtx");
    char sentence[300], text[10];
    signal(SIGXFSZ, SIG_IGN);
    snprintf(sentence, sizeof sentence, "matrix: %s: cannot write it: File too large", path);
    for (uint32_t old = 0; old < 2; old++) {
        limit_files(16384);
        ga_status status = ga_matrix_write(&a, path);
        limit_files(RLIM_INFINITY);
        assert_fails(status, GA_ERR_IO, sentence);
        cr_assert_eq(files_in_folder(scene_path("")), old);
        scene_write_file(path, "old", 3);
    }
    cr_assert_eq(scene_read_file(path, text, sizeof text), 3);
    cr_assert_eq(chmod(path, 0640), 0);
    assert_ok(ga_matrix_write(&a, path));
    struct stat info;
    cr_assert(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640 && info.st_size > 16384);
    cr_assert_eq(files_in_folder(scene_path("")), 1);
}

Test(matrix_write, anything_but_a_regular_file_stays)
{
    ga_csr a = random_matrix(GA_FLOAT64);
    const char *link_path = scene_path("link");
    char sentence[300];
    assert_fails(ga_matrix_write(&a, "/dev/full"), GA_ERR_IO,
                 "matrix: /dev/full: no regular file: expected one, or none yet");
    cr_assert_eq(symlink("/dev/null", link_path), 0);
    snprintf(sentence, sizeof sentence, "matrix: %s: no regular file: expected one, or none yet",
             link_path);
    assert_fails(ga_matrix_write(&a, link_path), GA_ERR_IO, sentence);
    cr_assert_eq(files_in_folder(scene_path("")), 1);
    assert_fails(ga_matrix_write(&a, "/nowhere/m.mtx"), GA_ERR_IO,
                 "matrix: /nowhere/m.mtx: cannot make it: No such file or directory");
    assert_fails(ga_matrix_write(&a, NULL), GA_ERR_ARGUMENT,
                 "matrix: no path of a file: expected a text");
}

/* ---- memory that ends ----------------------------------------------------------------------- */

/* A matrix that needs every allocation: rows in disorder, duplicates, and another type. */
static ga_status read_over(ga_heap *heap, const char *path)
{
    ga_matrix_options options = {.options_size = sizeof options, .type = GA_FLOAT32, .heap = heap};
    ga_matrix *matrix;
    ga_status status = ga_matrix_read(&matrix, path, &options);
    cr_assert_eq(matrix == NULL, status != GA_OK);
    if (matrix) {
        ga_csr view = ga_matrix_view(matrix);
        cr_assert_str_eq(matrix_text(&view), "2x3: 0,0=1 0,2=5 1,0=4");
    }
    ga_matrix_free(matrix);
    return status;
}

Test(matrix_write, each_request_of_a_read_fails_once)
{
    const char *path = matrix_file("%%MatrixMarket matrix coordinate real general\n2 3 4\n"
                                   "1 3 2\n1 1 1\n2 1 4\n1 3 3\n");
    uint32_t failures = 0;
    for (uint32_t nth = 1; nth <= 12; nth++) {
        char spec[64];
        ga_heap *heap;
        ga_stats stats;
        snprintf(spec, sizeof spec, "fail:nth=%u/system", nth);
        assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
        ga_status status = read_over(heap, path);
        cr_assert(status == GA_OK || status == GA_ERR_MEMORY, "%s", ga_error_text());
        failures += status != GA_OK;
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert_eq(stats.live_blocks, 0);
        assert_ok(ga_heap_close(heap));
    }
    /* The record, the block of lines, entries, offsets, columns, values, room to sort. */
    cr_assert_eq(failures, 7);
}

/* ---- the check ------------------------------------------------------------------------------ */

Test(matrix_write, matrices_that_the_check_refuses)
{
    uint64_t begins[] = {0, 2, 2, 3};
    uint32_t columns[] = {1, 3, 0};
    double values[] = {1, 2, 3};
    ga_csr a = {3, 4, begins, columns, values, GA_FLOAT64};
    assert_ok(ga_csr_check(&a));
    columns[1] = 4;
    assert_fails(ga_csr_check(&a), GA_ERR_ARGUMENT,
                 "matrix: row 0: column 4: expected less than 4");
    assert_fails(ga_matrix_write(&a, scene_path("w.mtx")), GA_ERR_ARGUMENT,
                 "matrix: row 0: column 4: expected less than 4");
    columns[1] = 1;
    assert_fails(ga_csr_check(&a), GA_ERR_ARGUMENT,
                 "matrix: row 0: column 1 after column 1: expected ascending columns, each once");
    columns[1] = 3;
    begins[2] = 1;
    assert_fails(ga_csr_check(&a), GA_ERR_ARGUMENT,
                 "matrix: row 1: it ends at 1: expected at least 2, its begin");
    begins[2] = 2;
    begins[0] = 1;
    assert_fails(ga_csr_check(&a), GA_ERR_ARGUMENT, "matrix: row 0: it begins at 1: expected 0");
    begins[0] = 0;
    a.type = GA_VALUE_TYPE_COUNT;
    assert_fails(ga_csr_check(&a), GA_ERR_ARGUMENT,
                 "matrix: type=2: expected GA_FLOAT64 or GA_FLOAT32");
    a = (ga_csr){3, UINT64_C(1) << 32, begins, columns, values, GA_FLOAT64};
    assert_fails(ga_csr_check(&a), GA_ERR_ARGUMENT,
                 "matrix: columns=4294967296: expected at most 4294967295");
}

Test(matrix_write, pointers_that_the_check_refuses)
{
    uint64_t begins[] = {0, 1};
    uint32_t column = 0;
    double value = 1;
    ga_csr a = {1, 1, begins, &column, NULL, GA_FLOAT64};
    assert_fails(ga_csr_check(NULL), GA_ERR_ARGUMENT, "matrix: no matrix: expected a pointer");
    assert_fails(ga_csr_check(&a), GA_ERR_ARGUMENT,
                 "matrix: no values of its 1 entries: expected a pointer");
    a = (ga_csr){1, 1, begins, NULL, &value, GA_FLOAT64};
    assert_fails(ga_csr_check(&a), GA_ERR_ARGUMENT,
                 "matrix: no columns of its 1 entries: expected a pointer");
    a.offsets = NULL;
    assert_fails(ga_csr_check(&a), GA_ERR_ARGUMENT, "matrix: no offsets: expected a pointer");
    cr_assert_eq(ga_value_size(GA_FLOAT64), 8);
    cr_assert_eq(ga_value_size(GA_FLOAT32), 4);
    cr_assert_eq(ga_value_size(GA_VALUE_TYPE_COUNT), 0);
    cr_assert_str_eq(ga_value_type_text(GA_FLOAT32), "float32");
    cr_assert_str_eq(ga_value_type_text(GA_VALUE_TYPE_COUNT), "?");
}
