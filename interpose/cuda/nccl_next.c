/* SPDX-License-Identifier: MIT
 *
 * NCCL is found by its soname, because programs load it with scopes of their own, where RTLD_NEXT
 * does not look. Once found it stays loaded, because the table keeps its functions.
 *
 * A library that NCCL is linked into calls its hooks too, because these come first in the program's
 * scope. Such a call goes on to the NCCL of its library.
 *
 * PROGRESS  no lock here: dlopen() holds the loader's lock, under which constructors call dlsym()
 */
#include "nccl_next.h"

#include "next.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    CALLERS = 32 /* whose functions a thread remembers */
};

#define SYMBOL_OF(symbol, description)  #symbol,
#define ADDRESS_OF(symbol, description) extern char ga_ours_##symbol __asm__(#symbol);
#define HOOK(symbol, description)       &ga_ours_##symbol,

/* Declared as data, because only their addresses are used. */
GA_NCCL_HOOKS(ADDRESS_OF)

static const char *const symbols[] = {GA_NCCL_HOOKS(SYMBOL_OF)};
static void *const hooks[] = {GA_NCCL_HOOKS(HOOK)};
static void *functions[GA_NCCL_HOOK_COUNT];

void *ga_nccl_next(ga_nccl_hook_index row)
{
    /* relaxed, both: every thread stores the same word */
    void *function = __atomic_load_n(&functions[row], __ATOMIC_RELAXED);
    if (function) {
        return function;
    }
    void *nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    function = nccl ? ga_cuda_next_dlsym(nccl, symbols[row]) : NULL;
    __atomic_store_n(&functions[row], function, __ATOMIC_RELAXED);
    return function;
}

/* The function that the caller's own library defines; NULL: none, or it cannot be asked. */
static void *function_beside(const void *caller, ga_nccl_hook_index row)
{
    Dl_info of, found;
    void *library = dladdr(caller, &of) ? dlopen(of.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *function = library ? ga_cuda_next_dlsym(library, symbols[row]) : NULL;
    bool is_own = function && dladdr(function, &found) && found.dli_fbase == of.dli_fbase;
    if (library && !is_own) {
        dlclose(library); /* else it stays, because the thread keeps the function */
    }
    return is_own ? function : NULL;
}

void *ga_nccl_next_of(ga_nccl_hook_index row, const void *caller)
{
    static _Thread_local struct {
        const void *caller;
        void *function;
        ga_nccl_hook_index row;
    } last[CALLERS];
    size_t at = ((uintptr_t)caller >> 2 ^ (uintptr_t)row) % CALLERS;
    if (last[at].caller != caller || last[at].row != row) {
        void *function = function_beside(caller, row);
        function = function ? function : ga_nccl_next(row);
        function = function ? function : ga_cuda_next_dlsym(RTLD_NEXT, symbols[row]);
        (void)dlerror(); /* the program's own look-up did not fail */
        if (!function) {
            return NULL;
        }
        last[at].caller = caller;
        last[at].function = function;
        last[at].row = row;
    }
    return last[at].function;
}

int ga_nccl_row_of(const char *symbol)
{
    for (int i = 0; strncmp(symbol, "nccl", 4) == 0 && i < GA_NCCL_HOOK_COUNT; i++) {
        if (strcmp(symbol, symbols[i]) == 0) {
            return i;
        }
    }
    return -1;
}

void *ga_nccl_replace(int row, void *found)
{
    void *next = found ? ga_nccl_next((ga_nccl_hook_index)row) : NULL;
    if (found == hooks[row] && !next) { /* a look-up in the whole program: fail as without us */
        return ga_cuda_next_dlsym(RTLD_NEXT, symbols[row]);
    }
    return found && found == next ? hooks[row] : found;
}
