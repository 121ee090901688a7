/* SPDX-License-Identifier: MIT
 *
 * Finding driver functions, each way that a program can: dlsym(), dlvsym() and cuGetProcAddress(),
 * which what is linked statically uses, too. Everywhere the driver is asked as the program asked,
 * and only where it answers with a function that the table has, the answer is ours instead. So
 * versions, flags and statuses stay what they are, and a library of another's that has such names
 * is left alone.
 */
#include "lookup.h"

#include "../../liballoc/platform/log.h"
#include "entry.h"
#include "next.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

const ga_cuda_hook ga_cuda_hooks[GA_CUDA_HOOK_COUNT] = {GA_CUDA_HOOKS(GA_CUDA_HOOK_ROW)};

/* ---- counting ------------------------------------------------------------------------------ */

ga_cuda_counts ga_cuda_parts[GA_CUDA_COUNTS];
_Thread_local ga_cuda_counts *ga_cuda_my_part;

ga_cuda_counts *ga_cuda_take_part(void)
{
    static unsigned next;
    /* relaxed: whose part it is decides nothing but how fast it is */
    unsigned turn = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    return ga_cuda_my_part = &ga_cuda_parts[turn % GA_CUDA_COUNTS];
}

uint64_t ga_cuda_calls_of(ga_cuda_hook_index row)
{
    uint64_t all = 0;
    for (int i = 0; i < GA_CUDA_COUNTS; i++) {
        /* relaxed: a figure */
        all += __atomic_load_n(&ga_cuda_parts[i].calls[row], __ATOMIC_RELAXED);
    }
    return all;
}

/* What the parent has called is the parent's to report. */
void ga_cuda_calls_child(void)
{
    memset(ga_cuda_parts, 0, sizeof ga_cuda_parts);
}

/* ---- ours, for the driver's ---------------------------------------------------------------- */

/* Their types are elsewhere; here only addresses count. */
#define ADDRESS_OF(kind, name, since, symbol, streams, what)                                       \
    extern char ga_ours_##symbol __asm__(#symbol);
#define OURS(kind, name, since, symbol, streams, what) &ga_ours_##symbol,

GA_CUDA_HOOKS(ADDRESS_OF)

static void *const ours[GA_CUDA_HOOK_COUNT] = {GA_CUDA_HOOKS(OURS)};

static void *next_of(int row)
{
    /* relaxed: a word that is the same whoever wrote it */
    return __atomic_load_n(&ga_cuda_next[row], __ATOMIC_RELAXED);
}

static int row_of_symbol(const char *symbol)
{
    if (symbol[0] == 'c' && symbol[1] == 'u') {
        for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
            if (strcmp(symbol, ga_cuda_hooks[i].symbol) == 0) {
                return i;
            }
        }
    }
    return -1;
}

/* ---- dlsym and dlvsym ---------------------------------------------------------------------- */

extern char ga_cuda_dlsym, ga_cuda_dlvsym; /* of lookup.S */

/* What a lookup in one library found, or ours in its place. */
static void *instead_of(int row, void *found)
{
    bool there = ga_cuda_next_start(false);
    if (found == ours[row]) { /* in all of the program: us, whether or not the driver is there */
        return there && next_of(row) ? found : NULL;
    }
    return there && found && found == next_of(row) ? ours[row] : found;
}

/* Where the driver is loaded, the caller finds it, or us before it; where it is not, what would be
 * found without us. */
static void *in_all(int row, const char *symbol)
{
    if (ga_cuda_next_start(false) && next_of(row)) {
        return ours[row];
    }
    return ga_cuda_next_dlsym(RTLD_NEXT, symbol);
}

static ga_cuda_choice answer(void *function)
{
    return (ga_cuda_choice){.answer = function};
}

static ga_cuda_choice go_on(void *lookup)
{
    return (ga_cuda_choice){.go_on = lookup};
}

/* A lookup asked for itself, by who wants the C library's: the driver's functions are to be seen
 * through that one, too. */
static ga_cuda_choice lookup_itself(void *handle, const char *symbol, void *next, void *our_own)
{
    void *found = ga_cuda_next_dlsym(handle, symbol);
    return answer(found == next ? our_own : found);
}

