/* SPDX-License-Identifier: MIT
 *
 * Other programs started by every method, while threads allocate.
 */
#include "churn.h"

#include <spawn.h>
#include <sys/wait.h>

enum {
    THREADS = 2
};

extern char **environ;

static void expect_status(pid_t pid, int wanted)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
}

static void test_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL);
        _exit(127);
    }
    CHECK(pid > 0);
    expect_status(pid, 3);
}

static void test_posix_spawn(void)
{
    char *arguments[] = {"sh", "-c", "exit 4", NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    expect_status(pid, 4);
    CHECK(posix_spawn(&pid, "/nonexistent/program", NULL, NULL, arguments, environ) == ENOENT);
}

static void test_popen(void)
{
    char line[64] = "";
    FILE *pipe = popen("echo from a pipe", "r");
    CHECK(pipe && fgets(line, sizeof line, pipe));
    CHECK(pclose(pipe) == 0 && strcmp(line, "from a pipe\n") == 0);
}

int main(void)
{
    pthread_t threads[THREADS];
    churn_begin(threads, THREADS);
    for (int i = 0; i < 8; i++) {
        test_vfork();
        test_posix_spawn();
        test_popen();
        int status = system("exit 5");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    }
    churn_end(threads, THREADS);
    puts("spawn: all came back");
    return 0;
}
