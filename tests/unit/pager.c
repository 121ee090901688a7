/* SPDX-License-Identifier: MIT
 *
 * The pager: which clients it serves, its answers, and that it ends on request.
 */
#include "growth/pager.h"

#include "growth/growth.h"
#include "support/expect.h"
#include "support/first_call.h"
#include "support/sanitized.h"
#include "support/scene.h"
#include "support/vmm_recover.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    CLIENTS = 5
};

/* Growing memory. The pager's thread writes to it; the test reads it after an answer, or after
 * removal. */
typedef struct subject {
    ga_growth growth;
    ga_pager_client *client;
    uint32_t limit;           /* steps */
    uint32_t ahead;           /* steps */
    uint32_t failures;        /* requests still to be refused */
    uint32_t calls;           /* of back() */
    ga_growth_reason instead; /* if set, back() returns this reason and commits nothing */
    bool gates;               /* back waits for `open` */
    bool entered, open;       /* E and O */
} subject;

static ga_growth_reason back(void *context, uint32_t wanted, uint32_t *backed)
{
    subject *s = context;
    s->calls++;
    /* E1: release. Pairs with E2: nothing but itself. */
    __atomic_store_n(&s->entered, true, __ATOMIC_RELEASE);
    while (s->gates && !__atomic_load_n(&s->open, __ATOMIC_ACQUIRE)) { /* O2: acquire, with O1 */
        sched_yield();
    }
    if (s->failures) {
        s->failures--;
        return s->instead;
    }
    uint32_t reach = wanted + s->ahead;
    *backed = reach < s->limit ? reach : s->limit;
    return *backed >= wanted ? GA_GROWTH_GRANTED : GA_GROWTH_LIMIT;
}

static void prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    (void)tile;
    (void)context;
    cr_assert_lt(from, to);
}

static void begin(subject *s)
{
    s->limit = s->limit ? s->limit : 1000000;
    assert_ok(ga_pager_add(&s->client, GA_PAGER_HOST, 1, back, s));
    s->growth = ga_growth_first(ga_pager_mailbox(s->client), 1);
}

static uint32_t await(subject *s, uint32_t want)
{
    return ga_growth_await(ga_tile_of(32), &s->growth, want, prepare, NULL);
}

static void hint(subject *s, uint32_t want)
{
    ga_growth_hint(ga_tile_of(32), &s->growth, want, prepare, NULL);
}

static void wait_for_entry(subject *s)
{
    while (!__atomic_load_n(&s->entered, __ATOMIC_ACQUIRE)) { /* E2. Pairs with E1. */
        sched_yield();
    }
}

static void open_gate(subject *s)
{
    /* O1: release. Pairs with O2: nothing but itself. */
    __atomic_store_n(&s->open, true, __ATOMIC_RELEASE);
}

/* ---- requests and answers ----------------------------------------------------------------- */

Test(pager, it_grows_and_says_so)
{
    subject s = {.ahead = 3};
    ga_pager_stats stats;
    begin(&s);
    cr_assert_eq(await(&s, 2), GA_GROWTH_GRANTED);
    cr_assert_eq(ga_growth_ready(&s.growth), 5);
    cr_assert_eq(await(&s, 5), GA_GROWTH_GRANTED);
    cr_assert_eq(s.calls, 1);
    cr_assert_eq(await(&s, 6), GA_GROWTH_GRANTED);
    cr_assert_eq(s.calls, 2);
    ga_pager_get_stats(s.client, &stats);
    cr_assert_eq(stats.granted, 2);
    cr_assert_eq(stats.refused, 0);
    cr_assert(stats.p50 && stats.p50 <= stats.p99 && stats.p99 <= stats.p999 &&
              stats.p999 <= stats.max);
    cr_assert(stats.sum >= stats.max && stats.sum <= 2 * stats.max);
    ga_latency times = {0};
    ga_latency_add(&times, 1);
    ga_pager_add_times(s.client, &times);
    cr_assert(times.count == 3 && times.sum == stats.sum + 1 && times.max == stats.max);
    ga_pager_remove(s.client);
}

Test(pager, a_hint_is_enough)
{
    subject s = {0};
    begin(&s);
    while (ga_growth_ready(&s.growth) < 2) {
        hint(&s, 2);
    }
    cr_assert_eq(s.calls, 1);
    ga_pager_remove(s.client);
}

