/* SPDX-License-Identifier: MIT
 *
 * The cost of hazard pointers: a protected load beside a plain one, and retire beside free. Also
 * for liburcu (memb, deferred frees), if it is installed.
 *
 *     bench-reclaim [--threads N,N] [--rounds N] [--ms N] [--batch N] [--yield N]
 *
 * With --yield, threads that retire yield after every N objects, so that they advance together even
 * if there are fewer cores than threads.
 *
 * In a round all variants take turns, and each round begins with another one. A figure is the
 * median over the rounds, with the quartiles, of the threads' processor time for one operation;
 * "times" is the variant's time divided by the baseline's, the median of the same rounds.
 */
#include <gpualloc/reclaim.h>

#include "commit.h"

#ifdef HAVE_URCU
#define RCU_MEMBARRIER
#define _LGPL_SOURCE /* makes its small functions inline */
#include <urcu-defer.h>
#include <urcu.h>
#endif

#include <err.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    NODES = 256, /* nodes that loads visit; they fit in the first-level cache with the pointers */
    OBJECTS = 1 << 16,
    OBJECT_BYTES = 64,
    CHUNK = 4096, /* loads between two looks at the clock */
    ROUNDS_MAX = 101,
    THREADS_MAX = 256
};

typedef struct node {
    void **next; /* the next cell */
    uintptr_t more[7];
} node;

static struct {
    unsigned threads[16], counts, rounds, ms, batch, yield;
} settings = {.threads = {1, 2}, .counts = 2, .rounds = 7, .ms = 100, .batch = 4096};

static node nodes[NODES];
static void *cells[NODES];
static ga_domain *asymmetric, *seq_cst;
static ga_heap *slab;

/* ---- threads ------------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t thread;
    double ns; /* for one operation */
} worker;

static pthread_barrier_t together;
static double (*measured)(void);

/* Processor time of this thread, including the kernel's, because other programs may be using the
 * machine. */
static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *work(void *context)
{
    worker *w = context;
    pthread_barrier_wait(&together);
    w->ns = measured();
    return NULL;
}

/* The mean over `count` threads. */
static double run_threads(unsigned count, double (*body)(void))
{
    static worker workers[THREADS_MAX];
    double sum = 0;
    measured = body;
    pthread_barrier_init(&together, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) {
            errx(1, "no thread");
        }
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        sum += workers[i].ns;
    }
    pthread_barrier_destroy(&together);
    return sum / count;
}

/* ---- loads --------------------------------------------------------------------------------- */

/* The next cell's address depends on the loaded value, so that the loads are serial, as in a linked
 * structure. */
#define LOADS(load, end)                                                                           \
    uint64_t began = now();                                                                        \
    uint64_t loads = 0;                                                                            \
    void **at = &cells[1];                                                                         \
    do {                                                                                           \
        for (int i = 0; i < CHUNK; i++) {                                                          \
            const node *n = load;                                                                  \
            at = n->next;                                                                          \
            end;                                                                                   \
        }                                                                                          \
        loads += CHUNK;                                                                            \
    } while (now() - began < (uint64_t)settings.ms * 1000000u);                                    \
    if (at < cells || at >= cells + NODES) {                                                       \
        errx(1, "a wrong load");                                                                   \
    }                                                                                              \
    return (double)(now() - began) / (double)loads

static double load_plain(void)
{
    /* Acquire, without a partner: set_up() wrote the cells before the threads started. */
    LOADS(__atomic_load_n(at, __ATOMIC_ACQUIRE), (void)0); /* as a reader that never frees */
}

static ga_hazards *join(ga_domain *domain)
{
    ga_hazards *mine;
    if (ga_domain_join(domain, &mine) != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
    return mine;
}

static double load_protected(ga_domain *domain)
{
    ga_hazards *mine = join(domain);
    LOADS(ga_hazard_protect_pointer(mine, (uint32_t)i % 2u, at), (void)0);
}

static double load_asymmetric(void)
{
    double ns = load_protected(asymmetric);
    ga_domain_leave(asymmetric);
    return ns;
}

static double load_seq_cst(void)
{
    double ns = load_protected(seq_cst);
    ga_domain_leave(seq_cst);
    return ns;
}

#ifdef HAVE_URCU
static double load_urcu_section(void)
{
    LOADS((rcu_read_lock(), rcu_dereference(*at)), rcu_read_unlock());
}

static double load_urcu(void)
{
    rcu_register_thread();
    double ns = load_urcu_section();
    rcu_unregister_thread();
    return ns;
}
#endif

/* ---- retiring ------------------------------------------------------------------------------ */

static void make_objects(void **objects, ga_heap *heap)
{
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = NULL;
        if (heap) {
            ga_alloc(heap, OBJECT_BYTES, 0, &objects[i]);
        } else {
            objects[i] = malloc(OBJECT_BYTES);
        }
        if (!objects[i]) {
            errx(1, "no memory");
        }
        memset(objects[i], 0, OBJECT_BYTES);
    }
}

