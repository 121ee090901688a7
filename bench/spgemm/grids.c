/* SPDX-License-Identifier: MIT
 *
 * Patterns of differences and finite elements on a grid, and of an optimal control on a cube.
 *
 * Nodes are numbered with x as the fastest coordinate. A stencil is a list of offsets in that order
 * too, so that the columns of each row ascend.
 */
#include "pattern.h"

#include <math.h>
#include <stdlib.h>

enum {
    OFFSETS_MAX = 125 /* all of coordinates up to 2 */
};

static const double PI = 3.14159265358979323846;

typedef struct offset {
    int x, y, z;
} offset;

typedef struct node {
    uint32_t x, y, z;
} node;

static uint64_t node_count(const grid *g)
{
    return (uint64_t)g->x * g->y * g->z;
}

static uint64_t node_number(const grid *g, node n)
{
    return ((uint64_t)n.z * g->y + n.y) * g->x + n.x;
}

/* False if it is outside the grid. */
static bool move_node(const grid *g, node n, offset o, node *out)
{
    /* A coordinate below 0 becomes a large number. */
    *out = (node){n.x + (uint32_t)o.x, n.y + (uint32_t)o.y, n.z + (uint32_t)o.z};
    return out->x < g->x && out->y < g->y && out->z < g->z;
}

/* ---- stencils ------------------------------------------------------------------------------- */

static bool is_kuhn(offset o)
{
    bool up = o.x >= 0 && o.y >= 0 && o.z >= 0;
    bool down = o.x <= 0 && o.y <= 0 && o.z <= 0;
    return (up || down) && abs(o.x) <= 1 && abs(o.y) <= 1 && abs(o.z) <= 1;
}

static bool is_in_stencil(const grid *g, offset o)
{
    int sum = abs(o.x) + abs(o.y) + abs(o.z);
    int largest = abs(o.x) > abs(o.y) ? abs(o.x) : abs(o.y);
    largest = abs(o.z) > largest ? abs(o.z) : largest;
    switch (g->stencil) {
    case STAR:
        return sum == largest && sum <= (int)g->reach;
    case DISC:
        return sum <= (int)g->reach;
    case KUHN:
        return is_kuhn(o);
    case MIXED:
        return true;
    default:
        return largest <= 1;
    }
}

/* The stencil's offsets, coordinates of up to 2, in the order of nodes. */
static int list_offsets(const grid *g, offset offsets[OFFSETS_MAX])
{
    int count = 0;
    int depth = g->z == 1 ? 0 : 2;
    for (int z = -depth; z <= depth; z++) {
        for (int y = -2; y <= 2; y++) {
            for (int x = -2; x <= 2; x++) {
                offset o = {x, y, z};
                if (is_in_stencil(g, o)) {
                    offsets[count++] = o;
                }
            }
        }
    }
    return count;
}

/* True for a link of MIXED: equal for both directions, by a hash of the two nodes. */
static bool is_drawn(const grid *g, uint64_t a, uint64_t b, offset o, uint64_t seed)
{
    uint64_t low = a < b ? a : b;
    uint64_t high = a < b ? b : a;
    double chance = bench_unit(bench_mix(bench_mix(low ^ bench_mix(seed)) + high));
    return a == b || chance < (is_kuhn(o) ? g->kept : g->added);
}

/* ---- pores ---------------------------------------------------------------------------------- */

typedef struct pores {
    bool *solid;       /* of each hexahedron, by the number of its lowest node */
    uint32_t *numbers; /* of nodes of solid hexahedra, consecutive; else UINT32_MAX */
    uint64_t count;    /* such nodes */
} pores;

/* The gyroid, a periodic surface that divides space into two connected parts: 0 on the surface, up
 * to 1.5 in the pores on both sides of it. The places of low values are a curved plate. */
static double field_at(const grid *g, node n)
{
    double unit = 2 * PI / g->period;
    double a = unit * n.x;
    double b = unit * n.y;
    double c = unit * n.z;
    return fabs(sin(a) * cos(b) + sin(b) * cos(c) + sin(c) * cos(a));
}

