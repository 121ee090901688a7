/* SPDX-License-Identifier: MIT
 *
 * Our declarations of the CUDA driver against the real <cuda.h>: prototypes when this is compiled;
 * symbols, constants and layouts when it runs.
 */
#include <cuda.h>

#include "../../liballoc/platform/cuda_driver.h"
#include "header_facts.h"

#include <stdio.h>
#include <string.h>

#define SAME_PROTOTYPE(name, symbol, parameters)                                                   \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name), CUresult parameters), symbol);

GA_CUDA_FUNCTIONS(SAME_PROTOTYPE)

/* <cuda.h> has a macro from each plain name to the symbol of its present version. */
#define TEXT(name)                       #name
#define SYMBOL(name, symbol, parameters) {TEXT(name), symbol},

static const struct {
    const char *theirs, *ours;
} symbols[] = {GA_CUDA_FUNCTIONS(SYMBOL)};

#define FACT(fact) {#fact, (long)(fact)},

static const struct {
    const char *text;
    long value;
} facts[] = {HEADER_FACTS(FACT)};

int main(void)
{
    int passed = 0;
    int failed = 0;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        bool same = strcmp(symbols[i].theirs, symbols[i].ours) == 0;
        if (!same) {
            printf("symbol %s: <cuda.h> has %s\n", symbols[i].ours, symbols[i].theirs);
        }
        passed += same;
        failed += !same;
    }
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        bool same = facts[i].value == header_facts_ours[i];
        if (!same) {
            printf("%s: <cuda.h> has %ld, we have %ld\n", facts[i].text, facts[i].value,
                   header_facts_ours[i]);
        }
        passed += same;
        failed += !same;
    }
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed ? 1 : 0;
}
