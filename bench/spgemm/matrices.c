/* SPDX-License-Identifier: MIT
 *
 * The table of matrices, their values, and the sizes of their squares.
 */
#include "matrices.h"

#include "pattern.h"

#include <gpualloc/backend.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind {
    GRID,
    KKT,
    LOCAL,
    RMAT,
    POWERLAW
} kind;

/* A generator and its parameters at scale 1. */
typedef struct recipe {
    bench_facts facts;
    kind kind;
    grid grid;
    local local;
    uint32_t size; /* KKT: side; RMAT: entries drawn for each row */
} recipe;

#define FACTS(name, exact, ...)       .facts = {name, exact, __VA_ARGS__}
#define KUHN_GRID(x, y, z, rows_each) .kind = GRID, .grid = {KUHN, x, y, z, .block = (rows_each)}
#define PLANE_GRID(stencil, x, y, rows_each)                                                       \
    .kind = GRID, .grid = {stencil, x, y, 1, .block = (rows_each)}
#define MIXED_GRID(x, y, z, kuhn_chance, other_chance)                                             \
    .kind = GRID, .grid = {MIXED, x, y, z, 3, .kept = (kuhn_chance), .added = (other_chance)}

/* Grids of BOX, DISC and KUHN have about as many nodes as the originals. The other parameters were
 * fitted: `links`, `reach`, `kept`, `added`, `period` and `solid` such that multiplications and
 * entries of the product are within 5 % of the original's, for like-cage15 the non-zeros. */
static const recipe recipes[] = {
    {FACTS("atmosmodl", true, 1489752, 10319760, 71590768, 36486008), .kind = GRID,
     .grid = {STAR, 38, 198, 198, 1, .reach = 1}},
    {FACTS("like-pwtk", false, 217918, 11524432, 626054402, 32772236),
     PLANE_GRID(BOX, 190, 191, 6)},
    {FACTS("like-af_shell10", false, 1508065, 52259885, 1840916875, 142742975),
     PLANE_GRID(KUHN, 549, 549, 5)},
    {FACTS("like-cage14", false, 1505785, 27130349, 532205737, 236999813), .kind = LOCAL,
     .local = {9.3, .reach = 58}},
    {FACTS("like-nv2", false, 1453908, 37475646, 2034624478, 310543360), .kind = LOCAL,
     .local = {6.6, 130, 48, 0.19, 1024}},
    {FACTS("like-Hook_1498", false, 1498023, 59374451, 2768898411, 312415749),
     MIXED_GRID(79, 79, 80, 0.93, 0.005)},
    {FACTS("like-BenElechi1", false, 245874, 13150496, 705555870, 36261344),
     PLANE_GRID(BOX, 202, 203, 6)},
    {FACTS("atmosmodm", true, 1489752, 10319760, 71590768, 36486008), .kind = GRID,
     .grid = {STAR, 38, 198, 198, 1, .reach = 1}},
    {FACTS("like-Geo_1438", false, 1437960, 60236322, 2801728386, 274478976),
     KUHN_GRID(78, 78, 79, 3)},
    {FACTS("like-af_3_k101", false, 503625, 17550675, 612413375, 47472025),
     PLANE_GRID(KUHN, 317, 318, 5)},
    {FACTS("like-Hardesty1", false, 938905, 12143314, 157652676, 38292287), .kind = GRID,
     .grid = {DISC, 967, 971, 1, 1, .reach = 2}},
    {FACTS("like-Serena", false, 1391349, 64131971, 3111966351, 315805689),
     MIXED_GRID(77, 77, 78, 1, 0.0068)},
    {FACTS("like-boneS10", false, 914898, 40878708, 3742712082, 223561566), .kind = GRID,
     .grid = {PORES, 82, 82, 82, 3, .period = 21.7, .solid = 0.55}},
    {FACTS("like-Emilia_923", false, 923136, 40373538, 1834209036, 179867448),
     KUHN_GRID(67, 68, 68, 3)},
    {FACTS("like-dgreen", false, 1200611, 26606169, 1376588233, 228101325), .kind = LOCAL,
     .local = {6, 128, 46, 0.165, 1024}},
    {FACTS("like-ss", false, 1652680, 34753577, 687203895, 138289810), .kind = LOCAL,
     .local = {12.3, .reach = 23}},
    {FACTS("like-Fault_639", false, 638802, 27245944, 1298780298, 126633024),
     KUHN_GRID(59, 60, 60, 3)},
    {FACTS("like-Transport", false, 1602111, 23487281, 346715709, 99905089),
     KUHN_GRID(117, 117, 117, 1)},
    {FACTS("nlpkkt80", true, 1062400, 28192672, 790384704, 154663144), .kind = KKT, .size = 80},
    {FACTS("like-cage15", false, 5154859, 99199551, 0, 0), .kind = LOCAL,
     .local = {9.84, .reach = 58}},
    {FACTS("rmat", false, 1 << 18, 0, 0, 0), .kind = RMAT, .size = 8},
    {FACTS("powerlaw", false, 1 << 20, 0, 0, 0), .kind = POWERLAW},
};

enum {
    RECIPES = sizeof recipes / sizeof *recipes
};

const bench_facts *bench_facts_at(size_t number)
{
    return number < RECIPES ? &recipes[number].facts : NULL;
}

static const recipe *find_recipe(const char *name)
{
    for (size_t i = 0; i < RECIPES; i++) {
        if (strcmp(recipes[i].facts.name, name) == 0) {
            return &recipes[i];
        }
    }
    return NULL;
}

const bench_facts *bench_facts_of(const char *name)
{
    const recipe *found = find_recipe(name);
    return found ? &found->facts : NULL;
}