/* True for an axis along which a hexahedron has both corners, at 0 and at `distance`. */
static bool spans(int distance)
{
    return distance == 0 || distance == 1;
}

/* True if one solid hexahedron has both corners, a node and its neighbour at `o`. */
static bool share_solid(const grid *g, const bool *solid, node n, offset o)
{
    for (int corner = 0; corner < 8; corner++) {
        offset back = {-(corner & 1), -(corner >> 1 & 1), -(corner >> 2)};
        node lowest;
        if (spans(o.x - back.x) && spans(o.y - back.y) && spans(o.z - back.z) &&
            move_node(g, n, back, &lowest) && solid[node_number(g, lowest)]) {
            return true;
        }
    }
    return false;
}

static node node_at(const grid *g, uint64_t number)
{
    return (node){(uint32_t)(number % g->x), (uint32_t)(number / g->x % g->y),
                  (uint32_t)(number / g->x / g->y)};
}

static void number_nodes(const grid *g, pores *v)
{
    uint64_t nodes = node_count(g);
    for (uint64_t i = 0; i < nodes; i++) {
        node n = node_at(g, i);
        bool whole = n.x + 1 < g->x && n.y + 1 < g->y && n.z + 1 < g->z;
        v->solid[i] = whole && field_at(g, n) < g->solid;
    }
    for (uint64_t i = 0; i < nodes; i++) {
        bool there = share_solid(g, v->solid, node_at(g, i), (offset){0, 0, 0});
        v->numbers[i] = there ? (uint32_t)v->count++ : UINT32_MAX;
    }
}

/* False if memory is exhausted. For other stencils nothing is made. */
static bool make_pores(const grid *g, pores *v)
{
    *v = (pores){.count = node_count(g)};
    if (g->stencil != PORES) {
        return true;
    }
    v->count = 0;
    v->solid = malloc(node_count(g) * sizeof *v->solid);
    v->numbers = malloc(node_count(g) * sizeof *v->numbers);
    if (v->solid && v->numbers) {
        number_nodes(g, v);
        return true;
    }
    return false;
}

static void free_pores(pores *v)
{
    free(v->solid);
    free(v->numbers);
}

/* ---- grids ---------------------------------------------------------------------------------- */

/* The neighbours of one node, with itself, in ascending order. */
typedef struct neighbours {
    uint64_t at[OFFSETS_MAX];
    int count;
} neighbours;

typedef struct mesh {
    const grid *grid;
    offset offsets[OFFSETS_MAX];
    int count; /* offsets */
    pores pores;
    uint64_t seed;
} mesh;

static void find_neighbours(const mesh *m, node n, neighbours *out)
{
    const grid *g = m->grid;
    uint64_t own = node_number(g, n);
    out->count = 0;
    for (int i = 0; i < m->count; i++) {
        offset o = m->offsets[i];
        node there;
        if (!move_node(g, n, o, &there)) {
            continue;
        }
        uint64_t number = node_number(g, there);
        if (g->stencil == PORES ? share_solid(g, m->pores.solid, n, o)
                                : g->stencil != MIXED || is_drawn(g, own, number, o, m->seed)) {
            out->at[out->count++] = g->stencil == PORES ? m->pores.numbers[number] : number;
        }
    }
}

static void add_node(pattern *p, const neighbours *near, uint32_t block)
{
    for (uint32_t row = 0; row < block; row++) {
        for (int i = 0; i < near->count; i++) {
            for (uint32_t column = 0; column < block; column++) {
                pattern_add(p, near->at[i] * block + column);
            }
        }
        pattern_end_row(p);
    }
}

void generate_grid(pattern *p, const grid *g, uint64_t seed)
{
    mesh m = {.grid = g, .seed = seed};
    m.count = list_offsets(g, m.offsets);
    p->failed = !make_pores(g, &m.pores);
    if (!p->failed) {
        pattern_begin(p, m.pores.count * g->block);
    }
    for (uint64_t i = 0; !p->failed && i < node_count(g); i++) {
        neighbours near;
        find_neighbours(&m, node_at(g, i), &near);
        if (near.count > 0) {
            add_node(p, &near, g->block);
        }
    }
    free_pores(&m.pores);
}

