/* SPDX-License-Identifier: MIT
 *
 * The symbols of the hook table: counted, made to fail, echoed, or done.
 */
#include "libcuda.h"

#include <stdlib.h>
#include <string.h>

/* Figures, for any thread; settings are made while one thread runs. */
static struct {
    uint64_t calls[GA_CUDA_HOOK_COUNT];
    int failures[GA_CUDA_HOOK_COUNT];
    CUresult error[GA_CUDA_HOOK_COUNT];
    bool echo;
} rows;

static const ga_cuda_hook hooks[] = {GA_CUDA_HOOKS(GA_CUDA_HOOK_ROW)};

static int row_of(const char *symbol)
{
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        if (strcmp(hooks[i].symbol, symbol) == 0) {
            return i;
        }
    }
    abort();
}

void stand_in_echo(bool on)
{
    rows.echo = on;
}

void stand_in_fail(const char *symbol, int n, CUresult error)
{
    int row = row_of(symbol);
    rows.failures[row] = n;
    rows.error[row] = error;
}

static struct {
    const char *symbol;
    void (*run)(void);
} meanwhile;

void stand_in_meanwhile(const char *symbol, void (*run)(void))
{
    meanwhile.symbol = symbol;
    meanwhile.run = run;
}

void stand_in_during(const char *symbol)
{
    void (*run)(void) = meanwhile.run;
    if (run && strcmp(meanwhile.symbol, symbol) == 0) {
        meanwhile.run = NULL;
        run();
    }
}

void stand_in_fail_any(uint64_t n, uint64_t more, CUresult error)
{
    vmm_driver_fail_many(NULL, n, more, error);
}

bool stand_in_has_failed(void)
{
    return vmm_driver_has_failed();
}

void stand_in_called(const char *symbol)
{
    __atomic_fetch_add(&rows.calls[row_of(symbol)], 1, __ATOMIC_RELAXED); /* a figure */
}

uint64_t stand_in_calls(const char *symbol)
{
    return __atomic_load_n(&rows.calls[row_of(symbol)], __ATOMIC_RELAXED); /* a figure */
}

/* ---- by symbol: functions of vmm_driver, and those of this library ------------------------ */

#define MEMBER(name, symbol, parameters)                                                           \
    if (strcmp(wanted, symbol) == 0) {                                                             \
        memcpy(&found, &stand_in_table.name, sizeof found);                                        \
    }

static stand_in_function *function_of(int row)
{
    const char *wanted = hooks[row].symbol;
    stand_in_function *found = stand_in_own_context(wanted);
    found = found ? found : stand_in_own_graph(wanted);
    found = found ? found : stand_in_other_context(wanted);
    found = found ? found : stand_in_own_memory(wanted);
    found = found ? found : stand_in_own_module(wanted);
    if (!found) {
        GA_CUDA_FUNCTIONS(MEMBER)
    }
    return found;
}

static stand_in_function *known[GA_CUDA_HOOK_COUNT]; /* every thread writes the same word */

static CUresult call(int row, stand_in_word a, stand_in_word b, stand_in_word c, stand_in_word d,
                     stand_in_word e, stand_in_word f)
{
    __atomic_fetch_add(&rows.calls[row], 1, __ATOMIC_RELAXED); /* a figure */
    if (rows.echo) {
        bool kept = a == 11 && b == 22 && c == 33 && d == 44 && e == 55 && f == 66;
        return kept ? STAND_IN_ECHO_BASE + row : STAND_IN_GARBLED;
    }
    CUresult refusal = stand_in_arrive(hooks[row].kind != GA_CUDA_FINDS);
    if (refusal != CUDA_SUCCESS) {
        return refusal;
    }
    stand_in_during(hooks[row].symbol);
    if (rows.failures[row]) {
        rows.failures[row]--;
        return rows.error[row];
    }
    stand_in_function *real = __atomic_load_n(&known[row], __ATOMIC_RELAXED); /* see there */
    if (!real) {
        real = function_of(row);
        __atomic_store_n(&known[row], real, __ATOMIC_RELAXED); /* see there */
    }
    return real ? real(a, b, c, d, e, f) : CUDA_ERROR_NOT_SUPPORTED;
}

#define EXPORT(kind, name, since, symbol, streams, what)                                           \
    STAND_IN_API stand_in_function symbol;                                                         \
    CUresult symbol(stand_in_word a, stand_in_word b, stand_in_word c, stand_in_word d,            \
                    stand_in_word e, stand_in_word f)                                              \
    {                                                                                              \
        return call(GA_HOOK_##symbol, a, b, c, d, e, f);                                           \
    }

/* memory.c has these, which take more than words. */
#define cuIpcOpenMemHandle    stand_in_words_open
#define cuIpcOpenMemHandle_v2 stand_in_words_open_v2

GA_CUDA_HOOKS(EXPORT)

extern stand_in_function stand_in_graph_instantiate
    __attribute__((alias("cuGraphInstantiateWithFlags"), visibility("hidden")));
