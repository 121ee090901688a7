/* SPDX-License-Identifier: MIT
 *
 * The log: one formatted line, one write.
 */
#include "log.h"

#include "environment.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read anew each time: lines are rare, and a program may change its environment. */
static ga_log_level level_in_force(void)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    const char *text = ga_environment("GPUALLOC_LOG");
    for (int i = 0; text && i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            return (ga_log_level)i;
        }
    }
    return GA_LOG_WARN;
}

static size_t clamp(int printed, size_t room)
{
    size_t length = printed < 0 ? 0 : (size_t)printed;
    return length < room ? length : room - 1;
}

void ga_log(ga_log_level level, const char *format, ...)
{
    if (level > level_in_force()) {
        return;
    }
    int saved = errno;
    char line[1024] = "gpualloc: ";
    size_t length = strlen(line);
    va_list args;
    va_start(args, format);
    length += clamp(vsnprintf(line + length, sizeof line - 1 - length, format, args),
                    sizeof line - 1 - length);
    va_end(args);
    line[length++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written; /* a closed standard error is the user's wish */
    errno = saved;
}
