/* SPDX-License-Identifier: MIT
 *
 * The log: a line is formatted in a buffer and written by one write(2).
 */
#include "log.h"

#include "environment.h"
#include "output_file.h"
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    UNREAD = -1
};

static ga_log_level read_level(void)
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

/* Read once: a program may clear its environment, or change it while another thread logs. */
ga_log_level ga_log_level_in_force(void)
{
    static int level = UNREAD;
    /* relaxed, both: no other data is published, and two threads read the same value */
    int known = __atomic_load_n(&level, __ATOMIC_RELAXED);
    if (known == UNREAD) {
        known = (int)read_level();
        __atomic_store_n(&level, known, __ATOMIC_RELAXED);
    }
    return (ga_log_level)known;
}

static size_t clamp(int printed, size_t capacity)
{
    size_t length = printed < 0 ? 0 : (size_t)printed;
    return length < capacity ? length : capacity - 1;
}

void ga_log(ga_log_level level, const char *format, ...)
{
    if (level > ga_log_level_in_force()) {
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
    ga_text_make_printable(line); /* the line may quote values from users and programs */
    line[length++] = '\n';
    ga_output_write(STDERR_FILENO, line, length); /* fails if the user closed standard error, which
                                                   * is fine */
    errno = saved;
}
