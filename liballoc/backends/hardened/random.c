/* SPDX-License-Identifier: MIT
 *
 * The kernel is asked once for 256 numbers, which spreads the cost of the call. A forked child must
 * not repeat the parent's numbers: the fork handler empties the buffers.
 */
#include "random.h"

#include "../../platform/entropy.h"
#include "../../platform/log.h"

#include <stdbool.h>

static void warn_once(void)
{
    static bool warned;
    if (!__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED)) { /* relaxed: guards the line only */
        ga_log(GA_LOG_WARN, "hardened: getrandom and /dev/urandom are refused; placement can be "
                            "predicted");
    }
}

static void fill(ga_hardened_random *random)
{
    if (!ga_entropy_fill(random->number, sizeof random->number)) {
        warn_once();
    }
    random->left = GA_HARDENED_RANDOM;
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