/* ---- the optimal control -------------------------------------------------------------------- */

/* Columns of the three blocks: states, one for each node; controls, one for each node of a face;
 * multipliers, one for each node. */
typedef struct control {
    grid grid;
    mesh box;
    uint32_t side;
    uint64_t controls, multipliers; /* the first column of each */
} control;

/* The node of a face that has the coordinates u and v there. Faces 0 and 1 are across x, 2 and 3
 * across y, 4 and 5 across z; odd ones are at the far end. */
static node face_node(const control *c, uint32_t face, uint32_t u, uint32_t v)
{
    uint32_t depth = face & 1 ? c->side - 1 : 0;
    return face < 2 ? (node){depth, u, v} : face < 4 ? (node){u, depth, v} : (node){u, v, depth};
}

/* Appends the nodes of a face that are at most 1 away in both coordinates, or their controls. */
static void add_patch(pattern *p, const control *c, uint32_t face, uint32_t u, uint32_t v,
                      bool nodes)
{
    for (uint32_t y = v ? v - 1 : 0; y <= v + 1 && y < c->side; y++) {
        for (uint32_t x = u ? u - 1 : 0; x <= u + 1 && x < c->side; x++) {
            uint64_t number = ((uint64_t)face * c->side + y) * c->side + x;
            pattern_add(p, nodes ? c->multipliers + node_number(&c->grid, face_node(c, face, x, y))
                                 : c->controls + number);
        }
    }
}

static void add_states(pattern *p, const control *c)
{
    for (uint64_t i = 0; i < c->controls; i++) {
        neighbours near;
        find_neighbours(&c->box, node_at(&c->grid, i), &near);
        pattern_add(p, i);
        for (int k = 0; k < near.count; k++) {
            pattern_add(p, c->multipliers + near.at[k]);
        }
        pattern_end_row(p);
    }
}

static void add_controls(pattern *p, const control *c)
{
    uint64_t column = c->controls;
    for (uint32_t face = 0; face < 6; face++) {
        for (uint32_t v = 0; v < c->side; v++) {
            for (uint32_t u = 0; u < c->side; u++) {
                pattern_add(p, column++);
                add_patch(p, c, face, u, v, true);
                pattern_end_row(p);
            }
        }
    }
}

/* The controls that act on a node: those around it on each face that it is on. */
static void add_controls_of(pattern *p, const control *c, node n)
{
    uint32_t last = c->side - 1;
    const bool on[6] = {n.x == 0, n.x == last, n.y == 0, n.y == last, n.z == 0, n.z == last};
    for (uint32_t face = 0; face < 6; face++) {
        if (on[face]) {
            add_patch(p, c, face, face < 2 ? n.y : n.x, face < 4 ? n.z : n.y, false);
        }
    }
}

static void add_multipliers(pattern *p, const control *c)
{
    for (uint64_t i = 0; i < c->controls; i++) {
        neighbours near;
        node n = node_at(&c->grid, i);
        find_neighbours(&c->box, n, &near);
        for (int k = 0; k < near.count; k++) {
            pattern_add(p, near.at[k]);
        }
        add_controls_of(p, c, n);
        pattern_add(p, c->multipliers + i);
        pattern_end_row(p);
    }
}

void generate_kkt(pattern *p, uint32_t side)
{
    control c = {.grid = {BOX, side, side, side, .block = 1}, .side = side};
    c.box = (mesh){.grid = &c.grid};
    c.box.count = list_offsets(&c.grid, c.box.offsets);
    c.controls = node_count(&c.grid);
    c.multipliers = c.controls + UINT64_C(6) * side * side;
    pattern_begin(p, c.multipliers + c.controls);
    p->zeros_from = c.multipliers;
    add_states(p, &c);
    add_controls(p, &c);
    add_multipliers(p, &c);
}
