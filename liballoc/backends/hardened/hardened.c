/* SPDX-License-Identifier: MIT
 *
 * The `hardened` backend: which bin serves a request, and the interface.
 *
 *   addresses:  arena 0 class 0 | arena 0 class 1 | ... | arena 3 class 47, region_bytes each
 *   small block -> bin of the thread's arena and the class; its lock
 *   large block -> large.c
 *
 * A pointer's bin follows from its address, so a block goes back to the arena that it came from.
 */
#include "hardened.h"

#include "../../platform/os_memory.h"
#include "../../platform/reservations.h"
#include "../../platform/thread.h"
#include "bin.h"
#include "large.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    ARENAS = 4, /* one where addresses are limited */
    BINS = ARENAS * GA_HARDENED_CLASSES,
    REGION_MAX = 34,    /* log2 of a bin's addresses: 16 GiB, 3 TiB for all */
    REGION_ARENAS = 28, /* least for more than one arena: 48 GiB for all */
    REGION_MIN = 22,    /* 192 MiB for one arena */
    NATURAL_ALIGN = 16,
    USUAL_MAPPINGS = 65530 /* the kernel's default of vm.max_map_count */
};

typedef struct hardened {
    uint8_t *addresses;
    unsigned region_log;
    unsigned arenas;
    uint8_t *tables;
    size_t tables_bytes;
    ga_hardened_limits limits;
    ga_hardened_bin bins[BINS];
    ga_hardened_large large;
} hardened;

/* The heap that the malloc-shaped table serves; set by the first that asks for the table. */
static hardened *served;

/* ---- opening ------------------------------------------------------------------------------ */

static void *reserve(size_t bytes)
{
    void *start = ga_os_memory_get()->mmap(NULL, bytes, PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start != MAP_FAILED && ga_reservations_add(start, bytes)) {
        return start;
    }
    if (start != MAP_FAILED) {
        ga_os_memory_unmap(start, bytes);
    }
    return NULL;
}

static void unreserve(void *start, size_t bytes)
{
    if (start) {
        ga_reservations_remove(start, bytes);
        ga_os_memory_unmap(start, bytes);
    }
}

static unsigned bins_of(const hardened *heap)
{
    return heap->arenas * GA_HARDENED_CLASSES;
}

static size_t address_bytes(const hardened *heap)
{
    return (size_t)bins_of(heap) << heap->region_log;
}

/* Where the process's addresses are limited (ulimit -v), most are left for large blocks and for the
 * program. */
static size_t addresses_max(void)
{
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? limit.rlim_cur / 4 : SIZE_MAX;
}

static bool reserve_addresses(hardened *heap)
{
    size_t max = addresses_max();
    for (unsigned log = REGION_MAX; log >= REGION_MIN && !heap->addresses; log--) {
        heap->region_log = log;
        heap->arenas = log >= REGION_ARENAS ? ARENAS : 1;
        heap->addresses = address_bytes(heap) <= max ? reserve(address_bytes(heap)) : NULL;
    }
    return heap->addresses;
}

static size_t table_bytes(const hardened *heap, unsigned bin)
{
    return ga_hardened_bin_table(&ga_hardened_classes[bin % GA_HARDENED_CLASSES],
                                 (size_t)1 << heap->region_log);
}

static bool reserve_tables(hardened *heap)
{
    for (unsigned i = 0; i < bins_of(heap); i++) {
        heap->tables_bytes += table_bytes(heap, i);
    }
    heap->tables_bytes += GA_HARDENED_PAGE * 16; /* unreadable, in front */
    heap->tables = reserve(heap->tables_bytes);
    return heap->tables;
}

static void open_bins(hardened *heap)
{
    uint8_t *table = heap->tables + GA_HARDENED_PAGE * 16;
    for (unsigned i = 0; i < bins_of(heap); i++) {
        ga_hardened_bin_open(&heap->bins[i], &ga_hardened_classes[i % GA_HARDENED_CLASSES],
                             &heap->limits, heap->addresses + ((size_t)i << heap->region_log),
                             (size_t)1 << heap->region_log, table);
        table += table_bytes(heap, i);
    }
}

