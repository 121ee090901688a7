/* SPDX-License-Identifier: MIT
 *
 * Fork handlers that allocate and were registered before the first allocation: by a library's
 * constructor, and by the program before all constructors. A hang is ended by the driver.
 */
#include "fork_handlers.h"
#include "churn.h"

#include <sys/wait.h>

enum {
    FORKS = 50
};

__attribute__((section(".preinit_array"),
               used)) static void (*before_all)(void) = register_handlers;

static int child(void)
{
    churn(7, 500);
    return 0;
}

int main(void)
{
    pthread_t threads[3];
    fork_handlers_library();
    churn_begin(threads, 3);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        int status;
        CHECK(pid >= 0);
        if (pid == 0) {
            _exit(child());
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    churn_end(threads, 3);
    puts("fork handlers: ran");
    return 0;
}
