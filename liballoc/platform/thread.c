/* SPDX-License-Identifier: MIT
 *
 * Threads come by themselves and leave through a pthread key's destructor. One that frees memory
 * in a later destructor is not enrolled again, so that no destructor runs for ever.
 */
#include "thread.h"

#include "forks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    HOOKS = 4
};

enum {
    UNKNOWN = 0, /* the thread has not been here */
    ENROLLING,
    ENROLLED,
    DEPARTED
};

static void (*hooks[HOOKS])(void);
static pthread_mutex_t hooks_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

static _Thread_local int standing;
static _Thread_local uint32_t id;

static void depart(void *unused)
{
    (void)unused;
    standing = DEPARTED;
    for (int i = 0; i < HOOKS; i++) {
        /* H1: acquire. Pairs with H2: what the hook works on was set up before it was listed. */
        void (*hook)(void) = __atomic_load_n(&hooks[i], __ATOMIC_ACQUIRE);
        if (hook) {
            hook();
        }
    }
}

/* A thread that the child has not may have been listing a hook: its lock starts anew. */
void ga_thread_begin_child(void)
{
    pthread_mutex_init(&hooks_lock, NULL);
    id = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, ga_thread_begin_child);
}

/* Once, and once more in the child of a fork that came in the middle of it: it has one key in vain,
 * and no thread that was enrolled with it. */
static void make_key(void)
{
    watch_forks();
    key_made = pthread_key_create(&key, depart) == 0;
}

uint32_t ga_thread_id(void)
{
    if (!id) {
        pthread_once(&once, make_key);
        id = (uint32_t)syscall(SYS_gettid);
    }
    return id;
}

bool ga_thread_lives(uint32_t of)
{
    int error = errno;
    bool gone = syscall(SYS_tgkill, getpid(), of, 0) != 0 && errno == ESRCH;
    errno = error;
    return !gone;
}

/* The state is behind the name, which may have any bytes in it, and the last ')'. */
static bool reads_as_waiting(int file)
{
    char text[128];
    ssize_t length = read(file, text, sizeof text);
    const char *end = length > 0 ? memrchr(text, ')', (size_t)length) : NULL;
    return end && end + 2 < text + length && strchr("SDTtZXI", end[2]);
}

bool ga_thread_waits(uint32_t of)
{
    char path[64];
    int error = errno;
    bool waits = !ga_thread_lives(of);
    if (!waits) {
        snprintf(path, sizeof path, "/proc/self/task/%u/stat", of);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        waits = file >= 0 && reads_as_waiting(file);
        if (file >= 0) {
            close(file);
        }
    }
    errno = error;
    return waits;
}

void ga_thread_on_exit(void (*hook)(void))
{
    pthread_once(&once, make_key); /* here, at leisure, rather than inside somebody's malloc */
    pthread_mutex_lock(&hooks_lock);
    int i = 0;
    while (i < HOOKS && hooks[i] && hooks[i] != hook) {
        i++;
    }
    if (i < HOOKS) {
        /* H2: release. Pairs with H1. */
        __atomic_store_n(&hooks[i], hook, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&hooks_lock);
}

bool ga_thread_enroll(void)
{
    if (standing == UNKNOWN) {
        standing = ENROLLING;
        pthread_once(&once, make_key);
        bool set = key_made && pthread_setspecific(key, &key) == 0;
        standing = set ? ENROLLED : DEPARTED;
    }
    return standing == ENROLLED;
}
