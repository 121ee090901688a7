/* SPDX-License-Identifier: MIT
 *
 * NCCL is found by its soname, because programs load it with scopes of their own, where RTLD_NEXT
 * does not look. Once found it stays loaded, because the table keeps its functions.
 *
 * PROGRESS  no lock here: dlopen() holds the loader's lock, under which constructors call dlsym()
 */
#include "nccl_next.h"

#include "next.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

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
