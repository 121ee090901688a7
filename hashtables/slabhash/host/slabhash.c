/* SPDX-License-Identifier: MIT
 *
 * Tables of host threads: opening, closing, and the check for overlapping calls.
 *
 * STRUCTURE  The buckets' slabs are an array, one block of the heap. Overflow slabs are units of a
 *            slab allocator of the table's own, over the same heap.
 */
#include "table.h"

#include "../../../liballoc/platform/entropy.h"
#include "../../../liballoc/platform/libc.h"
#include "../../../liballoc/platform/machine.h"
#include "../../../liballoc/platform/os_memory.h"

#include <string.h>
#include <sys/mman.h>

enum {
    DEFAULT_BUCKETS = 1024,       /* if the options say 0 */
    DEFAULT_BUCKETS_GROWING = 16, /* likewise, in a table that grows */
    PATH_LIMIT = 16,
    SUPER_BITS = 3, /* log2 of a superblock's blocks: 1 MiB of slabs are requested from the heap
                     * at a time */
    ROW_BYTES = GA_SLABHASH_WORDS * sizeof(uint32_t),
    HUGE = 2 << 20,
    CHECK_FROM_BYTES = 64 << 20 /* size of buckets from which /proc is read, which takes about 50
                                 * us */
};

static const uint64_t LIMIT = UINT64_C(16) << 30;
static const uint64_t LIMIT_MAX = UINT64_C(64) << 30;

/* Records of closed tables. They are never freed, so that a call for a closed table is detected. */
static struct {
    pthread_mutex_t lock;
    ga_slabhash *first; /* guarded by `lock`; reused by the next open */
    ga_slabhash *kept;  /* guarded by `lock`; those of checked tables, never reused */
} closed = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *ga_slabhash_mode_text(ga_slabhash_mode mode)
{
    static const char *const names[GA_SLABHASH_MODE_COUNT] = {"set32", "map32", "map64"};
    return (unsigned)mode < GA_SLABHASH_MODE_COUNT ? names[mode] : "?";
}

/* ---- open ----------------------------------------------------------------------------------- */

static uint32_t buckets_of(const ga_slabhash_options *o)
{
    uint32_t defaults = o->flags & GA_SLABHASH_GROW ? DEFAULT_BUCKETS_GROWING : DEFAULT_BUCKETS;
    return o->buckets ? o->buckets : defaults;
}

static ga_status check_numbers(const ga_slabhash_options *o)
{
    uint32_t buckets = buckets_of(o);
    uint32_t longest = buckets < PATH_LIMIT ? buckets : PATH_LIMIT;
    if (o->buckets > UINT32_C(1) << 31) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: buckets=%u: expected 1 to %u, or 0", o->buckets,
                       UINT32_C(1) << 31);
    }
    if (o->flags & GA_SLABHASH_GROW && o->path > 1) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "slabhash: path=%u of a table that grows: expected 1, or 0", o->path);
    }
    if (o->path > longest) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: path=%u with buckets=%u: expected 1 to %u, or 0",
                       o->path, buckets, longest);
    }
    return GA_OK;
}

static ga_status check_options(const ga_slabhash_options *o)
{
    if (o->options_size != sizeof *o) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: options_size=%u: expected %zu", o->options_size,
                       sizeof *o);
    }
    if (o->flags & ~(uint32_t)(GA_SLABHASH_MULTI | GA_SLABHASH_GROW | GA_SLABHASH_CHECK)) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "slabhash: flags=0x%x: expected any of GA_SLABHASH_MULTI, _GROW, _CHECK, "
                       "or none",
                       o->flags);
    }
    if (o->reserved) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: reserved=%u: expected 0", o->reserved);
    }
    if ((unsigned)o->mode >= GA_SLABHASH_MODE_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: mode=%d: expected 0 to %d", (int)o->mode,
                       GA_SLABHASH_MODE_COUNT - 1);
    }
    return check_numbers(o);
}

/* Checks options that only tables of host threads have. */
static ga_status check_host(const ga_slabhash_options *o)
{
    if (o->limit > LIMIT_MAX) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: limit=%llu: expected at most %llu bytes, or 0",
                       (unsigned long long)o->limit, (unsigned long long)LIMIT_MAX);
    }
    return !o->heap || ga_heap_place(o->heap) == GA_PLACE_HOST
               ? GA_OK
               : ga_fail(GA_ERR_PLACE, "slabhash: a heap for the %s: expected one for the host",
                         ga_place_text(ga_heap_place(o->heap)));
}

/* A pseudo-random number (splitmix64) below the prime; advances the seed. */
static uint64_t draw_below_prime(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % GA_SLABHASH_PRIME;
}

/* Never 0, because as an option 0 requests a drawn seed: the seed in a plan or in statistics
 * must give the same hash again. */
static uint64_t draw_seed(void)
{
    uint64_t seed = ga_entropy();
    return seed ? seed : 1;
}

static const slabhash_ops *ops_of(uint32_t kind)
{
#ifdef __x86_64__
    if (ga_slabhash_ops_avx2[kind] && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi")) {
        return ga_slabhash_ops_avx2[kind];
    }
#endif
    return ga_slabhash_ops[kind];
}

