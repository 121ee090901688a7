/* SPDX-License-Identifier: MIT
 *
 * Generated matrices: small grids beside links that are found by comparing all pairs of nodes; the
 * sizes of the squares of three, which the thesis has; every matrix at a small scale.
 */
#include "support/expect.h"

#include <gpualloc/matrix.h>
#include <matrices.h>
#include <pattern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bench_matrix make(const char *name, double scale)
{
    bench_matrix matrix;
    assert_ok(bench_matrix_make(&matrix, name, scale, 1, GA_FLOAT64));
    assert_ok(ga_csr_check(&matrix.csr));
    return matrix;
}

static bool has_entry(const ga_csr *a, uint64_t row, uint64_t column)
{
    for (uint64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
        if (a->indices[i] == column) {
            return true;
        }
    }
    return false;
}

static bool is_symmetric(const ga_csr *a)
{
    for (uint64_t row = 0; row < a->rows; row++) {
        for (uint64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
            if (!has_entry(a, a->indices[i], row)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- small grids ---------------------------------------------------------------------------- */

typedef bool is_linked(int x, int y, int z);

static bool in_star(int x, int y, int z)
{
    return abs(x) + abs(y) + abs(z) <= 1;
}

static bool in_disc(int x, int y, int z)
{
    return abs(x) + abs(y) <= 2 && z == 0;
}

static bool in_box(int x, int y, int z)
{
    return abs(x) <= 1 && abs(y) <= 1 && abs(z) <= 1;
}

static bool in_kuhn(int x, int y, int z)
{
    bool ahead = x >= 0 && y >= 0 && z >= 0;
    bool behind = x <= 0 && y <= 0 && z <= 0;
    return in_box(x, y, z) && (ahead || behind);
}

static int coordinate(uint64_t node, const grid *g, int axis)
{
    uint64_t after = axis == 0 ? node : axis == 1 ? node / g->x : node / g->x / g->y;
    return (int)(axis == 0 ? after % g->x : axis == 1 ? after % g->y : after);
}

static bool are_linked(const grid *g, uint64_t a, uint64_t b, is_linked *linked)
{
    return linked(coordinate(b, g, 0) - coordinate(a, g, 0),
                  coordinate(b, g, 1) - coordinate(a, g, 1),
                  coordinate(b, g, 2) - coordinate(a, g, 2));
}

static ga_csr pattern_view(const pattern *p)
{
    cr_assert(!p->failed && p->row == p->rows);
    return (ga_csr){p->rows, p->rows, p->offsets, p->indices, p->indices, GA_FLOAT32};
}

static void expect_grid(const grid *g, is_linked *linked)
{
    pattern p;
    generate_grid(&p, g, 1);
    ga_csr a = pattern_view(&p);
    assert_ok(ga_csr_check(&a));
    cr_assert_eq(a.rows, (uint64_t)g->x * g->y * g->z * g->block);
    for (uint64_t row = 0; row < a.rows; row++) {
        for (uint64_t column = 0; column < a.rows; column++) {
            cr_assert_eq(has_entry(&a, row, column),
                         are_linked(g, row / g->block, column / g->block, linked));
        }
    }
    free(p.offsets);
    free(p.indices);
}

Test(spgemm_matrices, grids_beside_all_pairs_of_nodes)
{
    expect_grid(&(grid){STAR, 3, 4, 5, 1, .reach = 1}, in_star);
    expect_grid(&(grid){DISC, 7, 5, 1, 1, .reach = 2}, in_disc);
    expect_grid(&(grid){KUHN, 5, 4, 3, .block = 2}, in_kuhn);
    expect_grid(&(grid){KUHN, 6, 5, 1, .block = 3}, in_kuhn);
    expect_grid(&(grid){BOX, 6, 5, 1, .block = 2}, in_box);
    expect_grid(&(grid){BOX, 4, 3, 3, .block = 1}, in_box);
    expect_grid(&(grid){BOX, 1, 1, 1, .block = 3}, in_box);
    expect_grid(&(grid){MIXED, 5, 4, 3, 1, .kept = 1}, in_kuhn);
    expect_grid(&(grid){PORES, 4, 5, 3, 1, .period = 9, .solid = 2}, in_box);
}

/* Rows of a grid with pores are nodes of hexahedra that exist, and links are symmetric. */
Test(spgemm_matrices, pores_and_mixed_links)
{
    bench_matrix pores = make("like-boneS10", 0.003);
    bench_matrix mixed = make("like-Hook_1498", 0.002);
    cr_assert(is_symmetric(&pores.csr) && is_symmetric(&mixed.csr));
    for (uint64_t row = 0; row < pores.csr.rows; row++) {
        uint64_t length = pores.csr.offsets[row + 1] - pores.csr.offsets[row];
        cr_assert(has_entry(&pores.csr, row, row));
        cr_assert(length >= 8 * 3 && length <= 27 * 3);
    }
    bench_matrix_free(&pores);
    bench_matrix_free(&mixed);
}

Test(spgemm_matrices, the_optimal_control_has_its_blocks)
{
    enum {
        SIDE = 4,
        NODES = SIDE * SIDE * SIDE,
        CONTROLS = 6 * SIDE * SIDE
    };
    bench_matrix m = make("nlpkkt80", (double)NODES / (80 * 80 * 80));
    const grid cube = {BOX, SIDE, SIDE, SIDE, .block = 1};
    cr_assert_eq(m.csr.rows, 2 * NODES + CONTROLS);
    cr_assert(is_symmetric(&m.csr));
    for (uint64_t a = 0; a < NODES; a++) {
        for (uint64_t b = 0; b < NODES; b++) {
            cr_assert_eq(has_entry(&m.csr, a, b), a == b);
            cr_assert_eq(has_entry(&m.csr, NODES + CONTROLS + a, NODES + CONTROLS + b), a == b);
            cr_assert_eq(has_entry(&m.csr, NODES + CONTROLS + a, b),
                         are_linked(&cube, a, b, in_box));
        }
        uint64_t last = m.csr.offsets[NODES + CONTROLS + a + 1] - 1;
        cr_assert_eq(((const double *)m.csr.values)[last], 0);
    }
    /* A control in the middle of a face acts on 9 nodes, one at an edge on 6, at a corner on 4. */
    for (uint64_t face = 0; face < 6; face++) {
        static const uint64_t acts[SIDE] = {4, 6, 6, 4};
        for (uint64_t i = 0; i < SIDE; i++) {
            uint64_t row = NODES + face * SIDE * SIDE + i;
            cr_assert_eq(m.csr.offsets[row + 1] - m.csr.offsets[row], 1 + acts[i]);
            row += SIDE;
            cr_assert_eq(m.csr.offsets[row + 1] - m.csr.offsets[row], 1 + acts[i] * 3 / 2);
        }
    }
    bench_matrix_free(&m);
}

/* ---- sizes of squares ----------------------------------------------------------------------- */

static uint64_t product_by_flags(const ga_csr *a)
{
    bool *flags = malloc(a->columns + 1);
    uint64_t count = 0;
    for (uint64_t row = 0; row < a->rows; row++) {
        memset(flags, 0, a->columns);
        for (uint64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
            uint64_t through = a->indices[i];
            for (uint64_t j = a->offsets[through]; j < a->offsets[through + 1]; j++) {
                count += !flags[a->indices[j]];
                flags[a->indices[j]] = true;
            }
        }
    }
    free(flags);
    return count;
}

Test(spgemm_matrices, squares_of_small_matrices)
{
    for (size_t i = 0; bench_facts_at(i); i++) {
        uint64_t product;
        bench_matrix m = make(bench_facts_at(i)->name, 0.0005);
        assert_ok(bench_product_entries(&m.csr, &product));
        cr_assert_eq(product, product_by_flags(&m.csr), "%s", bench_facts_at(i)->name);
        bench_matrix_free(&m);
    }
}

static void expect_thesis(const char *name)
{
    const bench_facts *facts = bench_facts_of(name);
    bench_matrix m = make(name, 1);
    uint64_t product;
    uint64_t zeros = 0;
    const double *values = m.csr.values;
    for (uint64_t i = 0; i < m.csr.offsets[m.csr.rows]; i++) {
        zeros += values[i] == 0;
    }
    assert_ok(bench_product_entries(&m.csr, &product));
    cr_assert(facts->exact);
    cr_assert_eq(m.csr.rows, facts->rows);
    cr_assert_eq(m.csr.offsets[m.csr.rows] - zeros, facts->nonzeros);
    cr_assert_eq(bench_multiplications(&m.csr), facts->multiplications);
    cr_assert_eq(product, facts->product);
    bench_matrix_free(&m);
}

Test(spgemm_matrices, exact_matrices_have_the_numbers_of_the_thesis, .timeout = 200)
{
    expect_thesis("atmosmodl");
    expect_thesis("atmosmodm");
    expect_thesis("nlpkkt80");
}

/* ---- the table ------------------------------------------------------------------------------ */

Test(spgemm_matrices, names_say_which_matrices_are_exact)
{
    size_t count = 0;
    for (const bench_facts *f; (f = bench_facts_at(count)); count++) {
        bool generated = strcmp(f->name, "rmat") == 0 || strcmp(f->name, "powerlaw") == 0;
        cr_assert_eq(f->exact, strncmp(f->name, "like-", 5) != 0 && !generated, "%s", f->name);
        cr_assert_eq(bench_facts_of(f->name), f);
    }
    cr_assert_eq(count, 22);
    cr_assert_null(bench_facts_of("pwtk"));
}

Test(spgemm_matrices, scales_change_the_number_of_rows)
{
    for (size_t i = 0; bench_facts_at(i); i++) {
        const bench_facts *f = bench_facts_at(i);
        bench_matrix m = make(f->name, 0.01);
        double wanted = 0.01 * (double)f->rows;
        cr_assert_lt(fabs((double)m.csr.rows - wanted), 0.1 * wanted, "%s", f->name);
        bench_matrix_free(&m);
    }
}

Test(spgemm_matrices, equal_seeds_give_equal_matrices)
{
    for (size_t i = 0; bench_facts_at(i); i++) {
        const char *name = bench_facts_at(i)->name;
        bench_matrix a = make(name, 0.001);
        bench_matrix b = make(name, 0.001);
        bench_matrix other;
        uint64_t count = a.csr.offsets[a.csr.rows];
        assert_ok(bench_matrix_make(&other, name, 0.001, 2, GA_FLOAT64));
        cr_assert_eq(count, b.csr.offsets[b.csr.rows]);
        cr_assert_arr_eq(a.csr.indices, b.csr.indices, count * sizeof *a.csr.indices);
        cr_assert_arr_eq(a.csr.values, b.csr.values, count * sizeof(double));
        cr_assert_neq(memcmp(a.csr.values, other.csr.values, 100), 0);
        bench_matrix_free(&a);
        bench_matrix_free(&b);
        bench_matrix_free(&other);
    }
}

Test(spgemm_matrices, the_skewed_ones_are_skewed)
{
    static const char *const names[] = {"rmat", "powerlaw"};
    for (int i = 0; i < 2; i++) {
        bench_matrix m = make(names[i], 0.1);
        uint64_t longest = 0;
        for (uint64_t row = 0; row < m.csr.rows; row++) {
            uint64_t length = m.csr.offsets[row + 1] - m.csr.offsets[row];
            longest = length > longest ? length : longest;
        }
        cr_assert_gt(longest * m.csr.rows, 50 * m.csr.offsets[m.csr.rows]);
        bench_matrix_free(&m);
    }
}

Test(spgemm_matrices, what_cannot_be_made_is_refused)
{
    bench_matrix m;
    assert_fails(bench_matrix_make(&m, "pwtk", 1, 1, GA_FLOAT64), GA_ERR_ARGUMENT,
                 "matrices: no matrix \"pwtk\"");
    assert_fails(bench_matrix_make(&m, "rmat", 0, 1, GA_FLOAT64), GA_ERR_ARGUMENT,
                 "matrices: scale=0: expected 1e-06 to 8");
    assert_fails(bench_matrix_make(&m, "rmat", (double)NAN, 1, GA_FLOAT64), GA_ERR_ARGUMENT,
                 "matrices: scale=nan: expected 1e-06 to 8");
    bench_matrix_free(&m);
}
