/* SPDX-License-Identifier: MIT
 *
 * The pattern of a matrix, appended row by row, and the generators, each in a file of its kind.
 */
#ifndef GPUALLOC_BENCH_SPGEMM_PATTERN_H
#define GPUALLOC_BENCH_SPGEMM_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pattern {
    uint64_t rows;       /* the sizes, of a square matrix */
    uint64_t *offsets;   /* rows + 1 */
    uint32_t *indices;   /* of `room` elements */
    uint64_t row;        /* the row that is being appended */
    uint64_t used, room; /* entries */
    uint64_t zeros_from; /* entries on the diagonal from this row on have the value 0 */
    bool failed;         /* out of memory: further calls do nothing */
} pattern;

/* Begins a pattern of `rows` rows, below 2^32. */
void pattern_begin(pattern *p, uint64_t rows);

/* Appends an entry to the current row, in ascending order of columns; ends the row. */
void pattern_add(pattern *p, uint64_t column);
void pattern_end_row(pattern *p);

/* ---- random numbers ------------------------------------------------------------------------- */

/* A 64-bit hash of a number (the finalizer of splitmix64). */
static inline uint64_t bench_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The next number of a sequence (splitmix64). */
static inline uint64_t bench_random(uint64_t *state)
{
    return bench_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

/* A number in [0, 1) from 64 random bits. */
static inline double bench_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* ---- generators ----------------------------------------------------------------------------- */

/* Nodes whose difference is in a stencil are linked. Borders are free: no link leaves the grid.
 * Each node has `block` rows, and each link is a dense block. */
typedef enum stencil {
    STAR,  /* the axes, up to `reach` */
    DISC,  /* offsets whose coordinates add up to at most `reach` */
    BOX,   /* coordinates of at most 1 */
    KUHN,  /* triangles or tetrahedra: coordinates all in {0, 1}, or all in {0, -1} */
    MIXED, /* Kuhn's links with a probability, and others of coordinates up to 2 with another */
    PORES  /* hexahedra, some of which are missing: nodes of a common hexahedron are linked */
} stencil;

typedef struct grid {
    stencil stencil;
    uint32_t x, y, z; /* nodes along each axis; z is 1 in the plane */
    uint32_t block;
    uint32_t reach;
    double kept, added; /* MIXED: probability of Kuhn's links, and of the others */
    double period;      /* PORES: of a field, in hexahedra */
    double solid;       /* PORES: hexahedra exist where the field is below this value */
} grid;

void generate_grid(pattern *p, const grid *g, uint64_t seed);

/* The matrix [[I, 0, A'], [0, I, B'], [A, B, 0]] of an optimal control on a cube of `side` nodes
 * along each axis: A is the box stencil, B has a patch of 3 x 3 nodes for each control on the six
 * faces; the diagonal of the last block is stored, with zeros. */
void generate_kkt(pattern *p, uint32_t side);

/* Each row draws links to columns 1 to `reach` ahead, which are mirrored; the diagonal is full. The
 * fraction of `links` is drawn by chance. Of the runs of `run` rows a share draws `dense_links`. */
typedef struct local {
    double links;
    uint32_t reach; /* at most LOCAL_REACH_MAX */
    double dense_links, share;
    uint32_t run; /* 0: no dense runs */
} local;

enum {
    LOCAL_REACH_MAX = 255
};

void generate_local(pattern *p, uint64_t rows, const local *l, uint64_t seed);

/* The recursive model R-MAT with the probabilities 0.57, 0.19, 0.19, 0.05; `each` entries for each
 * row are drawn, and equal ones merged. */
void generate_rmat(pattern *p, uint64_t rows, uint32_t each, uint64_t seed);

/* Lengths of rows follow a power law: a row is longer than k with a probability of about k^-1.2, up
 * to a 64th of the columns. Columns are uniform. */
void generate_powerlaw(pattern *p, uint64_t rows, uint64_t seed);

#endif
