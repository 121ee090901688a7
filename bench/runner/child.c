/* SPDX-License-Identifier: MIT
 *
 * Runs a child: fork, a page that both processes share, and the meaning of the exit status.
 */
#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void be_child(ga_bench_body *body, void *context, unsigned seconds,
                               ga_bench_report *shared)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a crash is a result, so no core file is
                                                     * needed */
    alarm(seconds);
    shared->status = body(context, shared);
    shared->done = shared->status == GA_OK;
    if (!shared->done) {
        snprintf(shared->failure, sizeof shared->failure, "%s", ga_error_text());
    }
    _exit(0); /* not exit(): it would write the parent's stdio buffers */
}

static void explain(ga_bench_report *report, int state, unsigned seconds)
{
    if (WIFSIGNALED(state) && WTERMSIG(state) == SIGALRM) {
        snprintf(report->failure, sizeof report->failure, "ran past %u s", seconds);
    } else if (WIFSIGNALED(state)) {
        snprintf(report->failure, sizeof report->failure, "died of signal %d (%s)", WTERMSIG(state),
                 strsignal(WTERMSIG(state)));
    } else if (WEXITSTATUS(state) != 0 || report->status == GA_OK) {
        snprintf(report->failure, sizeof report->failure, "exited with status %d",
                 WEXITSTATUS(state));
    } else {
        return; /* the child has reported the reason itself */
    }
    report->done = false;
}

static void run_into(ga_bench_body *body, void *context, unsigned seconds, ga_bench_report *shared)
{
    int state;
    pid_t child = fork();
    if (child == 0) {
        be_child(body, context, seconds, shared);
    }
    if (child < 0) {
        snprintf(shared->failure, sizeof shared->failure, "cannot fork: %s", strerror(errno));
        return;
    }
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (!shared->done || state != 0) {
        explain(shared, state, seconds);
    }
}

void ga_bench_child_run(ga_bench_body *body, void *context, unsigned seconds,
                        ga_bench_report *report)
{
    *report = (ga_bench_report){0};
    ga_bench_report *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        snprintf(report->failure, sizeof report->failure, "no memory for its report");
        return;
    }
    run_into(body, context, seconds, shared);
    *report = *shared;
    munmap(shared, sizeof *shared);
}
