/* SPDX-License-Identifier: MIT
 *
 * A constructor, so that the bug is chosen before the first call of the code under test.
 */
#include "planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ga_planted;

static const char *const names[] = {GA_PLANTED_NAMES};

__attribute__((constructor)) static void read_planted_bug(void)
{
    const char *name = getenv("GA_PLANTED_BUG");
    if (!name || !*name) {
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names && !ga_planted; i++) {
        ga_planted = strcmp(names[i], name) == 0 ? (int)i + 1 : 0;
    }
    if (!ga_planted) {
        fprintf(stderr,
                "GA_PLANTED_BUG is \"%s\"; expected a name that scripts/planted-bugs lists\n",
                name);
        exit(2);
    }
}
