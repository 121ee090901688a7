/* SPDX-License-Identifier: MIT
 *
 * The `null` backend: an allocator without memory. It refuses every request and owns no pointer.
 */
#include "doubles.h"

static ga_status null_open(const ga_open_args *args, void **state)
{
    (void)args;
    *state = NULL;
    return GA_OK;
}

static void null_close(void *state)
{
    (void)state;
}

static ga_status null_alloc(void *state, size_t size, void **out)
{
    (void)state;
    *out = NULL;
    return ga_fail(GA_ERR_MEMORY, "null: refuses every request; requested %zu bytes", size);
}

static ga_status null_free(void *state, void *block)
{
    (void)state;
    return ga_fail(GA_ERR_POINTER, "null: handed out no block, so %p is none of its own", block);
}

static bool null_owns(void *state, const void *pointer)
{
    (void)state;
    (void)pointer;
    return false;
}

const ga_backend ga_null_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "null",
    .help = "test double: refuses every request",
    .places = GA_PLACE_BIT(GA_PLACE_HOST) | GA_PLACE_BIT(GA_PLACE_DEVICE),
    .parent_rule = GA_PARENT_NONE,
    .open = null_open,
    .close = null_close,
    .alloc = null_alloc,
    .free = null_free,
    .owns = null_owns,
};
