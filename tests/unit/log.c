/* SPDX-License-Identifier: MIT
 *
 * The log: which lines come, what they look like, and that nothing else is touched.
 */
#include "platform/log.h"

#include "support/expect.h"
#include "support/scene.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *log_all(const char *setting)
{
    if (setting) {
        setenv("GPUALLOC_LOG", setting, 1);
    } else {
        unsetenv("GPUALLOC_LOG");
    }
    scene_capture_begin();
    ga_log(GA_LOG_ERROR, "e%d", 1);
    ga_log(GA_LOG_WARN, "w%d", 2);
    ga_log(GA_LOG_INFO, "i%d", 3);
    ga_log(GA_LOG_DEBUG, "d%d", 4);
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
    cr_assert_str_eq(log_all("loud"), ERROR WARN);
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
