/* SPDX-License-Identifier: MIT
 *
 * The dynamic linker allocates too: error strings, its records of libraries, and the tables of
 * thread-local storage, which grow in the next call that needs one. That may be a malloc with
 * thread-local variables.
 *
 * usage: loader LIBRARY...      each with a thread-local variable `counter`
 */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

enum {
    THREADS = 4
};

static char **libraries;
static sem_t started, loaded;

static void test_errors(void)
{
    for (int i = 0; i < 200; i++) {
        char name[64];
        snprintf(name, sizeof name, "/nonexistent/library-%d.so", i);
        CHECK(!dlopen(name, RTLD_NOW));
        char *text = dlerror();
        CHECK(text && strstr(text, name));
        CHECK(!dlsym(RTLD_DEFAULT, "gpualloc_no_such_symbol"));
        text = dlerror();
        CHECK(text && strstr(text, "gpualloc_no_such_symbol"));
        CHECK(!dlerror());
    }
}

/* The last error string of a thread is freed when the thread ends. */
static void *fail_and_end(void *unused)
{
    CHECK(!dlopen("/nonexistent/library.so", RTLD_NOW));
    CHECK(dlerror());
    CHECK(!dlopen("/nonexistent/other.so", RTLD_NOW));
    return unused;
}

static void use_counter(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW);
    int (*count)(void);
    CHECK(handle);
    *(void **)&count = dlsym(handle, "count");
    CHECK(count && count() == 1 && count() == 2);
}

/* Started before the libraries are loaded: its first call afterwards is malloc. */
static void *wait_and_allocate(void *unused)
{
    free(malloc(10));
    sem_post(&started);
    sem_wait(&loaded);
    for (size_t i = 1; i < 1000; i++) {
        void *block = realloc(calloc(1, i), i * 100);
        CHECK(block);
        free(block);
    }
    for (char **library = libraries; *library; library++) {
        use_counter(*library);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    CHECK(argc > 20);
    libraries = argv + 1;
    test_errors();
    sem_init(&started, 0, 0);
    sem_init(&loaded, 0, 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, wait_and_allocate, NULL) == 0);
        sem_wait(&started);
    }
    for (char **library = libraries; *library; library++) {
        CHECK(dlopen(*library, RTLD_NOW));
    }
    for (int i = 0; i < THREADS; i++) {
        sem_post(&loaded);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(pthread_create(&threads[i], NULL, fail_and_end, NULL) == 0);
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    puts("loader: served");
    return 0;
}