/* Guards may take half of the mappings that the kernel lets a process have. */
static int64_t guards_allowed(void)
{
    char text[32] = "";
    int fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        close(fd);
    }
    long long max = length > 0 ? strtoll(text, NULL, 10) : 0;
    return (max > 0 ? max : USUAL_MAPPINGS) / 4;
}

static void release_all(hardened *heap)
{
    unreserve(heap->addresses, address_bytes(heap));
    unreserve(heap->tables, heap->tables_bytes);
    ga_os_memory_unmap(heap, sizeof *heap);
}

static ga_status hardened_open(const ga_open_args *args, void **state)
{
    (void)args;
    ga_hardened_classes_prepare();
    hardened *heap = ga_os_memory_get()->mmap(NULL, sizeof *heap, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* zeros */
    if (heap == MAP_FAILED) {
        return ga_fail(GA_ERR_MEMORY, "hardened: no memory for %zu bytes of bins", sizeof *heap);
    }
    if (!reserve_addresses(heap) || !reserve_tables(heap)) {
        release_all(heap);
        return ga_fail(
            GA_ERR_MEMORY,
            "hardened: cannot reserve %zu MiB of addresses; expected a limit (ulimit -v) "
            "of four times as much, or none",
            ((size_t)GA_HARDENED_CLASSES << REGION_MIN) >> 20);
    }
    heap->limits.guards_left = guards_allowed();
    open_bins(heap);
    ga_hardened_large_open(&heap->large);
    *state = heap;
    return GA_OK;
}

static void hardened_close(void *state)
{
    hardened *heap = state;
    if (served == heap) {
        served = NULL;
    }
    ga_hardened_large_close(&heap->large);
    for (unsigned i = 0; i < bins_of(heap); i++) {
        pthread_mutex_destroy(&heap->bins[i].lock);
    }
    release_all(heap);
}

/* ---- requests ----------------------------------------------------------------------------- */

/* The bin whose addresses hold the pointer, or NULL. */
static ga_hardened_bin *bin_of(hardened *heap, const void *pointer)
{
    uintptr_t offset = (uintptr_t)pointer - (uintptr_t)heap->addresses;
    return offset < address_bytes(heap) ? &heap->bins[offset >> heap->region_log] : NULL;
}

/* From the thread's arena; from another where that has no addresses left. */
static void *alloc_in_class(hardened *heap, unsigned class, const char *call)
{
    unsigned arena = ga_thread_id() % heap->arenas;
    void *block = NULL;
    for (unsigned i = 0; i < heap->arenas && !block; i++) {
        unsigned at = (arena + i) % heap->arenas;
        block = ga_hardened_bin_alloc(&heap->bins[at * GA_HARDENED_CLASSES + class], call);
    }
    return block;
}

/* A class whose addresses are used up spills into those of larger slots. `align` holds there too
 * where it is at most a slot's natural one; else the block becomes a large one. */
static void *alloc_small(hardened *heap, size_t size, size_t align, const char *call)
{
    unsigned class = ga_hardened_class_of(size, align);
    void *block = alloc_in_class(heap, class, call);
    while (!block && align <= NATURAL_ALIGN && ++class < GA_HARDENED_CLASSES) {
        block = alloc_in_class(heap, class, call);
    }
    return block;
}

static void *alloc_block(hardened *heap, size_t size, size_t align, const char *call)
{
    size_t bytes = size + !size;
    void *block = ga_hardened_is_small(bytes, align) ? alloc_small(heap, bytes, align, call) : NULL;
    return block ? block : ga_hardened_large_alloc(&heap->large, bytes, align);
}

static size_t usable_in(const ga_hardened_bin *bin)
{
    return bin->class->slot_bytes - GA_HARDENED_CANARY;
}

static void free_block(hardened *heap, void *block, const char *call)
{
    ga_hardened_bin *bin = bin_of(heap, block);
    ga_hardened_misuse found =
        bin ? ga_hardened_bin_free(bin, block) : ga_hardened_large_free(&heap->large, block);
    if (found != GA_HARDENED_FINE) {
        ga_hardened_end(found, call, block, bin ? usable_in(bin) : 0);
    }
}

/* The bytes that the program may use of a live block; ends the program where it is none. */
static size_t size_of_block(hardened *heap, const void *block, const char *call)
{
    ga_hardened_bin *bin = bin_of(heap, block);
    size_t size = bin ? usable_in(bin) : 0;
    ga_hardened_misuse found = bin ? ga_hardened_bin_check(bin, block)
                                   : ga_hardened_large_size(&heap->large, block, &size);
    if (found != GA_HARDENED_FINE) {
        ga_hardened_end(found, call, block, bin ? size : 0);
    }
    return size;
}

static void *copy_to_new(hardened *heap, void *block, size_t before, size_t size, const char *call)
{
    void *moved = alloc_block(heap, size, 1, call);
    if (moved) {
        memcpy(moved, block, before < size ? before : size);
        free_block(heap, block, call);
    }
    return moved;
}

static void *resize(hardened *heap, void *block, size_t size, const char *call)
{
    size_t before = size_of_block(heap, block, call);
    ga_hardened_bin *bin = bin_of(heap, block);
    bool small = ga_hardened_is_small(size, 1);
    if (bin && small && bin->class == &ga_hardened_classes[ga_hardened_class_of(size, 1)]) {
        return block;
    }
    return bin || small ? copy_to_new(heap, block, before, size, call)
                        : ga_hardened_large_resize(&heap->large, block, size);
}

/* ---- the ops ------------------------------------------------------------------------------ */

static ga_status handed_out(void *block, size_t size, void **out)
{
    *out = block;
    return block ? GA_OK : ga_fail(GA_ERR_MEMORY, "hardened: no memory for %zu bytes", size);
}

static ga_status hardened_alloc(void *state, size_t size, void **out)
{
    return handed_out(alloc_block(state, size, 1, "ga_alloc"), size, out);
}

static ga_status hardened_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    return handed_out(alloc_block(state, size, align, "ga_alloc"), size, out);
}