static ga_status plan_of(const ga_slabhash_options *options, ga_slabhash_plan *out)
{
    if (!options || !out) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no %s: expected a pointer",
                       options ? "place for the plan" : "options");
    }
    ga_status status = check_options(options);
    if (status == GA_OK) {
        uint64_t seed = options->seed ? options->seed : draw_seed();
        out->seed = seed;
        uint64_t a = draw_below_prime(&seed);
        out->kind = GA_SLABHASH_KIND(options->mode, options->flags & GA_SLABHASH_MULTI);
        out->kind |= options->flags & GA_SLABHASH_GROW ? GA_SLABHASH_GROWING : 0;
        out->buckets = buckets_of(options);
        out->path = options->path ? options->path : 1;
        out->stride_max = out->buckets / out->path;
        out->a = (a ? a : 1) << 3;
        out->b = draw_below_prime(&seed);
        out->bytes = (uint64_t)out->buckets * ROW_BYTES;
    }
    return status;
}

ga_status ga_slabhash_plan_of(const ga_slabhash_options *options, ga_slabhash_plan *out)
{
    ga_status status = plan_of(options, out);
    return status == GA_OK && out->kind & GA_SLABHASH_GROWING
               ? ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: flags=0x%x in other memory than the host's: "
                         "expected no GA_SLABHASH_GROW",
                         options->flags)
               : status;
}

/* Fills the record from valid options. */
static void init_record(ga_slabhash *table, const ga_slabhash_options *o,
                        const ga_slabhash_plan *plan)
{
    uint64_t super = (uint64_t)ROW_BYTES << (SUPER_BITS + GA_SLAB_BLOCK_BITS);
    uint64_t limit = o->limit ? o->limit : LIMIT;
    uint32_t supers = (uint32_t)((limit + super - 1) / super);
    bool grows = GA_SLABHASH_IS_GROWING(plan->kind);
    /* During a migration both arrays have slabs. `chained_max` is the limit of each, so the
     * allocator's own limit is higher. */
    ga_slab_shape shape = {.unit = ROW_BYTES,
                           .super_bits = SUPER_BITS,
                           .supers = grows ? (uint32_t)(LIMIT_MAX / super) : supers,
                           .spread = GA_SLAB_SPREAD_HOST};
    table->kind = plan->kind;
    table->ops = ops_of(table->kind);
    table->checked = o->flags & GA_SLABHASH_CHECK;
    if (table->checked) {
        table->checked_ops = *table->ops;
        table->checked_ops.search = ga_slabhash_search_slow;
        table->checked_ops.insert = ga_slabhash_insert_slow;
        table->checked_ops.erase = ga_slabhash_delete_slow;
        table->ops = &table->checked_ops;
    }
    table->seed = plan->seed;
    table->hash = o->hash;
    table->context = o->context;
    table->heap = o->heap;
    table->view = (ga_slabhash_view){.heap = &table->slabs.heap,
                                     .buckets = plan->buckets,
                                     .path = plan->path,
                                     .stride_max = plan->stride_max,
                                     .kind = plan->kind,
                                     .a = plan->a,
                                     .b = plan->b,
                                     .chained_max = supers << (SUPER_BITS + GA_SLAB_BLOCK_BITS)};
    table->slabs.serial = UINT64_MAX; /* differs from every heap's serial number */
    ga_slab_host_begin(&table->slabs, &shape, table->heap);
}

/* All buckets are written at once. If the machine does not have the memory the OOM killer would
 * end the process, so this fails first. Memory that the heap holds unused counts as available. */
static ga_status check_memory(const ga_slabhash *table, uint64_t bytes)
{
    ga_stats heap = {0};
    if (bytes < CHECK_FROM_BYTES) {
        return GA_OK;
    }
    ga_heap_stats(table->heap, &heap);
    uint64_t unused = heap.held_bytes > heap.live_bytes ? heap.held_bytes - heap.live_bytes : 0;
    uint64_t available = ga_machine_memory_available();
    return available >= bytes || unused >= bytes - available
               ? GA_OK
               : ga_fail(GA_ERR_MEMORY,
                         "slabhash: %llu MiB of buckets: expected at most %llu MiB, which this "
                         "process can have now",
                         (unsigned long long)(bytes >> 20),
                         (unsigned long long)((available + unused) >> 20));
}

ga_status ga_slabhash_make_rows(ga_slabhash *table, uint64_t bytes, uint32_t **rows)
{
    bool huge = table->own_heap && bytes >= HUGE;
    void *block = NULL;
    ga_status status = check_memory(table, bytes);
    if (status == GA_OK) {
        status = ga_alloc(table->heap, bytes, huge ? HUGE : ROW_BYTES, &block);
    }
    *rows = block;
    if (status != GA_OK) {
        return status;
    }
    if (huge) {
        ga_os_memory_get()->madvise(block, bytes, MADV_HUGEPAGE); /* best effort */
    }
    memset(block, 0xff, bytes);
    return GA_OK;
}

static ga_status make_buckets(ga_slabhash *table)
{
    return ga_slabhash_make_rows(table, (uint64_t)table->view.buckets * ROW_BYTES,
                                 &table->view.rows);
}

