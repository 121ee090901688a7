/* SPDX-License-Identifier: MIT */
#include "large.h"

#include "../../platform/os_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    FIRST_CAPACITY = 256, /* entries */
    GUARD_PAGES = 256,    /* most pages of a guard */
    GUARD_SHARE = 8,      /* a guard has at most 1/8 of the block's pages, and at least one */
    KEPT_BYTES = 32 << 20 /* larger blocks are unmapped at once when freed */
};

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t whole_pages(size_t bytes)
{
    size_t page = page_bytes();
    return (bytes + page - 1) & ~(page - 1);
}

/* ---- the kernel --------------------------------------------------------------------------- */

static void *reserve(size_t bytes)
{
    void *start = ga_os_memory_get()->mmap(NULL, bytes, PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

/* Drop the pages and keep the addresses unreadable, as one step, so that no other thread's mapping
 * can come between. */
static bool make_unreadable(uintptr_t start, size_t bytes)
{
    return ga_os_memory_get()->mmap((void *)start, bytes, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                                    0) != MAP_FAILED;
}

static void unmap(uintptr_t start, size_t bytes)
{
    ga_os_memory_unmap((void *)start, bytes);
}

/* ---- the table ---------------------------------------------------------------------------- */

static size_t home_of(const ga_hardened_large *large, uintptr_t address)
{
    return (size_t)((address >> 12) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (large->capacity - 1);
}

/* The block's entry, or the empty one where its probe sequence ends. */
static ga_hardened_block *probe(const ga_hardened_large *large, uintptr_t address)
{
    size_t at = home_of(large, address);
    while (large->table[at].address && large->table[at].address != address) {
        at = (at + 1) & (large->capacity - 1);
    }
    return &large->table[at];
}

static ga_hardened_block *find(const ga_hardened_large *large, const void *block)
{
    ga_hardened_block *entry = large->capacity ? probe(large, (uintptr_t)block) : NULL;
    return entry && entry->address ? entry : NULL;
}

/* Make room for one more entry. */
static bool grow_table(ga_hardened_large *large)
{
    if (large->count < large->capacity / 2) {
        return true;
    }
    size_t capacity = large->capacity ? 2 * large->capacity : FIRST_CAPACITY;
    void *table =
        ga_os_memory_get()->mmap(NULL, capacity * sizeof(ga_hardened_block), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED) {
        return false;
    }
    ga_hardened_block *before = large->table;
    size_t length = large->capacity;
    large->table = table;
    large->capacity = capacity;
    for (size_t i = 0; i < length; i++) {
        if (before[i].address) {
            *probe(large, before[i].address) = before[i];
        }
    }
    if (before) {
        unmap((uintptr_t)before, length * sizeof *before);
    }
    return true;
}

/* Close the gap at `entry`: entries behind it whose probe sequence passes it move up. */
static void remove_entry(ga_hardened_large *large, ga_hardened_block *entry)
{
    size_t mask = large->capacity - 1;
    size_t gap = (size_t)(entry - large->table);
    for (size_t at = (gap + 1) & mask; large->table[at].address; at = (at + 1) & mask) {
        size_t home = home_of(large, large->table[at].address);
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            large->table[gap] = large->table[at];
            gap = at;
        }
    }
    large->table[gap].address = 0;
    large->count--;
}

static bool insert(ga_hardened_large *large, const ga_hardened_block *block)
{
    pthread_mutex_lock(&large->lock);
    bool room = grow_table(large);
    if (room) {
        *probe(large, block->address) = *block;
        large->count++;
        large->live_bytes += block->size;
        large->held_bytes += whole_pages(block->size);
        large->mapped++;
    }
    pthread_mutex_unlock(&large->lock);
    return room;
}

/* ---- allocation --------------------------------------------------------------------------- */

void ga_hardened_large_open(ga_hardened_large *large)
{
    memset(large, 0, sizeof *large);
    pthread_mutex_init(&large->lock, NULL);
}

void ga_hardened_large_close(ga_hardened_large *large)
{
    for (size_t i = 0; i < large->capacity; i++) {
        if (large->table[i].address) {
            unmap(large->table[i].mapping, large->table[i].mapping_bytes);
        }
    }
    for (int i = 0; i < GA_HARDENED_FREED; i++) {
        if (large->freed[i].address) {
            unmap(large->freed[i].mapping, large->freed[i].mapping_bytes);
        }
    }
    if (large->table) {
        unmap((uintptr_t)large->table, large->capacity * sizeof *large->table);
    }
    pthread_mutex_destroy(&large->lock);
}

static size_t random_guard(ga_hardened_large *large, size_t body)
{
    size_t max = body / page_bytes() / GUARD_SHARE;
    max = max < GUARD_PAGES ? max : GUARD_PAGES;
    pthread_mutex_lock(&large->lock);
    size_t pages = 1 + ga_hardened_random_below(&large->random, (uint32_t)max + 1);
    pthread_mutex_unlock(&large->lock);
    return pages * page_bytes();
}

/* Reserve the block with its guards, and make the block readable. */
static bool map_block(ga_hardened_large *large, size_t size, size_t align, ga_hardened_block *out)
{
    size_t body = whole_pages(size);
    size_t slack = align > page_bytes() ? align : 0;
    size_t guard = random_guard(large, body);
    size_t total;
    if (body < size || __builtin_add_overflow(body, slack + 2 * guard, &total)) {
        return false;
    }
    void *mapping = reserve(total);
    if (!mapping) {
        return false;
    }
    uintptr_t start = (uintptr_t)mapping + guard;
    start = slack ? (start + align - 1) & ~(align - 1) : start;
    if (ga_os_memory_get()->mprotect((void *)start, body, PROT_READ | PROT_WRITE) != 0) {
        unmap((uintptr_t)mapping, total);
        return false;
    }
    *out = (ga_hardened_block){start, size, (uintptr_t)mapping, total};
    return true;
}

void *ga_hardened_large_alloc(ga_hardened_large *large, size_t size, size_t align)
{
    ga_hardened_block block;
    if (!map_block(large, size, align, &block)) {
        return NULL;
    }
    if (!insert(large, &block)) {
        unmap(block.mapping, block.mapping_bytes);
        return NULL;
    }
    return (void *)block.address;
}

/* ---- freeing ------------------------------------------------------------------------------ */

static bool inside(const ga_hardened_block *block, uintptr_t address)
{
    return block->address && address - block->mapping < block->mapping_bytes;
}

/* Why a pointer is no live block; the lock is held. */
static ga_hardened_misuse explain(const ga_hardened_large *large, uintptr_t address)
{
    for (int i = 0; i < GA_HARDENED_FREED; i++) {
        if (inside(&large->freed[i], address)) {
            return GA_HARDENED_DOUBLE_FREE;
        }
    }
    for (size_t i = 0; i < large->capacity; i++) {
        if (inside(&large->table[i], address)) {
            return GA_HARDENED_INTERIOR;
        }
    }
    return GA_HARDENED_NO_BLOCK;
}

static bool tail_is_zero(const ga_hardened_block *block)
{
    const uint8_t *at = (const uint8_t *)block->address + block->size;
    const uint8_t *end = (const uint8_t *)block->address + whole_pages(block->size);
    while (at < end && *at == 0) {
        at++;
    }
    return at == end;
}

/* Take the block out of the table, so that this thread alone frees it. */
static ga_hardened_misuse take_out(ga_hardened_large *large, const void *block,
                                   ga_hardened_block *out)
{
    pthread_mutex_lock(&large->lock);
    ga_hardened_misuse found = GA_HARDENED_FINE;
    ga_hardened_block *entry = find(large, block);
    if (!entry) {
        found = explain(large, (uintptr_t)block);
    } else if (!tail_is_zero(entry)) {
        found = GA_HARDENED_OVERFLOW;
    } else {
        *out = *entry;
        large->live_bytes -= out->size;
        large->held_bytes -= whole_pages(out->size);
        remove_entry(large, entry);
    }
    pthread_mutex_unlock(&large->lock);
    return found;
}

/* Put a block into the queue of freed ones; the oldest leaves it. */
static ga_hardened_block enqueue(ga_hardened_large *large, const ga_hardened_block *block)
{
    pthread_mutex_lock(&large->lock);
    ga_hardened_block oldest = large->freed[large->freed_next];
    large->freed[large->freed_next] = *block;
    large->freed_next = (large->freed_next + 1) % GA_HARDENED_FREED;
    pthread_mutex_unlock(&large->lock);
    return oldest;
}

static void release(ga_hardened_large *large, const ga_hardened_block *block)
{
    int saved = errno;
    ga_hardened_block leaving = *block;
    if (block->mapping_bytes <= KEPT_BYTES &&
        make_unreadable(block->mapping, block->mapping_bytes)) {
        leaving = enqueue(large, block);
    }
    if (leaving.address) {
        unmap(leaving.mapping, leaving.mapping_bytes);
    }
    errno = saved;
}

ga_hardened_misuse ga_hardened_large_free(ga_hardened_large *large, void *block)
{
    ga_hardened_block freed;
    ga_hardened_misuse found = take_out(large, block, &freed);
    if (found == GA_HARDENED_FINE) {
        release(large, &freed);
    }
    return found;
}

/* ---- questions and resizing --------------------------------------------------------------- */

ga_hardened_misuse ga_hardened_large_size(ga_hardened_large *large, const void *block, size_t *out)
{
    pthread_mutex_lock(&large->lock);
    const ga_hardened_block *entry = find(large, block);
    ga_hardened_misuse found = entry ? GA_HARDENED_FINE : explain(large, (uintptr_t)block);
    *out = entry ? entry->size : 0;
    pthread_mutex_unlock(&large->lock);
    return found;
}

bool ga_hardened_large_owns(ga_hardened_large *large, const void *pointer)
{
    pthread_mutex_lock(&large->lock);
    bool ours = find(large, pointer) || explain(large, (uintptr_t)pointer) != GA_HARDENED_NO_BLOCK;
    pthread_mutex_unlock(&large->lock);
    return ours;
}

/* Move the pages. The old addresses stay mapped, so that no other mapping can come there before
 * they are made unreadable. */
static bool move_pages(const void *from, void *to, size_t bytes)
{
#ifdef MREMAP_DONTUNMAP
    return ga_os_memory_get()->mremap((void *)from, bytes, bytes,
                                      MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                                      to) != MAP_FAILED;
#else
    (void)from, (void)to, (void)bytes;
    return false;
#endif
}

void *ga_hardened_large_resize(ga_hardened_large *large, void *block, size_t size)
{
    ga_hardened_block before;
    void *after = ga_hardened_large_alloc(large, size, 1);
    if (!after) {
        return NULL;
    }
    take_out(large, block, &before); /* it is there: the caller has asked for its size */
    size_t bytes = before.size < size ? before.size : size;
    size_t pages = whole_pages(bytes);
    if (!move_pages(block, after, pages)) {
        memcpy(after, block, bytes);
    } else if (size < before.size) {
        memset((uint8_t *)after + size, 0,
               pages - size); /* the rest of the last page, which must be zero */
    }
    release(large, &before);
    return after;
}
