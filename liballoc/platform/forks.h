/* SPDX-License-Identifier: MIT
 *
 * Handlers around fork(). They have to be there before whatever they are for: a fork that has begun
 * does not run what is registered meanwhile, and a pthread_once that it comes in the middle of is done
 * again in the child. So each room registers its own from a constructor, and from the first call, too,
 * where that may come before constructors do, in a process whose malloc a heap is.
 */
#ifndef GPUALLOC_PLATFORM_FORKS_H
#define GPUALLOC_PLATFORM_FORKS_H

#include <stdbool.h>

/* pthread_atfork() where `watched` is false, which becomes true. Thread safe; but who comes second
 * does not wait for who came first. */
void ga_forks_watch(bool *watched, void (*prepare)(void), void (*parent)(void),
                    void (*child)(void));

#endif
