/* SPDX-License-Identifier: MIT */
#include "forks.h"

#include <pthread.h>

void ga_forks_watch(bool *watched, void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    /* relaxed: elects the one that registers. Threads that could fork meanwhile come later: either
     * this is a constructor, or constructors are still to run. */
    if (!__atomic_exchange_n(watched, true, __ATOMIC_RELAXED)) {
        pthread_atfork(prepare, parent, child);
    }
}
