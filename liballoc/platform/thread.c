/* SPDX-License-Identifier: MIT
 *
 * A thread enrolls itself at its first use and leaves through the destructor of a pthread key. A
 * thread that frees memory in a later destructor is not enrolled again, so that destructors come to
 * an end.
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
    UNKNOWN = 0, /* the thread has not been enrolled */
    ENROLLING,
    ENROLLED,
    DEPARTED
};

static void (*hooks[HOOKS])(void);
static pthread_mutex_t hooks_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

static _Thread_local int state;
static _Thread_local uint32_t id;

static void depart(void *unused)
{
    (void)unused;
    state = DEPARTED;
    for (int i = 0; i < HOOKS; i++) {
        /* PH1: acquire. Pairs with PH2: the data of the hook was set up before the hook was
         * listed. */
        void (*hook)(void) = __atomic_load_n(&hooks[i], __ATOMIC_ACQUIRE);
        if (hook) {
            hook();
        }
    }
}

/* A thread that is not in the child may have held the lock, so initialise it. */
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

/* Runs once, and a second time in the child of a fork that interrupted it in another thread. That
 * child has an unused key, and no thread that was enrolled with it. */
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

bool ga_thread_lives(uint32_t thread)
{
    int error = errno;
    bool gone = syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
    errno = error;
    return !gone;
}

/* The state follows the last ')', because the thread's name before it may contain any byte. */
static bool parse_waiting(int file)
{
    char text[128];
    ssize_t length = read(file, text, sizeof text);
    const char *end = length > 0 ? memrchr(text, ')', (size_t)length) : NULL;
    return end && end + 2 < text + length && strchr("SDTtZXI", end[2]);
}

bool ga_thread_waits(uint32_t thread)
{
    char path[64];
    int error = errno;
    bool waits = !ga_thread_lives(thread);
    if (!waits) {
        snprintf(path, sizeof path, "/proc/self/task/%u/stat", thread);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        waits = file >= 0 && parse_waiting(file);
        if (file >= 0) {
            close(file);
        }
    }
    errno = error;
    return waits;
}

void ga_thread_on_exit(void (*hook)(void))
{
    pthread_once(&once, make_key); /* here rather than inside malloc */
    pthread_mutex_lock(&hooks_lock);
    int i = 0;
    while (i < HOOKS && hooks[i] && hooks[i] != hook) {
        i++;
    }
    if (i < HOOKS) {
        /* PH2: release. Pairs with PH1. */
        __atomic_store_n(&hooks[i], hook, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&hooks_lock);
}

bool ga_thread_enroll(void)
{
    if (state == UNKNOWN) {
        state = ENROLLING;
        pthread_once(&once, make_key);
        bool set = key_made && pthread_setspecific(key, &key) == 0;
        state = set ? ENROLLED : DEPARTED;
    }
    return state == ENROLLED;
}
