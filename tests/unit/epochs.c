/* SPDX-License-Identifier: MIT
 *
 * Epochs of tiles, a step at a time: one thread acts as all tiles. tests/stress/epochs.c runs many
 * at once.
 */
#include "reclaim/epoch_tile.h"

#include <criterion/criterion.h>
#include <string.h>

static ga_epochs epochs;

static ga_tile tile(void)
{
    return ga_tile_of(8);
}

static uint32_t enter(uint32_t number)
{
    return ga_epoch_enter(&epochs, tile(), number);
}

static void leave(uint32_t pin)
{
    ga_epoch_leave(&epochs, tile(), pin);
}

static bool is_over(uint32_t pin)
{
    return ga_epoch_is_closed(&epochs, tile(), pin);
}

static bool drained(void)
{
    return ga_epochs_drained(&epochs, tile());
}

static void close_one(void)
{
    cr_assert(ga_epochs_claim(&epochs, tile()));
    ga_epochs_close(&epochs, tile());
}

static void begin(void)
{
    memset(&epochs, 0, sizeof epochs);
}

Test(epochs, an_empty_epoch_drains_at_once)
{
    begin();
    cr_assert(!drained(), "nobody has closed one");
    for (uint32_t i = 0; i < 10; i++) {
        close_one();
        cr_assert(drained());
        cr_assert(!drained(), "for one alone");
        ga_epochs_reopen(&epochs, tile());
    }
}

Test(epochs, a_tile_in_the_epoch_is_waited_for)
{
    begin();
    uint32_t pins[3 * GA_EPOCH_STRIPES];
    for (uint32_t i = 0; i < 3 * GA_EPOCH_STRIPES; i++) {
        pins[i] = enter(i);
        cr_assert(!is_over(pins[i]));
    }
    close_one();
    for (uint32_t i = 0; i < 3 * GA_EPOCH_STRIPES; i++) {
        cr_assert(!drained(), "%u are in still", 3 * GA_EPOCH_STRIPES - i);
        cr_assert(is_over(pins[i]));
        leave(pins[i]);
    }
    cr_assert(drained());
}

Test(epochs, a_later_tile_is_not_waited_for)
{
    begin();
    uint32_t early = enter(5);
    close_one();
    uint32_t late = enter(5);
    cr_assert_neq(early & 1u, late & 1u, "they are on two sides");
    cr_assert(!is_over(late));
    leave(early);
    cr_assert(drained());
    ga_epochs_reopen(&epochs, tile());
    close_one();
    cr_assert(!drained(), "now it is");
    cr_assert(is_over(late));
    leave(late);
    cr_assert(drained());
}

Test(epochs, a_side_is_entered_again_only_once_it_has_drained)
{
    begin();
    uint32_t pin = enter(0);
    close_one();
    cr_assert(!ga_epochs_claim(&epochs, tile()), "the one before has not drained");
    leave(pin);
    cr_assert(!ga_epochs_claim(&epochs, tile()), "what waited for it has not been freed");
    cr_assert(drained());
    cr_assert(!ga_epochs_claim(&epochs, tile()), "it is being freed");
    ga_epochs_reopen(&epochs, tile());
    cr_assert(ga_epochs_claim(&epochs, tile()));
    cr_assert(!ga_epochs_claim(&epochs, tile()), "somebody closes it");
    cr_assert(!drained(), "and has not yet");
}

Test(epochs, one_leaves_and_another_comes)
{
    begin();
    uint32_t pin = enter(7);
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t next = enter(i);
        close_one();
        leave(pin);
        cr_assert(!drained(), "the other is in");
        leave(next);
        pin = enter(7);
        cr_assert(drained());
        ga_epochs_reopen(&epochs, tile());
    }
    leave(pin);
}

/* The counts of entries, exits and steps wrap around at 2^32. */
Test(epochs, counts_come_round)
{
    begin();
    epochs.stripes[3].left[0] = UINT32_MAX - 1;
    epochs.stripes[4].left[1] = UINT32_MAX - 2;
    epochs.expected[0] = UINT32_MAX - 1;
    epochs.expected[1] = UINT32_MAX - 2;
    epochs.step = UINT32_MAX - 7;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t one = enter(3), other = enter(4);
        close_one();
        cr_assert(!drained());
        leave(one);
        cr_assert(!drained());
        leave(other);
        cr_assert(drained());
        ga_epochs_reopen(&epochs, tile());
    }
    cr_assert_lt(epochs.step, 100u);
}

Test(epochs, tiles_of_all_widths)
{
    for (uint32_t width = 4; width <= 32; width *= 2) {
        begin();
        uint32_t pin = ga_epoch_enter(&epochs, ga_tile_of(width), width);
        cr_assert(ga_epochs_claim(&epochs, ga_tile_of(width)));
        ga_epochs_close(&epochs, ga_tile_of(width));
        cr_assert(!ga_epochs_drained(&epochs, ga_tile_of(width)));
        ga_epoch_leave(&epochs, ga_tile_of(width), pin);
        cr_assert(ga_epochs_drained(&epochs, ga_tile_of(width)));
    }
}
