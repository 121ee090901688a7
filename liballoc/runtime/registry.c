/* SPDX-License-Identifier: MIT
 *
 * An array that only grows, filled on first use: built-in backends, then plugins, then backends
 * that the program registers. A plugin that cannot be used costs one line in the log.
 *
 * ORDER      the lock's; RG1/RG2 publish that the array is filled
 * PROGRESS   no lock over dlopen(), whose own lock a thread holds that runs constructors, which may
 *            call this: threads that come at once all fill the array, in the same order
 */
#include "registry.h"

#include "../backends/coalesce/coalesce.h"
#include "../backends/hardened/hardened.h"
#include "../backends/hazard/hazard.h"
#include "../backends/native/native.h"
#include "../backends/slab/slab.h"
#include "../backends/testing/doubles.h"
#include "../backends/trace/trace.h"
#include "../backends/vmm/vmm.h"
#include "../platform/environment.h"
#include "../platform/forks.h"
#include "../platform/log.h"
#include "options.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BACKENDS = 64
};

static const ga_backend *backends[BACKENDS]; /* guarded by `lock`, like the count */
static size_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool filled;

/* ---- checks of a table ----------------------------------------------------------------- */

static ga_status check_abi(const ga_backend *backend)
{
    if (backend->abi != GA_BACKEND_ABI) {
        return ga_fail(GA_ERR_ABI, "a backend of ABI version %u: expected version %u", backend->abi,
                       GA_BACKEND_ABI);
    }
    if (backend->size < sizeof(ga_backend)) {
        return ga_fail(GA_ERR_ABI, "a backend whose table has %u bytes: expected at least %zu",
                       backend->size, sizeof(ga_backend));
    }
    return GA_OK;
}

static bool is_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    return name && *name && strlen(name) < 64 && name[strspn(name, letters)] == '\0';
}

static ga_status check_members(const ga_backend *b)
{
    const char *missing = !b->open    ? "open"
                          : !b->close ? "close"
                          : !b->alloc ? "alloc"
                          : !b->free  ? "free"
                          : !b->owns  ? "owns"
                          : !b->help  ? "help"
                                      : NULL;
    if (missing) {
        return ga_fail(GA_ERR_ARGUMENT, "%s: expected the member `%s`, got NULL", b->name, missing);
    }
    if ((unsigned)b->parent_rule > GA_PARENT_REQUIRED) {
        return ga_fail(GA_ERR_ARGUMENT, "%s: expected a parent rule from 0 to %d, got %d", b->name,
                       GA_PARENT_REQUIRED, (int)b->parent_rule);
    }
    if (!b->places || b->places >> GA_PLACE_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "%s: expected bits of the %d places, got 0x%x", b->name,
                       GA_PLACE_COUNT, b->places);
    }
    if (!b->growing_open != !b->growing_to || !b->growing_open != !b->growing_close) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "%s: expected growing_open, growing_to and growing_close all or none",
                       b->name);
    }
    if (b->capabilities & ~(uint32_t)GA_CAP_ALL) {
        return ga_fail(GA_ERR_ARGUMENT, "%s: expected capabilities within 0x%x, got 0x%x", b->name,
                       (unsigned)GA_CAP_ALL, b->capabilities);
    }
    if (b->export_memory && !b->reserves) {
        return ga_fail(GA_ERR_ARGUMENT, "%s: expected reserves beside export_memory, got NULL",
                       b->name);
    }
    if (!b->alloc_on != !b->free_on) {
        return ga_fail(GA_ERR_ARGUMENT, "%s: expected alloc_on and free_on both or neither",
                       b->name);
    }
    return GA_OK;
}

static ga_status check(const ga_backend *backend)
{
    if (!backend) {
        return ga_fail(GA_ERR_ARGUMENT, "expected a backend, got NULL");
    }
    ga_status status = check_abi(backend);
    if (status == GA_OK && !is_name(backend->name)) {
        status = ga_fail(GA_ERR_ARGUMENT,
                         "expected a backend's name of up to 63 letters, digits, "
                         "'-' and '_', got \"%.80s\"",
                         backend->name ? backend->name : "");
    }
    if (status == GA_OK) {
        status = check_members(backend);
    }
    return status == GA_OK ? ga_options_check(backend) : status;
}

/* ---- the array ---------------------------------------------------------------------------- */

static const ga_backend *find_locked(const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(backends[i]->name, name) == 0) {
            return backends[i];
        }
    }
    return NULL;
}

/* Whether this thread runs fill(). */
static _Thread_local bool filling;

