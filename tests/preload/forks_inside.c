/* SPDX-License-Identifier: MIT
 *
 * fork() in a signal handler that interrupts fork() in the same thread, as in glibc's
 * tst-mallocfork (bug 838). A timer sends one signal for each fork, at any moment of it. The driver
 * ends a hang.
 */
#include "check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>

enum {
    FORKS = 500
};

static void end_child(pid_t pid)
{
    int status;
    CHECK(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fork_inside(int number)
{
    int saved = errno;
    (void)number;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    end_child(pid);
    errno = saved;
}

int main(void)
{
    struct sigaction action = {.sa_handler = fork_inside, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int i = 0; i < FORKS; i++) {
        struct itimerval once = {.it_value = {0, 1 + i * 7 % 600}};
        CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            _exit(0);
        }
        end_child(pid);
    }
    /* A fork in a handler that interrupts malloc, here that of puts(), waits for malloc's locks. */
    struct itimerval none = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
    puts("forks inside forks: ended well");
    return 0;
}