static ga_status hardened_realloc(void *state, void *block, size_t size, void **out)
{
    return handed_out(resize(state, block, size, "ga_realloc"), size, out);
}

/* True for every address in the heap's memory, so that misuse of it is found here. */
static bool hardened_owns(void *state, const void *pointer)
{
    hardened *heap = state;
    return bin_of(heap, pointer) || ga_hardened_large_owns(&heap->large, pointer);
}

/* A pointer to other memory is refused like by every backend: nothing of the heap is in danger. */
static ga_status hardened_free(void *state, void *block)
{
    if (!hardened_owns(state, block)) {
        return ga_fail(GA_ERR_POINTER, "hardened: %p is no block of its own", block);
    }
    free_block(state, block, "ga_free");
    return GA_OK;
}

/* 0 for all but live blocks. The runtime asks before it frees or reallocates, and that call is the
 * one that reports misuse. */
static size_t hardened_usable_size(void *state, const void *block)
{
    hardened *heap = state;
    ga_hardened_bin *bin = bin_of(heap, block);
    size_t size = 0;
    if (!bin) {
        ga_hardened_large_size(&heap->large, block, &size);
        return size;
    }
    ga_hardened_misuse found = ga_hardened_bin_check(bin, block);
    return found == GA_HARDENED_FINE || found == GA_HARDENED_OVERFLOW ? usable_in(bin) : 0;
}

static ga_status hardened_trim(void *state, size_t keep)
{
    hardened *heap = state;
    (void)keep; /* little is kept: two runs or so a bin */
    for (unsigned i = 0; i < bins_of(heap); i++) {
        ga_hardened_bin_purge(&heap->bins[i]);
    }
    return GA_OK;
}

static void add_bin(ga_hardened_bin *bin, ga_backend_stats *out)
{
    pthread_mutex_lock(&bin->lock);
    out->live_blocks += bin->live;
    out->live_bytes += bin->live * usable_in(bin);
    out->held_bytes += bin->committed * bin->class->run_bytes + bin->table_committed;
    out->growths += bin->commits;
    pthread_mutex_unlock(&bin->lock);
}

