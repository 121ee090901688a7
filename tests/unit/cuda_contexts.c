/* SPDX-License-Identifier: MIT
 *
 * The list of contexts: a launch finds without a lock whether its own context lacks code.
 */
#include "../../interpose/cuda/kernel_list.h"
#include "../../liballoc/platform/local_socket.h"

#include <criterion/criterion.h>
#include <pthread.h>

enum {
    MANY = 3 * GA_CUDA_BEHIND_PLACES,
    TURNS = 20000
};

static char handles[MANY];
static ga_cuda_listed *listed[MANY];

static CUcontext handle_of(int i)
{
    return (CUcontext)(void *)&handles[i];
}

static void add_all(void)
{
    for (int i = 0; i < MANY; i++) {
        ga_cuda_target target = {handle_of(i), false, i % 2, 90};
        listed[i] = ga_cuda_listed_add(&target);
        cr_assert_not_null(listed[i]);
    }
}

static bool may_be_behind(int i)
{
    return ga_cuda_listed_may_be_behind(handle_of(i));
}

Test(cuda_contexts, a_context_is_not_behind_because_another_one_is)
{
    add_all();
    cr_assert(!ga_cuda_listed_any_is_behind());
    ga_cuda_listed_want(handle_of(1), 3);
    cr_assert(ga_cuda_listed_any_is_behind());
    cr_assert(may_be_behind(1) && ga_cuda_listed_is_due(handle_of(1)));
    cr_assert(ga_cuda_listed_device_is_due(1) && !ga_cuda_listed_device_is_due(0));
    for (int i = 0; i < MANY; i++) {
        cr_assert(i == 1 || !(may_be_behind(i) || ga_cuda_listed_is_due(handle_of(i))), "%d", i);
    }
    cr_assert(!ga_cuda_listed_filled(listed[1], 3));
    cr_assert(!may_be_behind(1) && !ga_cuda_listed_any_is_behind());
}

Test(cuda_contexts, more_contexts_than_places)
{
    add_all();
    ga_cuda_listed_want_all(1, handle_of(0));
    cr_assert(may_be_behind(0)); /* some have no place */
    cr_assert(!ga_cuda_listed_is_due(handle_of(0)));
    for (int i = MANY - 1; i > 0; i--) {
        cr_assert(may_be_behind(i), "%d", i);
        if (i % 2) {
            ga_cuda_listed_filled(listed[i], 1);
        } else {
            ga_cuda_listed_remove(listed[i]);
        }
        cr_assert_eq(may_be_behind(0), i - 1 > GA_CUDA_BEHIND_PLACES, "%d", i);
        cr_assert_eq(may_be_behind(i), i - 1 > GA_CUDA_BEHIND_PLACES, "%d", i);
    }
    cr_assert(!ga_cuda_listed_any_is_behind());
}

Test(cuda_contexts, without_memory_the_next_try_waits)
{
    add_all();
    ga_cuda_listed_want(handle_of(1), 7);
    int64_t now = ga_local_now();
    cr_assert(!ga_cuda_listed_delay(listed[1], 5, now));
    cr_assert(may_be_behind(1) && !ga_cuda_listed_is_due(handle_of(1)));
    cr_assert(!ga_cuda_listed_device_is_due(1));
    cr_assert(ga_cuda_listed_delay(listed[1], 5, now - 1000)); /* the try took a second */
    cr_assert(listed[1]->due >= now + 20000 && listed[1]->due <= ga_local_now() + 20100);
    listed[1]->due = now;
    cr_assert(ga_cuda_listed_is_due(handle_of(1)));
    cr_assert(ga_cuda_listed_filled(listed[1], 7));
    cr_assert(!ga_cuda_listed_filled(listed[1], 7));
}

static bool is_over; /* relaxed: the join orders the rest */

/* Others come and go, with and without a place. */
static void *change_others(void *unused)
{
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        for (int i = 1; i < MANY; i += 1 + (int)(turn % 3)) {
            ga_cuda_listed_want(handle_of(i), turn);
        }
        for (int i = 1; i < MANY; i++) {
            ga_cuda_listed_filled(listed[i], turn);
        }
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED); /* relaxed: see there */
    return unused;
}

Test(cuda_contexts, a_context_that_stays_behind_is_always_seen)
{
    pthread_t thread;
    bool is_seen = true;
    add_all();
    ga_cuda_listed_want_all(1, NULL); /* the first one in the list, the last added, gets a place */
    cr_assert_eq(pthread_create(&thread, NULL, change_others, NULL), 0);
    while (is_seen && !__atomic_load_n(&is_over, __ATOMIC_RELAXED)) { /* relaxed: see there */
        is_seen = may_be_behind(0);
    }
    pthread_join(thread, NULL);
    cr_assert(is_seen);
}