static void let_others_on(unsigned i)
{
    if (settings.yield && i % settings.yield == 0) {
        sched_yield();
    }
}

/* `give` each object, then `settle` the deferred frees; the objects are allocated outside the timed
 * part. */
#define GIVES(heap, give, settle)                                                                  \
    void **objects = malloc(OBJECTS * sizeof *objects);                                            \
    uint64_t spent = 0;                                                                            \
    uint64_t given = 0;                                                                            \
    if (!objects) {                                                                                \
        errx(1, "no memory");                                                                      \
    }                                                                                              \
    do {                                                                                           \
        make_objects(objects, heap);                                                               \
        uint64_t began = now();                                                                    \
        for (unsigned i = 0; i < OBJECTS; i++) {                                                   \
            void *object = objects[i];                                                             \
            give;                                                                                  \
            let_others_on(i);                                                                      \
        }                                                                                          \
        settle;                                                                                    \
        spent += now() - began;                                                                    \
        given += OBJECTS;                                                                          \
    } while (spent < (uint64_t)settings.ms * 1000000u);                                            \
    free(objects);                                                                                 \
    return (double)spent / (double)given

static double give_free(void)
{
    GIVES(NULL, free(object), (void)0);
}

static double give_slab(void)
{
    GIVES(slab, ga_free(slab, object), (void)0);
}

static void reclaim(void *context, void *object)
{
    (void)context;
    free(object);
}

static double give_hazard(void)
{
    ga_hazards *mine = join(asymmetric);
    GIVES(NULL, ga_hazard_retire(mine, object, OBJECT_BYTES, reclaim, NULL),
          ga_domain_drain(asymmetric));
}

static double give_hazard_slab(void)
{
    ga_hazards *mine = join(asymmetric);
    GIVES(slab, ga_hazard_retire_to(mine, object, OBJECT_BYTES, slab), ga_domain_drain(asymmetric));
}

static void nothing(void *context, void *object)
{
    (void)context;
    (void)object;
}

/* The domain alone. */
static double give_nothing_objects(ga_hazards *mine)
{
    uint64_t began = now();
    uint64_t given = 0;
    do {
        for (unsigned i = 0; i < OBJECTS; i++) {
            ga_hazard_retire(mine, &nodes[i % NODES].more[i % 7], 1, nothing, NULL);
            let_others_on(i);
        }
        ga_domain_drain(asymmetric);
        given += OBJECTS;
    } while (now() - began < (uint64_t)settings.ms * 1000000u);
    return (double)(now() - began) / (double)given;
}

static double give_nothing(void)
{
    return give_nothing_objects(join(asymmetric));
}

#ifdef HAVE_URCU
static double give_urcu_objects(void)
{
    GIVES(NULL, defer_rcu(free, object), rcu_defer_barrier_thread());
}

static double give_urcu(void)
{
    rcu_register_thread();
    if (rcu_defer_register_thread()) {
        errx(1, "no deferred frees");
    }
    double ns = give_urcu_objects();
    rcu_defer_unregister_thread();
    rcu_unregister_thread();
    return ns;
}
#endif

/* ---- rounds -------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct contender {
    const char *name;
    double (*body)(void);
    const char *baseline; /* variant of the same table to which the ratio is printed */
} contender;

static const contender loads[] = {{"plain load", load_plain, "plain load"},
                                  {"hazard, asymmetric", load_asymmetric, "plain load"},
                                  {"hazard, seq_cst", load_seq_cst, "plain load"},
#ifdef HAVE_URCU
                                  {"liburcu memb, lock and unlock", load_urcu, "plain load"},
#endif
                                  {NULL, NULL, NULL}};

static const contender gives[] = {
    {"free", give_free, "free"},
    {"retire and free", give_hazard, "free"},
#ifdef HAVE_URCU
    {"liburcu memb, defer_rcu and free", give_urcu, "free"},
#endif
    {"ga_free, slab", give_slab, "ga_free, slab"},
    {"retire_to and ga_free, slab", give_hazard_slab, "ga_free, slab"},
    {"retire alone", give_nothing, "free"},
    {NULL, NULL, NULL}};

static void print_row(const contender *c, double *ns, double *ratios)
{
    unsigned n = settings.rounds;
    qsort(ns, n, sizeof *ns, by_value);
    qsort(ratios, n, sizeof *ratios, by_value);
    printf("  %-34s %8.2f  (%.2f to %.2f)  %8.1f M/s  %6.2f times %s\n", c->name, ns[n / 2],
           ns[n / 4], ns[n - 1 - n / 4], 1e3 / ns[n / 2], ratios[n / 2], c->baseline);
}

