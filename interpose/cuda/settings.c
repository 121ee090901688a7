/* SPDX-License-Identifier: MIT
 *
 * Parse the spec, and write it again without the preload's options and with the preload's defaults.
 */
#include "settings.h"

#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/size.h"
#include "../../liballoc/runtime/registry.h"

#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the preload's options ----------------------------------------------------------------- */

static ga_status wrong(const char *layer, const ga_spec_option *option, const char *expected)
{
    return ga_fail(GA_ERR_SPEC, "%s: %s: expected %s, got \"%s\"", layer, option->key, expected,
                   option->value ? option->value : "");
}

static bool equals(const char *value, const char *text)
{
    return value && strcmp(value, text) == 0;
}

static ga_status read_ipc(ga_cuda_settings *out, const char *layer, const ga_spec_option *option)
{
    static const char *const names[] = {[GA_CUDA_IPC_AUTO] = "auto",
                                        [GA_CUDA_IPC_NONE] = "none",
                                        [GA_CUDA_IPC_COMPAT] = "compat",
                                        [GA_CUDA_IPC_HANDLE] = "handle"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (equals(option->value, names[i])) {
            out->ipc = (ga_cuda_ipc_mode)i;
            return GA_OK;
        }
    }
    return wrong(layer, option, "auto, none, compat or handle");
}

/* False: not a value of the preload's option; the layer may have one of that name. */
static bool read_free(ga_cuda_settings *out, const ga_spec_option *option)
{
    static const char *const names[] = {[GA_CUDA_FREE_SYNC] = "sync",
                                        [GA_CUDA_FREE_EVENT] = "event",
                                        [GA_CUDA_FREE_ORDER] = "order"};
    out->free = GA_CUDA_FREE_SYNC;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (equals(option->value, names[i])) {
            out->free = (ga_cuda_free_mode)i;
            return true;
        }
    }
    return false;
}

static ga_status read_limit(ga_cuda_settings *out, const char *layer, const ga_spec_option *option)
{
    if (equals(option->value, "none")) {
        return GA_OK;
    }
    bool parsed = option->value && ga_size_parse(option->value, &out->limit);
    return parsed && out->limit ? GA_OK : wrong(layer, option, "a size from 1 byte on, or none");
}

static ga_status read_pinned(ga_cuda_settings *out, const char *layer, const ga_spec_option *option)
{
    bool none = equals(option->value, "none");
    bool parsed = option->value && !none && ga_size_parse(option->value, &out->pinned);
    return none || parsed ? GA_OK : wrong(layer, option, "a size, or none");
}

static const ga_option *option_of(const char *layer, const char *key)
{
    const ga_backend *backend = ga_registry_find(layer);
    for (size_t i = 0; backend && i < backend->option_count; i++) {
        if (strcmp(backend->options[i].name, key) == 0) {
            return &backend->options[i];
        }
    }
    return NULL;
}

/* A value of `free` that is not the preload's: of the layer's option, if it has one. */
static ga_status check_layers_free(const char *layer, const ga_spec_option *option)
{
    const ga_option *own = option_of(layer, "free");
    char expected[200] = "sync, event, order";
    bool is_layers = own && !own->choices;
    for (int i = 0; own && own->choices && own->choices[i]; i++) {
        size_t length = strlen(expected);
        is_layers = is_layers || equals(option->value, own->choices[i]);
        snprintf(expected + length, sizeof expected - length, ", %s", own->choices[i]);
    }
    return is_layers ? GA_OK : wrong(layer, option, own ? expected : "sync, event or order");
}

/* `*taken`: the option is the preload's alone, and is left out of the spec. */
static ga_status read_option(ga_cuda_settings *out, const char *layer, const ga_spec_option *option,
                             bool *taken)
{
    *taken = false;
    if (strcmp(option->key, "ipc") == 0) {
        *taken = true;
        return read_ipc(out, layer, option);
    }
    if (strcmp(option->key, "pinned") == 0) {
        *taken = true;
        return read_pinned(out, layer, option);
    }
    if (strcmp(option->key, "limit") == 0) {
        /* a layer with this option keeps its caches within the limit */
        *taken = equals(option->value, "none") || !option_of(layer, "limit");
        return read_limit(out, layer, option);
    }
    if (strcmp(option->key, "free") == 0) {
        *taken = read_free(out, option);
        return *taken ? GA_OK : check_layers_free(layer, option);
    }
    return GA_OK;
}

/* ---- the spec for the heap ----------------------------------------------------------------- */

typedef struct text {
    char *buffer;
    size_t size, length;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = t->length < t->size ? t->size - t->length : 0;
    int length = vsnprintf(room ? t->buffer + t->length : NULL, room, format, args);
    va_end(args);
    t->length += length > 0 ? (size_t)length : 0;
}

