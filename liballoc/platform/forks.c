/* SPDX-License-Identifier: MIT */
#include "forks.h"

#include <errno.h>
#include <signal.h>

/* ---- one registration for all rooms --------------------------------------------------------- */

enum {
    ROOMS_MAX = 32 /* all rooms together have fewer than 16 */
};

typedef struct handlers {
    void (*prepare)(void);
    void (*parent)(void);
    void (*child)(void);
} handlers;

static handlers rooms[ROOMS_MAX]; /* an entry is written once, before `room_count` counts it */
static unsigned room_count;       /* changed under rooms_lock */
static pthread_mutex_t rooms_lock = PTHREAD_MUTEX_INITIALIZER;
static handlers below; /* the allocator below all rooms; `below_set` publishes it */
static bool below_set;

/* State of a running fork(). The forking thread holds fork_lock from prepare to the end of fork()
 * in the parent and in the child. It alone uses the members, except `forker`, which other threads
 * compare with themselves. */
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uintptr_t forker; /* the thread, by pthread_self(); 0: none */
    unsigned depth;   /* nested forks of the thread: 1, plus forks in signal handlers */
    unsigned rooms;   /* number of rooms whose prepare handlers have run */
    bool below;       /* the prepare handler of the allocator below has run */
    bool inner_child; /* this process is the child of a fork in a signal handler */
} fork_state;

/* pthread_self() is the same in the child. Thread-local storage of ours could need memory in a
 * handler. */
static uintptr_t self(void)
{
    return (uintptr_t)pthread_self();
}

static void call(void (*handler)(void))
{
    if (handler) {
        handler();
    }
}

static sigset_t block_signals(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    return before;
}

static void run_prepare_handlers(void)
{
    /* PF2: acquire. Pairs with PF1. */
    fork_state.rooms = __atomic_load_n(&room_count, __ATOMIC_ACQUIRE);
    for (unsigned i = fork_state.rooms; i-- > 0;) {
        call(rooms[i].prepare);
    }
    /* PF4: acquire. Pairs with PF3. */
    fork_state.below = __atomic_load_n(&below_set, __ATOMIC_ACQUIRE);
    if (fork_state.below) {
        call(below.prepare);
    }
}

static void run_later_handlers(bool in_child)
{
    if (fork_state.below) {
        call(in_child ? below.child : below.parent);
    }
    for (unsigned i = 0; i < fork_state.rooms; i++) {
        call(in_child ? rooms[i].child : rooms[i].parent);
    }
}

/* Signals are blocked from before the lock is acquired until all handlers have run, so that a fork
 * in a signal handler finds either no handler run or `forker` set. */
static void begin_fork(void)
{
    /* relaxed: equal only if this thread wrote it */
    if (__atomic_load_n(&fork_state.forker, __ATOMIC_RELAXED) == self()) {
        fork_state.depth++;
        return;
    }
    sigset_t before = block_signals();
    pthread_mutex_lock(&fork_lock);
    __atomic_store_n(&fork_state.forker, self(), __ATOMIC_RELAXED); /* relaxed, see above */
    fork_state.depth = 1;
    fork_state.inner_child = false;
    run_prepare_handlers();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void finish(bool in_child)
{
    if (fork_state.depth > 1) {
        fork_state.depth--;
        fork_state.inner_child |= in_child;
        return;
    }
    sigset_t before = block_signals();
    run_later_handlers(in_child || fork_state.inner_child);
    fork_state.depth = 0;
    __atomic_store_n(&fork_state.forker, 0, __ATOMIC_RELAXED); /* relaxed, see begin_fork() */
    pthread_mutex_unlock(&fork_lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void finish_in_parent(void)
{
    finish(false);
}

static void finish_in_child(void)
{
    finish(true);
}

void ga_forks_register(void)
{
    static bool registered;
    /* relaxed: elects the thread that registers. The process has a second thread only after the
     * first allocation or the constructors, which call this. */
    if (!__atomic_exchange_n(&registered, true, __ATOMIC_RELAXED)) {
        pthread_atfork(begin_fork, finish_in_parent, finish_in_child);
    }
}

void ga_forks_watch(bool *watched, void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    ga_forks_register();
    /* relaxed: elects the thread that adds */
    if (__atomic_exchange_n(watched, true, __ATOMIC_RELAXED)) {
        return;
    }
    pthread_mutex_lock(&rooms_lock);
    bool fits = room_count < ROOMS_MAX;
    if (fits) {
        rooms[room_count] = (handlers){prepare, parent, child};
        /* PF1: release. Pairs with PF2: an entry is written before it is counted. */
        __atomic_store_n(&room_count, room_count + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&rooms_lock);
    if (!fits) { /* register with the C library, to run after the table */
        pthread_atfork(prepare, parent, child);
    }
}

int ga_forks_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    ga_forks_register();
    if (below.prepare || below.parent || below.child) {
        return ENOMEM;
    }
    below = (handlers){prepare, parent, child};
    /* PF3: release. Pairs with PF4: the handlers are written before they are seen. */
    __atomic_store_n(&below_set, true, __ATOMIC_RELEASE);
    return 0;
}

/* ---- a mutex that forks take along ---------------------------------------------------------- */

void ga_forked_lock_use(ga_forked_lock *lock)
{
    /* relaxed: a forking thread that sees it late does not acquire the mutex, which is allowed */
    __atomic_store_n(&lock->used, true, __ATOMIC_RELAXED);
}

/* relaxed, here and below: a thread compares with a value that it wrote itself. */
void ga_forked_lock_prepare(ga_forked_lock *lock)
{
    if (__atomic_load_n(&lock->used, __ATOMIC_RELAXED)) {
        pthread_mutex_lock(&lock->mutex);
        __atomic_store_n(&lock->forker, self(), __ATOMIC_RELAXED);
    }
}

static bool release_if_owned(ga_forked_lock *lock)
{
    bool mine = __atomic_load_n(&lock->forker, __ATOMIC_RELAXED) == self();
    if (mine) {
        __atomic_store_n(&lock->forker, 0, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&lock->mutex);
    }
    return mine;
}

void ga_forked_lock_parent(ga_forked_lock *lock)
{
    release_if_owned(lock);
}

void ga_forked_lock_child(ga_forked_lock *lock)
{
    if (!release_if_owned(lock)) {
        /* its owner used it for the first time during the fork and is not in the child */
        pthread_mutex_init(&lock->mutex, NULL);
        lock->forker = 0;
    }
}
