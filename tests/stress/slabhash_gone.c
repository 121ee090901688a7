/* SPDX-License-Identifier: MIT
 *
 * Slab hashes that migrate to new arrays while threads use them, as the tiles of kernels do, and
 * free old arrays with their slabs once no tile can use them (arrays_tile.h). Each thread
 * inserts, changes, searches and deletes its own keys and checks each result; all threads add to a
 * few shared keys. Each thread makes the table migrate now and then, or sleeps while it holds a
 * snapshot. No thread may touch freed memory: a freed array becomes unreadable, or is freed under
 * sanitizers, and a slab is soon reused by another bucket. More arrays are needed than there is
 * room for at once, so they must return while the threads run. When the threads have ended, all
 * arrays but one have returned.
 *
 * With a planted bug it must fail (meson.build).
 */
#include "../../hashtables/slabhash/host/table.h"
#include "../../hashtables/slabhash/kernel_growth/resize_tile.h"
#include "../../hashtables/slabhash/table/many_tile.h"
#include "stress.h"

#include "support/random.h"
#include "support/sanitized.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    THREADS = 4,
    CALLS = 3000, /* of each thread, for a table, */
    FEW = 150,    /* or for one that may end before any slab was needed */
    OWN = 150,    /* keys of each */
    SHARED = 5,   /* keys that all add to */
    RARELY = 32,  /* one in RARELY or OFTEN calls makes the table migrate */
    OFTEN = 4,
    SLEEPS = 1024,
    BUCKETS_MAX = 256,
    SETTLES_MAX = 100 * BUCKETS_MAX, /* calls; among so many keys each bucket has some */
    CAME_BACK = 100,                 /* arrays, at least, while threads run */
    PAGE = 4096,
    AWAY_BYTES = 256 << 20 /* addresses of a table's arrays */
};
#define MAP32_KIND (GA_SLABHASH_MAP32 | GA_SLABHASH_GROWING)
#define MAP64_KIND (GA_SLABHASH_MAP64 | GA_SLABHASH_GROWING)

static struct {
    ga_heap *heap;
    ga_slabhash *table; /* owns the slabs */
    ga_slabhash_view view;
    ga_slabhash_growing growing;
    char *addresses;   /* addresses for arrays, used one after the other */
    size_t used;       /* relaxed: bytes of them */
    uint32_t held;     /* relaxed: arrays */
    uint32_t held_max; /* relaxed: of them, at once */
    uint32_t returned; /* relaxed: arrays that returned while threads were running */
    uint64_t added;    /* relaxed: to the shared keys */
    uint64_t tables, stages, came_back;
    uint32_t calls; /* of each thread */
    uint32_t moves; /* one call in so many makes the table migrate */
    bool wide;      /* the table is a MAP64 */
} world __attribute__((aligned(128)));

/* The state that a tile keeps. */
typedef struct session {
    ga_slab_claimed claimed;
    ga_slabhash_snapshot stand;
    uint64_t random;
    uint64_t values[OWN]; /* 0: not there */
    uint32_t number;
} session;

/* ---- memory of arrays ------------------------------------------------------------------------ */

static const bool plain = !UNDER_ASAN && !UNDER_TSAN;

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static void touched(int signal)
{
    static const char said[] = "an array is used that was given back\n";
    (void)signal;
    (void)!write(2, said, sizeof said - 1);
    _Exit(1);
}

static void *array(void *context, size_t bytes)
{
    (void)context;
    void *rows = NULL;
    if (!plain) {
        rows = aligned_alloc(128, bytes);
    } else {
        /* relaxed: hands out addresses */
        size_t at = __atomic_fetch_add(&world.used, pages(bytes), __ATOMIC_RELAXED);
        stress_need(at + bytes <= AWAY_BYTES, "too many arrays for this test");
        rows = world.addresses + at;
        NEED(mprotect(rows, pages(bytes), PROT_READ | PROT_WRITE) == 0);
    }
    memset(rows, 0x5a, bytes);
    /* relaxed, both: figures */
    uint32_t held = __atomic_add_fetch(&world.held, 1, __ATOMIC_RELAXED);
    if (held > __atomic_load_n(&world.held_max, __ATOMIC_RELAXED)) {
        __atomic_store_n(&world.held_max, held, __ATOMIC_RELAXED); /* relaxed: a figure */
    }
    return rows;
}