/* ---- patterns ------------------------------------------------------------------------------- */

void pattern_begin(pattern *p, uint64_t rows)
{
    *p = (pattern){.rows = rows, .zeros_from = UINT64_MAX, .room = rows};
    p->offsets = calloc(rows + 1, sizeof *p->offsets);
    p->indices = malloc(rows * sizeof *p->indices);
    p->failed = !p->offsets || !p->indices;
}

static void grow_pattern(pattern *p)
{
    uint64_t room = p->room + p->room / 2 + 1024;
    uint32_t *moved = realloc(p->indices, room * sizeof *moved);
    p->failed = !moved;
    p->indices = moved ? moved : p->indices;
    p->room = moved ? room : p->room;
}

void pattern_add(pattern *p, uint64_t column)
{
    if (!p->failed && p->used == p->room) {
        grow_pattern(p);
    }
    if (!p->failed) {
        p->indices[p->used++] = (uint32_t)column;
    }
}

void pattern_end_row(pattern *p)
{
    if (!p->failed) {
        p->offsets[++p->row] = p->used;
    }
}

static uint32_t scaled(uint32_t nodes, double factor)
{
    double count = round(nodes * factor);
    return count < 1 ? 1 : (uint32_t)count;
}

static void generate(pattern *p, const recipe *r, double scale, uint64_t seed)
{
    grid g = r->grid;
    double factor = g.z == 1 ? sqrt(scale) : cbrt(scale);
    uint64_t rows = (uint64_t)ceil((double)r->facts.rows * scale);
    g.x = scaled(g.x, factor);
    g.y = scaled(g.y, factor);
    g.z = g.z == 1 ? 1 : scaled(g.z, factor);
    if (r->kind == GRID) {
        generate_grid(p, &g, seed);
    } else if (r->kind == KKT) {
        generate_kkt(p, scaled(r->size, cbrt(scale)));
    } else if (r->kind == LOCAL) {
        generate_local(p, rows, &r->local, seed);
    } else if (r->kind == RMAT) {
        generate_rmat(p, rows, r->size, seed);
    } else {
        generate_powerlaw(p, rows, seed);
    }
}

/* ---- values --------------------------------------------------------------------------------- */

/* In [0.5, 1.5), so that no sum of products is zero or loses digits by cancellation. */
static void *make_values(const pattern *p, uint64_t seed, ga_value_type type)
{
    double *wide = malloc((p->used + 1) * ga_value_size(type));
    float *narrow = (float *)wide;
    uint64_t random = bench_mix(seed ^ 1);
    for (uint64_t row = 0; wide && row < p->rows; row++) {
        for (uint64_t i = p->offsets[row]; i < p->offsets[row + 1]; i++) {
            bool zero = row >= p->zeros_from && p->indices[i] == row;
            double value = zero ? 0 : 0.5 + bench_unit(bench_random(&random));
            if (type == GA_FLOAT32) {
                narrow[i] = (float)value;
            } else {
                wide[i] = value;
            }
        }
    }
    return wide;
}

static void free_pattern(pattern *p)
{
    free(p->offsets);
    free(p->indices);
}

ga_status bench_matrix_make(bench_matrix *out, const char *name, double scale, uint64_t seed,
                            ga_value_type type)
{
    const recipe *found = find_recipe(name);
    *out = (bench_matrix){0};
    if (!found) {
        return ga_fail(GA_ERR_ARGUMENT, "matrices: no matrix \"%s\"", name);
    }
    if (!(scale >= BENCH_SCALE_MIN && scale <= BENCH_SCALE_MAX)) {
        return ga_fail(GA_ERR_ARGUMENT, "matrices: scale=%g: expected %g to %g", scale,
                       BENCH_SCALE_MIN, BENCH_SCALE_MAX);
    }
    pattern p = {0};
    generate(&p, found, scale, seed);
    void *values = p.failed ? NULL : make_values(&p, seed, type);
    if (!values) {
        free_pattern(&p);
        return ga_fail(GA_ERR_MEMORY, "matrices: no memory for %s at scale %g", name, scale);
    }
    out->csr = (ga_csr){p.rows, p.rows, p.offsets, p.indices, values, type};
    return GA_OK;
}

void bench_matrix_free(bench_matrix *matrix)
{
    free((void *)matrix->csr.offsets);
    free((void *)matrix->csr.indices);
    free((void *)matrix->csr.values);
    *matrix = (bench_matrix){0};
}

/* ---- the square ----------------------------------------------------------------------------- */

uint64_t bench_multiplications(const ga_csr *a)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < a->offsets[a->rows]; i++) {
        uint64_t row = a->indices[i];
        count += a->offsets[row + 1] - a->offsets[row];
    }
    return count;
}

/* The columns of row `row` of the square that `marks` does not have as `row + 1`; marks them. */
static uint64_t count_row(const ga_csr *a, uint64_t row, uint32_t *marks)
{
    uint64_t count = 0;
    for (uint64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
        uint64_t through = a->indices[i];
        for (uint64_t j = a->offsets[through]; j < a->offsets[through + 1]; j++) {
            uint32_t *mark = &marks[a->indices[j]];
            count += *mark != row + 1;
            *mark = (uint32_t)(row + 1);
        }
    }
    return count;
}

ga_status bench_product_entries(const ga_csr *a, uint64_t *out)
{
    uint32_t *marks = calloc(a->columns + 1, sizeof *marks);
    *out = 0;
    if (!marks) {
        return ga_fail(GA_ERR_MEMORY, "matrices: no memory for %llu columns",
                       (unsigned long long)a->columns);
    }
    for (uint64_t row = 0; row < a->rows; row++) {
        *out += count_row(a, row, marks);
    }
    free(marks);
    return GA_OK;
}
