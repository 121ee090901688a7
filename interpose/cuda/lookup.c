/* SPDX-License-Identifier: MIT
 *
 * Look-ups of driver functions by each route a program has: dlsym(), dlvsym() and
 * cuGetProcAddress(), which statically linked code uses, too. Each look-up first asks the driver as
 * the program did. Only if the driver's answer is a function of the hook table is it replaced by
 * the hook. So versions, flags and statuses stay the driver's, and another library's functions with
 * these names stay untouched.
 *
 *   dlsym              ga_cuda_choose_dlsym  -> look_up_anywhere, replace_found, answer_with_lookup
 *   dlvsym             ga_cuda_choose_dlvsym -> replace_found
 *   cuGetProcAddress   replace -> row_of
 */
#include "lookup.h"

#include "../../liballoc/platform/log.h"
#include "entry.h"
#include "nccl_next.h"
#include "next.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

const ga_cuda_hook ga_cuda_hooks[GA_CUDA_HOOK_COUNT] = {GA_CUDA_HOOKS(GA_CUDA_HOOK_ROW)};

/* ---- counting ------------------------------------------------------------------------------ */

ga_cuda_counts ga_cuda_count_groups[GA_CUDA_COUNT_GROUPS];
_Thread_local ga_cuda_counts *ga_cuda_my_counts;

ga_cuda_counts *ga_cuda_assign_counts(void)
{
    static unsigned next;
    /* relaxed: a thread's group only affects speed */
    unsigned index = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    return ga_cuda_my_counts = &ga_cuda_count_groups[index % GA_CUDA_COUNT_GROUPS];
}

uint64_t ga_cuda_calls_of(ga_cuda_hook_index row)
{
    uint64_t all = 0;
    for (int i = 0; i < GA_CUDA_COUNT_GROUPS; i++) {
        /* relaxed: a figure */
        all += __atomic_load_n(&ga_cuda_count_groups[i].calls[row], __ATOMIC_RELAXED);
    }
    return all;
}

/* The parent reports its own calls. */
void ga_cuda_calls_child(void)
{
    memset(ga_cuda_count_groups, 0, sizeof ga_cuda_count_groups);
}

/* ---- hooks for the driver's functions ------------------------------------------------------ */

/* The symbols are declared as data, because only their addresses are used. */
#define ADDRESS_OF(kind, name, since, symbol, streams, description)                                \
    extern char ga_ours_##symbol __asm__(#symbol);
#define HOOK(kind, name, since, symbol, streams, description) &ga_ours_##symbol,

GA_CUDA_HOOKS(ADDRESS_OF)

static void *const hooks[GA_CUDA_HOOK_COUNT] = {GA_CUDA_HOOKS(HOOK)};