static void give(void *context, void *rows, size_t bytes)
{
    (void)context;
    if (plain) {
        NEED(madvise(rows, pages(bytes), MADV_DONTNEED) == 0);
        NEED(mprotect(rows, pages(bytes), PROT_NONE) == 0);
    } else {
        free(rows);
    }
    __atomic_fetch_sub(&world.held, 1, __ATOMIC_RELAXED);     /* relaxed: a figure */
    __atomic_fetch_add(&world.returned, 1, __ATOMIC_RELAXED); /* relaxed: a figure */
}

/* ---- as a kernel ----------------------------------------------------------------------------- */

/* `kind` as a constant. */
#define EACH_KIND(CALL) return world.wide ? CALL(MAP64_KIND) : CALL(MAP32_KIND)

static ga_slabhash_answer perform(session *t, ga_slabhash_operation to, uint64_t hash)
{
#define PERFORM(kind)                                                                              \
    ga_slabhash_do_from_snapshot(kind, world.view, &world.growing, SLABHASH_TILE, &t->claimed,     \
                                 &t->stand, hash, to)
    EACH_KIND(PERFORM);
}

static uint64_t count_of(session *t, uint64_t key)
{
#define COUNT_OF(kind)                                                                             \
    ga_slabhash_find_all_from_snapshot(kind, world.view, &world.growing, SLABHASH_TILE, &t->stand, \
                                       ga_slabhash_seeded(world.view, key), key, NULL, 0)
    EACH_KIND(COUNT_OF);
}

/* Keep the tile's session up to date, as a kernel does before it serves the lanes of a warp
 * together. */
static int tend(session *t, uint32_t lane, uint64_t hash, bool changes)
{
    ga_lanes low = {0}, high = {0};
    low[lane] = (uint32_t)hash;
    high[lane] = (uint32_t)(hash >> 32);
#define TEND(kind)                                                                                 \
    (changes ? ga_slabhash_tend_lanes(kind, world.view, &world.growing, SLABHASH_TILE,             \
                                      &t->claimed, &t->stand, 1u << lane, low, high)               \
             : ga_slabhash_tend_searches(&world.growing, SLABHASH_TILE, &t->stand),                \
     0)
    EACH_KIND(TEND);
}

static uint32_t serve(const session *t, uint32_t lane, uint32_t op, uint64_t hash,
                      ga_slabhash_requests *many)
{
    ga_slabhash_shift shift = ga_slabhash_shift_of(world.view, &world.growing, &t->stand);
    ga_slabhash_view view = ga_slabhash_for_lane(MAP32_KIND, shift, op, hash);
    if (!view.rows) {
        return 1u << lane;
    }
    ga_slabhash_requests_begin(view, ga_slabhash_is_ordered(view), many, lane, hash);
    return ga_slabhash_serve_many(MAP32_KIND, GA_SLABHASH_OP_COUNT, view, ga_tile_abreast(8),
                                  1u << lane, many);
}

/* Serve as one lane of a warp whose lanes are served together. Returns false if the operation is
 * deferred. */
static bool as_a_lane(session *t, ga_slabhash_operation to, uint64_t hash,
                      ga_slabhash_answer *answer)
{
    uint32_t lane = (uint32_t)to.key % 8;
    ga_slabhash_requests many = {0};
    (void)tend(t, lane, hash, to.op != GA_SLABHASH_SEARCH);
    many.key[lane] = (uint32_t)to.key;
    many.value[lane] = (uint32_t)to.value;
    many.op[lane] = to.op;
    bool later = serve(t, lane, to.op, hash, &many) != 0;
    *answer = ga_slabhash_answer_of(many.result[lane], many.was[lane]);
    return !later;
}

/* Again where there was no slab. */
static ga_slabhash_answer do_one(session *t, uint32_t op, uint64_t key, uint64_t value)
{
    ga_slabhash_operation to = {.key = key, .value = value, .op = op, .how = GA_SLABHASH_ADD};
    uint64_t hash = ga_slabhash_seeded(world.view, key);
    ga_slabhash_answer now;
    if (!world.wide && t->random % 2 && ga_slabhash_is_served(MAP32_KIND, op) &&
        as_a_lane(t, to, hash, &now)) {
        return now;
    }
    for (;;) {
        uint32_t seen = slabhash_room(world.table);
        now = perform(t, to, hash);
        if (now.result != GA_SLABHASH_FULL) {
            return now;
        }
        NEED(ga_slabhash_grow(world.table, seen) == GA_OK);
    }
}

static void begin(session *t, uint32_t number)
{
    memset(t, 0, sizeof *t);
    t->number = number;
    t->random = world.tables * THREADS + number + 1;
    t->claimed = ga_slabhash_claim_begin(number * GA_SLAB_ROW_WORDS);
    ga_slabhash_snapshot_begin(&world.growing, SLABHASH_TILE, &t->stand, number);
}

