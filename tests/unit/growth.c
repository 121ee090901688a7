/* SPDX-License-Identifier: MIT
 *
 * Growth during kernels, on the side of the kernels: one tile, with the test as the pager, one poll
 * at a time. tests/stress/growth.c runs many at once.
 */
#include "growth/growth.h"
#include "growth/pager.h"

#include <criterion/criterion.h>
#include <string.h>

enum {
    STEPS = 8
};

static ga_mailbox mailbox;
static ga_growth growth;
static uint32_t prepared[STEPS]; /* number of times */
static uint32_t in_order;        /* steps that were prepared in order */

static void prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    (void)tile;
    cr_assert_eq(context, &growth);
    cr_assert(from < to && to <= STEPS, "steps %u to %u", from, to);
    cr_assert_leq(ga_growth_ready(&growth), from, "a step is ready before it is prepared");
    for (uint32_t step = from; step < to; step++) {
        in_order += step == in_order;
        prepared[step]++;
    }
}

static void begin(uint32_t steps)
{
    memset(&mailbox, 0, sizeof mailbox);
    memset(prepared, 0, sizeof prepared);
    growth = ga_growth_first(&mailbox, steps);
    growth.poll_ns = 0;
    in_order = steps;
    mailbox.answer = ga_mail_word(steps, 0, GA_GROWTH_GRANTED);
}

static void look(uint32_t want)
{
    ga_growth_hint(ga_tile_of(32), &growth, want, prepare, &growth);
}

static uint32_t await(uint32_t want)
{
    return ga_growth_await(ga_tile_of(32), &growth, want, prepare, &growth);
}

static void need_prepared(uint32_t from, uint32_t to)
{
    for (uint32_t step = 0; step < STEPS; step++) {
        cr_assert_eq(prepared[step], step >= from && step < to, "step %u: %u times", step,
                     prepared[step]);
    }
    cr_assert_eq(in_order, to);
    cr_assert_eq(ga_growth_ready(&growth), to);
}

static uint32_t waits(void)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < GA_GROWTH_WAITS; i++) {
        sum += growth.waits[i];
    }
    return sum;
}

/* ---- words -------------------------------------------------------------------------------- */

Test(growth, words_hold_steps_serial_and_reason)
{
    uint64_t word = ga_mail_word(0xfedcba98u, 0x123456u, GA_GROWTH_GONE);
    cr_assert_eq(ga_mail_steps(word), 0xfedcba98u);
    cr_assert_eq(ga_mail_serial(word), 0x123456u);
    cr_assert_eq(ga_mail_reason(word), GA_GROWTH_GONE);
}

Test(growth, serials_begin_again_after_the_last)
{
    begin(1);
    growth.request = ga_mail_word(1, 0xffffffu, 0);
    mailbox.answer = growth.request;
    look(2);
    cr_assert_eq(mailbox.request, ga_mail_word(2, 0, 0));
}

Test(growth, each_writer_has_a_line_of_its_own)
{
    cr_assert_eq(offsetof(ga_mailbox, answer) % 128, 0);
    cr_assert_eq(sizeof(ga_mailbox) % 128, 0);
    cr_assert_eq(offsetof(ga_growth, refusal), 128);
    cr_assert_eq(offsetof(ga_growth, waits), 256);
}

/* ---- ready steps -------------------------------------------------------------------------- */

Test(growth, what_is_ready_needs_no_look)
{
    begin(3);
    cr_assert_eq(await(0), GA_GROWTH_GRANTED);
    cr_assert_eq(await(3), GA_GROWTH_GRANTED);
    look(3);
    cr_assert_eq(mailbox.request, 0);
    cr_assert_eq(growth.lock, 0);
    cr_assert_eq(waits(), 0);
}

Test(growth, without_a_mailbox_nothing_grows)
{
    begin(3);
    growth = ga_growth_first(NULL, 3);
    cr_assert_eq(await(3), GA_GROWTH_GRANTED);
    cr_assert_eq(await(4), GA_GROWTH_FIXED);
    look(4);
    cr_assert_eq(await(UINT32_MAX), GA_GROWTH_FIXED);
}

Test(growth, what_has_come_is_prepared_once_and_in_order)
{
    begin(1);
    mailbox.answer = ga_mail_word(4, 0, GA_GROWTH_GRANTED);
    cr_assert_eq(await(3), GA_GROWTH_GRANTED);
    need_prepared(1, 4);
    cr_assert_eq(mailbox.request, 0, "all was there");
    cr_assert_eq(waits(), 1, "for it to be prepared");
    look(4);
    need_prepared(1, 4);
}

/* ---- requests ----------------------------------------------------------------------------- */

Test(growth, a_request_is_made_once)
{
    begin(2);
    look(3);
    cr_assert_eq(mailbox.request, ga_mail_word(3, 1, 0));
    for (int i = 0; i < 5; i++) {
        look(3);
    }
    cr_assert_eq(mailbox.request, ga_mail_word(3, 1, 0));
    need_prepared(2, 2);
}

