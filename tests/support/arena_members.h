/* SPDX-License-Identifier: MIT
 *
 * Processes that publish or open an arena, for tests: the program tests/unit/arena_member.c, which
 * answers each line that it gets by one line.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_ARENA_MEMBERS_H
#define GPUALLOC_TESTS_SUPPORT_ARENA_MEMBERS_H

#include "arena_scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The call fails with this status and a sentence that has these words. */
#define assert_says(call, wanted, words)                                                           \
    do {                                                                                           \
        ga_status got_ = (call);                                                                   \
        cr_assert_eq(got_, (wanted), "%s: status %d: %s", #call, (int)got_, ga_error_text());      \
        cr_assert_not_null(strstr(ga_error_text(), (words)), "%s: got the sentence\n  %s", #call,  \
                           ga_error_text());                                                       \
    } while (0)

typedef struct member {
    pid_t process;
    int in, out; /* its standard input and output */
    char line[256];
} member;

/* The next line of its answers; "" at their end. */
static inline const char *member_hears(member *m)
{
    size_t length = 0;
    struct pollfd answer = {.fd = m->out, .events = POLLIN};
    while (length + 1 < sizeof m->line) {
        cr_assert_eq(poll(&answer, 1, 30000), 1, "process %d does not answer", (int)m->process);
        if (read(m->out, &m->line[length], 1) != 1 || m->line[length] == '\n') {
            break;
        }
        length++;
    }
    m->line[length] = 0;
    return m->line;
}

static inline const char *member_asks(member *m, const char *command)
{
    size_t length = strlen(command);
    cr_assert_eq(write(m->in, command, length), (ssize_t)length);
    cr_assert_eq(write(m->in, "\n", 1), 1);
    return member_hears(m);
}

/* Start the program with up to four arguments; its first line is not read yet. */
static inline member member_begin(const char *a, const char *b, const char *c, const char *d)
{
    extern char **environ;
    int to[2], from[2];
    member m = {0};
    posix_spawn_file_actions_t actions;
    const char *arguments[] = {ARENA_MEMBER, a, b, c, d, NULL};
    cr_assert_eq(pipe2(to, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(from, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    cr_assert_eq(posix_spawn(&m.process, ARENA_MEMBER, &actions, NULL,
                             (char *const *)(uintptr_t)arguments, environ),
                 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    m.in = to[1];
    m.out = from[0];
    return m;
}

static inline member member_start(const char *a, const char *b, const char *c, const char *d)
{
    member m = member_begin(a, b, c, d);
    member_hears(&m);
    return m;
}

/* Returns its wait status. */
static inline int member_wait(member *m)
{
    int status = -1;
    close(m->in);
    cr_assert_eq(waitpid(m->process, &status, 0), m->process);
    close(m->out);
    return status;
}

static inline void member_ends(member *m)
{
    int status = member_wait(m);
    cr_assert_eq(status, 0, "wait status %x", (unsigned)status);
}

static inline void member_is_killed(member *m)
{
    kill(m->process, SIGKILL);
    int status = member_wait(m);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Open descriptors of a process. */
static inline int descriptors_of(pid_t process)
{
    char path[32];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    DIR *folder = opendir(path);
    cr_assert_not_null(folder);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

static inline void assert_openers(ga_arena *arena, uint64_t readers, uint64_t writers,
                                  bool published)
{
    ga_arena_openers openers;
    assert_ok(ga_arena_count_openers(arena, &openers));
    cr_assert(openers.readers == readers && openers.writers == writers &&
                  openers.published == published,
              "%" PRIu64 " readers, %" PRIu64 " writers, published %d", openers.readers,
              openers.writers, openers.published);
}

#endif
