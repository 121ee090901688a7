/* SPDX-License-Identifier: MIT
 *
 * A plugin for tests, compiled several times: PLUGIN_NAME is its backend's name, PLUGIN_ABI the
 * version it claims, PLUGIN_SILENT leaves out the symbol that a plugin must export.
 */
#include <gpualloc/backend.h>

#include <stdlib.h>

static ga_status plugin_open(const ga_open_args *args, void **state)
{
    (void)args;
    *state = NULL;
    return GA_OK;
}

static void plugin_close(void *state)
{
    (void)state;
}

static ga_status plugin_alloc(void *state, size_t size, void **out)
{
    (void)state;
    *out = malloc(size);
    return *out ? GA_OK : GA_ERR_MEMORY;
}

static ga_status plugin_free(void *state, void *block)
{
    (void)state;
    free(block);
    return GA_OK;
}

static bool plugin_owns(void *state, const void *pointer)
{
    (void)state;
    return pointer != NULL;
}

static const ga_backend backend = {
    .abi = PLUGIN_ABI,
    .size = sizeof(ga_backend),
    .name = PLUGIN_NAME,
    .help = "from a plugin",
    .places = GA_PLACE_BIT(GA_PLACE_HOST),
    .parent_rule = GA_PARENT_NONE,
    .open = plugin_open,
    .close = plugin_close,
    .alloc = plugin_alloc,
    .free = plugin_free,
    .owns = plugin_owns,
};

#ifdef PLUGIN_SILENT
#define PLUGIN_ENTRY plugin_hidden
#else
#define PLUGIN_ENTRY ga_plugin_backend
#endif

__attribute__((visibility("default"))) const ga_backend *PLUGIN_ENTRY(size_t index);

__attribute__((visibility("default"))) const ga_backend *PLUGIN_ENTRY(size_t index)
{
    return index == 0 ? &backend : NULL;
}