static void end(session *t)
{
    ga_slabhash_claim_end(world.view, SLABHASH_TILE, &t->claimed);
    t->claimed.units = 0;
    ga_slabhash_snapshot_end(&world.growing, SLABHASH_TILE, &t->stand);
}

/* Make the table migrate to more, fewer or the same number of buckets, regardless of its
 * contents. */
static void move_on(session *t)
{
    ga_slabhash_growing *g = &world.growing;
    ga_slabhash_snapshot_renew(g, SLABHASH_TILE, &t->stand);
    uint32_t number = t->stand.number + 1;
    if (ga_slabhash_has_entry(g, SLABHASH_TILE, number) &&
        ga_cas_acquire(&g->making, number, number + 1) == number) { /* M: acquire. Pairs with M */
        uint32_t buckets = t->stand.buckets, which = (uint32_t)random_below(&t->random, 6);
        if (which == 0 && buckets >= 4) {
            buckets /= buckets % 4 ? 2 : 4;
        } else if (which < 3 && buckets < BUCKETS_MAX) {
            buckets *= 2;
        }
        ga_slabhash_make_version(g, SLABHASH_TILE, number, buckets, 1);
    }
    while (ga_slabhash_clear_some(g, SLABHASH_TILE)) {
    }
}

/* ---- calls of the threads ----------------------------------------------------------------- */

static void call_own(session *t)
{
    static const uint32_t ops[] = {GA_SLABHASH_INSERT, GA_SLABHASH_INSERT, GA_SLABHASH_REPLACE,
                                   GA_SLABHASH_DELETE, GA_SLABHASH_SEARCH, GA_SLABHASH_SEARCH};
    uint32_t which = (uint32_t)random_below(&t->random, OWN);
    uint32_t op = ops[random_below(&t->random, 6)];
    uint64_t key = SHARED + t->number * (uint64_t)OWN + which, value = 1 + t->random % 1000;
    uint64_t *own = t->values + which;
    ga_slabhash_answer answer = do_one(t, op, key, value);
    stress_need(answer.result == (*own ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT),
                *own ? "a key is lost" : "a key has come back");
    stress_need(!*own || answer.value == *own, "a value is another's, or an old one");
    if (op == GA_SLABHASH_REPLACE || (op == GA_SLABHASH_INSERT && !*own)) {
        *own = value;
    } else if (op == GA_SLABHASH_DELETE) {
        *own = 0;
    }
}