Test(pager, the_limit_is_reached_and_final)
{
    subject s = {.limit = 7, .ahead = 100};
    begin(&s);
    cr_assert_eq(await(&s, 9), GA_GROWTH_LIMIT);
    cr_assert_eq(await(&s, 7), GA_GROWTH_GRANTED);
    cr_assert_eq(await(&s, 8), GA_GROWTH_LIMIT);
    cr_assert_eq(s.calls, 1);
    ga_pager_remove(s.client);
}

Test(pager, out_of_memory_is_asked_again)
{
    subject s = {.failures = 3, .instead = GA_GROWTH_MEMORY};
    ga_pager_stats stats;
    uint32_t refused = 0;
    begin(&s);
    s.growth.refusal_ns = 0;
    for (uint32_t found; (found = await(&s, 2)) != GA_GROWTH_GRANTED;) {
        cr_assert_eq(found, GA_GROWTH_MEMORY);
        cr_assert_lt(refused, 3);
        refused++;
    }
    cr_assert_eq(refused, 3);
    ga_pager_get_stats(s.client, &stats);
    cr_assert_eq(stats.granted, 1);
    cr_assert_eq(stats.refused, 3);
    ga_pager_remove(s.client);
}

Test(pager, success_without_the_steps_is_out_of_memory)
{
    subject s = {.failures = 1, .instead = GA_GROWTH_GRANTED};
    begin(&s);
    cr_assert_eq(await(&s, 2), GA_GROWTH_MEMORY);
    ga_pager_remove(s.client);
}

static ga_growth_reason give_back(void *context, uint32_t wanted, uint32_t *backed)
{
    (void)context;
    (void)wanted;
    *backed = 0;
    return GA_GROWTH_MEMORY;
}

Test(pager, steps_never_become_fewer)
{
    ga_pager_client *client;
    assert_ok(ga_pager_add(&client, GA_PAGER_HOST, 4, give_back, NULL));
    ga_mailbox *mailbox = ga_pager_mailbox(client);
    ga_growth growth = ga_growth_first(mailbox, 4);
    cr_assert_eq(ga_growth_await(ga_tile_of(32), &growth, 5, prepare, NULL), GA_GROWTH_MEMORY);
    cr_assert_eq(ga_mail_steps(mailbox->answer), 4);
    ga_pager_remove(client);
}

/* ---- clients ------------------------------------------------------------------------------ */

Test(pager, each_client_has_its_own)
{
    subject all[CLIENTS] = {0};
    for (int i = 0; i < CLIENTS; i++) {
        begin(&all[i]);
    }
    for (uint32_t round = 2; round < 50; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            cr_assert_eq(await(&all[i], round * (uint32_t)(i + 1)), GA_GROWTH_GRANTED);
        }
    }
    for (int i = 0; i < CLIENTS; i++) {
        cr_assert_eq(all[i].calls, 48);
        ga_pager_remove(all[i].client);
    }
}

static void *open_later(void *context)
{
    sched_yield();
    open_gate(context);
    return NULL;
}

Test(pager, a_slow_one_ends_before_its_removal)
{
    static subject s = {.gates = true};
    begin(&s);
    hint(&s, 2);
    wait_for_entry(&s);
    pthread_t other;
    pthread_create(&other, NULL, open_later, &s);
    ga_pager_remove(s.client);
    cr_assert(s.open, "removed under a call");
    pthread_join(other, NULL);
}

Test(pager, others_come_and_go_beside_a_slow_one)
{
    subject slow = {.gates = true};
    subject others[CLIENTS] = {0};
    begin(&others[0]);
    begin(&slow);
    begin(&others[1]);
    hint(&slow, 2);
    wait_for_entry(&slow);
    ga_pager_remove(others[0].client);
    ga_pager_remove(others[1].client);
    begin(&others[2]);
    open_gate(&slow);
    cr_assert_eq(await(&slow, 2), GA_GROWTH_GRANTED);
    cr_assert_eq(await(&others[2], 2), GA_GROWTH_GRANTED);
    ga_pager_remove(slow.client);
    ga_pager_remove(others[2].client);
}

