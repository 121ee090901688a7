/* SPDX-License-Identifier: MIT
 *
 * Handlers around fork(). They have to be there before whatever they are for: a fork that has begun
 * does not run what is registered meanwhile, and a pthread_once that it comes in the middle of is done
 * again in the child. So each room registers its own from a constructor, and from the first call, too,
 * where that may come before constructors do, in a process whose malloc a heap is.
 */
#ifndef GPUALLOC_PLATFORM_FORKS_H
#define GPUALLOC_PLATFORM_FORKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* pthread_atfork() where `watched` is false, which becomes true. Thread safe; but who comes second
 * does not wait for who came first. */
void ga_forks_watch(bool *watched, void (*prepare)(void), void (*parent)(void),
                    void (*child)(void));

/* A room's mutex that a fork takes along, so that the child finds what it guards whole. Processes that
 * have never wanted it fork without. */
typedef struct ga_forked_lock {
    pthread_mutex_t mutex; /* PTHREAD_MUTEX_INITIALIZER; the rest begins as zeros */
    bool wanted;           /* once and for ever */
    uintptr_t forker;      /* the thread that has the mutex to fork, by pthread_self(); 0: none */
} ga_forked_lock;

/* To be called before the mutex is taken to put something under it. A thread that does so for the first
 * time while another one forks is let on: what it stores has to be whole at any moment, as a list is
 * before and behind the store of its head. Thread safe. */
void ga_forked_lock_want(ga_forked_lock *lock);

/* What the room's handlers call; in the child last of all. */
void ga_forked_lock_prepare(ga_forked_lock *lock);
void ga_forked_lock_parent(ga_forked_lock *lock);
void ga_forked_lock_child(ga_forked_lock *lock);

#endif
