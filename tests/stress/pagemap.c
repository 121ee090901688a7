/* SPDX-License-Identifier: MIT
 *
 * The ownership map under threads that mark pages of the same words and first use the same leaves,
 * while others look: a mark that was seen stays, none is lost, and none appears from nowhere.
 */
#include "stress.h"

#include "platform/pagemap.h"
#include "support/random.h"

#include <stdint.h>

enum {
    THREADS = 6,
    LOOKERS = 2,
    PAGES = 1 << 14,
    LEAVES = 512 /* a GiB each, from 64 GiB on */
};

static const uintptr_t PAGE = 4096;

/* Pages are spread over the leaves; thread t marks those with page % THREADS == t, and never a
 * page whose number is a multiple of 7. */
static const void *address_of(uintptr_t page)
{
    uintptr_t leaf = 64 + page % LEAVES;
    return (const void *)((leaf << 30) + page / LEAVES * PAGE);
}

static bool marked[PAGES]; /* by its own thread only; read once all have ended */

static void mark(size_t number, uint64_t *random)
{
    uintptr_t page = random_below(random, PAGES / THREADS) * THREADS + number;
    if (page % 7 != 0) {
        stress_need(ga_pagemap_mark(address_of(page), 1), "a mark");
        stress_need(ga_pagemap_test(address_of(page)), "a mark of one's own is seen");
        marked[page] = true;
    }
}

static void look(uint64_t *random)
{
    static _Thread_local bool seen[PAGES];
    uintptr_t page = random_below(random, PAGES);
    bool now = ga_pagemap_test(address_of(page));
    stress_need(now || !seen[page], "a mark went away");
    stress_need(!now || page % 7 != 0, "a mark nobody made");
    seen[page] = now;
}

static void run(size_t number)
{
    uint64_t random = number + 1;
    while (stress_goes_on()) {
        for (int i = 0; i < 1000; i++) {
            if (number < THREADS) {
                mark(number, &random);
            } else {
                look(&random);
            }
        }
    }
}

int main(int argc, char **argv)
{
    size_t count = 0;
    stress_begin(argc, argv);
    stress_threads(THREADS + LOOKERS, run);
    for (uintptr_t page = 0; page < PAGES; page++) {
        stress_need(ga_pagemap_test(address_of(page)) == marked[page], "the map at the end");
        count += marked[page];
    }
    stress_need(count > PAGES / 2, "most pages had their turn");
    return 0;
}