static void hardened_stats(void *state, ga_backend_stats *out)
{
    hardened *heap = state;
    ga_hardened_large *large = &heap->large;
    *out = (ga_backend_stats){0};
    for (unsigned i = 0; i < bins_of(heap); i++) {
        add_bin(&heap->bins[i], out);
    }
    pthread_mutex_lock(&large->lock);
    out->live_blocks += large->count;
    out->live_bytes += large->live_bytes;
    out->held_bytes += large->held_bytes + large->capacity * sizeof *large->table;
    out->growths += large->mapped;
    pthread_mutex_unlock(&large->lock);
}

/* ---- forks -------------------------------------------------------------------------------- */

static void hardened_fork_prepare(void *state)
{
    hardened *heap = state;
    for (unsigned i = 0; i < bins_of(heap); i++) {
        pthread_mutex_lock(&heap->bins[i].lock);
    }
    pthread_mutex_lock(&heap->large.lock);
}

static void hardened_fork_parent(void *state)
{
    hardened *heap = state;
    pthread_mutex_unlock(&heap->large.lock);
    for (unsigned i = bins_of(heap); i-- > 0;) {
        pthread_mutex_unlock(&heap->bins[i].lock);
    }
}

/* The child draws random numbers of its own. */
static void hardened_fork_child(void *state)
{
    hardened *heap = state;
    heap->large.random.left = 0;
    for (unsigned i = 0; i < bins_of(heap); i++) {
        heap->bins[i].random.left = 0;
    }
    hardened_fork_parent(state);
}

/* ---- the malloc-shaped table -------------------------------------------------------------- */

static void *or_no_memory(void *block)
{
    if (!block) {
        errno = ENOMEM;
    }
    return block;
}

static void *served_malloc(size_t size)
{
    return size > PTRDIFF_MAX ? or_no_memory(NULL)
                              : or_no_memory(alloc_block(served, size, 1, "malloc"));
}

static void *served_calloc(size_t count, size_t size)
{
    size_t bytes;
    bool fits = !__builtin_mul_overflow(count, size, &bytes) && bytes <= PTRDIFF_MAX;
    return or_no_memory(fits ? alloc_block(served, bytes, 1, "calloc") : NULL); /* zeros */
}

static void *served_memalign(size_t align, size_t size)
{
    return or_no_memory(size > PTRDIFF_MAX ? NULL : alloc_block(served, size, align, "memalign"));
}

static void *served_realloc(void *block, size_t size)
{
    return or_no_memory(size > PTRDIFF_MAX ? NULL : resize(served, block, size, "realloc"));
}

static void served_free(void *block)
{
    free_block(served, block, "free");
}

static size_t served_usable_size(void *block)
{
    return size_of_block(served, block, "malloc_usable_size");
}

static const ga_malloc_table *hardened_malloc_table(void *state)
{
    static ga_malloc_table table = {
        .malloc = served_malloc,
        .free = served_free,
        .calloc = served_calloc,
        .realloc = served_realloc,
        .memalign = served_memalign,
        .usable_size = served_usable_size,
    };
    hardened *heap = state;
    if (served && served != heap) {
        return NULL;
    }
    served = heap;
    table.range_base = (uintptr_t)heap->addresses;
    table.range_size = address_bytes(heap);
    return &table;
}

const ga_backend ga_hardened_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "hardened",
    .help = "misuse ends the program: guards, canaries, quarantine, zeroing",
    .places = GA_PLACE_BIT(GA_PLACE_HOST),
    .parent_rule = GA_PARENT_NONE,
    .open = hardened_open,
    .close = hardened_close,
    .alloc = hardened_alloc,
    .free = hardened_free,
    .owns = hardened_owns,
    .usable_size = hardened_usable_size,
    .realloc = hardened_realloc,
    .alloc_zeroed = hardened_alloc,
    .alloc_aligned = hardened_alloc_aligned,
    .trim = hardened_trim,
    .stats = hardened_stats,
    .malloc_table = hardened_malloc_table,
    .fork_prepare = hardened_fork_prepare,
    .fork_parent = hardened_fork_parent,
    .fork_child = hardened_fork_child,
};
