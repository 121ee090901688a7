/* SPDX-License-Identifier: MIT
 *
 * Allocations by functions of known names, for test_stacks.py, which looks for them in a trace.
 * Lines that it looks for have a comment of the form "line: NAME".
 */
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static void *volatile kept[64];
static volatile int after; /* written after calls, so that none of them is a tail call */

APART static void *leak_first(size_t size)
{
    void *block = malloc(size); /* line: leak_first */
    after = 1;
    return block;
}

APART static void *leak_second(void)
{
    void *block = calloc(3, 8); /* line: leak_second */
    after = 2;
    return block;
}

APART static void *leak_resized(void *block)
{
    void *moved = realloc(block, 5000); /* line: leak_resized */
    after = 3;
    return moved;
}

APART static void balanced(void)
{
    void *volatile block = malloc(100);
    free(block);
}

static volatile int ten = 10, three = 3; /* so that no loop is unrolled */

APART static void leaks(void)
{
    for (int i = 0; i < ten; i++) {
        kept[i] = leak_first(1000);
    }
    for (int i = 0; i < three; i++) {
        kept[10 + i] = leak_second();
    }
    kept[13] = leak_resized(leak_first(10));
    for (int i = 0; i < 1000; i++) {
        balanced();
    }
}

/* Two functions from which the same function allocates, at the same depth. */
APART static void by_left(void)
{
    kept[0] = leak_first(20);
    after = 4;
}

APART static void by_right(void)
{
    kept[1] = leak_first(21);
    after = 5;
}

APART static void in_turns(void)
{
    for (int i = 0; i < 500; i++) {
        by_left();
        by_right();
    }
}

APART static void *deep(int depth)
{
    void *block = depth ? deep(depth - 1) : malloc(70);
    after = 6;
    return block;
}

APART static void *thread_leak(void *unused)
{
    for (int i = 0; i < 100; i++) {
        free(malloc(50));
        kept[i % 8] = malloc(16);
    }
    after = 7;
    return unused;
}

static void threads(int count)
{
    pthread_t all[32];
    for (int i = 0; i < count; i++) {
        pthread_create(&all[i], NULL, thread_leak, NULL);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(all[i], NULL);
    }
}

static void on_signal(int number)
{
    (void)number;
    kept[0] = leak_first(77);
}

APART static void signalled(void)
{
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    after = 11;
}

APART static void *ends_process(void *unused)
{
    kept[0] = leak_first(33);
    exit(0);
    return unused;
}

APART static void child_leak(void)
{
    kept[0] = leak_first(111);
    after = 8;
}

APART static void parent_leak(void)
{
    kept[0] = leak_first(222);
    after = 9;
}

APART static void forks(void)
{
    parent_leak(); /* line: before */
    pid_t child = fork();
    if (child == 0) {
        child_leak();
        exit(0);
    }
    waitpid(child, NULL, 0);
    parent_leak(); /* line: behind */
    after = 10;
}

/* Call `leak` of each library, which is unloaded before the next one. Prints where it was. */
APART static void libraries(char **paths)
{
    for (; *paths; paths++) {
        void *library = dlopen(*paths, RTLD_NOW);
        void *(*leak)(void) = NULL;
        if (library) {
            *(void **)&leak = dlsym(library, "leak");
        }
        if (!leak) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
        for (int i = 0; i < 5; i++) {
            kept[i] = leak();
        }
        printf("%p\n", *(void **)&leak);
        dlclose(library);
    }
}

/* Ends without any handler, after many records. */
static void killed(void)
{
    for (int i = 0; i < 5000; i++) {
        kept[0] = leak_first(10);
    }
    raise(SIGKILL);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "leaks";
    int number = argc > 2 ? atoi(argv[2]) : 0;
    if (strcmp(what, "leaks") == 0) {
        leaks();
    } else if (strcmp(what, "turns") == 0) {
        in_turns();
    } else if (strcmp(what, "deep") == 0) {
        kept[0] = deep(number);
    } else if (strcmp(what, "threads") == 0) {
        threads(number);
    } else if (strcmp(what, "signal") == 0) {
        signalled();
    } else if (strcmp(what, "exit") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, ends_process, NULL);
        pthread_join(thread, NULL);
    } else if (strcmp(what, "fork") == 0) {
        forks();
    } else if (strcmp(what, "libraries") == 0) {
        libraries(argv + 2);
    } else if (strcmp(what, "kill") == 0) {
        killed();
    }
    return 0;
}
