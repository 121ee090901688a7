/* SPDX-License-Identifier: MIT
 *
 * Threads open, use, count, trace and close heaps of several backends. They share some heaps, and
 * pass each other blocks of these. It would catch a list of heaps or backends that is changed by
 * two threads at once, a block that is handed out twice or loses its contents, one that cannot be
 * freed by another thread, counts that do not add up, and calls that are missing in a trace.
 */
#include "stress.h"

#include "support/model.h"
#include "support/random.h"
#include "support/sanitized.h"
#include "support/scene.h"

#include <gpualloc/backend.h>

#include <backends/trace/reader.h>
#include <stdio.h>
#include <string.h>

enum {
    THREADS = 6,
    SLOTS = 64, /* slots for blocks that wait for another thread */
    SHARED = 3,
    ROUND = 200,          /* operations with one heap */
    TRACED_MAX = 1 << 20, /* of them; a trace takes 48 bytes for each */
    BUILT_IN = 6,         /* specs that every build has */
    SPECS = 9
};

/* Counts; relaxed, since they are read once the threads have ended. */
static uint64_t traced_allocs, traced_frees;
static unsigned registered, closed;

static char trace[256];
static const char *specs[SPECS];
static size_t spec_count;

/* ---- blocks that threads pass on ------------------------------------------------------------ */

typedef struct parcel {
    size_t size; /* of the whole block */
    ga_heap *heap;
    unsigned char fill[]; /* all bytes like the size's lowest */
} parcel;

static ga_heap *shared[SHARED];
static parcel *slots[SLOTS];

static void fill(parcel *p)
{
    memset(p->fill, (int)p->size & 0xff, p->size - sizeof *p);
}

static void check_fill(const parcel *p)
{
    for (size_t i = 0; i < p->size - sizeof *p; i++) {
        NEED(p->fill[i] == (unsigned char)p->size);
    }
}

static parcel *pack(ga_heap *heap, uint64_t *random)
{
    void *block;
    size_t size = sizeof(parcel) + random_below(random, 3000);
    NEED(ga_alloc(heap, size, 0, &block) == GA_OK);
    parcel *p = block;
    *p = (parcel){.size = size, .heap = heap};
    fill(p);
    return p;
}

static void unpack(parcel *p)
{
    if (p) {
        check_fill(p);
        NEED(ga_free(p->heap, p) == GA_OK);
    }
}

/* Now and then resize the block on its way. */
static void handle(parcel *p, uint64_t *random)
{
    if (p && random_below(random, 4) == 0) {
        size_t size = p->size + random_below(random, 3000);
        void *moved = p;
        NEED(ga_realloc(p->heap, p, size, 0, &moved) == GA_OK);
        p = moved;
        check_fill(p);
        p->size = size;
        fill(p);
    }
    unpack(p);
}

/* Put a block into a slot, and take the block that was there. */
static void exchange(uint64_t *random)
{
    for (int i = 0; i < ROUND; i++) {
        parcel *p = pack(shared[random_below(random, SHARED)], random);
        parcel **slot = &slots[random_below(random, SLOTS)];
        /* X1: acquire and release. Pairs with itself: the block's contents travel with it. */
        handle(__atomic_exchange_n(slot, p, __ATOMIC_ACQ_REL), random);
    }
}

/* ---- heaps of one thread -------------------------------------------------------------------- */

static void use(ga_heap *heap, uint64_t seed)
{
    model m;
    model_begin(&m, heap, seed, 1 << 14);
    stress_need(model_run(&m, ROUND) && model_end(&m), m.trouble);
}

static void ask(ga_heap *heap)
{
    char text[4096];
    ga_stats stats;
    NEED(ga_heap_stats(heap, &stats) == GA_OK);
    NEED(ga_heap_stats_json(heap, text, sizeof text) == strlen(text));
    NEED(ga_backend_at(0) && !ga_backend_at(1000));
}

/* Close a heap after all its blocks were freed. */
static void settle(ga_heap *heap, const char *spec)
{
    ga_stats stats;
    NEED(ga_heap_stats(heap, &stats) == GA_OK);
    NEED(stats.allocs > 0 && stats.allocs == stats.frees && stats.live_bytes == 0);
    if (spec == trace) {
        __atomic_fetch_add(&traced_allocs, stats.allocs, __ATOMIC_RELAXED);
        __atomic_fetch_add(&traced_frees, stats.frees, __ATOMIC_RELAXED);
    }
    NEED(ga_heap_close(heap) == GA_OK);
    __atomic_fetch_add(&closed, 1, __ATOMIC_RELAXED);
}

