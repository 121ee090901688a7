/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a table of the driver's functions, and two functions of the C library
 * INVARIANT  an entry is NULL or final: every thread that looks it up stores the same value
 * ORDER      IN1/IN2 publish the table; its entries are single words. IN3/IN4 publish the driver
 *            functions that the preload calls itself, which are written once
 * PROGRESS   no lock here: dlopen() holds the loader's lock, under which constructors call dlsym()
 */
#include "next.h"

#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/object_symbols.h"
#include "lookup.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

/* ---- the C library's dlsym, found without calling dlsym() ---------------------------------- */

typedef void *dlsym_fn(void *handle, const char *symbol);
typedef void *dlvsym_fn(void *handle, const char *symbol, const char *version);

static void *next_dlsym, *next_dlvsym;

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden"))); /* this library's */

/* Search the objects behind this one in the loader's search order. The loader's list is read
 * without its lock, because the part between this library and the C library does not change after
 * program start. dl_iterate_phdr() is not used, because a sanitizer may have replaced it. */
static void *find_behind_us(const char *name)
{
    bool passed_us = false;
    for (const struct link_map *object = _r_debug.r_map; object; object = object->l_next) {
        void *symbol = passed_us ? ga_object_symbol(object, name) : NULL;
        if (symbol) {
            return symbol;
        }
        passed_us = passed_us || object->l_ld == _DYNAMIC;
    }
    return NULL;
}

/* relaxed, both: every thread stores the same word */
static void *found_once(void **cached, const char *name)
{
    void *next = __atomic_load_n(cached, __ATOMIC_RELAXED);
    if (!next) {
        next = find_behind_us(name);
        __atomic_store_n(cached, next, __ATOMIC_RELAXED);
    }
    return next;
}

void *ga_cuda_next_dlsym_address(void)
{
    return found_once(&next_dlsym, "dlsym");
}

void *ga_cuda_next_dlvsym_address(void)
{
    return found_once(&next_dlvsym, "dlvsym");
}

void *ga_cuda_next_dlsym(void *handle, const char *symbol)
{
    dlsym_fn *next;
    *(void **)&next = ga_cuda_next_dlsym_address();
    return next ? next(handle, symbol) : NULL;
}

void *ga_cuda_next_dlvsym(void *handle, const char *symbol, const char *version)
{
    dlvsym_fn *next;
    *(void **)&next = ga_cuda_next_dlvsym_address();
    return next ? next(handle, symbol, version) : NULL;
}

/* ---- the driver ------------------------------------------------------------------------------ */

void *ga_cuda_next[GA_CUDA_HOOK_COUNT];
static void *library;          /* the driver; never closed */
static const ga_cuda_api *api; /* NULL: the driver does not have all of them; never freed */

#define API_SYMBOL(symbol, parameters) {#symbol, offsetof(ga_cuda_api, symbol)},

static const struct {
    const char *symbol;
    size_t offset;
} api_symbols[] = {GA_CUDA_API(API_SYMBOL)};

/* Threads may race here. The first table stays, because others may be reading it. */
static void find_api(void *driver)
{
    const ga_cuda_api *none = NULL;
    ga_cuda_api *found = ga_libc.calloc(1, sizeof *found);
    bool all = found != NULL;
    for (size_t i = 0; all && i < sizeof api_symbols / sizeof *api_symbols; i++) {
        void *function = ga_cuda_next_dlsym(driver, api_symbols[i].symbol);
        memcpy((char *)found + api_symbols[i].offset, &function, sizeof function);
        all = function != NULL;
    }
    /* IN3: release. Pairs with IN4: a reader of the pointer sees the whole table. */
    if (!all || !__atomic_compare_exchange_n(&api, &none, found, false, __ATOMIC_RELEASE,
                                             __ATOMIC_RELAXED)) {
        ga_libc.free(found);
    }
}

bool ga_cuda_next_start(bool load)
{
    /* IN2: acquire. Pairs with IN1. */
    if (__atomic_load_n(&library, __ATOMIC_ACQUIRE)) {
        return true;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!driver && load) {
        driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    }
    if (!driver) {
        dlerror(); /* clear the error: the program did not call dlopen() */
        return false;
    }
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        void *function = ga_cuda_next_dlsym(driver, ga_cuda_hooks[i].symbol);
        /* relaxed: every thread stores the same word; IN1 publishes them all */
        __atomic_store_n(&ga_cuda_next[i], function, __ATOMIC_RELAXED);
    }
    find_api(driver);
    dlerror();
    ga_cuda_report_at_exit();
    /* IN1: release. Pairs with IN2: the table is seen with the library. */
    __atomic_store_n(&library, driver, __ATOMIC_RELEASE);
    return true;
}

void *ga_cuda_next_symbol(const char *symbol)
{
    if (!ga_cuda_next_start(true)) {
        return NULL;
    }
    /* IN2: acquire. Pairs with IN1. */
    void *found = ga_cuda_next_dlsym(__atomic_load_n(&library, __ATOMIC_ACQUIRE), symbol);
    dlerror(); /* clear the error: the program did not call dlsym() */
    return found;
}

ga_cuda_any *ga_cuda_next_find(ga_cuda_hook_index row)
{
    ga_cuda_next_start(true);
    /* relaxed: a single word; IN1 and IN2 order it where the driver was found */
    void *function = __atomic_load_n(&ga_cuda_next[row], __ATOMIC_RELAXED);
    ga_cuda_any *next;
    memcpy(&next, &function, sizeof next);
    return next;
}

/* NOT_INITIALIZED is the driver's own answer before cuInit(), NOT_SUPPORTED that of a driver older
 * than the call. */
CUresult ga_cuda_next_missing(void)
{
    return ga_cuda_next_start(false) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult ga_cuda_next_error(void)
{
    const ga_cuda_api *all = ga_cuda_next_api();
    CUresult result = all ? all->cuCtxSynchronize() : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? CUDA_ERROR_UNKNOWN : result;
}

const ga_cuda_api *ga_cuda_next_api(void)
{
    /* IN4: acquire. Pairs with IN3. */
    return ga_cuda_next_start(true) ? __atomic_load_n(&api, __ATOMIC_ACQUIRE) : NULL;
}

/* The linker redirects the runtime's calls of dlsym() in this library to this name, so that the
 * runtime finds the driver's functions and not the hooks. */
extern void *__wrap_dlsym(void *handle, const char *symbol);

void *__wrap_dlsym(void *handle, const char *symbol)
{
    return ga_cuda_next_dlsym(handle, symbol);
}
