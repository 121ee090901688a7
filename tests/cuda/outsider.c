/* SPDX-License-Identifier: MIT
 *
 * A plugin with two backends for devices, for the preload: `able` has capabilities, `plain` has
 * none. Their blocks are host memory, which the stand-in driver regards as device memory.
 */
#include <gpualloc/backend.h>

#include <stdlib.h>

__attribute__((
    visibility("default"))) unsigned outsider_peers; /* a bit for each that was enabled */

static ga_status outsider_open(const ga_open_args *args, void **state)
{
    (void)args;
    *state = NULL;
    return GA_OK;
}

static void outsider_close(void *state)
{
    (void)state;
}

static ga_status outsider_alloc(void *state, size_t size, void **out)
{
    (void)state;
    *out = aligned_alloc(256, (size + 255) & ~(size_t)255);
    return *out ? GA_OK : GA_ERR_MEMORY;
}

static ga_status outsider_free(void *state, void *block)
{
    (void)state;
    free(block);
    return GA_OK;
}

static bool outsider_owns(void *state, const void *pointer)
{
    (void)state;
    (void)pointer;
    return false;
}

static ga_status outsider_enable_peer(void *state, int peer)
{
    (void)state;
    outsider_peers |= 1u << peer;
    return GA_OK;
}

#define COMMON                                                                                     \
    .abi = GA_BACKEND_ABI, .size = sizeof(ga_backend), .help = "from a plugin",                    \
    .places = GA_PLACE_BIT(GA_PLACE_DEVICE), .parent_rule = GA_PARENT_NONE, .open = outsider_open, \
    .close = outsider_close, .alloc = outsider_alloc, .free = outsider_free, .owns = outsider_owns

static const ga_backend backends[] = {
    {COMMON, .name = "plain"},
    {COMMON, .name = "able", .capabilities = GA_CAP_FREE_WAITS,
     .enable_peer = outsider_enable_peer},
};

__attribute__((visibility("default"))) const ga_backend *ga_plugin_backend(size_t index);

const ga_backend *ga_plugin_backend(size_t index)
{
    return index < sizeof backends / sizeof *backends ? &backends[index] : NULL;
}
