/* SPDX-License-Identifier: MIT
 *
 * What the library keeps for each thread: its id, and what is to be done when it ends.
 *
 * Thread safe. ga_thread_enroll() may allocate once per thread, through the program's malloc: a
 * caller inside malloc must be ready to be entered again.
 */
#ifndef GPUALLOC_PLATFORM_THREAD_H
#define GPUALLOC_PLATFORM_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/* The kernel's thread id, right in a forked child too. */
uint32_t ga_thread_id(void);

/* Learn the id anew, in a child that ran no handlers around fork(): of _Fork() or clone(). */
void ga_thread_begin_child(void);

/* Run `hook` in every enrolled thread that ends from now on. At most four hooks, for ever; the
 * same one twice counts once. */
void ga_thread_on_exit(void (*hook)(void));

/* True where the hooks will run in this thread; false while it is being enrolled and once they
 * have run, when whatever would be kept for the thread must not be kept. */
bool ga_thread_enroll(void);

/* Whether a thread of this process has that id still; keeps errno. One that has just ended may. */
bool ga_thread_lives(uint32_t of);

/* Whether the thread has ended, or waits in the kernel, which has a full fence between what it did
 * and waiting, and between waiting and what it will do. False where it runs, or where /proc does
 * not say. Keeps errno. */
bool ga_thread_waits(uint32_t of);

#endif
