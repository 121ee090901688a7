/* SPDX-License-Identifier: MIT
 *
 * Finds functions in the loader's list of objects, where the next preload follows this library.
 * Does without dlsym(), which takes the loader's lock and may allocate.
 */
#include "library.h"

#include "../../liballoc/platform/object_symbols.h"
#include "../version_note.h"

#include <link.h>
#include <stdatomic.h>

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

/* Set once; threads that are first together write equal values. */
static ga_align_library library;
static atomic_bool known;

static const struct link_map *this_object(void)
{
    const struct link_map *object = _r_debug.r_map;
    while (object && object->l_ld != _DYNAMIC) {
        object = object->l_next;
    }
    return object;
}

/* The first object behind `object` that defines the function. */
static const struct link_map *next_object(const struct link_map *object, const char *name)
{
    do {
        object = object ? object->l_next : NULL;
    } while (object && !ga_object_symbol(object, name));
    return object;
}

static void *no_memalign(size_t align, size_t size)
{
    (void)align;
    (void)size;
    return NULL;
}

static void find_library(void)
{
    const struct link_map *object = next_object(this_object(), "malloc");
    ga_align_library found = {0};
    *(void **)&found.malloc = ga_object_symbol(object, "malloc");
    *(void **)&found.free = ga_object_symbol(object, "free");
    *(void **)&found.memalign = ga_object_symbol(object, "memalign");
    if (!found.memalign) { /* it has the same parameters */
        *(void **)&found.memalign = ga_object_symbol(object, "aligned_alloc");
    }
    if (!found.memalign) {
        found.memalign = no_memalign;
    }
    found.has_operators = ga_object_symbol(object, "_Znwm") != NULL;
    library = found;
}

const ga_align_library *ga_align_behind(void)
{
    if (!atomic_load_explicit(&known, memory_order_acquire)) { /* Pairs with the store below */
        find_library();
        atomic_store_explicit(&known, true, memory_order_release); /* Pairs with the load above */
    }
    return &library;
}

/* Another malloc library's operators would return blocks that the library's do not delete. */
static void *operator_behind(const char *name)
{
    bool skip = ga_align_behind()->has_operators;
    const struct link_map *object = next_object(this_object(), name);
    while (skip && object && ga_object_symbol(object, "malloc")) {
        object = next_object(object, name);
    }
    return object ? ga_object_symbol(object, name) : NULL;
}

typedef struct request {
    const char *name;
    void *found;
} request;

static int answer(struct dl_phdr_info *info, size_t size, void *argument)
{
    request *asked = argument;
    (void)info;
    (void)size;
    asked->found = operator_behind(asked->name);
    return 1; /* no further call */
}

/* dl_iterate_phdr() holds the lock under which the loader unloads objects. */
void *ga_align_operator_behind(const char *name)
{
    request asked = {name, NULL};
    dl_iterate_phdr(answer, &asked);
    return asked.found;
}
