/* SPDX-License-Identifier: MIT
 *
 * Call stacks by the unwinder, with a memo: whatever stack comes after whatever other one, the memo
 * gives the stack that unwinding gives. It would catch a stack taken for an older one whose words
 * are still there, and outer frames of another stack.
 *
 * Each function calls the next one on a random path, until the path ends in a capture: functions
 * with fixed frames, with arrays of variable size, with realigned frames, a signal handler, a
 * callback of the C library, and a second stack.
 */
#include "backends/trace/unwind.h"

#include "support/expect.h"

#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
    FRAMES = 40,
    PATHS = 20000,
    STACK_BYTES = 1 << 18
};

static _Thread_local ga_unwind_memo *memo;
static _Thread_local uint64_t random_state;
static _Thread_local size_t recalled;
static _Thread_local volatile char sink;

static unsigned dice(unsigned sides)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % sides;
}

/* ---- the capture ----------------------------------------------------------------------------- */

static void expect_equal(const ga_unwound *got, const ga_unwound *expected)
{
    cr_assert_eq(got->count, expected->count, "%u frames, expected %u", got->count,
                 expected->count);
    cr_assert_eq(got->complete, expected->complete);
    for (unsigned i = 1; i < got->count; i++) { /* the two captures are two calls of the first */
        cr_assert_eq(got->frame[i].ip, expected->frame[i].ip, "frame %u of %u", i, got->count);
        cr_assert_eq(got->frame[i].sp, expected->frame[i].sp, "frame %u of %u", i, got->count);
        cr_assert_eq(got->frame[i].exact, expected->frame[i].exact, "frame %u", i);
    }
}

__attribute__((noinline)) static void capture(void)
{
    ga_unwind_memo *fresh = ga_unwind_memo_new(FRAMES);
    cr_assert_not_null(fresh);
    ga_unwound *expected = ga_unwind(fresh, 1, FRAMES);
    ga_unwound *got = ga_unwind(memo, 1, FRAMES);
    expect_equal(got, expected);
    cr_assert_gt(got->count, 2);
    recalled += got->id != 0;
    got->id = 1;
    ga_unwind_memo_delete(fresh);
}

/* ---- the ways to get there ------------------------------------------------------------------- */

static void go(unsigned left);

__attribute__((noinline)) static void plain(unsigned left)
{
    sink = 1;
    go(left);
    sink = 2;
}

__attribute__((noinline)) static void large(unsigned left)
{
    volatile char room[1000];
    room[left] = 1;
    go(left);
    sink = room[left];
}

/* Old words stay in it, the return addresses of earlier calls among them. */
__attribute__((noinline)) static void variable(unsigned left)
{
    volatile char *room = alloca(16 + 16 * dice(40));
    room[0] = 1;
    go(left);
    sink = room[0];
}

__attribute__((noinline)) static void variable_again(unsigned left)
{
    size_t count = 1 + dice(100);
    volatile uint64_t room[count];
    room[count - 1] = left;
    go(left);
    sink = (char)room[count - 1];
}

__attribute__((noinline)) static void realigned(unsigned left)
{
    _Alignas(256) volatile char room[256];
    room[0] = 1;
    go(left);
    sink = room[0];
}

static _Thread_local unsigned handed;

static int compare(const void *left, const void *right)
{
    (void)left;
    (void)right;
    unsigned once = handed;
    handed = 0;
    if (once) {
        go(once - 1);
    }
    return 0;
}

__attribute__((noinline)) static void callback(unsigned left)
{
    int two[2] = {1, 2};
    handed = left + 1;
    qsort(two, 2, sizeof *two, compare);
}

static void on_signal(int number)
{
    (void)number;
    go(handed);
}

__attribute__((noinline)) static void signalled(unsigned left)
{
    handed = left;
    raise(SIGUSR1);
}

static _Thread_local ucontext_t here, there;

static void on_other_stack(void)
{
    go(handed);
}

__attribute__((noinline)) static void other_stack(unsigned left)
{
#ifdef __SANITIZE_ADDRESS__ /* it warns of each program that switches stacks */
    static _Thread_local bool there_already = true;
#else
    static _Thread_local bool there_already;
#endif
    char *stack = there_already ? NULL : malloc(STACK_BYTES);
    if (!stack) {
        go(left);
        return;
    }
    there_already = true;
    handed = left;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = STACK_BYTES - 64 * dice(100);
    there.uc_link = &here;
    makecontext(&there, on_other_stack, 0);
    swapcontext(&here, &there);
    there_already = false;
    free(stack);
}

__attribute__((noinline)) static void go(unsigned left)
{
    static void (*const ways[])(unsigned) = {plain,     large,    variable,  variable_again,
                                             realigned, callback, signalled, other_stack};
    if (left == 0) {
        capture();
        sink = 3;
        return;
    }
    unsigned common = dice(4) ? 5 : sizeof ways / sizeof *ways;
    ways[dice(common)](left - 1);
    sink = 4;
}

static void walk(uint64_t seed)
{
    random_state = seed;
    memo = ga_unwind_memo_new(FRAMES);
    cr_assert_not_null(memo);
    for (unsigned i = 0; i < PATHS; i++) {
        random_state = seed + dice(4) * (i / 2); /* some paths come again */
        go(1 + dice(8));
    }
    ga_unwind_memo_delete(memo);
}

static void begin(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    sigaction(SIGUSR1, &action, NULL);
    cr_assert(ga_unwind_ready());
}

TestSuite(unwind, .init = begin);

Test(unwind, a_memo_gives_what_unwinding_gives)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        walk(seed);
    }
}

static void *walk_in_thread(void *seed)
{
    walk((uintptr_t)seed);
    return NULL;
}

Test(unwind, threads_have_memos_of_their_own)
{
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, walk_in_thread, (void *)(i + 10)), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
}

__attribute__((noinline)) static void deeper(unsigned depth)
{
    if (depth) {
        deeper(depth - 1);
    } else {
        capture();
    }
    sink = 5;
}

/* One stack again and again, in turns with one that has a function more. */
Test(unwind, a_stack_that_is_unchanged_is_recalled)
{
    memo = ga_unwind_memo_new(FRAMES);
    for (unsigned i = 0; i < 100; i++) {
        deeper(3);
        deeper(4);
    }
#if defined __x86_64__
    cr_assert_eq(recalled, 198, "%zu", recalled);
#endif
    ga_unwind_memo_delete(memo);
}

Test(unwind, more_frames_than_there_is_room_for)
{
    memo = ga_unwind_memo_new(FRAMES);
    for (unsigned depth = FRAMES - 10; depth < FRAMES + 10; depth++) {
        deeper(depth);
    }
    for (unsigned depth = FRAMES + 10; depth > FRAMES - 20; depth -= 3) {
        deeper(depth);
    }
    ga_unwind_memo_delete(memo);
}

Test(unwind, keys_tell_stacks_apart)
{
    memo = ga_unwind_memo_new(FRAMES);
    for (uint64_t key = 1; key <= 3; key++) {
        ga_unwound *u = ga_unwind(memo, key, FRAMES);
        cr_assert_eq(u->id, 0);
        u->id = (uint32_t)key;
    }
    ga_unwind_memo_delete(memo);
}