static void *next_of(int row)
{
    /* relaxed: every thread stores the same word */
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

extern char ga_cuda_dlsym, ga_cuda_dlvsym; /* in lookup.S */

/* The hook, if a look-up in one library found the driver's function. */
static void *replace_found(int row, void *found)
{
    bool there = ga_cuda_next_start(false);
    if (found == hooks[row] && !(there && next_of(row))) {
        /* Program-wide, and there is no driver: fail as without the hook, with an error text. */
        return ga_cuda_next_dlsym(RTLD_NEXT, ga_cuda_hooks[row].symbol);
    }
    if (found == hooks[row]) {
        return found;
    }
    return there && found && found == next_of(row) ? hooks[row] : found;
}

/* In the whole program: if the driver is loaded the caller would find its function, so return the
 * hook, which precedes it; else return the next definition. */
static void *look_up_anywhere(int row, const char *symbol)
{
    if (ga_cuda_next_start(false) && next_of(row)) {
        return hooks[row];
    }
    return ga_cuda_next_dlsym(RTLD_NEXT, symbol);
}

static ga_cuda_choice answer(void *function)
{
    return (ga_cuda_choice){.answer = function};
}

static ga_cuda_choice jump_to(void *lookup)
{
    return (ga_cuda_choice){.jump_to = lookup};
}

/* A look-up of dlsym() or dlvsym() itself that would find the C library's: return the preload's, so
 * that it sees look-ups through that address, too. */
static ga_cuda_choice answer_with_lookup(void *handle, const char *symbol, void *next, void *hook)
{
    void *found = ga_cuda_next_dlsym(handle, symbol);
    return answer(found == next ? hook : found);
}

/* RTLD_NEXT is forwarded: the caller asks for the definition behind its own. */
ga_cuda_choice ga_cuda_choose_dlsym(void *handle, const char *symbol)
{
    void *dlsym_itself = ga_cuda_next_dlsym_address();
    if (!symbol || handle == RTLD_NEXT) {
        return jump_to(dlsym_itself);
    }
    int row = row_of_symbol(symbol);
    if (row >= 0) {
        return answer(handle == RTLD_DEFAULT
                          ? look_up_anywhere(row, symbol)
                          : replace_found(row, ga_cuda_next_dlsym(handle, symbol)));
    }
    int nccl_row = ga_nccl_row_of(symbol);
    if (nccl_row >= 0) {
        return answer(ga_nccl_replace(nccl_row, ga_cuda_next_dlsym(handle, symbol)));
    }
    if (handle != RTLD_DEFAULT && strcmp(symbol, "dlsym") == 0) {
        return answer_with_lookup(handle, symbol, dlsym_itself, &ga_cuda_dlsym);
    }
    if (handle != RTLD_DEFAULT && strcmp(symbol, "dlvsym") == 0) {
        return answer_with_lookup(handle, symbol, ga_cuda_next_dlvsym_address(), &ga_cuda_dlvsym);
    }
    return jump_to(dlsym_itself);
}

ga_cuda_choice ga_cuda_choose_dlvsym(void *handle, const char *symbol, const char *version)
{
    bool chosen = symbol && handle != RTLD_NEXT && handle != RTLD_DEFAULT;
    int row = chosen ? row_of_symbol(symbol) : -1;
    return row >= 0 ? answer(replace_found(row, ga_cuda_next_dlvsym(handle, symbol, version)))
                    : jump_to(ga_cuda_next_dlvsym_address());
}

/* ---- cuGetProcAddress ---------------------------------------------------------------------- */

typedef CUresult get_v1(const char *name, void **function, int version, uint64_t flags);
typedef CUresult get_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status);

/* A driver may answer a name with another address than that of the exported symbol. Then the row is
 * found by the driver's answer for the row's own version. */
static bool is_row_by_version(int row, void *function)
{
    const ga_cuda_hook *hook = &ga_cuda_hooks[row];
    void *of_row = NULL;
    get_v1 *get;
    *(void **)&get = next_of(GA_HOOK_cuGetProcAddress);
    return get && get(hook->name, &of_row, hook->since, hook->streams) == CUDA_SUCCESS &&
           of_row == function;
}

/* The row of a function; NULL as `name`: by whichever name. */
static int row_of_function(const char *name, void *function)
{
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        if (next_of(i) == function && (!name || strcmp(ga_cuda_hooks[i].name, name) == 0)) {
            return i;
        }
    }
    return -1;
}

/* A later version of a name may be the function of another one, as cuda.h has it for
 * cuGraphInstantiate. Driver 580 does not answer so. */
static int row_of(const char *name, void *function)
{
    int row = row_of_function(name, function);
    if (row >= 0) {
        return row;
    }
    for (int i = GA_CUDA_HOOK_COUNT - 1; i >= 0; i--) { /* later versions have later rows */
        if (strcmp(ga_cuda_hooks[i].name, name) == 0 && is_row_by_version(i, function)) {
            if (!next_of(i)) { /* a driver that does not export the symbol */
                /* relaxed: every thread stores the same word */
                __atomic_store_n(&ga_cuda_next[i], function, __ATOMIC_RELAXED);
            }
            return i;
        }
    }
    return row_of_function(NULL, function);
}

static void replace(const char *name, void **function)
{
    if (name && function && *function) {
        int row = row_of(name, *function);
        if (row >= 0) {
            *function = hooks[row];
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
