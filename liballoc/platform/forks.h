/* SPDX-License-Identifier: MIT
 *
 * Handlers around fork().
 *
 * All rooms share one registration with the C library, so that their handlers run together. The C
 * library runs prepare handlers in reverse order of registration. So the earliest registration in
 * the process is the last to acquire its locks, and handlers of other libraries may allocate before
 * it. ga_forks_register() makes it; a heap that serves a process's malloc calls it on its first
 * allocation.
 */
#ifndef GPUALLOC_PLATFORM_FORKS_H
#define GPUALLOC_PLATFORM_FORKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Register with the C library, once. Thread safe; does not allocate. */
void ga_forks_register(void);

/* Add a room's handlers, each of which may be NULL, if `watched` is false; sets it. Prepare
 * handlers run in reverse order of these calls, the others in order. They run with signals blocked,
 * and only once for a fork in a signal handler that interrupts fork() in the same thread. Thread
 * safe. A fork that has begun does not run handlers that are added during it. So rooms add theirs
 * from a constructor, and from their first call if that may come before constructors. */
void ga_forks_watch(bool *watched, void (*prepare)(void), void (*parent)(void),
                    void (*child)(void));

/* Like pthread_atfork(), for one allocator below all rooms: its prepare handler runs after theirs,
 * its other handlers run before theirs. scripts/build-jemalloc compiles jemalloc to call it.
 * Returns 0, or ENOMEM at the second call. */
int ga_forks_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* A mutex that the forking thread holds across fork(), so that the child finds the data that it
 * guards consistent. A process that has never used it forks without acquiring it. */
typedef struct ga_forked_lock {
    pthread_mutex_t mutex; /* PTHREAD_MUTEX_INITIALIZER; the other members are initially zero */
    bool used;             /* set by ga_forked_lock_use(), never cleared */
    uintptr_t forker;      /* the thread that holds the mutex across its fork, by pthread_self(); 0:
                            * none */
} ga_forked_lock;

/* Call before the mutex is acquired to add data. A thread that does so for the first time while
 * another thread forks does not wait for it. So its stores must leave the data valid at any moment,
 * as a list is before and after the store of its head. Thread safe. */
void ga_forked_lock_use(ga_forked_lock *lock);

/* For the room's fork handlers. ga_forked_lock_child() is the last call of the child's handler. */
void ga_forked_lock_prepare(ga_forked_lock *lock);
void ga_forked_lock_parent(ga_forked_lock *lock);
void ga_forked_lock_child(ga_forked_lock *lock);

#endif
