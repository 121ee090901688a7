/* SPDX-License-Identifier: MIT
 *
 * getrandom(2) is called once for 256 numbers, which spreads its cost. A forked child must not repeat
 * the parent's numbers: the fork handler empties the buffers.
 */
#include "random.h"

#include "../platform/log.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/random.h>
#include <time.h>

/* Where a sandbox refuses getrandom: numbers that an attacker may guess, and a line that says so. */
static void fill_from_clock(ga_hardened_random *random)
{
    static bool warned;
    struct timespec now;
    if (!__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED)) { /* relaxed: guards the line only */
        ga_log(GA_LOG_WARN, "hardened: getrandom is refused; placement can be predicted");
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t mix = (uint64_t)now.tv_nsec ^ (uintptr_t)random;
    for (int i = 0; i < GA_HARDENED_RANDOM; i++) {
        mix = mix * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        random->number[i] = (uint16_t)(mix >> 48);
    }
}

static void fill(ga_hardened_random *random)
{
    int saved = errno;
    ssize_t length;
    do {
        length = getrandom(random->number, sizeof random->number, 0);
    } while (length < 0 && errno == EINTR);
    if (length != (ssize_t)sizeof random->number) {
        fill_from_clock(random);
    }
    random->left = GA_HARDENED_RANDOM;
    errno = saved;
}

static uint16_t next_number(ga_hardened_random *random)
{
    if (!random->left) {
        fill(random);
    }
    uint16_t *number = &random->number[--random->left];
    uint16_t value = *number;
    *number = 0; /* a used number cannot be read from memory later */
    return value;
}

uint64_t ga_hardened_random_word(ga_hardened_random *random)
{
    uint64_t word = 0;
    for (int i = 0; i < 4; i++) {
        word = word << 16 | next_number(random);
    }
    return word;
}

uint32_t ga_hardened_random_below(ga_hardened_random *random, uint32_t limit)
{
    return (uint32_t)next_number(random) * limit >> 16;
}
