/* SPDX-License-Identifier: MIT
 *
 * The log: one formatted line, one write.
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
    /* relaxed, both: nothing else is handed over, and two threads read the same */
    int known = __atomic_load_n(&level, __ATOMIC_RELAXED);
    if (known == UNREAD) {
        known = (int)read_level();
        __atomic_store_n(&level, known, __ATOMIC_RELAXED);
    }
    return (ga_log_level)known;
}

static size_t clamp(int printed, size_t room)
{
    size_t length = printed < 0 ? 0 : (size_t)printed;
    return length < room ? length : room - 1;
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
    ga_text_make_printable(line); /* it quotes values of users and programs */
    line[length++] = '\n';
    ga_output_write(STDERR_FILENO, line, length); /* a closed standard error is the user's wish */
    errno = saved;
}
