/* SPDX-License-Identifier: MIT
 *
 * A constructor, so that the number is set before the first call of the weakened code.
 */
#include "mutant.h"

#include <stdio.h>
#include <stdlib.h>

int ga_mutant;

__attribute__((constructor)) static void read_mutant(void)
{
    const char *text = getenv("GA_MUTANT");
    char *end = NULL;
    if (!text || !*text) {
        return;
    }
    long number = strtol(text, &end, 10);
    if (*end || number < 1 || number > 99) {
        fprintf(stderr, "GA_MUTANT is \"%s\"; expected a number from 1 to 99\n", text);
        exit(2);
    }
    ga_mutant = (int)number;
}
