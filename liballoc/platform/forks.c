/* SPDX-License-Identifier: MIT */
#include "forks.h"

void ga_forks_watch(bool *watched, void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    /* relaxed: elects the one that registers. Threads that could fork meanwhile come later: either
     * this is a constructor, or constructors are still to run. */
    if (!__atomic_exchange_n(watched, true, __ATOMIC_RELAXED)) {
        pthread_atfork(prepare, parent, child);
    }
}

/* The same in the child. No thread-local storage of ours, which may want memory in a handler. */
static uintptr_t self(void)
{
    return (uintptr_t)pthread_self();
}

void ga_forked_lock_want(ga_forked_lock *lock)
{
    /* relaxed: who sees it late has let this thread on */
    __atomic_store_n(&lock->wanted, true, __ATOMIC_RELAXED);
}

/* relaxed, here and below: a thread looks for what it has written itself. */
void ga_forked_lock_prepare(ga_forked_lock *lock)
{
    if (__atomic_load_n(&lock->wanted, __ATOMIC_RELAXED)) {
        pthread_mutex_lock(&lock->mutex);
        __atomic_store_n(&lock->forker, self(), __ATOMIC_RELAXED);
    }
}

static bool give_up(ga_forked_lock *lock)
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
    give_up(lock);
}

void ga_forked_lock_child(ga_forked_lock *lock)
{
    if (!give_up(lock)) { /* who has it put the first thing under it, and is not here */
        pthread_mutex_init(&lock->mutex, NULL);
        lock->forker = 0;
    }
}
