/* SPDX-License-Identifier: MIT
 *
 * Handlers around fork().
 *
 * All rooms share one registration with the C library, and their handlers run in one go. The C
 * library runs prepare handlers in reverse order of registration. So the earliest registration in
 * the process is the last one to take its locks, and the handlers of others may allocate before it.
 * ga_forks_register() makes it; a heap that serves a process's malloc calls it on the first
 * allocation of all.
 */
#ifndef GPUALLOC_PLATFORM_FORKS_H
#define GPUALLOC_PLATFORM_FORKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Register with the C library, if that has not been done. Thread safe; does not allocate. */
void ga_forks_register(void);

/* Add a room's handlers, each of which may be NULL, where `watched` is false; it becomes true.
 * Prepare handlers run in reverse order of these calls, the others in order. They run with signals
 * blocked, and once for a fork in a signal handler that interrupts fork() in the same thread.
 * Thread safe. A fork that has begun does not run handlers that are added meanwhile, so rooms add
 * theirs from a constructor, and from their first call where that may come before constructors. */
void ga_forks_watch(bool *watched, void (*prepare)(void), void (*parent)(void),
                    void (*child)(void));

/* In shape of pthread_atfork(), for one allocator below all rooms: its prepare handler runs after
 * theirs, its other handlers run before theirs. scripts/build-jemalloc compiles jemalloc to call
 * it. Returns 0, or ENOMEM at the second call. */
int ga_forks_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

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
