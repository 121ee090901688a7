/* SPDX-License-Identifier: MIT
 *
 * The child sends its environment through a pipe: each variable with its NUL, and one more NUL
 * behind the last, without which it has refused.
 */
#include "prepared.h"

#include "cli.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- in the child -------------------------------------------------------------------------- */

/* Where `dl` needs no space for thread-local storage that this command was given. */
static bool drop_space(const ga_settings *settings)
{
    return (settings->host && strstr(settings->host, "dl:")) || ga_settings_drop_tls();
}

static bool reaches(const ga_settings *settings, const char *program)
{
    ga_reach reach;
    ga_program_reach(&reach, program, settings->malloc.text);
    if (reach.error) {
        ga_fail(GA_ERR_IO, "\"%.300s\": %s", program, strerror(reach.error));
        return ga_settings_refuse(settings, NULL);
    }
    if (*reach.trouble) {
        ga_fail(GA_ERR_UNSUPPORTED, "\"%.300s\": LD_PRELOAD does not reach it: %s", program,
                reach.trouble);
        return ga_settings_refuse(settings, NULL);
    }
    return true;
}

static bool set_up(ga_settings *settings, const char *program)
{
    if (!settings) {
        return ga_settings_remove() && ga_settings_drop_tls();
    }
    return ga_settings_try(settings) && ga_settings_export(settings) && drop_space(settings) &&
           reaches(settings, program);
}

static _Noreturn void send_environment(int out)
{
    FILE *stream = fdopen(out, "w");
    for (char **it = environ; stream && *it; it++) {
        fwrite(*it, 1, strlen(*it) + 1, stream);
    }
    bool sent = stream && fputc('\0', stream) != EOF && fclose(stream) == 0;
    _exit(sent ? GA_CLI_OK : GA_CLI_FAILED);
}

/* ---- in this process ----------------------------------------------------------------------- */

static char *receive(int in, size_t *length)
{
    char *text = NULL;
    char part[4096];
    FILE *all = open_memstream(&text, length);
    ssize_t got;
    while (all && ((got = read(in, part, sizeof part)) > 0 || (got < 0 && errno == EINTR))) {
        fwrite(part, 1, got > 0 ? (size_t)got : 0, all);
    }
    if (all && fclose(all) != 0) {
        free(text);
        text = NULL;
    }
    return text;
}

/* Split the text into variables. False: the text is not complete, or there is no memory. */
static bool take_apart(ga_prepared *out, size_t length)
{
    size_t count = 0, next = 0;
    if (!out->text || length == 0 || (length > 1 && out->text[length - 2] != '\0')) {
        return false;
    }
    for (size_t i = 0; i + 1 < length; i++) {
        count += out->text[i] == '\0';
    }
    out->variables = calloc(count + 1, sizeof *out->variables);
    for (char *at = out->text; out->variables && next < count; at += strlen(at) + 1) {
        out->variables[next++] = at;
    }
    return out->variables;
}

static bool is_ended(const ga_settings *settings, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == GA_CLI_USAGE) {
        return false; /* the child has printed the reason */
    }
    ga_fail(GA_ERR_LIBRARY, "cannot try \"%.300s\": that process ended with %s %d",
            settings ? settings->host : "no preload", WIFSIGNALED(status) ? "signal" : "status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    static const ga_settings compare = {.command = "compare"};
    return ga_settings_refuse(&compare, NULL);
}

bool ga_prepared_make(ga_prepared *out, ga_settings *settings, const char *program)
{
    int pipes[2], status = GA_CLI_FAILED << 8;
    size_t length = 0;
    pid_t child = pipe2(pipes, O_CLOEXEC) == 0 ? fork() : -1;
    if (child == 0) {
        if (!set_up(settings, program)) {
            _exit(GA_CLI_USAGE);
        }
        send_environment(pipes[1]);
    }
    if (child > 0) {
        close(pipes[1]);
        out->text = receive(pipes[0], &length);
        close(pipes[0]);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    return (status == 0 && take_apart(out, length)) || is_ended(settings, status);
}

void ga_prepared_clear(ga_prepared *prepared)
{
    free(prepared->variables);
    free(prepared->text);
    *prepared = (ga_prepared){0};
}