Test(pager, removed_in_the_middle_of_growth)
{
    for (int round = 0; round < 200; round++) {
        subject s = {0};
        begin(&s);
        for (uint32_t i = 0; i < (uint32_t)round % 4; i++) {
            hint(&s, i + 2);
            ga_pager_wake(s.client);
        }
        ga_pager_remove(s.client);
        uint32_t calls = s.calls;
        sched_yield();
        cr_assert_eq(s.calls, calls);
    }
    ga_pager_remove(NULL);
}

Test(pager, a_restart_forgets_what_was)
{
    subject s = {.limit = 4};
    begin(&s);
    cr_assert_eq(await(&s, 5), GA_GROWTH_LIMIT);
    s.limit = 9;
    for (uint32_t steps = 4; steps; steps -= 2) { /* the requested size, and fewer steps */
        ga_pager_restart(s.client, steps);
        s.growth = ga_growth_first(ga_pager_mailbox(s.client), steps);
        cr_assert_eq(await(&s, steps + 1), GA_GROWTH_GRANTED);
        cr_assert_eq(ga_growth_ready(&s.growth), steps + 1);
    }
    ga_pager_remove(s.client);
}

Test(pager, a_restart_waits_for_a_slow_one)
{
    subject s = {.gates = true};
    pthread_t other;
    begin(&s);
    hint(&s, 3);
    wait_for_entry(&s);
    pthread_create(&other, NULL, open_later, &s);
    ga_pager_restart(s.client, 1);
    cr_assert(s.open, "restarted under a call");
    pthread_join(other, NULL);
    s.growth = ga_growth_first(ga_pager_mailbox(s.client), 1);
    cr_assert_eq(await(&s, 2), GA_GROWTH_GRANTED);
    cr_assert_eq(s.calls, 2);
    ga_pager_remove(s.client);
}

/* ---- the thread --------------------------------------------------------------------------- */

/* The threads that the system lists; one that was joined may be listed for a moment. */
static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *task; (task = readdir(tasks));) {
        count += task->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

Test(pager, its_thread_ends_with_the_last_client)
{
    int before = threads();
    subject s = {0};
    subject other = {0};
    for (int round = 0; round < 20; round++) {
        begin(&s);
        begin(&other);
        cr_assert_eq(await(&s, 2), GA_GROWTH_GRANTED);
        cr_assert_eq(threads(), before + 1);
        ga_pager_remove(s.client);
        ga_pager_remove(other.client);
        while (threads() > before) {
            sched_yield();
        }
    }
}

static sigset_t blocked;

static ga_growth_reason look_at_signals(void *context, uint32_t wanted, uint32_t *backed)
{
    (void)context;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    *backed = wanted;
    return GA_GROWTH_GRANTED;
}

Test(pager, signals_are_for_others)
{
    ga_pager_client *client;
    sigset_t ours;
    assert_ok(ga_pager_add(&client, GA_PAGER_HOST, 0, look_at_signals, NULL));
    ga_growth growth = ga_growth_first(ga_pager_mailbox(client), 0);
    cr_assert_eq(ga_growth_await(ga_tile_of(32), &growth, 1, prepare, NULL), GA_GROWTH_GRANTED);
    ga_pager_remove(client);
    cr_assert(sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM) &&
              sigismember(&blocked, SIGPROF));
    pthread_sigmask(SIG_SETMASK, NULL, &ours);
    cr_assert_not(sigismember(&ours, SIGINT));
}

/* ---- forks and the end -------------------------------------------------------------------- */

/* In the child: the parent's clients are only records, and it may have its own. Both share the
 * mailbox: its answer stays only while the parent's pager is delayed in a call. */
static int child(void *context)
{
    subject *theirs = context;
    subject own = {0};
    uint64_t answer = ga_pager_mailbox(theirs->client)->answer;
    ga_mailbox *mailbox = ga_pager_mailbox(theirs->client);
    ga_pager_wake(theirs->client);
    if ((theirs->gates && mailbox->answer != answer) || threads() != 1) {
        return 1;
    }
    ga_pager_remove(theirs->client);
    if (ga_pager_add(&own.client, GA_PAGER_HOST, 1, back, &own) != GA_OK) {
        return 2;
    }
    own.limit = 10;
    own.growth = ga_growth_first(ga_pager_mailbox(own.client), 1);
    if (await(&own, 2) != GA_GROWTH_GRANTED) {
        return 3;
    }
    ga_pager_remove(own.client);
    return 0;
}

