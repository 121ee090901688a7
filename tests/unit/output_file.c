/* SPDX-License-Identifier: MIT
 *
 * Files that reports are appended to: no link redirects a report, no write blocks, and other users
 * cannot read a new file.
 */
#include "platform/output_file.h"
#include "support/scene.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path;

static void begin(void)
{
    scene_enter_folder();
    path = scene_path("file");
}

TestSuite(output_file, .init = begin, .fini = scene_leave_folder);

static void append(const char *text)
{
    int fd = ga_output_open(path);
    cr_assert_geq(fd, 0, "%s", strerror(errno));
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
}

static void refuses(int error)
{
    cr_assert_eq(ga_output_open(path), -1);
    cr_assert_eq(errno, error, "%s", strerror(errno));
}

Test(output_file, a_new_file_is_for_the_user_alone)
{
    struct stat there;
    char text[16];
    append("one ");
    append("two");
    cr_assert_eq(stat(path, &there), 0);
    cr_assert_eq(there.st_mode & 0777, 0600);
    scene_read_file(path, text, sizeof text);
    cr_assert_str_eq(text, "one two");
}

Test(output_file, links_are_refused)
{
    struct stat there;
    const char *target = scene_path("target");
    cr_assert_eq(symlink(target, path), 0);
    refuses(ELOOP);
    cr_assert_neq(stat(target, &there), 0);
}

Test(output_file, a_fifo_without_a_reader_does_not_block, .timeout = 20)
{
    char text[8] = "";
    cr_assert_eq(mkfifo(path, 0600), 0);
    refuses(ENXIO);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    append("text");
    cr_assert_eq(read(reader, text, sizeof text - 1), 4);
    close(reader);
}

Test(output_file, devices_descriptors_and_other_kinds)
{
    char name[32];
    int pipes[2];
    path = "/dev/null";
    append("text");
    cr_assert_eq(pipe(pipes), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", pipes[1]);
    path = name;
    append("text");
    cr_assert_eq(read(pipes[0], name, 4), 4);
    path = "/tmp";
    refuses(EISDIR);
    path = "/dev/fd/999";
    refuses(EBADF);
}

/* ---- writing ------------------------------------------------------------------------------- */

static char much[300000];

static bool is_pending(int number)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, number) == 1;
}

Test(output_file, a_pipe_without_a_reader_is_an_error_and_no_signal)
{
    int pipes[2];
    signal(SIGPIPE, SIG_DFL);
    cr_assert_eq(pipe(pipes), 0);
    close(pipes[0]);
    cr_assert(!ga_output_write(pipes[1], "text", 4));
    cr_assert_eq(errno, EPIPE);
    cr_assert(!is_pending(SIGPIPE));
    close(pipes[1]);
}

Test(output_file, the_limit_on_file_sizes_is_an_error_and_no_signal)
{
    struct rlimit limit = {100, 100};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int fd = ga_output_open(path);
    cr_assert(!ga_output_write(fd, much, sizeof much));
    cr_assert_eq(errno, EFBIG);
    cr_assert(!is_pending(SIGXFSZ));
    close(fd);
}

/* A signal that the program has blocked, and handles itself, stays pending. */
Test(output_file, a_signal_that_was_pending_before_stays)
{
    int pipes[2];
    sigset_t broken;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigprocmask(SIG_BLOCK, &broken, NULL);
    raise(SIGPIPE);
    cr_assert_eq(pipe(pipes), 0);
    close(pipes[0]);
    cr_assert(!ga_output_write(pipes[1], "text", 4));
    cr_assert(is_pending(SIGPIPE));
    close(pipes[1]);
}

static void *read_slowly(void *fd)
{
    static char room[10000];
    size_t got = 0;
    for (ssize_t one; (one = read(*(int *)fd, room, sizeof room)) > 0; got += (size_t)one) {
        usleep(1000);
    }
    return (void *)got;
}

/* More than a pipe holds, with a reader and without. */
Test(output_file, a_full_pipe, .timeout = 30)
{
    int pipes[2];
    void *got;
    pthread_t thread;
    cr_assert_eq(pipe2(pipes, O_NONBLOCK), 0);
    cr_assert(!ga_output_write(pipes[1], much, sizeof much));
    cr_assert_eq(errno, EAGAIN);
    close(pipes[0]);
    close(pipes[1]);
    cr_assert_eq(pipe(pipes), 0);
    cr_assert_eq(fcntl(pipes[1], F_SETFL, O_NONBLOCK), 0);
    cr_assert_eq(pthread_create(&thread, NULL, read_slowly, &pipes[0]), 0);
    cr_assert(ga_output_write(pipes[1], much, sizeof much));
    close(pipes[1]);
    pthread_join(thread, &got);
    cr_assert_eq((size_t)got, sizeof much);
    close(pipes[0]);
}
