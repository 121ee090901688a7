/* SPDX-License-Identifier: MIT */
#include "libc_calls.h"

#include "platform/libc.h"

static ga_libc_table whole;
static void (*stop_now)(void);

/* Volatile, because a signal handler of this thread reads and writes them. */
static _Thread_local volatile bool inside, postponed;

bool libc_calls_postpone(void)
{
    postponed = inside;
    return postponed;
}

static void leave(void)
{
    inside = false;
    if (postponed) {
        postponed = false;
        stop_now();
    }
}

static void *watched_malloc(size_t size)
{
    inside = true;
    void *block = whole.malloc(size);
    leave();
    return block;
}

static void watched_free(void *block)
{
    inside = true;
    whole.free(block);
    leave();
}

static void *watched_calloc(size_t count, size_t size)
{
    inside = true;
    void *block = whole.calloc(count, size);
    leave();
    return block;
}

static void *watched_realloc(void *block, size_t size)
{
    inside = true;
    void *moved = whole.realloc(block, size);
    leave();
    return moved;
}

static void *watched_memalign(size_t align, size_t size)
{
    inside = true;
    void *block = whole.memalign(align, size);
    leave();
    return block;
}

void libc_calls_watch(void (*stop)(void))
{
    whole = ga_libc;
    stop_now = stop;
    ga_libc.malloc = watched_malloc;
    ga_libc.free = watched_free;
    ga_libc.calloc = watched_calloc;
    ga_libc.realloc = watched_realloc;
    ga_libc.memalign = watched_memalign;
}