Test(growth, a_larger_request_replaces_it_a_smaller_does_not)
{
    begin(2);
    look(4);
    look(3);
    cr_assert_eq(mailbox.request, ga_mail_word(4, 1, 0));
    look(6);
    cr_assert_eq(mailbox.request, ga_mail_word(6, 2, 0));
    mailbox.answer = ga_mail_word(4, 1, GA_GROWTH_MEMORY); /* to the first */
    look(6);
    cr_assert_eq(growth.refusal, 0, "an answer to another request is no refusal");
    need_prepared(2, 4);
}

Test(growth, the_next_request_follows_when_more_is_needed)
{
    begin(2);
    look(3);
    mailbox.answer = ga_mail_word(3, 1, GA_GROWTH_GRANTED);
    look(3);
    cr_assert_eq(mailbox.request, ga_mail_word(3, 1, 0));
    look(4);
    cr_assert_eq(mailbox.request, ga_mail_word(4, 2, 0));
}

Test(growth, looks_keep_their_distance)
{
    begin(2);
    growth.poll_ns = UINT64_C(3600) * 1000000000;
    look(3);
    cr_assert_eq(mailbox.request, ga_mail_word(3, 1, 0));
    look(4);
    cr_assert_eq(mailbox.request, ga_mail_word(3, 1, 0), "the next is not due for an hour");
}

Test(growth, a_tile_without_the_lock_does_not_poll)
{
    begin(2);
    growth.lock = 1;
    look(3);
    cr_assert_eq(mailbox.request, 0);
    cr_assert_eq(growth.lock, 1);
}

/* ---- refusals ----------------------------------------------------------------------------- */

Test(growth, what_came_with_a_refusal_is_granted)
{
    begin(1);
    growth.refusal_ns = UINT64_C(3600) * 1000000000;
    look(5);
    mailbox.answer = ga_mail_word(3, 1, GA_GROWTH_MEMORY);
    cr_assert_eq(await(5), GA_GROWTH_MEMORY);
    need_prepared(1, 3);
    cr_assert_eq(await(3), GA_GROWTH_GRANTED);
    cr_assert_eq(await(4), GA_GROWTH_MEMORY);
    cr_assert_eq(mailbox.request, ga_mail_word(5, 1, 0), "believed for an hour");
}

Test(growth, an_old_refusal_is_requested_anew)
{
    begin(1);
    growth.refusal_ns = 0;
    look(2);
    mailbox.answer = ga_mail_word(1, 1, GA_GROWTH_MEMORY);
    cr_assert_eq(await(2), GA_GROWTH_MEMORY, "it came after we began");
    while (mailbox.request == ga_mail_word(2, 1, 0)) {
        look(2);
    }
    cr_assert_eq(mailbox.request, ga_mail_word(2, 2, 0));
    mailbox.answer = ga_mail_word(2, 2, GA_GROWTH_GRANTED);
    cr_assert_eq(await(2), GA_GROWTH_GRANTED);
}

Test(growth, a_limit_is_final)
{
    begin(1);
    growth.refusal_ns = 0;
    look(4);
    mailbox.answer = ga_mail_word(2, 1, GA_GROWTH_LIMIT);
    cr_assert_eq(await(4), GA_GROWTH_LIMIT);
    for (int i = 0; i < 5; i++) {
        look(4);
        cr_assert_eq(await(3), GA_GROWTH_LIMIT);
    }
    cr_assert_eq(mailbox.request, ga_mail_word(4, 1, 0));
    cr_assert_eq(await(2), GA_GROWTH_GRANTED);
}

/* ---- a pager that is not there ------------------------------------------------------------ */

Test(growth, no_tile_waits_forever)
{
    begin(1);
    growth.timeout_ns = 1000000; /* ns */
    cr_assert_eq(await(2), GA_GROWTH_GONE);
    cr_assert_eq(growth.lock, 0);
    cr_assert_eq(waits(), 1);
}

Test(growth, a_pager_that_comes_back_is_heard)
{
    begin(1);
    growth.timeout_ns = 1000000; /* ns */
    growth.refusal_ns = 0;
    cr_assert_eq(await(2), GA_GROWTH_GONE);
    uint64_t request = mailbox.request;
    cr_assert_eq(await(2), GA_GROWTH_GONE, "one look is enough: the request is old");
    cr_assert_eq(mailbox.request, request, "and it still stands");
    mailbox.answer = ga_mail_word(2, ga_mail_serial(request), GA_GROWTH_GRANTED);
    cr_assert_eq(await(2), GA_GROWTH_GRANTED);
}

Test(growth, a_goodbye_is_final_and_answers_any_request)
{
    begin(1);
    look(2);
    mailbox.answer = ga_mail_word(1, 0, GA_GROWTH_GONE);
    cr_assert_eq(await(2), GA_GROWTH_GONE);
    cr_assert_eq(await(5), GA_GROWTH_GONE);
    cr_assert_eq(mailbox.request, ga_mail_word(2, 1, 0));
    cr_assert_eq(growth.refusal & GA_GROWTH_FOREVER, GA_GROWTH_FOREVER);
}
