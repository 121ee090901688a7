/* SPDX-License-Identifier: MIT
 *
 * The log: which lines are printed, their format, and that errno and the like are unchanged.
 */
#include "platform/log.h"

#include "support/expect.h"
#include "support/scene.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int log_in_child(void *unused)
{
    (void)unused;
    ga_log(GA_LOG_ERROR, "e%d", 1);
    ga_log(GA_LOG_WARN, "w%d", 2);
    clearenv();
    ga_log(GA_LOG_INFO, "i%d", 3);
    ga_log(GA_LOG_DEBUG, "d%d", 4);
    return 0;
}

static const char *log_all(const char *setting)
{
    if (setting) {
        setenv("GPUALLOC_LOG", setting, 1);
    } else {
        unsetenv("GPUALLOC_LOG");
    }
    scene_capture_begin();
    scene_in_child(log_in_child, NULL); /* the level is read once */
    return scene_capture_end();
}

#define ERROR "gpualloc: e1\n"
#define WARN  "gpualloc: w2\n"
#define INFO  "gpualloc: i3\n"
#define DEBUG "gpualloc: d4\n"

Test(log, levels)
{
    cr_assert_str_eq(log_all("error"), ERROR);
    cr_assert_str_eq(log_all("warn"), ERROR WARN);
    cr_assert_str_eq(log_all("info"), ERROR WARN INFO);
    cr_assert_str_eq(log_all("debug"), ERROR WARN INFO DEBUG);
}

Test(log, warn_is_the_default)
{
    cr_assert_str_eq(log_all(NULL), ERROR WARN);
    cr_assert_str_eq(log_all(""), ERROR WARN);
}

Test(log, another_level_is_named)
{
    cr_assert_str_eq(log_all("loud"),
                     "gpualloc: GPUALLOC_LOG: expected error, warn, info or debug, "
                     "got \"loud\"\n" ERROR WARN);
}

Test(log, long_lines_are_cut_and_stay_lines)
{
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    scene_capture_begin();
    ga_log(GA_LOG_ERROR, "%s", text);
    const char *said = scene_capture_end();
    size_t length = strlen(said);
    cr_assert_eq(length, 1024 - 1, "%zu", length);
    cr_assert_eq(said[length - 1], '\n');
    cr_assert_eq(strspn(said + strlen("gpualloc: "), "x"), length - 1 - strlen("gpualloc: "));
}

Test(log, errno_is_kept)
{
    scene_capture_begin();
    errno = 77;
    ga_log(GA_LOG_ERROR, "x");
    int after = errno;
    scene_capture_end();
    cr_assert_eq(after, 77);
}

static int log_into_nothing(void *unused)
{
    (void)unused;
    close(STDERR_FILENO);
    errno = 77;
    ga_log(GA_LOG_ERROR, "x");
    return errno == 77 ? 0 : 1;
}

Test(log, a_closed_standard_error_is_no_trouble)
{
    cr_assert_eq(scene_in_child(log_into_nothing, NULL), 0);
}

Test(log, nothing_in_a_line_controls_a_terminal)
{
    scene_capture_begin();
    ga_log(GA_LOG_ERROR, "%s", "a\x1b[31m\n\xc2\x9b\x9b\x7f\xc3\xa9");
    cr_assert_str_eq(scene_capture_end(), "gpualloc: a?[31m?????\xc3\xa9\n");
}

static int log_into_a_broken_pipe(void *unused)
{
    int pipes[2];
    (void)unused;
    signal(SIGPIPE, SIG_DFL);
    if (pipe(pipes) != 0 || dup2(pipes[1], STDERR_FILENO) < 0) {
        return 1;
    }
    close(pipes[0]);
    ga_log(GA_LOG_ERROR, "x");
    return 0;
}

Test(log, a_pipe_without_a_reader_does_not_end_the_program)
{
    cr_assert_eq(scene_in_child(log_into_a_broken_pipe, NULL), 0);
}
