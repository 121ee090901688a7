/* SPDX-License-Identifier: MIT
 *
 * A backend in a shared object of its own: `bump` takes chunks from its parent, places each block
 * behind the last one, and gives a chunk back once all blocks in it are free. Quick where blocks
 * die together.
 *
 *   cc -shared -fPIC plugin.c $(pkg-config --cflags gpualloc) -o bump.so
 *   GPUALLOC_PLUGINS=./bump.so ./heap bump:chunk=64K/jemalloc
 *   GPUALLOC_PLUGINS=./bump.so gpualloc run --host bump -- PROGRAM
 */
#include <gpualloc/backend.h>
#include <pthread.h>

enum {
    OPTION_CHUNK = 0,
    ALIGN = 16
};

typedef struct chunk {
    struct chunk *next;
    size_t size; /* with this header */
    size_t used; /* the same */
    size_t live; /* blocks */
} chunk;

/* In front of each block. */
typedef struct header {
    chunk *chunk;
    size_t size;
} header;

typedef struct bump {
    pthread_mutex_t lock; /* guards all that follows, and the chunks */
    chunk *chunks;        /* the first is the one in use */
    size_t chunk_size;
    ga_heap *parent;
    const ga_runtime *runtime;
    ga_backend_stats stats;
} bump;

_Static_assert(sizeof(chunk) % ALIGN == 0 && sizeof(header) == ALIGN, "blocks stay aligned");

/* ---- opening and closing ------------------------------------------------------------------- */

/* Under the preload this is the process's malloc: even our own record comes from the parent. */
static ga_status bump_open(const ga_open_args *args, void **state)
{
    const ga_runtime *runtime = args->runtime;
    bump *b;
    ga_status status = runtime->alloc_zeroed(args->parent, sizeof *b, 0, (void **)&b);
    if (status != GA_OK) {
        return runtime->fail(status, "bump: no memory for the heap's record");
    }
    pthread_mutex_init(&b->lock, NULL);
    b->runtime = runtime;
    b->chunk_size = args->values[OPTION_CHUNK].size;
    b->parent = args->parent;
    *state = b;
    return GA_OK;
}

static void bump_close(void *state)
{
    bump *b = state;
    while (b->chunks) {
        chunk *next = b->chunks->next;
        b->runtime->free(b->parent, b->chunks);
        b->chunks = next;
    }
    pthread_mutex_destroy(&b->lock);
    b->runtime->free(b->parent, b);
}

/* ---- chunks -------------------------------------------------------------------------------- */

/* Without the lock: under the preload the parent may come back to us for memory. */
static ga_status chunk_add(bump *b, size_t least)
{
    chunk *fresh;
    size_t size = least > b->chunk_size ? least : b->chunk_size;
    ga_status status = b->runtime->alloc(b->parent, size, 0, (void **)&fresh);
    if (status != GA_OK) {
        return status;
    }
    pthread_mutex_lock(&b->lock);
    *fresh = (chunk){.next = b->chunks, .size = size, .used = sizeof *fresh};
    b->chunks = fresh;
    b->stats.held_bytes += size;
    b->stats.growths++;
    pthread_mutex_unlock(&b->lock);
    return GA_OK;
}

/* Take an empty chunk out of the list; with the lock. The first one stays and is used again, so
 * that a block that comes and goes alone does not cost a chunk each time: NULL then. */
