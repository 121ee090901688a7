/* SPDX-License-Identifier: MIT
 *
 * The addresses are in a file without a name, so that the program can read them at its own pace. It
 * answers each with a line of the address, and then two lines for each function that was inlined
 * there, the innermost first, and for the one that these are in: its name, and its file and line.
 */
#include "symbolizer.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- the answer ------------------------------------------------------------------------------ */

bool ga_symbol_add_call(ga_symbol *symbol, const char *function, const char *file, unsigned line)
{
    ga_call *calls = realloc(symbol->calls, (symbol->count + 1) * sizeof *calls);
    if (!calls) {
        return false;
    }
    symbol->calls = calls;
    calls[symbol->count++] = (ga_call){.function = function ? strdup(function) : NULL,
                                       .file = file ? strdup(file) : NULL,
                                       .line = line};
    return true;
}

/* "FILE:LINE", "FILE:LINE (discriminator N)", or "??:0", "??:?" */
static void split_place(char *place, const char **file, unsigned *line)
{
    char *colon = strrchr(place, ':');
    *line = colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
    if (colon) {
        *colon = '\0';
    }
    *file = *line && strncmp(place, "??", 2) != 0 ? place : NULL;
    *line = *file ? *line : 0;
}

static bool add_answer(ga_symbol *symbol, const char *function, char *place)
{
    const char *file;
    unsigned line;
    split_place(place, &file, &line);
    bool known = *function && strncmp(function, "??", 2) != 0;
    return (!known && !file) || ga_symbol_add_call(symbol, known ? function : NULL, file, line);
}

typedef struct text {
    char *line;
    size_t room;
} text;

static bool next_line(FILE *in, text *out)
{
    ssize_t length = getline(&out->line, &out->room, in);
    if (length > 0 && out->line[length - 1] == '\n') {
        out->line[length - 1] = '\0';
    }
    return length > 0;
}

/* False: out of memory. An answer without an end is left out. */
static bool read_answers(FILE *in, ga_symbol *symbols, size_t count)
{
    text name = {0};
    text place = {0};
    size_t at = SIZE_MAX; /* the address that is answered */
    bool done = true;
    while (done && next_line(in, &name)) {
        if (strncmp(name.line, "0x", 2) == 0) {
            at++;
        } else if (*name.line && next_line(in, &place) && at < count) {
            done = add_answer(&symbols[at], name.line, place.line);
        }
    }
    free(name.line);
    free(place.line);
    return done;
}

/* ---- the process ----------------------------------------------------------------------------- */

/* A file of the addresses, to be read from its start; -1 on error. */
static int write_addresses(uint64_t bias, const ga_symbol *symbols, size_t count)
{
    int fd = memfd_create("addresses", MFD_CLOEXEC);
    int copy = fd < 0 ? -1 : dup(fd);
    FILE *out = copy < 0 ? NULL : fdopen(copy, "w");
    for (size_t i = 0; out && i < count; i++) {
        fprintf(out, "0x%" PRIx64 "\n", symbols[i].address - bias);
    }
    bool written = out && fclose(out) == 0 && lseek(fd, 0, SEEK_SET) == 0;
    if (!written && fd >= 0) {
        close(fd);
    }
    return written ? fd : -1;
}

static bool is_llvm(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strstr(slash ? slash + 1 : program, "symbolizer") != NULL;
}

static int start(pid_t *child, const char *program, const char *file, int in, int out)
{
    posix_spawn_file_actions_t actions;
    const char *const gnu[] = {program, "-a", "-f", "-i", "-C", "-e", file, NULL};
    const char *const llvm[] = {program, "--output-style=GNU", "-a", "-f", "-i", "-C", "-e", file,
                                NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1, 0);
    int error = posix_spawn(child, program, &actions, NULL,
                            (char *const *)(is_llvm(program) ? llvm : gnu), environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static ga_status cannot_run(const char *program, int error)
{
    return ga_fail(GA_ERR_IO, "\"%.300s\": cannot be run: %s", program, strerror(error));
}

static ga_status read_child(const char *program, pid_t child, int fd, ga_symbol *symbols,
                            size_t count)
{
    FILE *in = fdopen(fd, "r");
    bool done = in && read_answers(in, symbols, count);
    int error = in ? ENOMEM : errno;
    if (in) {
        fclose(in);
    } else {
        close(fd);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return done ? GA_OK : cannot_run(program, error);
}

ga_status ga_symbolizer_run(const char *program, const char *file, uint64_t bias,
                            ga_symbol *symbols, size_t count)
{
    int ends[2];
    pid_t child;
    int in = write_addresses(bias, symbols, count);
    if (in < 0 || pipe2(ends, O_CLOEXEC) != 0) {
        int error = errno;
        if (in >= 0) {
            close(in);
        }
        return cannot_run(program, error);
    }
    int error = start(&child, program, file, in, ends[1]);
    close(in);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        return cannot_run(program, error);
    }
    return read_child(program, child, ends[0], symbols, count);
}
