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

/* False: `text` is none of the levels. */
static bool read_level(const char *text, ga_log_level *out)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    *out = GA_LOG_WARN;
    for (int i = 0; text && i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (ga_log_level)i;
            return true;
        }
    }
    return !text || !*text;
}

/* Read once: a program may clear its environment, or change it while another thread logs. */
ga_log_level ga_log_level_in_force(void)
{
    static int level = UNREAD;
    /* relaxed, both: no other data is published, and two threads read the same value */
    int known = __atomic_load_n(&level, __ATOMIC_RELAXED);
    if (known == UNREAD) {
        const char *text = ga_environment("GPUALLOC_LOG");
        ga_log_level read;
        bool is_level = read_level(text, &read);
        known = (int)read;
        /* relaxed: one thread alone logs the line */
        if (__atomic_exchange_n(&level, known, __ATOMIC_RELAXED) == UNREAD && !is_level) {
            ga_log(GA_LOG_WARN, "GPUALLOC_LOG: expected error, warn, info or debug, got \"%s\"",
                   text);
        }
    }
    return (ga_log_level)known;
}

bool ga_is_strict(void)
{
    static bool is_said;
    const char *text = ga_environment("GPUALLOC_STRICT");
    bool is_known = !text || !*text || strcmp(text, "0") == 0 || strcmp(text, "1") == 0;
    /* relaxed: one call alone logs the line */
    if (!is_known && !__atomic_exchange_n(&is_said, true, __ATOMIC_RELAXED)) {
        ga_log(GA_LOG_WARN, "GPUALLOC_STRICT: expected 1, or 0, got \"%s\"", text);
    }
    return text && strcmp(text, "1") == 0;
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