static void add_value(text *t, const char *value)
{
    if (!ga_spec_needs_quotes(value)) {
        add(t, "=%s", value);
        return;
    }
    add(t, "=\"");
    for (; *value; value++) {
        add(t, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    }
    add(t, "\"");
}

static size_t times_given(const ga_spec_layer *layer, const char *key)
{
    size_t times = 0;
    for (size_t i = 0; i < layer->option_count; i++) {
        times += strcmp(layer->options[i].key, key) == 0;
    }
    return times;
}

static int is_torch(struct dl_phdr_info *object, size_t size, void *found)
{
    const char *name = object->dlpi_name;
    const char *slash = name ? strrchr(name, '/') : NULL;
    (void)size;
    *(bool *)found = equals(slash ? slash + 1 : name, "libc10_cuda.so");
    return *(bool *)found;
}

/* True if PyTorch is loaded and caches memory itself. Then its frees, as by empty_cache(), are
 * meant to give memory back to the device. dlopen() is not used to test, because it would wait for
 * a thread that is loading a library, whose constructor may wait for this one. */
static bool torch_caches(void)
{
    const char *off = ga_environment("PYTORCH_NO_CUDA_MEMORY_CACHING");
    bool found = false;
    dl_iterate_phdr(is_torch, &found);
    return found && (!off || equals(off, "0") || !*off);
}

/* The default of slab under the preload: empty superblocks go back without a trim, as on the host.
 * A free waits for the device here in any case. */
static void add_slab_defaults(text *t, const ga_spec_layer *layer, const char *before)
{
    static const char *const conflicting[] = {"keep", "capacity", "preset"};
    size_t given = 0;
    for (size_t i = 0; i < sizeof conflicting / sizeof *conflicting; i++) {
        given += times_given(layer, conflicting[i]);
    }
    if (!given) {
        add(t, "%skeep=16M", before);
    }
}

/* Defaults of vmm under the preload. It caches more than elsewhere, as frameworks do, unless a
 * framework has a cache above it. Its memory is reachable for network cards, as the driver's is,
 * and can be exported where ipc= says so. */
static void add_defaults(const ga_cuda_settings *out, text *t, const ga_spec_layer *layer,
                         const char *before)
{
    if (equals(layer->name, "slab")) {
        add_slab_defaults(t, layer, before);
    }
    if (!equals(layer->name, "vmm")) {
        return;
    }
    if (!times_given(layer, "cache")) {
        add(t, "%scache=%s", before, torch_caches() ? "0" : "wide");
        before = ",";
    }
    if (!times_given(layer, "rdma")) {
        add(t, "%srdma=auto", before);
        before = ",";
    }
    bool shares = out->ipc == GA_CUDA_IPC_HANDLE || out->ipc == GA_CUDA_IPC_AUTO;
    if (shares && !times_given(layer, "share")) {
        add(t, "%sshare=%s", before, out->ipc == GA_CUDA_IPC_HANDLE ? "fd" : "auto");
    }
}

static ga_status add_layer(ga_cuda_settings *out, text *t, const ga_spec_layer *layer, bool first)
{
    const char *before = ":";
    add(t, "%s%s", first ? "" : "/", layer->name);
    for (size_t i = 0; i < layer->option_count; i++) {
        const ga_spec_option *option = &layer->options[i];
        bool taken = false;
        ga_status status = first ? read_option(out, layer->name, option, &taken) : GA_OK;
        if (status != GA_OK) {
            return status;
        }
        if (taken && times_given(layer, option->key) > 1) { /* the backend checks its own options */
            return ga_fail(GA_ERR_SPEC, "%s: %s: expected once, got it twice", layer->name,
                           option->key);
        }
        if (!taken) {
            add(t, "%s%s", before, option->key);
            before = ",";
        }
        if (!taken && option->value) {
            add_value(t, option->value);
        }
    }
    add_defaults(out, t, layer, before);
    return GA_OK;
}

static const char *bare_option(const char *name)
{
    const ga_backend *backend = ga_registry_find(name);
    return backend ? backend->bare_option : NULL;
}

static ga_status read_into(ga_cuda_settings *out, ga_spec *spec, const char *from)
{
    text t = {out->spec, sizeof out->spec, 0};
    ga_status status = ga_spec_parse(spec, from, bare_option);
    for (size_t i = 0; status == GA_OK && i < spec->layer_count; i++) {
        status = add_layer(out, &t, &spec->layers[i], i == 0);
    }
    if (status == GA_OK && t.length >= t.size) {
        return ga_fail(GA_ERR_SPEC, "expected a spec of at most %zu bytes", t.size - 1);
    }
    return status;
}

ga_status ga_cuda_settings_read(ga_cuda_settings *out, const char *from)
{
    *out = (ga_cuda_settings){.limit = UINT64_MAX};
    ga_spec *spec = ga_libc.malloc(sizeof *spec);
    if (!spec) {
        return ga_fail(GA_ERR_MEMORY, "no memory to read the spec in");
    }
    ga_status status = read_into(out, spec, from);
    ga_libc.free(spec);
    return status;
}
