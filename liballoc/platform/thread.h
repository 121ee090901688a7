/* SPDX-License-Identifier: MIT
 *
 * The library's state of each thread: its id, and hooks that run when it ends.
 *
 * Thread safe. ga_thread_enroll() may allocate once per thread, through the program's malloc: a
 * caller inside malloc must be ready for the recursion.
 */
#ifndef GPUALLOC_PLATFORM_THREAD_H
#define GPUALLOC_PLATFORM_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/* The kernel's thread id; correct in a forked child, too. */
uint32_t ga_thread_id(void);

/* Drop the cached id, in a child of _Fork() or clone(), which runs no fork handlers. */
void ga_thread_begin_child(void);

/* Run `hook` in every enrolled thread that ends from now on. At most four different hooks in a
 * process; they are never removed. */
void ga_thread_on_exit(void (*hook)(void));

/* Whether the hooks will run when this thread ends. False while it is being enrolled and after the
 * hooks have run: then the caller must keep no state for the thread. */
bool ga_thread_enroll(void);

/* Whether a thread of this process has that id. May be true for a thread that has just ended. Keeps
 * errno. */
bool ga_thread_lives(uint32_t thread);

/* Whether the thread has ended or waits in the kernel. In both cases the kernel executes a full
 * fence between the thread's earlier accesses and the wait, and between the wait and its later
 * accesses. False if the thread runs, or if /proc does not report it. Keeps errno. */
bool ga_thread_waits(uint32_t thread);

#endif
