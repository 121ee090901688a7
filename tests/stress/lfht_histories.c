/* SPDX-License-Identifier: MIT
 *
 * Short histories of a map, each of which must be linearizable (support/histories.h). The checker
 * itself is tested first, with right and wrong histories.
 *
 * With a planted bug it must fail, or a sanitizer must report it (meson.build here, and that of
 * tests/planted). Bugs that free too early run in the variants that free. The others run in the
 * variants that do not free, where the worst result is a wrong answer.
 */
#include "stress.h"

#include <gpualloc/lfht.h>

#include "support/histories.h"
#include "support/random.h"

#include <stdio.h>
#include <string.h>

enum {
    THREADS_MAX = 4,
    CALLS = 6, /* of each thread */
    KEYS_MAX = 6,
    BATCH = 256, /* histories of a map, and between two reads of the clock */
    ALL = THREADS_MAX * CALLS,
#ifdef GA_LFHT_WEAKENED
    HASHES = 2
#else
    HASHES = 8
#endif
};
_Static_assert((int)ALL <= (int)HISTORY_MAX, "a history has room for all calls");

static bool is_bug_of_inline(void)
{
    return GA_PLANTED(lfht_line_without_version) || GA_PLANTED(lfht_line_not_validated) ||
           GA_PLANTED(lfht_line_not_frozen) || GA_PLANTED(lfht_put_with_old_snapshot) ||
           GA_PLANTED(lfht_fast_lookup_in_frozen_line) || GA_PLANTED(lfht_claim_of_other_line_used);
}

static bool is_bug_of_hhl(void)
{
    return GA_PLANTED(lfht_hazard_pairs_not_read) || GA_PLANTED(lfht_level_not_published);
}

/* The variants alternate. A planted bug is in some of them. */
static uint64_t first_variant(void)
{
    return !GA_PLANTED_ANY || GA_PLANTED(lfht_not_validated) ? GA_LFHT_FHPA
           : is_bug_of_inline()                              ? GA_LFHT_INLINE
           : is_bug_of_hhl()                                 ? GA_LFHT_HHL
                                                             : GA_LFHT_SNF;
}

static uint64_t variants(void)
{
    return !GA_PLANTED_ANY                         ? GA_LFHT_VARIANT_COUNT
           : GA_PLANTED(lfht_not_validated)        ? 2
           : is_bug_of_inline() || is_bug_of_hhl() ? 1
                                                   : 3;
}

/* ---- histories ------------------------------------------------------------------------------ */

/* The calls of a thread that are made as batches. */
typedef enum batched {
    NO_CALLS = 0,
    SAME_CALLS, /* of one kind, which follow one another */
    ANY_CALLS,
    BATCHES
} batched;

static struct {
    ga_heap *heap;
    ga_lfht *map;
    history_call calls[ALL];
    uint64_t histories, keys, threads;
    batched batches;
    uint64_t clock;    /* seq_cst: moments */
    uint32_t arrivals; /* seq_cst: threads that have arrived at a barrier */
} world;

static uint64_t coarse(void *context, uint64_t key)
{
    (void)context;
    return key % 2 ? 0 : UINT64_MAX;
}

/* A hash whose keys differ only below common nodes: these nodes come and go, one below another. */
static uint64_t deep(void *context, uint64_t key)
{
    (void)context;
    return key << 58;
}

static uint64_t spread(void *context, uint64_t key)
{
    (void)context;
    return key * UINT64_C(0x2aaaaaaaaaaaaaab); /* neighbours begin with other bits */
}

