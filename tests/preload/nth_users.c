/* SPDX-License-Identifier: MIT
 *
 * Users of memory: heaps that are opened and closed, arenas, vectors, hazard domains and the hash
 * tables, while the n-th call for memory fails, or all from the n-th on. A call may be refused with
 * GA_ERR_MEMORY and then has changed nothing; once calls succeed again everything works, and after
 * closing nothing is left that would not be left otherwise.
 *
 * usage: nth_users KIND one|all TRIES USER [SPEC]     under nth_calls_public.so; see nth_each.h
 */
#include "nth_each.h"

#include <gpualloc/arena.h>
#include <gpualloc/lfht.h>
#include <gpualloc/reclaim.h>
#include <gpualloc/slabhash.h>
#include <gpualloc/vector.h>

#include <stdint.h>

static const char *spec = "vmm";

/* Returns true if the call succeeded. Only lack of memory is an excuse. */
static bool done(ga_status status)
{
    bool excused = status == GA_OK || status == GA_ERR_MEMORY;
    if (!excused) {
        fprintf(stderr, "%s: %s\n", ga_status_text(status), ga_error_text());
    }
    CHECK(excused);
    return status == GA_OK;
}

/* ---- heaps ----------------------------------------------------------------------------------- */

static void use_heap(void)
{
    static const size_t sizes[] = {1, 200, 5000, 100000, 3000000};
    unsigned char *blocks[5] = {0};
    ga_heap *heap;
    ga_status status = ga_heap_open(&heap, GA_PLACE_HOST, 0, spec);
    if (status != GA_OK) {
        CHECK(ga_error_text()[0]);
        return;
    }
    for (int i = 0; i < 5; i++) {
        void *block = NULL;
        if (done(ga_alloc(heap, sizes[i], 0, &block))) {
            blocks[i] = block;
            check_fill(block, sizes[i], i);
        }
    }
    for (int i = 0; i < 5; i++) {
        void *moved = blocks[i];
        if (moved && done(ga_realloc(heap, blocks[i], sizes[i] * 3, 0, &moved))) {
            blocks[i] = moved;
        }
    }
    for (int i = 0; i < 5; i++) {
        if (blocks[i]) {
            check_filled(blocks[i], sizes[i], i);
            done(ga_free(heap, blocks[i])); /* a block whose free fails is freed with its heap */
        }
    }
    ga_trim(heap, 0); /* not every heap can */
    CHECK(ga_heap_close(heap) == GA_OK);
}

/* ---- arenas and vectors ---------------------------------------------------------------------- */

static const ga_arena_options on_host = {
    .options_size = sizeof on_host, .place = GA_PLACE_HOST, .reserve = 64 << 20};

static void check_bytes(ga_arena *arena, uint64_t size)
{
    const unsigned char *base = ga_arena_base(arena);
    for (uint64_t at = 0; at < size && at < ga_arena_size(arena); at += 4096) {
        CHECK(base[at] == (unsigned char)(at >> 12));
    }
}

static uint64_t grow_arena(ga_arena *arena, uint64_t from, uint64_t to)
{
    if (!done(ga_arena_grow(arena, to))) {
        CHECK(ga_arena_size(arena) >= from);
        return from;
    }
    unsigned char *base = ga_arena_base(arena);
    for (uint64_t at = from; at < to; at += 4096) {
        base[at] = (unsigned char)(at >> 12);
    }
    return to;
}

static void use_arena(void)
{
    ga_arena *arena;
    if (!done(ga_arena_open(&arena, &on_host))) {
        return;
    }
    uint64_t size = grow_arena(arena, 0, 1 << 20);
    size = grow_arena(arena, size, 9 << 20);
    check_bytes(arena, size);
    ga_status status = ga_arena_extend(arena, 128 << 20);
    CHECK(status == GA_OK || status == GA_ERR_MEMORY || status == GA_ERR_CANNOT_GROW);
    done(ga_arena_move(arena, 256 << 20));
    check_bytes(arena, size);
    done(ga_arena_shrink(arena, 1 << 20));
    check_bytes(arena, size < 1 << 20 ? size : 1 << 20);
    ga_arena_close(arena);
}

static void use_vector(void)
{
    ga_vector *v;
    uint64_t n = 0;
    if (!done(ga_vector_open(&v, sizeof n, &on_host, NULL))) {
        return;
    }
    for (uint64_t i = 0; i < 300000; i++) {
        n += done(ga_vector_push_back(v, &i)) ? 1 : 0;
        CHECK(ga_vector_size(v) == n);
        i = n == i + 1 ? i : 300000; /* refused: enough */
    }
    const uint64_t *data = ga_vector_data(v);
    for (uint64_t i = 0; i < n; i++) {
        CHECK(data[i] == i);
    }
    if (done(ga_vector_insert(v, n / 2, 1000, NULL))) {
        data = ga_vector_data(v);
        CHECK(ga_vector_size(v) == n + 1000 && (!n || data[n + 999] == n - 1));
    }
    done(ga_vector_erase(v, 0, ga_vector_size(v) / 2));
    done(ga_vector_shrink_to_fit(v));
    ga_vector_close(v);
}

/* ---- hazard domains -------------------------------------------------------------------------- */

static void reclaim(void *context, void *object)
{
    ++*(unsigned *)context;
    free(object);
}

