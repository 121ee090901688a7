/* SPDX-License-Identifier: MIT
 *
 * The live blocks of a heap: units whose bits are set, but for those in threads' caches, and large
 * blocks.
 */
#include "host/trim.h"
#include "state.h"

typedef struct walk {
    ga_slab_state *s;
    uint32_t class;
    ga_visit *visit;
    void *context;
} walk;

static void visit_word(void *context, uint32_t word, uint32_t bits)
{
    walk *w = context;
    ga_slab_host *slab = &w->s->slabs[w->class];
    /* Not held during the visit, because the visitor may allocate. */
    pthread_mutex_lock(&w->s->store.lock);
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    char *first = ga_slab_host_pointer(slab, view, word * 32u);
    /* Read again under the lock, when no block is being tried for a purge. Relaxed: a figure. */
    bits &= ga_load_relaxed(ga_slab_word(view, word));
    bits &= ga_slab_host_is_purged(slab, word / GA_SLAB_ROW_WORDS) ? 0 : GA_ALL_BITS;
    bits &= ~ga_slab_cache_of_word(&w->s->store, w->class, word);
    pthread_mutex_unlock(&w->s->store.lock);
    for (; bits; bits &= bits - 1u) {
        w->visit(w->context, first + (size_t)ga_bits_lowest(bits) * slab->shape.unit,
                 slab->shape.unit);
    }
}

ga_status ga_slab_state_each_live(void *state, ga_visit *visit, void *context)
{
    ga_slab_state *s = state;
    walk w = {s, 0, visit, context};
    if (s->sized) {
        return ga_sized_each_live(s->sized, visit, context);
    }
    if (s->kernel) {
        return ga_slab_kernel_each_live(s->kernel, visit, context);
    }
    for (; w.class < s->classes.count; w.class ++) {
        ga_slab_host_each_word(&s->slabs[w.class], visit_word, &w);
    }
    ga_slab_large_each(&s->large, visit, context);
    return GA_OK;
}

void ga_slab_state_stats(void *state, ga_backend_stats *out)
{
    ga_slab_state *s = state;
    if (s->sized) {
        ga_sized_stats(s->sized, out);
        return;
    }
    if (s->kernel) {
        ga_slab_kernel_stats(s->kernel, out);
        return;
    }
    uint64_t large = __atomic_load_n(&s->large.bytes, __ATOMIC_RELAXED); /* relaxed: a figure */
    *out = (ga_backend_stats){.live_bytes = large, .held_bytes = large};
    pthread_mutex_lock(&s->store.lock);
    for (uint32_t class = 0; class < s->classes.count; class ++) {
        const ga_slab_host *slab = &s->slabs[class];
        uint64_t taken = ga_slab_host_taken(slab);
        uint64_t cached = ga_slab_cache_units(&s->store, class);
        /* other threads go on, so the difference may be negative */
        out->live_bytes += taken > cached ? (taken - cached) * slab->shape.unit : 0;
        out->held_bytes += slab->held;
        out->growths += slab->growths;
    }
    pthread_mutex_unlock(&s->store.lock);
}

static void give_word(void *context, uint32_t word, uint32_t bits)
{
    ga_slab_release_bits(ga_slab_view_of(context), word, bits);
}

static void free_large(void *context, void *block)
{
    ga_slab_large_free(context, block);
}

ga_status ga_slab_state_reset(void *state)
{
    ga_slab_state *s = state;
    if (s->sized) {
        return ga_sized_reset(s->sized);
    }
    if (s->kernel) {
        return ga_slab_kernel_reset(s->kernel);
    }
    pthread_mutex_lock(&s->store.lock);
    ga_slab_cache_flush_all(&s->store);
    for (uint32_t class = 0; class < s->classes.count; class ++) {
        while (!s->on_device && s->slabs[class].purged_blocks) {
            ga_slab_host_restore(&s->slabs[class]);
        }
    }
    pthread_mutex_unlock(&s->store.lock);
    for (uint32_t class = 0; class < s->classes.count; class ++) {
        ga_slab_host_each_word(&s->slabs[class], give_word, &s->slabs[class].heap);
    }
    ga_slab_starts_each(&s->large.starts, free_large, &s->large);
    return GA_OK;
}