static void open_and_close(uint64_t *random)
{
    const char *spec = specs[random_below(random, spec_count)];
    if (spec == trace && __atomic_load_n(&traced_allocs, __ATOMIC_RELAXED) > TRACED_MAX) {
        spec = "system";
    }
    ga_heap *own = stress_open(spec);
    use(own, random_next(random));
    ask(own);
    ask(shared[0]);
    settle(own, spec);
}

/* Each heap counts its own refusals: every third request fails, regardless of other heaps'
 * requests. */
static void be_refused(void)
{
    ga_stats stats;
    ga_heap *own = stress_open("fail:nth=3,every/system");
    for (int i = 1; i <= 30; i++) {
        void *block;
        ga_status status = ga_alloc(own, 10, 0, &block);
        NEED(status == (i % 3 ? GA_OK : GA_ERR_MEMORY) && !block == !(i % 3));
        NEED(ga_free(own, block) == GA_OK);
    }
    NEED(ga_heap_stats(own, &stats) == GA_OK && stats.failures == 10 && stats.allocs == 20);
    NEED(ga_heap_close(own) == GA_OK);
    NEED(ga_heap_open(&own, GA_PLACE_HOST, 0, "fail:nth=x") == GA_ERR_SPEC && !own);
}

/* ---- together ------------------------------------------------------------------------------- */

static ga_backend addition; /* a backend that all threads register at once: one of them succeeds */

static void run(size_t number)
{
    uint64_t random = number;
    ga_status status = ga_backend_register(&addition);
    NEED(status == GA_OK || status == GA_ERR_ARGUMENT);
    __atomic_fetch_add(&registered, status == GA_OK, __ATOMIC_RELAXED);
    while (stress_goes_on()) {
        open_and_close(&random);
        exchange(&random);
        be_refused();
    }
}

static void add_if_here(const char *spec)
{
    ga_heap *heap;
    if (ga_heap_open(&heap, GA_PLACE_HOST, 0, spec) == GA_OK) {
        NEED(ga_heap_close(heap) == GA_OK);
        specs[spec_count++] = spec;
    }
}

static void prepare(void)
{
    snprintf(trace, sizeof trace, "trace:file=\"%s\"/system", scene_path("t"));
    specs[spec_count++] = "system";
    specs[spec_count++] = "fail:nth=0/fail:nth=0/system";
    specs[spec_count++] = trace;
    specs[spec_count++] = "slab/system";
    specs[spec_count++] = "slab:check=full/system";
    specs[spec_count++] = "hardened";
    if (!UNDER_TSAN) { /* the sanitizer does not see how jemalloc's blocks pass between threads */
        add_if_here("jemalloc");
        add_if_here("dl:libmimalloc.so.2");
    }
    shared[0] = stress_open("system");
    shared[1] = stress_open(spec_count > BUILT_IN ? specs[BUILT_IN] : "fail:nth=0");
    shared[2] = stress_open("slab/system");
    for (size_t i = 0; strcmp(addition.name ? addition.name : "", "null") != 0; i++) {
        addition = *ga_backend_at(i);
    }
    addition.name = "addition";
}

/* Every block returned, and every block was counted. */
static void check_shared(void)
{
    ga_stats stats;
    for (size_t i = 0; i < SLOTS; i++) {
        unpack(slots[i]);
    }
    for (size_t i = 0; i < SHARED; i++) {
        NEED(ga_heap_stats(shared[i], &stats) == GA_OK);
        NEED(stats.allocs > 0 && stats.allocs == stats.frees);
        NEED(stats.live_blocks == 0 && stats.live_bytes == 0);
        NEED(ga_heap_close(shared[i]) == GA_OK);
    }
}

static void check_trace(void)
{
    ga_trace_reader *reader;
    const ga_trace_record *record;
    uint64_t allocs = 0;
    uint64_t frees = 0;
    if (!traced_allocs) {
        return;
    }
    NEED(ga_trace_reader_open(&reader, scene_path("t")) == GA_OK);
    while ((record = ga_trace_reader_next(reader))) {
        allocs += record->operation == GA_TRACE_ALLOC || record->operation == GA_TRACE_ZEROED;
        frees += record->operation == GA_TRACE_FREE;
    }
    NEED(ga_trace_reader_damaged(reader) == 0);
    NEED(allocs == traced_allocs && frees == traced_frees);
    ga_trace_reader_close(reader);
}

int main(int argc, char **argv)
{
    scene_enter_folder();
    prepare();
    stress_begin(argc, argv);
    stress_threads(THREADS, run);
    NEED(registered == 1 && closed > 0);
    check_shared();
    check_trace();
    scene_leave_folder();
    printf("heaps: %u opened and closed, of %zu kinds\n", closed, spec_count);
    return 0;
}
