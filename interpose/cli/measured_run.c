/* SPDX-License-Identifier: MIT */
#include "measured_run.h"

#include "runner/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals ------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted; /* the signal */
static volatile sig_atomic_t running;     /* the program's process id; 0: none */

static void end_program(int number)
{
    int before = errno;
    if (running > 0) {
        kill((pid_t)running, interrupted ? SIGKILL : SIGTERM);
    }
    interrupted = number;
    errno = before;
}

/* A signal that was ignored from the beginning stays so, as in a script's background. */
static void catch (int number, const struct sigaction *action)
{
    struct sigaction before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(number, action, NULL);
    }
}

void ga_measured_catch_signals(void)
{
    struct sigaction action = {.sa_handler = end_program};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    catch (SIGINT, &action);
    catch (SIGTERM, &action);
}

int ga_measured_interrupted(void)
{
    return (int)interrupted;
}

/* ---- files --------------------------------------------------------------------------------- */

/* A file without a name. The streams of tmpfile(3) stay open. */
static int temporary(void)
{
    FILE *file = tmpfile();
    int fd = file ? fcntl(fileno(file), F_DUPFD_CLOEXEC, 3) : -1;
    if (file) {
        fclose(file);
    }
    return fd;
}

bool ga_measured_open(ga_measured_program *program)
{
    program->output = temporary();
    program->expected = temporary();
    program->errors = temporary();
    return program->output >= 0 && program->expected >= 0 && program->errors >= 0;
}

void ga_measured_close(const ga_measured_program *program)
{
    close(program->output);
    close(program->expected);
    close(program->errors);
}

static bool empty(int fd)
{
    return ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0;
}

static bool has_same_content(int a, int b)
{
    static char parts[2][1 << 16];
    ssize_t got;
    off_t at = 0;
    do {
        got = pread(a, parts[0], sizeof parts[0], at);
        if (got < 0 || pread(b, parts[1], sizeof parts[1], at) != got ||
            memcmp(parts[0], parts[1], (size_t)got) != 0) {
            return false;
        }
        at += got;
    } while (got > 0);
    return true;
}

void ga_measured_show_errors(const ga_measured_program *program)
{
    char part[4096];
    ssize_t got;
    for (off_t at = 0; (got = pread(program->errors, part, sizeof part, at)) > 0; at += got) {
        fwrite(part, 1, (size_t)got, stderr);
    }
}

/* ---- running ------------------------------------------------------------------------------- */

static _Noreturn void execute(const ga_measured_program *program, char **variables, int report)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (dup2(nothing, STDIN_FILENO) >= 0 && dup2(program->output, STDOUT_FILENO) >= 0 &&
        dup2(program->errors, STDERR_FILENO) >= 0) {
        execvpe(program->path, program->arguments, variables);
    }
    int error = errno;
    ssize_t written = write(report, &error, sizeof error);
    _exit(written == (ssize_t)sizeof error ? 126 : 127);
}

/* The kernel closes the pipe when it executes the program. */
static int start_error(int report)
{
    int error = 0;
    ssize_t got;
    while ((got = read(report, &error, sizeof error)) < 0 && errno == EINTR) {
    }
    return got == (ssize_t)sizeof error ? error : 0;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* The process keeps its id until `running` no longer has it. */
static void wait_for(pid_t child, ga_measured_run *out)
{
    struct rusage usage = {0};
    siginfo_t ended;
    while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    running = 0;
    while (wait4(child, &out->status, 0, &usage) < 0 && errno == EINTR) {
    }
    out->processor = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    out->peak = (double)usage.ru_maxrss * 1024;
}

/* The first run's output is the expected one. */
static bool differs(ga_measured_program *program)
{
    if (program->any_output) {
        return false;
    }
    if (program->has_run) {
        return !has_same_content(program->output, program->expected);
    }
    int other = program->expected;
    program->expected = program->output;
    program->output = other;
    program->has_run = true;
    return false;
}

bool ga_measured_run_once(ga_measured_program *program, char **variables, ga_measured_run *out)
{
    int report[2];
    *out = (ga_measured_run){0};
    if (!empty(program->output) || !empty(program->errors) || pipe2(report, O_CLOEXEC) != 0) {
        return false;
    }
    uint64_t start = ga_bench_now();
    pid_t child = fork();
    if (child == 0) {
        execute(program, variables, report[1]);
    }
    int error = child < 0 ? errno : 0;
    close(report[1]);
    if (child > 0) {
        running = child;
        if (interrupted) {
            kill(child, SIGTERM);
        }
        error = start_error(report[0]);
        wait_for(child, out);
        out->wall = (double)(ga_bench_now() - start) / 1e9;
        out->differs = differs(program);
    }
    close(report[0]);
    errno = error;
    return error == 0;
}