static void do_call(history_call *c)
{
    ga_status status;
    ga_lfht_found was;
    c->began = history_moment(&world.clock);
    switch (c->kind) {
    case HISTORY_INSERT:
        status = ga_lfht_insert(world.map, c->key, c->value, &was);
        break;
    case HISTORY_UPSERT:
        status = ga_lfht_upsert(world.map, c->key, c->value, &was);
        break;
    case HISTORY_REPLACE:
        status = ga_lfht_replace(world.map, c->key, c->value, &was);
        break;
    case HISTORY_COMPARE:
        status = ga_lfht_compare_replace(world.map, c->key, c->expected, c->value, &was);
        break;
    case HISTORY_REMOVE:
        status = ga_lfht_remove(world.map, c->key, &was);
        break;
    default:
        status = ga_lfht_lookup(world.map, c->key, &was);
    }
    c->ended = history_moment(&world.clock);
    NEED(status == GA_OK);
    c->found = was.found;
    c->was = was.value;
}

/* Make consecutive calls of one kind as a batch. */
static void do_batch(history_call *calls, uint32_t n)
{
    uint64_t keys[CALLS], values[CALLS];
    ga_lfht_found was[CALLS];
    ga_status status;
    for (uint32_t i = 0; i < n; i++) {
        keys[i] = calls[i].key;
        values[i] = calls[i].value;
    }
    uint64_t began = history_moment(&world.clock);
    if (calls[0].kind == HISTORY_INSERT) {
        status = ga_lfht_insert_batch(world.map, keys, values, n, was, NULL);
    } else {
        status = ga_lfht_lookup_batch(world.map, keys, n, was);
    }
    uint64_t ended = history_moment(&world.clock);
    NEED(status == GA_OK);
    for (uint32_t i = 0; i < n; i++) {
        calls[i].found = was[i].found;
        calls[i].was = was[i].value;
        calls[i].began = began;
        calls[i].ended = ended;
    }
}

static void do_mixed_batch(history_call *calls, uint32_t n)
{
    static const ga_lfht_op ops[HISTORY_KINDS] = {
        [HISTORY_LOOKUP] = GA_LFHT_LOOKUP,           [HISTORY_INSERT] = GA_LFHT_INSERT,
        [HISTORY_UPSERT] = GA_LFHT_UPSERT,           [HISTORY_REPLACE] = GA_LFHT_REPLACE,
        [HISTORY_COMPARE] = GA_LFHT_COMPARE_REPLACE, [HISTORY_REMOVE] = GA_LFHT_REMOVE};
    ga_lfht_call batch[CALLS];
    for (uint32_t i = 0; i < n; i++) {
        const history_call *c = &calls[i];
        batch[i] = (ga_lfht_call){ops[c->kind], c->key, c->value, c->expected, {false, 0}};
    }
    uint64_t began = history_moment(&world.clock);
    ga_status status = ga_lfht_batch(world.map, batch, n, NULL);
    uint64_t ended = history_moment(&world.clock);
    NEED(status == GA_OK);
    for (uint32_t i = 0; i < n; i++) {
        calls[i].found = batch[i].was.found;
        calls[i].was = batch[i].was.value;
        calls[i].began = began;
        calls[i].ended = ended;
    }
}

/* In two thirds of the maps two or more consecutive calls of one kind are made as a batch. */
static void do_calls(history_call *calls)
{
    if (world.batches == ANY_CALLS) {
        do_mixed_batch(calls, CALLS / 2);
        do_mixed_batch(calls + CALLS / 2, CALLS - CALLS / 2);
        return;
    }
    for (uint32_t i = 0, n; i < CALLS; i += n) {
        n = 1;
        while (world.batches == SAME_CALLS && i + n < CALLS && calls[i + n].kind == calls[i].kind) {
            n++;
        }
        if (n > 1 && (calls[i].kind == HISTORY_INSERT || calls[i].kind == HISTORY_LOOKUP)) {
            do_batch(&calls[i], n);
        } else {
            n = 1;
            do_call(&calls[i]);
        }
    }
}

