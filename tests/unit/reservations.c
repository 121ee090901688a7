/* SPDX-License-Identifier: MIT
 *
 * The record of reserved addresses.
 */
#include "platform/reservations.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>

static const uintptr_t PAGE = 4096;
static const uintptr_t GIB = (uintptr_t)1 << 30;
/* An address at which the library itself maps nothing; nothing is mapped here either. */
static const uintptr_t BASE = (uintptr_t)0x200000000000;

static bool contains(uintptr_t address)
{
    return ga_reservations_contain((void *)address);
}

static bool add(uintptr_t start, size_t size)
{
    return ga_reservations_add((void *)start, size);
}

static void take_out(uintptr_t start, size_t size)
{
    ga_reservations_remove((void *)start, size);
}

static void expect_range(uintptr_t start, size_t size)
{
    cr_expect_not(contains(start - 1));
    cr_expect(contains(start));
    cr_expect(contains(start + size / 2));
    cr_expect(contains(start + size - 1));
    cr_expect_not(contains(start + size));
}

Test(reservations, ranges_of_all_sizes_are_known_to_their_ends)
{
    const size_t sizes[] = {PAGE, 2 << 20, GIB, 512 * GIB, 1024 * GIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (uintptr_t shift = 0; shift < 3; shift++) {
            uintptr_t start = BASE + shift * 7 * PAGE;
            cr_assert(add(start, sizes[i]));
            expect_range(start, sizes[i]);
            take_out(start, sizes[i]);
            cr_expect_not(contains(start));
            cr_expect_not(contains(start + sizes[i] - 1));
        }
    }
}

Test(reservations, neighbours_go_without_each_other)
{
    uintptr_t second = BASE + GIB + 5 * PAGE;
    cr_assert(add(BASE + PAGE, second - BASE - PAGE));
    cr_assert(add(second, 3 * GIB));
    take_out(BASE + PAGE, second - BASE - PAGE);
    expect_range(second, 3 * GIB);
    cr_assert(add(BASE, second - BASE));
    take_out(second, 3 * GIB);
    expect_range(BASE, second - BASE);
    take_out(BASE, second - BASE);
}

Test(reservations, any_value_may_be_asked_about)
{
    cr_expect_not(contains(0));
    cr_expect_not(contains(1));
    cr_expect_not(contains(UINTPTR_MAX));
    cr_expect_not(contains((uintptr_t)1 << 48));
    cr_expect(add(UINTPTR_MAX - PAGE + 1, PAGE), "nothing to do");
    cr_expect_not(contains(UINTPTR_MAX));
}

static void *come_and_go(void *argument)
{
    uintptr_t start = BASE + (uintptr_t)argument * (64 << 20) + (uintptr_t)argument * PAGE;
    for (int i = 0; i < 2000; i++) {
        bool good = add(start, 3 << 20) && contains(start) && contains(start + (3 << 20) - 1);
        take_out(start, 3 << 20);
        if (!good || contains(start)) {
            return argument;
        }
    }
    return NULL;
}

Test(reservations, threads_do_not_disturb_each_other)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, come_and_go, (void *)(i + 1)), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        cr_expect_null(wrong);
    }
}