static chunk *chunk_retire(bump *b, chunk *empty)
{
    if (empty == b->chunks) {
        empty->used = sizeof *empty;
        return NULL;
    }
    chunk *before = b->chunks;
    while (before->next != empty) {
        before = before->next;
    }
    before->next = empty->next;
    b->stats.held_bytes -= empty->size;
    return empty;
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Where a block would go in the first chunk, its header in front of it. */
static uintptr_t next_block(const bump *b, size_t align)
{
    uintptr_t lowest = (uintptr_t)b->chunks + b->chunks->used + sizeof(header);
    return (lowest + align - 1) & ~(uintptr_t)(align - 1);
}

static bool has_room(const bump *b, size_t size, size_t align)
{
    return b->chunks && next_block(b, align) + size <= (uintptr_t)b->chunks + b->chunks->size;
}

static void *place_block(bump *b, size_t size, size_t align)
{
    uintptr_t block = next_block(b, align);
    ((header *)block)[-1] = (header){b->chunks, size};
    b->chunks->used = block + size - (uintptr_t)b->chunks;
    b->chunks->live++;
    b->stats.live_bytes += size;
    return (void *)block;
}

static ga_status bump_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    bump *b = state;
    ga_status status = GA_OK;
    size_t rounded = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    for (*out = NULL; !*out && status == GA_OK;) {
        pthread_mutex_lock(&b->lock);
        *out = has_room(b, rounded, align) ? place_block(b, rounded, align) : NULL;
        pthread_mutex_unlock(&b->lock);
        if (!*out) {
            status = chunk_add(b, sizeof(chunk) + sizeof(header) + align + rounded);
        }
    }
    return status;
}

static ga_status bump_alloc(void *state, size_t size, void **out)
{
    return bump_alloc_aligned(state, size, ALIGN, out);
}

static ga_status bump_free(void *state, void *block)
{
    bump *b = state;
    header *h = (header *)block - 1;
    pthread_mutex_lock(&b->lock);
    b->stats.live_bytes -= h->size;
    chunk *gone = --h->chunk->live == 0 ? chunk_retire(b, h->chunk) : NULL;
    pthread_mutex_unlock(&b->lock);
    return gone ? b->runtime->free(b->parent, gone) : GA_OK;
}

static bool bump_owns(void *state, const void *pointer)
{
    bump *b = state;
    pthread_mutex_lock(&b->lock);
    const chunk *c = b->chunks;
    while (c && (uintptr_t)pointer - (uintptr_t)c >= c->size) {
        c = c->next;
    }
    pthread_mutex_unlock(&b->lock);
    return c != NULL;
}

static size_t bump_usable_size(void *state, const void *block)
{
    return bump_owns(state, block) ? ((const header *)block - 1)->size : 0;
}

static void bump_stats(void *state, ga_backend_stats *out)
{
    bump *b = state;
    pthread_mutex_lock(&b->lock);
    *out = b->stats;
    pthread_mutex_unlock(&b->lock);
}

/* ---- fork: no other thread may hold the lock when the child gets its copy -------------------- */

static void bump_lock(void *state)
{
    pthread_mutex_lock(&((bump *)state)->lock);
}

static void bump_unlock(void *state)
{
    pthread_mutex_unlock(&((bump *)state)->lock);
}

/* ---- the table ------------------------------------------------------------------------------ */

static const ga_option options[] = {
    [OPTION_CHUNK] = {.name = "chunk",
                      .type = GA_OPTION_SIZE,
                      .fallback = "1M",
                      .help = "bytes taken from the parent at once",
                      .min = 4096,
                      .max = INT64_C(1) << 40},
};

static const ga_backend bump_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "bump",
    .help = "one block behind the other; a chunk goes back when its last block does",
    .places = GA_PLACE_BIT(GA_PLACE_HOST),
    .parent_rule = GA_PARENT_REQUIRED,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .open = bump_open,
    .close = bump_close,
    .alloc = bump_alloc,
    .free = bump_free,
    .owns = bump_owns,
    .usable_size = bump_usable_size,
    .alloc_aligned = bump_alloc_aligned,
    .stats = bump_stats,
    .fork_prepare = bump_lock,
    .fork_parent = bump_unlock,
    .fork_child = bump_unlock,
};

GA_API const ga_backend *ga_plugin_backend(size_t index);

const ga_backend *ga_plugin_backend(size_t index)
{
    return index == 0 ? &bump_backend : NULL;
}
