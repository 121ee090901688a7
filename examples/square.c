/* SPDX-License-Identifier: MIT
 *
 * The square of a sparse matrix: reads a Matrix Market file, and writes the product to another.
 *
 *     cc square.c $(pkg-config --cflags --libs gpualloc) -o square && ./square a.mtx c.mtx
 */
#include <gpualloc/spgemm.h>

#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "square: %s\n", ga_error_text());
    return 1;
}

int main(int argc, char **argv)
{
    ga_matrix *matrix;
    ga_spgemm_product c = {0};
    ga_arena_options memory = {
        .options_size = sizeof memory, .place = GA_PLACE_HOST, .flags = GA_ARENA_EXACT};
    if (argc != 3 || ga_matrix_read(&matrix, argv[1], NULL) != GA_OK) {
        return argc == 3 ? fail() : (fprintf(stderr, "usage: square A.mtx C.mtx\n"), 2);
    }
    ga_csr a = ga_matrix_view(matrix);
    if (ga_vector_open(&c.offsets, sizeof(uint64_t), &memory, NULL) != GA_OK ||
        ga_vector_open(&c.indices, sizeof(uint32_t), &memory, NULL) != GA_OK ||
        ga_vector_open(&c.values, sizeof(double), &memory, NULL) != GA_OK ||
        ga_spgemm_multiply(&a, &a, NULL, &c, NULL) != GA_OK) {
        return fail();
    }
    ga_csr product = ga_spgemm_view(&c);
    printf("%llu entries\n", (unsigned long long)product.offsets[product.rows]);
    ga_status status = ga_matrix_write(&product, argv[2]);
    ga_vector_close(c.offsets);
    ga_vector_close(c.indices);
    ga_vector_close(c.values);
    ga_matrix_free(matrix);
    return status == GA_OK ? 0 : fail();
}
