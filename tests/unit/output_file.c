/* SPDX-License-Identifier: MIT
 *
 * Files that reports are appended to: nothing is redirected by a link, nothing blocks, and nobody
 * else may read a new file.
 */
#include "platform/output_file.h"
#include "support/scene.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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