static ga_status set_up(ga_slabhash *table)
{
    ga_status status = GA_OK;
    if (!table->heap) {
        table->own_heap = true;
        status = ga_heap_open(&table->heap, GA_PLACE_HOST, 0, "vmm");
        table->slabs.parent = table->heap;
    }
    return status                  ? status
           : slabhash_grows(table) ? ga_slabhash_versions_begin(table)
                                   : make_buckets(table);
}

static ga_slabhash *new_record(void)
{
    pthread_mutex_lock(&closed.lock);
    ga_slabhash *table = closed.first;
    if (table) {
        closed.first = table->next_closed;
    }
    pthread_mutex_unlock(&closed.lock);
    return table ? table : ga_libc.memalign(SLABHASH_ALIGN, sizeof *table);
}

/* Releases all but the record, which stays on a list as closed. */
static void release_memory(ga_slabhash *table)
{
    if (slabhash_grows(table)) {
        ga_slabhash_versions_end(table);
    }
    ga_slab_host_end(&table->slabs);
    if (table->view.rows) {
        ga_free(table->heap, table->view.rows);
    }
    if (table->own_heap) {
        ga_heap_close(table->heap);
    }
    pthread_mutex_destroy(&table->grow);
    pthread_mutex_lock(&closed.lock);
    ga_slabhash **list = table->checked ? &closed.kept : &closed.first;
    table->next_closed = *list;
    *list = table;
    pthread_mutex_unlock(&closed.lock);
}

ga_status ga_slabhash_open(ga_slabhash **out, const ga_slabhash_options *options)
{
    static const ga_slabhash_options defaults = {.options_size = sizeof defaults};
    if (!out) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for the table: expected a pointer");
    }
    *out = NULL;
    options = options ? options : &defaults;
    ga_slabhash_plan plan;
    ga_status status = plan_of(options, &plan);
    status = status ? status : check_host(options);
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash *table = new_record();
    if (!table) {
        return ga_fail(GA_ERR_MEMORY, "slabhash: no memory for the table's record");
    }
    memset(table, 0, sizeof *table);
    pthread_mutex_init(&table->grow, NULL);
    init_record(table, options, &plan);
    status = set_up(table);
    if (status != GA_OK) {
        release_memory(table);
        return status;
    }
    table->open = 1;
    *out = table;
    return GA_OK;
}

ga_status ga_slabhash_check(const ga_slabhash *table)
{
    if (!table) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no table: expected one that is open");
    }
    /* relaxed: detects a caller's mistake; it orders nothing */
    return ga_load_relaxed(&table->open)
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: a table that was closed: expected an open one");
}

/* ---- checked tables -------------------------------------------------------------------------- */

/* The table to which the thread has exclusive access: nested calls for it need not enter. */
static _Thread_local const ga_slabhash *exclusive_table;

ga_status ga_slabhash_enter(ga_slabhash *table, const char *exclusive)
{
    if (!table->checked || exclusive_table == table) {
        return exclusive ? GA_OK : ga_slabhash_enroll(table);
    }
    uint64_t before = ga_slabhash_use_begin(&table->use, exclusive != NULL);
    if (exclusive ? !before : !ga_slabhash_use_conflicts(before, false)) {
        ga_status status = exclusive ? GA_OK : ga_slabhash_enroll(table);
        exclusive_table = exclusive ? table : exclusive_table;
        if (status != GA_OK) {
            ga_slabhash_use_end(&table->use, false);
        }
        return status;
    }
    ga_slabhash_use_end(&table->use, exclusive != NULL);
    return exclusive ? ga_fail(GA_ERR_ARGUMENT,
                               "slabhash: %s beside %u other calls: expected exclusive access",
                               exclusive, (uint32_t)before + (uint32_t)(before >> 32))
                     : ga_fail(GA_ERR_ARGUMENT, "slabhash: a call beside one that needs exclusive "
                                                "access: expected one after the other");
}

void ga_slabhash_exit(ga_slabhash *table, const char *exclusive)
{
    if (table->checked && (exclusive || exclusive_table != table)) {
        exclusive_table = exclusive ? NULL : exclusive_table;
        ga_slabhash_use_end(&table->use, exclusive != NULL);
    }
}

ga_status ga_slabhash_close(ga_slabhash *table)
{
    ga_status status = table ? ga_slabhash_check(table) : GA_OK;
    status = table && status == GA_OK ? ga_slabhash_enter(table, "close") : status;
    if (table && status == GA_OK) {
        ga_store_relaxed(&table->open, 0); /* relaxed: see ga_slabhash_check() */
        exclusive_table =
            exclusive_table == table
                ? NULL
                : exclusive_table; /* a checked table stays entered, so that later calls are
                                    * refused */
        release_memory(table);
    }
    return status;
}

ga_status ga_slabhash_grow(ga_slabhash *table, uint32_t seen)
{
    pthread_mutex_lock(&table->grow);
    ga_status status = ga_slab_host_grow(&table->slabs, seen);
    pthread_mutex_unlock(&table->grow);
    return status;
}