Test(pager, forks_with_a_live_pager)
{
    subject s = {0};
    begin(&s);
    if (UNDER_ASAN) { /* a thread begins with its heap's locks taken: in a child they would stay
                       * taken */
        cr_assert_eq(await(&s, 2), GA_GROWTH_GRANTED);
    }
    for (uint32_t round = 0; round < 20; round++) {
        hint(&s, 2 * round + 2);
        cr_assert_eq(scene_in_child(child, &s), 0);
        cr_assert_eq(await(&s, 2 * round + 3), GA_GROWTH_GRANTED);
    }
    ga_pager_remove(s.client);
}

Test(pager, a_fork_in_the_middle_of_a_call)
{
    subject s = {.gates = true};
    begin(&s);
    hint(&s, 2);
    wait_for_entry(&s);
    cr_assert_eq(scene_in_child(child, &s), 0);
    open_gate(&s);
    cr_assert_eq(await(&s, 2), GA_GROWTH_GRANTED);
    ga_pager_remove(s.client);
}

static subject first;

static void *add_first(void *unused)
{
    begin(&first);
    cr_assert_eq(await(&first, 2), GA_GROWTH_GRANTED);
    return unused;
}

Test(pager, a_fork_that_began_before_the_first_client, .timeout = 60)
{
    pid_t forked = first_call_fork_around(add_first);
    if (forked == 0) {
        _exit(child(&first));
    }
    cr_assert(first_call_child_ended(forked));
    cr_assert_eq(await(&first, 3), GA_GROWTH_GRANTED);
    ga_pager_remove(first.client);
}

static ga_mailbox *last_mailbox;

/* A client that is used after the end of the pager's process-exit handler. */
static void after_goodbye(void)
{
    ga_pager_client *client;
    bool said = ga_mail_reason(last_mailbox->answer) == GA_GROWTH_GONE;
    bool refused = ga_pager_add(&client, GA_PAGER_HOST, 0, back, NULL) == GA_ERR_UNSUPPORTED;
    while (threads() > 1) {
        sched_yield();
    }
    _exit(said && refused ? 0 : 1);
}

static int end_of_process(void *context)
{
    subject s = {0};
    (void)context;
    atexit(after_goodbye); /* registered before, called after */
    begin(&s);
    if (await(&s, 2) != GA_GROWTH_GRANTED) {
        return 2;
    }
    last_mailbox = ga_pager_mailbox(s.client);
    exit(3);
}

Test(pager, it_says_goodbye_at_the_end_of_the_process)
{
    cr_assert_eq(scene_in_child(end_of_process, NULL), 0);
}

static ga_growth_reason leave(void *context, uint32_t wanted, uint32_t *backed)
{
    (void)context;
    (void)wanted;
    (void)backed;
    exit(0);
}

static int end_from_within(void *context)
{
    ga_pager_client *client;
    (void)context;
    if (ga_pager_add(&client, GA_PAGER_HOST, 0, leave, NULL) != GA_OK) {
        return 1;
    }
    ga_growth growth = ga_growth_first(ga_pager_mailbox(client), 0);
    ga_growth_await(ga_tile_of(32), &growth, 1, prepare, NULL);
    pause();
    return 2;
}

Test(pager, a_call_may_end_the_process)
{
    if (UNDER_ASAN) {
        cr_skip_test("the leak checker wants the first thread to end the process");
    }
    cr_assert_eq(scene_in_child(end_from_within, NULL), 0);
}

/* ---- devices ------------------------------------------------------------------------------ */

Test(pager, devices_that_cannot_be)
{
    ga_pager_client *client;
    assert_fails(ga_pager_add(&client, -2, 0, back, NULL), GA_ERR_ARGUMENT,
                 "pager: device -2, expected -1 to 63");
    assert_fails(ga_pager_add(&client, 64, 0, back, NULL), GA_ERR_ARGUMENT,
                 "pager: device 64, expected -1 to 63");
    cr_assert_null(client);
}

