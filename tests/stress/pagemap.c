/* SPDX-License-Identifier: MIT
 *
 * The ownership map under threads that mark pages of the same words, and first use the same leaves,
 * while other threads read: a mark that was seen stays, none is lost, and none appears without a
 * writer.
 *
 * Round after round takes fresh leaves, because only the first use of a leaf and the first mark of
 * a page write to the map.
 */
#include "stress.h"

#include "platform/pagemap.h"

#include <pthread.h>
#include <stdint.h>

enum {
    MARKERS = 5,
    LOOKERS = 2,
    PAGES = 4096, /* of a round, over two leaves */
    ROUNDS = 1 << 15
};

static unsigned round_number; /* written between rounds */
static pthread_barrier_t together;

static const void *address_of(uintptr_t page)
{
    uintptr_t leaf = 64 + (uintptr_t)round_number * 2 + page % 2;
    return (const void *)((leaf << 30) + page / 2 * 4096);
}

/* Marker m marks every page with page % MARKERS == m, so that all markers write to every word.
 * Multiples of 7 stay unmarked. */
static bool is_wanted(uintptr_t page)
{
    return page % 7 != 0;
}

static void mark(size_t number)
{
    for (uintptr_t page = number; page < PAGES; page += MARKERS) {
        if (is_wanted(page)) {
            stress_need(ga_pagemap_mark(address_of(page), 1), "a mark");
            stress_need(ga_pagemap_test(address_of(page)), "a mark of one's own is seen");
        }
    }
}

static void look(void)
{
    bool seen[PAGES] = {false};
    for (int again = 0; again < 4; again++) {
        for (uintptr_t page = 0; page < PAGES; page++) {
            bool now = ga_pagemap_test(address_of(page));
            stress_need(now || !seen[page], "a mark went away");
            stress_need(!now || is_wanted(page), "a mark nobody made");
            seen[page] = now;
        }
    }
}

static void run(size_t number)
{
    pthread_barrier_wait(&together);
    if (number < MARKERS) {
        mark(number);
    } else {
        look();
    }
}

int main(int argc, char **argv)
{
    pthread_barrier_init(&together, NULL, MARKERS + LOOKERS);
    stress_begin(argc, argv);
    for (; stress_goes_on() && round_number < ROUNDS; round_number++) {
        stress_threads(MARKERS + LOOKERS, run);
        for (uintptr_t page = 0; page < PAGES; page++) {
            stress_need(ga_pagemap_test(address_of(page)) == is_wanted(page), "a mark was lost");
        }
    }
    stress_need(round_number > 0, "rounds");
    return 0;
}