static void use_domain(void)
{
    static const ga_domain_options options = {.options_size = sizeof options, .batch = 16};
    unsigned retired = 0, freed = 0;
    ga_domain *domain;
    ga_hazards *mine;
    if (!done(ga_domain_open(&domain, &options))) {
        return;
    }
    for (int i = 0; i < 200; i++) {
        void *object = malloc(64);
        bool taken = object && done(ga_domain_join(domain, &mine)) &&
                     done(ga_hazard_retire(mine, object, 64, reclaim, &freed));
        retired += taken;
        if (!taken) {
            free(object);
        }
    }
    done(ga_domain_drain(domain));
    CHECK(ga_domain_close(domain) == GA_OK);
    CHECK(retired == freed);
}

/* ---- tables ---------------------------------------------------------------------------------- */

enum {
    KEYS = 3000,
    LFHT_KEYS = 1000 /* each needs a node */
};

static void use_slabhash_with(uint32_t flags)
{
    ga_slabhash_options options = {
        .options_size = sizeof options, .flags = flags, .mode = GA_SLABHASH_MAP64, .buckets = 32};
    static bool in[KEYS];
    ga_slabhash *table;
    ga_slabhash_found found;
    if (!done(ga_slabhash_open(&table, &options))) {
        return;
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        in[key] = done(ga_slabhash_insert(table, key, 3 * key, &found));
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        if (done(ga_slabhash_search(table, key, &found))) {
            CHECK(found.found == in[key] && (!in[key] || found.value == 3 * key));
        }
    }
    for (uint64_t key = 0; key < KEYS; key += 2) {
        done(ga_slabhash_delete(table, key, &found));
    }
    done(ga_slabhash_flush(table));
    CHECK(ga_slabhash_close(table) == GA_OK);
}

static void use_slabhash(void)
{
    use_slabhash_with(0);
    use_slabhash_with(GA_SLABHASH_GROW);
}

static void use_lfht_of(ga_lfht_variant variant)
{
    static bool in[LFHT_KEYS];
    ga_lfht_options options = {
        .options_size = sizeof options, .variant = variant, .root = 4, .batch = 64};
    ga_lfht *map;
    ga_lfht_found found;
    if (!done(ga_lfht_open(&map, &options))) {
        return;
    }
    for (uint64_t key = 0; key < LFHT_KEYS; key++) {
        in[key] = done(ga_lfht_insert(map, key, 3 * key, &found));
    }
    for (uint64_t key = 0; key < LFHT_KEYS; key++) {
        if (done(ga_lfht_lookup(map, key, &found))) {
            CHECK(found.found == in[key] && (!in[key] || found.value == 3 * key));
        }
    }
    for (uint64_t key = 0; key < LFHT_KEYS; key += 2) {
        in[key] = in[key] && !done(ga_lfht_remove(map, key, &found));
    }
    done(ga_lfht_drain(map));
    while (!done(ga_lfht_close(map))) {
        nth_disarm(); /* it stays open, and can be closed once there is memory */
    }
}

static void use_lfht(void)
{
    for (int variant = 0; variant < GA_LFHT_VARIANT_COUNT; variant++) {
        use_lfht_of((ga_lfht_variant)variant);
    }
}

/* ---- for each n ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*use)(void);
} users[] = {{"heap", use_heap},     {"arena", use_arena},       {"vector", use_vector},
             {"domain", use_domain}, {"slabhash", use_slabhash}, {"lfht", use_lfht}};

static void (*use)(void);
static nth_amounts usual; /* is left where nothing fails */
static bool keeps;        /* a third-party allocator, which frees memory when it likes */

enum {
    SLACK = 1 << 20 /* bytes: tables of addresses, which stay, lie elsewhere each time */
};

static long attempt(const nth_plan *plan, long n)
{
    nth_arm(plan->kind, n, plan->all);
    use();
    long calls = nth_disarm();
    use();
    nth_amounts left = nth_left();
    if (!keeps && (left.blocks > usual.blocks || left.mapped > usual.mapped + SLACK)) {
        printf("left: %ld blocks, usually %ld; %ld bytes mapped, usually %ld\n", left.blocks,
               usual.blocks, left.mapped, usual.mapped);
        fflush(stdout);
        CHECK(!"nothing is lost");
    }
    return calls;
}

/* In a child, so that first calls are made in each child. */
static void find_usual(void)
{
    int ends[2], status = 0;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        use();
        use();
        nth_amounts left = nth_left();
        CHECK(write(ends[1], &left, sizeof left) == sizeof left);
        _exit(0);
    }
    CHECK(read(ends[0], &usual, sizeof usual) == sizeof usual);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 5 || argc == 6);
    setvbuf(stdout, NULL, _IONBF, 0); /* its buffer would be one more block */
    nth_plan plan = nth_begin(argv + 1);
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        use = strcmp(users[i].name, argv[4]) == 0 ? users[i].use : use;
    }
    CHECK(use);
    spec = argc > 5 ? argv[5] : spec;
    keeps = strstr(spec, "jemalloc") || strstr(spec, "dl:");
    find_usual();
    usual.blocks += strncmp(spec, "trace", 5) == 0; /* a trace that ends early keeps its record */
    return nth_each(&plan, attempt);
}