Test(pager, a_device_has_its_mailboxes_pinned)
{
    subject s = {.limit = 10};
    vmm_driver_start(&(vmm_driver_options){.devices = 2});
    assert_ok(ga_pager_add(&s.client, 1, 1, back, &s));
    cr_assert_eq(vmm_driver_count().pinned, 1);
    s.growth = ga_growth_first(ga_pager_mailbox(s.client), 1);
    cr_assert_eq(await(&s, 2), GA_GROWTH_GRANTED);
    ga_pager_remove(s.client);
    cr_assert_eq(vmm_driver_count().pinned, 0);
    cr_assert_eq(ga_pager_add(&s.client, 2, 1, back, &s), GA_ERR_DEVICE);
    vmm_driver_stop();
}

static void fail_each_call(uint64_t more)
{
    subject s = {.limit = 10};
    ga_status status = GA_ERR_DEVICE;
    uint64_t n = 0;
    while (status != GA_OK) {
        vmm_driver_start(NULL);
        vmm_driver_fail_many(NULL, ++n, more, CUDA_ERROR_OUT_OF_MEMORY);
        status = ga_pager_add(&s.client, 0, 1, back, &s);
        if (status != GA_OK) {
            cr_assert_null(s.client);
            cr_assert_neq(ga_error_text()[0], 0);
        }
        vmm_recover();
        ga_pager_remove(s.client);
        cr_assert_eq(vmm_driver_count().pinned, 0, "call %d", (int)n);
        vmm_driver_stop();
    }
    cr_assert_gt(n, 3);
}

Test(pager, every_call_of_the_driver_may_fail)
{
    for (int i = 0; i < VMM_SOME_CALLS; i++) {
        fail_each_call(vmm_more_calls[i]);
    }
}

/* Pages that are still pinned stay mapped, so that the driver cannot pin others there. */
Test(pager, what_cannot_be_unpinned_is_unpinned_later)
{
    subject s = {.limit = 10};
    vmm_driver_start(NULL);
    assert_ok(ga_pager_add(&s.client, 0, 1, back, &s));
    vmm_driver_fail_many(NULL, 1, UINT64_MAX, CUDA_ERROR_NOT_PERMITTED);
    ga_pager_remove(s.client);
    cr_assert_eq(vmm_driver_count().pinned, 1);
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    assert_ok(ga_pager_add(&s.client, 0, 1, back, &s));
    ga_pager_remove(s.client);
    cr_assert_eq(vmm_driver_count().pinned, 0);
    vmm_driver_stop();
}

/* The registration ended with the context, but the pager still reads its own pages. */
Test(pager, the_context_may_go_first)
{
    subject s = {.limit = 10};
    vmm_driver_start(NULL);
    assert_ok(ga_pager_add(&s.client, 0, 1, back, &s));
    s.growth = ga_growth_first(ga_pager_mailbox(s.client), 1);
    vmm_driver_destroy_context(0);
    cr_assert_eq(await(&s, 2), GA_GROWTH_GRANTED);
    ga_pager_remove(s.client);
    vmm_driver_stop();
}

static int leave_the_parents_alone(void *context)
{
    subject *theirs = context;
    uint64_t calls = vmm_driver_calls(NULL);
    ga_pager_remove(theirs->client);
    return vmm_driver_calls(NULL) != calls;
}

Test(pager, a_child_leaves_what_is_pinned_alone)
{
    subject s = {.limit = 10};
    vmm_driver_start(NULL);
    assert_ok(ga_pager_add(&s.client, 0, 1, back, &s));
    s.growth = ga_growth_first(ga_pager_mailbox(s.client), 1);
    cr_assert_eq(scene_in_child(leave_the_parents_alone, &s), 0);
    cr_assert_eq(await(&s, 2), GA_GROWTH_GRANTED);
    ga_pager_remove(s.client);
    cr_assert_eq(vmm_driver_count().pinned, 0);
    vmm_driver_stop();
}

Test(pager, the_driver_may_go_first)
{
    subject s = {.limit = 10};
    vmm_driver_start(NULL);
    assert_ok(ga_pager_add(&s.client, 0, 1, back, &s));
    vmm_driver_shut_down();
    ga_pager_remove(s.client);
    vmm_driver_stop();
}