static void compare(const contender *table, unsigned threads)
{
    static double ns[16][ROUNDS_MAX];
    unsigned count = 0;
    while (table[count].name) {
        count++;
    }
    for (unsigned round = 0; round < settings.rounds; round++) {
        for (unsigned i = 0; i < count; i++) {
            unsigned which = (i + round) % count;
            ns[which][round] = run_threads(threads, table[which].body);
        }
    }
    static double ratios[16][ROUNDS_MAX];
    for (unsigned i = 0; i < count; i++) {
        unsigned base = 0;
        while (strcmp(table[base].name, table[i].baseline) != 0) {
            base++;
        }
        for (unsigned round = 0; round < settings.rounds; round++) {
            ratios[i][round] = ns[i][round] / ns[base][round];
        }
    }
    for (unsigned i = 0; i < count; i++) {
        print_row(&table[i], ns[i], ratios[i]);
    }
}

/* Scans of all threads in a round, for each million retired objects. */
static void print_scans(const ga_domain_stats *before, const ga_domain_stats *now)
{
    double millions = (double)(now->retired - before->retired) / 1e6;
    uint64_t scans = now->scans - before->scans;
    uint64_t shared = now->shared - before->shared;
    printf("  for a million retired: %.0f scans, %.0f membarriers\n", (double)scans / millions,
           now->seq_cst ? 0 : (double)(scans - shared) / millions);
}

static void compare_gives(unsigned threads)
{
    ga_domain_stats before;
    ga_domain_stats now;
    printf("objects of %d bytes, %u threads, batches of %u\n", OBJECT_BYTES, threads,
           settings.batch);
    ga_domain_get_stats(asymmetric, &before);
    compare(gives, threads);
    ga_domain_get_stats(asymmetric, &now);
    print_scans(&before, &now);
}

/* ---- the command --------------------------------------------------------------------------- */

static unsigned number(const char *text, unsigned most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (!*text || *end || !value || value > most) {
        errx(2, "\"%s\": expected a number from 1 to %u", text, most);
    }
    return (unsigned)value;
}

static void read_threads(char *list)
{
    settings.counts = 0;
    for (char *one = strtok(list, ","); one; one = strtok(NULL, ",")) {
        if (settings.counts == 16) {
            errx(2, "at most 16 numbers of threads");
        }
        settings.threads[settings.counts++] = number(one, THREADS_MAX);
    }
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) {
            errx(2, "usage: bench-reclaim [--threads N,N] [--rounds N] [--ms N] [--batch N] "
                    "[--yield N]");
        }
        if (strcmp(argv[i], "--threads") == 0) {
            read_threads(argv[i + 1]);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            settings.rounds = number(argv[i + 1], ROUNDS_MAX);
        } else if (strcmp(argv[i], "--ms") == 0) {
            settings.ms = number(argv[i + 1], 10000);
        } else if (strcmp(argv[i], "--batch") == 0) {
            settings.batch = number(argv[i + 1], OBJECTS);
        } else if (strcmp(argv[i], "--yield") == 0) {
            settings.yield = number(argv[i + 1], OBJECTS);
        } else {
            errx(2, "unknown option \"%s\"", argv[i]);
        }
    }
}

/* Links all cells in an order that a prefetcher cannot predict; its period is 256. */
static void set_up(void)
{
    for (uintptr_t i = 0; i < NODES; i++) {
        nodes[i].next = &cells[(i * 5 + 1) % NODES];
        cells[i] = &nodes[i];
    }
    ga_domain_options usual = {.options_size = sizeof usual, .batch = settings.batch};
    ga_domain_options strong = {.options_size = sizeof strong, .flags = GA_DOMAIN_SEQ_CST};
    if (ga_domain_open(&asymmetric, &usual) != GA_OK ||
        ga_domain_open(&seq_cst, &strong) != GA_OK ||
        ga_heap_open(&slab, GA_PLACE_HOST, 0, "slab") != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
}

int main(int argc, char **argv)
{
    ga_domain_stats stats;
    read_arguments(argc, argv);
    set_up();
    ga_domain_get_stats(asymmetric, &stats);
    printf("bench-reclaim, commit %s; %u rounds of %u ms; ns for one, median (quartiles)%s\n",
           GA_BENCH_COMMIT, settings.rounds, settings.ms,
           stats.seq_cst ? "; no membarriers here: all is seq_cst" : "");
    for (unsigned i = 0; i < settings.counts; i++) {
        printf("loads, %u threads\n", settings.threads[i]);
        compare(loads, settings.threads[i]);
        compare_gives(settings.threads[i]);
    }
    ga_domain_get_stats(asymmetric, &stats);
    if (stats.pending > stats.bound || stats.not_freed) {
        errx(1, "%llu objects wait", (unsigned long long)stats.pending);
    }
    ga_domain_close(asymmetric);
    ga_domain_close(seq_cst);
    ga_heap_close(slab);
    return 0;
}