static void work(size_t number)
{
    static session sessions[THREADS];
    session *t = sessions + number;
    uint64_t added = 0;
    begin(t, (uint32_t)number);
    for (uint32_t i = 0; i < world.calls; i++) {
        if (random_below(&t->random, 8) == 0) {
            (void)do_one(t, GA_SLABHASH_APPLY, random_below(&t->random, SHARED), 1);
            added++;
        } else {
            call_own(t);
        }
        if (random_below(&t->random, world.moves) == 0) {
            move_on(t);
        }
        if (random_below(&t->random, SLEEPS) ==
            0) { /* as a thread that is stopped in an old epoch */
            usleep(300);
        }
    }
    for (uint32_t which = 0; which < OWN; which++) {
        uint64_t count = count_of(t, SHARED + number * OWN + which);
        stress_need(count == (t->values[which] ? 1 : 0), "a key is lost, or there twice");
    }
    end(t);
    __atomic_fetch_add(&world.added, added, __ATOMIC_RELAXED); /* relaxed: read after all */
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void open_table(void)
{
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .mode = world.wide ? GA_SLABHASH_MAP64 : GA_SLABHASH_MAP32,
                                   .buckets = 1,
                                   .seed = 1,
                                   .limit = 64 << 20,
                                   .heap = world.heap};
    ga_slabhash_growing *g = &world.growing;
    NEED(ga_slabhash_open(&world.table, &options) == GA_OK);
    world.view = world.table->view;
    world.view.kind = world.wide ? MAP64_KIND : MAP32_KIND;
    world.view.chained_max = UINT32_MAX;
    memset(g, 0, sizeof *g);
    world.used = world.added = 0;
    world.held = world.held_max = 0;
    if (plain) {
        world.addresses =
            mmap(NULL, AWAY_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        NEED(world.addresses != MAP_FAILED);
    }
    g->memory.alloc = array;
    g->memory.free = give;
    g->there = g->making = 1;
    g->least = 8;
    g->slabs = world.view.heap;
    g->kind = world.view.kind;
    g->versions[0].buckets = 8;
    g->versions[0].rows = array(NULL, (size_t)8 * 128);
    memset(g->versions[0].rows, 0xff, (size_t)8 * 128);
    world.returned = 0;
}

/* Complete a migration under way; no other thread uses the table. Each call that changes something
 * opens a run of groups. A bucket that finds no slab stays pending until a call for one of its own
 * keys, which adds slabs. So the calls are for absent keys of all buckets. */
static void settle(void)
{
    uint64_t absent = SHARED + THREADS * OWN, calls = 0;
    session t;
    begin(&t, 0);
    (void)do_one(&t, GA_SLABHASH_DELETE, absent, 0);
    while (ga_slabhash_clear_some(&world.growing, SLABHASH_TILE)) {
    }
    ga_slabhash_snapshot_renew(&world.growing, SLABHASH_TILE, &t.stand);
    while (t.stand.next_rows) {
        stress_need(++calls < SETTLES_MAX, "a migration does not end");
        (void)do_one(&t, GA_SLABHASH_DELETE, absent + calls, 0);
        ga_slabhash_snapshot_renew(&world.growing, SLABHASH_TILE, &t.stand);
    }
    end(&t);
    while (ga_slabhash_give_some(world.view.heap, &world.growing, SLABHASH_TILE)) {
    }
}

/* Slabs behind the buckets of the array that is left. */
static uint64_t slabs_there(const ga_slabhash_version *stage)
{
    uint64_t count = 0;
    ga_slabhash_view view = world.view;
    view.rows = stage->rows;
    for (uint32_t bucket = 0; bucket < stage->buckets; bucket++) {
        uint32_t unit = ga_slabhash_bucket_row(view, bucket)[GA_SLABHASH_NEXT];
        while (unit != GA_SLABHASH_NO_SLAB) {
            count++;
            unit = ga_slabhash_row(view, unit)[GA_SLABHASH_NEXT];
        }
    }
    return count;
}

/* The threads have ended: their pairs are there, and no array or slab that they migrated from. */
static void check(void)
{
    session t;
    uint64_t sum = 0;
    begin(&t, 0);
    for (uint64_t key = 0; key < SHARED; key++) {
        ga_slabhash_answer answer = do_one(&t, GA_SLABHASH_SEARCH, key, 0);
        stress_need(count_of(&t, key) <= 1, "a shared key is there twice");
        sum += answer.value;
    }
    end(&t);
    stress_need(sum == world.added, "what was added is lost, or doubled");
    stress_need(world.growing.gone == world.growing.now && world.held == 1,
                "an array is kept that nobody uses");
    stress_need(world.growing.epochs.step % 4 == GA_EPOCH_OPEN, "an epoch does not drain");
    const ga_slabhash_version *last = ga_slabhash_version_of(&world.growing, world.growing.now);
    stress_need(ga_slab_host_taken(&world.table->slabs) == slabs_there(last),
                "slabs are lost, or given back twice");
}

static void close_table(void)
{
    ga_slabhash_version *last = ga_slabhash_version_of(&world.growing, world.growing.now);
    if (plain) {
        NEED(munmap(world.addresses, AWAY_BYTES) == 0);
    } else {
        free(last->rows);
    }
    NEED(ga_slabhash_close(world.table) == GA_OK);
}

static void one_table(void)
{
    open_table();
    stress_threads(THREADS, work);
    world.came_back += world.returned;
    stress_need(world.held_max <= GA_SLABHASH_VERSIONS, "more arrays are held than have an entry");
    settle();
    world.stages += world.growing.now;
    check();
    close_table();
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = touched};
    stress_begin(argc, argv);
    world.heap = stress_open("system");
    if (plain) {
        NEED(sigaction(SIGSEGV, &action, NULL) == 0);
    }
    /* Continue as long as needed if threads are delayed, because they keep arrays that they may
     * refer to. */
    while (stress_goes_on() || world.tables < 2 || world.came_back < CAME_BACK) {
        world.wide = world.tables % 2 && !GA_PLANTED_ANY;
        world.moves = world.tables % 4 < 2 ? OFTEN : RARELY;
        world.calls = world.tables % 32 < 4 ? CALLS : FEW;
        one_table();
        world.tables++;
    }
    printf("%llu tables, %llu stages, of which %llu came back while threads ran\n",
           (unsigned long long)world.tables, (unsigned long long)world.stages,
           (unsigned long long)world.came_back);
    NEED(ga_heap_close(world.heap) == GA_OK);
    return 0;
}