static ga_status add(const ga_backend *backend)
{
    ga_status status = check(backend);
    if (status != GA_OK) {
        return status;
    }
    pthread_mutex_lock(&lock);
    const ga_backend *there = find_locked(backend->name);
    if (there == backend && filling) {
        status = GA_OK; /* another thread has added it: see fill() */
    } else if (there) {
        status = ga_fail(GA_ERR_ARGUMENT, "%s: a backend of that name exists", backend->name);
    } else if (count == BACKENDS) {
        status =
            ga_fail(GA_ERR_ARGUMENT, "%s: expected at most %d backends", backend->name, BACKENDS);
    } else {
        backends[count++] = backend;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static void add_builtin(const ga_backend *backend)
{
    if (add(backend) != GA_OK) {
        ga_log(GA_LOG_ERROR, "%s", ga_error_text());
    }
}

/* ---- plugins ------------------------------------------------------------------------------ */

static void log_plugin_error(bool tells, const char *path, const char *why)
{
    if (tells) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_PLUGINS: \"%s\": %s; going on without it", path, why);
    }
}

/* The first time for the plugin with that number; other threads may load it at once. */
static bool is_first(unsigned number)
{
    static uint64_t seen;
    uint64_t bit = UINT64_C(1) << (number & 63);
    return !(__atomic_fetch_or(&seen, bit, __ATOMIC_RELAXED) & bit); /* relaxed: limits messages */
}

static void load_plugin(const char *path, unsigned number)
{
    bool tells = is_first(number);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        log_plugin_error(tells, path, why ? why : "cannot be loaded");
        return;
    }
    ga_plugin_backend_fn *backend_at;
    *(void **)&backend_at = dlsym(library, GA_PLUGIN_SYMBOL);
    if (!backend_at) {
        log_plugin_error(tells, path, "expected it to export " GA_PLUGIN_SYMBOL);
        return;
    }
    const ga_backend *backend;
    for (size_t i = 0; i < BACKENDS && (backend = backend_at(i)); i++) {
        if (add(backend) != GA_OK) {
            log_plugin_error(tells, path, ga_error_text());
        }
    }
}

static void load_plugins(void)
{
    const char *list = ga_environment("GPUALLOC_PLUGINS");
    for (unsigned number = 0; list && *list; number++) {
        size_t length = strcspn(list, ":");
        char path[4096];
        if (length >= sizeof path) {
            log_plugin_error(is_first(number), "...", "expected paths of at most 4095 bytes");
        } else if (length) {
            memcpy(path, list, length);
            path[length] = '\0';
            load_plugin(path, number);
        }
        list += length + (list[length] == ':');
    }
}

/* The lock is held across a fork, because the child opens heaps too and must not inherit a lock
 * whose owner is gone. Registered by a constructor, because a fork that has begun does not run
 * handlers that are registered during it. */
static void lock_registry(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_registry(void)
{
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, lock_registry, unlock_registry, unlock_registry);
}

/* Runs in each thread that finds the array not filled, and in the child of a fork that interrupted
 * it in another thread. The backends that another run has added stay. */
static void fill(void)
{
    filling = true;
    add_builtin(&ga_system_backend);
#ifdef GA_HAVE_JEMALLOC
    add_builtin(&ga_jemalloc_backend);
#endif
    add_builtin(&ga_dl_backend);
    add_builtin(&ga_cuda_backend);
    add_builtin(&ga_managed_backend);
    add_builtin(&ga_pinned_backend);
    add_builtin(&ga_async_backend);
    add_builtin(&ga_hardened_backend);
    add_builtin(&ga_vmm_backend);
    add_builtin(&ga_slab_backend);
    add_builtin(&ga_coalesce_backend);
    add_builtin(&ga_hazard_backend);
    add_builtin(&ga_trace_backend);
    add_builtin(&ga_null_backend);
    add_builtin(&ga_fail_backend);
    load_plugins();
    filling = false;
    /* RG1: release. Pairs with RG2: a thread that sees it finds all backends. */
    __atomic_store_n(&filled, true, __ATOMIC_RELEASE);
}

/* The thread that runs fill() does not do so again: a plugin's constructor may register
 * backends. */
static void fill_once(void)
{
    /* RG2: acquire. Pairs with RG1. */
    if (!filling && !__atomic_load_n(&filled, __ATOMIC_ACQUIRE)) {
        fill();
    }
}

/* ---- the interface ------------------------------------------------------------------------ */

ga_status ga_backend_register(const ga_backend *backend)
{
    fill_once();
    return add(backend);
}

const ga_backend *ga_backend_at(size_t index)
{
    fill_once();
    pthread_mutex_lock(&lock);
    const ga_backend *backend = index < count ? backends[index] : NULL;
    pthread_mutex_unlock(&lock);
    return backend;
}

static void list_names(char *buffer, size_t size)
{
    const ga_backend *backend;
    buffer[0] = '\0';
    for (size_t i = 0; (backend = ga_backend_at(i)); i++) {
        size_t length = strlen(buffer);
        snprintf(buffer + length, size - length, "%s%s", i ? ", " : "", backend->name);
    }
}

const ga_backend *ga_registry_find(const char *name)
{
    fill_once();
    pthread_mutex_lock(&lock);
    const ga_backend *backend = find_locked(name);
    pthread_mutex_unlock(&lock);
    if (!backend) {
        char names[300];
        list_names(names, sizeof names);
        ga_fail(GA_ERR_SPEC, "unknown backend \"%.80s\"; known: %s", name, names);
    }
    return backend;
}
