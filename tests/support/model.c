/* SPDX-License-Identifier: MIT
 *
 * The model: the expected contents of each live block.
 */
#include "model.h"

#include "random.h"

#include <stdio.h>
#include <string.h>

void model_begin(model *m, ga_heap *heap, uint64_t seed, size_t largest)
{
    *m = (model){
        .heap = heap,
        .touch = ga_heap_place(heap) == GA_PLACE_HOST,
        .random = seed,
        .largest = largest,
    };
}

static bool wrong(model *m, const char *what, const model_block *b)
{
    if (!*m->trouble) {
        snprintf(m->trouble, sizeof m->trouble, "%s: block %p of %zu bytes; last error: %.120s",
                 what, (void *)b->start, b->size, ga_error_text());
    }
    return false;
}

/* Mostly small, now and then up to the largest. */
static size_t random_size(model *m)
{
    size_t bits = 1 + random_below(&m->random, 63 - (size_t)__builtin_clzll(m->largest));
    return random_below(&m->random, (size_t)1 << bits);
}

static bool filled(const model *m, const model_block *b, unsigned char fill, size_t size)
{
    return !m->touch || size == 0 ||
           (b->start[0] == fill && memcmp(b->start, b->start + 1, size - 1) == 0);
}

static bool apart(const model *m, const model_block *b)
{
    for (const model_block *other = m->blocks; other < m->blocks + MODEL_BLOCKS; other++) {
        if (other != b && other->start && b->start < other->start + other->size &&
            other->start < b->start + b->size) {
            return false;
        }
    }
    return true;
}

/* Check a block that was just handed out, and fill it. */
static bool take(model *m, model_block *b, size_t align)
{
    size_t usable = ga_usable_size(m->heap, b->start);
    b->fill = (unsigned char)random_next(&m->random);
    if (!b->start || (uintptr_t)b->start % align != 0) {
        return wrong(m, "misaligned", b);
    }
    if (usable && usable < b->size) {
        return wrong(m, "usable size below what was asked for", b);
    }
    if (!apart(m, b)) {
        return wrong(m, "overlaps another", b);
    }
    if (m->touch) {
        memset(b->start, b->fill, b->size);
    }
    return true;
}

/* ---- the operations ----------------------------------------------------------------------- */

static bool allocate(model *m, model_block *b)
{
    size_t align = (size_t)16 << random_below(&m->random, 5);
    bool aligned = random_below(&m->random, 8) == 0;
    b->size = random_size(m);
    if (ga_alloc(m->heap, b->size, aligned ? align : 0, (void **)&b->start) != GA_OK) {
        /* few backends align beyond the natural, and they say so */
        return aligned && align > 16 ? true : wrong(m, "allocation", b);
    }
    return take(m, b, aligned ? align : 16);
}

static bool allocate_zeroed(model *m, model_block *b)
{
    b->size = random_size(m);
    if (ga_alloc_zeroed(m->heap, b->size, 0, (void **)&b->start) != GA_OK) {
        return m->touch ? wrong(m, "zeroed allocation", b) : true;
    }
    return filled(m, b, 0, b->size) ? take(m, b, 16) : wrong(m, "not zero", b);
}

static bool release(model *m, model_block *b)
{
    if (!filled(m, b, b->fill, b->size)) {
        return wrong(m, "contents lost", b);
    }
    if (ga_free(m->heap, b->start) != GA_OK) {
        return wrong(m, "free", b);
    }
    b->start = NULL;
    return true;
}

static bool resize(model *m, model_block *b)
{
    size_t size = random_size(m);
    size_t kept = size < b->size ? size : b->size;
    ga_status status = ga_realloc(m->heap, b->start, size, 0, (void **)&b->start);
    if (status != GA_OK) {
        return status == GA_ERR_UNSUPPORTED && !m->touch ? true : wrong(m, "realloc", b);
    }
    b->size = size;
    return filled(m, b, b->fill, kept) ? take(m, b, 16) : wrong(m, "realloc lost contents", b);
}

static bool grow(model *m, model_block *b)
{
    size_t size = b->size + 1 + random_size(m);
    ga_status status = ga_grow(m->heap, b->start, size);
    if (status != GA_OK) {
        return status == GA_ERR_CANNOT_GROW ? true : wrong(m, "grow", b);
    }
    if (!filled(m, b, b->fill, b->size)) {
        return wrong(m, "grow lost contents", b);
    }
    b->size = ga_usable_size(m->heap, b->start) ? size : b->size;
    return take(m, b, 16);
}

static bool step(model *m)
{
    model_block *b = &m->blocks[random_below(&m->random, MODEL_BLOCKS)];
    size_t choice = random_below(&m->random, 8);
    if (!b->start) {
        return choice == 0 ? allocate_zeroed(m, b) : allocate(m, b);
    }
    return choice < 2 ? resize(m, b) : choice == 2 ? grow(m, b) : release(m, b);
}

bool model_run(model *m, size_t operations)
{
    for (size_t i = 0; i < operations; i++) {
        if (!step(m)) {
            return false;
        }
    }
    return true;
}

bool model_end(model *m)
{
    for (int i = 0; i < MODEL_BLOCKS; i++) {
        if (m->blocks[i].start && !release(m, &m->blocks[i])) {
            return false;
        }
    }
    return true;
}