/* Draw the calls of each thread. */
static void draw(uint64_t *random)
{
    for (uint32_t i = 0; i < world.threads * CALLS; i++) {
        static const history_kind kinds[] = {HISTORY_LOOKUP,  HISTORY_LOOKUP,  HISTORY_INSERT,
                                             HISTORY_INSERT,  HISTORY_INSERT,  HISTORY_UPSERT,
                                             HISTORY_REPLACE, HISTORY_COMPARE, HISTORY_REMOVE,
                                             HISTORY_REMOVE,  HISTORY_REMOVE};
        history_kind same = i % CALLS ? world.calls[i - 1].kind : HISTORY_LOOKUP;
        world.calls[i] =
            (history_call){.kind = random_below(random, 3) ? kinds[random_below(random, 11)] : same,
                           .key = random_below(random, world.keys),
                           .value = i + 1,
                           .expected = 1 + random_below(random, world.threads * CALLS)};
    }
}

static ga_lfht_variant variant(void)
{
    return (ga_lfht_variant)(first_variant() + world.histories / BATCH % variants());
}

static void open_map(void)
{
    static ga_lfht_hash *const hashes[] = {coarse, spread, spread, spread,
                                           deep,   deep,   spread, deep};
    uint64_t random = world.histories;
    ga_lfht_options options = {.options_size = sizeof options,
                               .variant = variant(),
                               .chunk = 1 + (uint32_t)random_below(&random, 2),
                               .chain = 1 + (uint32_t)random_below(&random, 2),
                               .root = 1,
                               .batch = 1,
                               .hash = hashes[random_below(&random, HASHES)],
                               .heap = world.heap};
    if (options.variant == GA_LFHT_INLINE) { /* lines as wide as they are, and indices */
        options.chain = random_below(&random, 2) ? 0 : options.chain;
        options.chunk += (uint32_t)random_below(&random, 5);
    }
    NEED(ga_lfht_open(&world.map, &options) == GA_OK);
}

static void check(void)
{
    for (uint64_t key = 0; key < world.keys; key++) {
        if (!history_linearizable(world.calls, (uint32_t)world.threads * CALLS, key)) {
            history_print(world.calls, (uint32_t)world.threads * CALLS, key);
            fprintf(stderr, "%s, history %llu\n", ga_lfht_variant_text(variant()),
                    (unsigned long long)world.histories);
            stress_need(false, "a history is not linearizable");
        }
    }
}

/* The next history begins with no key. */
static void clear(void)
{
    for (uint64_t key = 0; key < world.keys; key++) {
        NEED(ga_lfht_remove(world.map, key, NULL) == GA_OK);
    }
}

static void work(size_t number)
{
    uint32_t turn = 0;
    uint64_t random = world.histories + 1;
    for (uint32_t i = 0; i < BATCH; i++) {
        if (number == 0) {
            draw(&random);
        }
        history_meet(&world.arrivals, ++turn, world.threads);
        do_calls(&world.calls[number * CALLS]);
        history_meet(&world.arrivals, ++turn, world.threads);
        if (number == 0) {
            check();
            clear();
        }
    }
}

/* Print the number of histories of each variant. */
static void report(void)
{
    uint64_t turns = world.histories / BATCH;
    printf("%llu histories, of:", (unsigned long long)world.histories);
    for (uint64_t i = 0; i < variants(); i++) {
        uint64_t own = turns / variants() + (i < turns % variants());
        printf(" %s %llu", ga_lfht_variant_text((ga_lfht_variant)(first_variant() + i)),
               (unsigned long long)(own * BATCH));
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    const char *wrong = history_try_checker();
    stress_need(!wrong, wrong);
    world.heap = stress_open("system");
    while (stress_goes_on() || world.histories < BATCH * variants()) {
        uint64_t random = world.histories + 7;
        world.threads = 2 + random_below(&random, 3);
        world.keys = 1 + random_below(&random, KEYS_MAX);
        world.batches = (batched)random_below(&random, BATCHES);
        world.arrivals = 0;
        open_map();
        stress_threads(world.threads, work);
        NEED(ga_lfht_close(world.map) == GA_OK);
        world.histories += BATCH;
    }
    report();
    NEED(ga_heap_close(world.heap) == GA_OK);
    return 0;
}