/* RTLD_NEXT is the caller's own business: it wants what is behind it. */
ga_cuda_choice ga_cuda_choose_dlsym(void *handle, const char *symbol)
{
    void *dlsym_itself = ga_cuda_next_dlsym_itself();
    if (!symbol || handle == RTLD_NEXT) {
        return go_on(dlsym_itself);
    }
    int row = row_of_symbol(symbol);
    if (row >= 0) {
        return answer(handle == RTLD_DEFAULT ? in_all(row, symbol)
                                             : instead_of(row, ga_cuda_next_dlsym(handle, symbol)));
    }
    if (handle != RTLD_DEFAULT && strcmp(symbol, "dlsym") == 0) {
        return lookup_itself(handle, symbol, dlsym_itself, &ga_cuda_dlsym);
    }
    if (handle != RTLD_DEFAULT && strcmp(symbol, "dlvsym") == 0) {
        return lookup_itself(handle, symbol, ga_cuda_next_dlvsym_itself(), &ga_cuda_dlvsym);
    }
    return go_on(dlsym_itself);
}

ga_cuda_choice ga_cuda_choose_dlvsym(void *handle, const char *symbol, const char *version)
{
    bool chosen = symbol && handle != RTLD_NEXT && handle != RTLD_DEFAULT;
    int row = chosen ? row_of_symbol(symbol) : -1;
    return row >= 0 ? answer(instead_of(row, ga_cuda_next_dlvsym(handle, symbol, version)))
                    : go_on(ga_cuda_next_dlvsym_itself());
}

/* ---- cuGetProcAddress ---------------------------------------------------------------------- */

typedef CUresult get_v1(const char *name, void **function, int version, uint64_t flags);
typedef CUresult get_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status);

/* Some driver might have another address behind the name than behind the symbol: the row is known
 * then by what the driver answers for the row's own version. */
static bool is_row_by_version(int row, void *function)
{
    const ga_cuda_hook *hook = &ga_cuda_hooks[row];
    void *of_row = NULL;
    get_v1 *get;
    *(void **)&get = next_of(GA_HOOK_cuGetProcAddress);
    return get && get(hook->name, &of_row, hook->since, hook->streams) == CUDA_SUCCESS &&
           of_row == function;
}

static int row_of(const char *name, void *function)
{
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        if (next_of(i) == function && strcmp(ga_cuda_hooks[i].name, name) == 0) {
            return i;
        }
    }
    for (int i = GA_CUDA_HOOK_COUNT - 1; i >= 0;
         i--) { /* later versions stand behind earlier ones */
        if (strcmp(ga_cuda_hooks[i].name, name) == 0 && is_row_by_version(i, function)) {
            if (!next_of(i)) { /* a driver that has it by name alone */
                /* relaxed: a word that is the same whoever wrote it */
                __atomic_store_n(&ga_cuda_next[i], function, __ATOMIC_RELAXED);
            }
            return i;
        }
    }
    return -1;
}

static void replace(const char *name, void **function)
{
    if (name && function && *function) {
        int row = row_of(name, *function);
        if (row >= 0) {
            *function = ours[row];
            ga_log(GA_LOG_DEBUG, "cuGetProcAddress: %s is ours", ga_cuda_hooks[row].symbol);
        }
    }
}

GA_CUDA_ENTRY(get_v1, cuGetProcAddress);
GA_CUDA_ENTRY(get_v2, cuGetProcAddress_v2);

CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    ga_cuda_count(GA_HOOK_cuGetProcAddress);
    get_v1 *next = (get_v1 *)(uintptr_t)ga_cuda_next_find(GA_HOOK_cuGetProcAddress);
    if (!next) {
        return ga_cuda_next_missing();
    }
    CUresult result = next(name, function, version, flags);
    if (result == CUDA_SUCCESS) {
        replace(name, function);
    }
    return result;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                             int *status)
{
    ga_cuda_count(GA_HOOK_cuGetProcAddress_v2);
    get_v2 *next = (get_v2 *)(uintptr_t)ga_cuda_next_find(GA_HOOK_cuGetProcAddress_v2);
    if (!next) {
        return ga_cuda_next_missing();
    }
    CUresult result = next(name, function, version, flags, status);
    if (result == CUDA_SUCCESS) {
        replace(name, function);
    }
    return result;
}
