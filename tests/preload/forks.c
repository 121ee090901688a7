/* SPDX-License-Identifier: MIT
 *
 * fork() while other threads are inside malloc: the child must be able to allocate, to free what
 * its parent allocated, and to start threads. A child that hangs is killed by the driver's
 * deadline.
 */
#include "churn.h"

#include <sys/wait.h>

enum {
    THREADS = 4,
    FORKS = 50,
    KEPT = 100
};

static void *child_thread(void *unused)
{
    churn(99, 300);
    return unused;
}

static int child(char **kept)
{
    pthread_t thread;
    churn(7, 500);
    for (int i = 0; i < KEPT; i++) {
        check_filled(kept[i], (size_t)i * 50, i);
        free(kept[i]);
    }
    CHECK(pthread_create(&thread, NULL, child_thread, NULL) == 0);
    churn(8, 500);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

static void fork_once(char **kept, bool quick)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int status = child(kept);
        if (quick) {
            _exit(status);
        }
        exit(status);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    pthread_t threads[THREADS];
    char *kept[KEPT];
    for (int i = 0; i < KEPT; i++) {
        kept[i] = malloc((size_t)i * 50);
        CHECK(kept[i]);
        check_fill(kept[i], (size_t)i * 50, i);
    }
    churn_begin(threads, THREADS);
    for (int i = 0; i < FORKS; i++) {
        fork_once(kept, i % 2);
    }
    churn_end(threads, THREADS);
    puts("forks: all children ended well");
    return 0;
}
