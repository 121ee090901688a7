/* SPDX-License-Identifier: MIT
 *
 * A process with an arena, for arena_publish.c. It answers each line of its standard input by one
 * line, and ends at the end of its input, or when it is killed.
 *
 *   arena_member publish host|device NAME MIB     an arena of that size, with marks
 *   arena_member join read|write NAME HIDDEN      device identities begin behind HIDDEN devices
 *   arena_member churn read NAME                  opens and closes until it is killed
 */
#include "support/vmm_driver.h"

#include <gpualloc/arena.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static const uint64_t STEP = 64 << 10; /* bytes between marks */

static char *base_of(ga_arena *arena)
{
    return ga_arena_base(arena);
}

static void write_marks(ga_arena *arena, uint64_t from)
{
    for (uint64_t at = from; at < ga_arena_size(arena); at += STEP) {
        memcpy(base_of(arena) + at, &at, sizeof at);
    }
}

static uint64_t wrong_marks(ga_arena *arena)
{
    uint64_t wrong = 0;
    for (uint64_t at = 0; at < ga_arena_size(arena); at += STEP) {
        wrong += memcmp(base_of(arena) + at, &at, sizeof at) != 0;
    }
    return wrong;
}

static void say(ga_arena *arena, ga_status status)
{
    ga_arena_openers openers = {0};
    if (status == GA_OK) {
        status = ga_arena_count_openers(arena, &openers);
    }
    if (status != GA_OK) {
        printf("%d %s\n", (int)status, ga_error_text());
    } else {
        printf("%" PRIu64 " MiB, %" PRIu64 " wrong, %" PRIu64 " readers, %" PRIu64
               " writers, %spublished\n",
               ga_arena_size(arena) / MIB, wrong_marks(arena), openers.readers, openers.writers,
               openers.published ? "" : "not ");
    }
    fflush(stdout);
}

static ga_status grow(ga_arena *arena, uint64_t size)
{
    uint64_t before = ga_arena_size(arena);
    ga_status status = ga_arena_grow(arena, size);
    if (status == GA_OK) {
        write_marks(arena, before);
    }
    return status;
}

/* A child that stays until this process's input ends, as it reads from a pipe of the parent. */
static ga_status fork_child(void)
{
    int ends[2];
    char byte;
    if (pipe(ends) != 0) {
        return GA_ERR_IO;
    }
    if (fork() == 0) {
        close(ends[1]);
        if (read(ends[0], &byte, 1) >= 0) {
            sleep(3); /* outlives the parent */
        }
        _exit(0);
    }
    close(ends[0]);
    return GA_OK;
}

static ga_status obey(ga_arena *arena, const char *command, const char *name)
{
    switch (command[0]) {
    case 'g':
        return grow(arena, strtoull(command + 1, NULL, 10) * MIB);
    case 'u':
        return ga_arena_update(arena);
    case 'p':
        return ga_arena_publish(arena, name);
    case 'e':
        ga_arena_unpublish(arena);
        return GA_OK;
    case 'w':
        signal(SIGSEGV, SIG_DFL);          /* sanitizers report it otherwise */
        strcpy(base_of(arena), "written"); /* a fault where it may only read */
        return GA_OK;
    case 'f':
        return fork_child();
    default:
        return GA_OK;
    }
}

static int serve(ga_arena *arena, const char *name)
{
    char command[64];
    say(arena, GA_OK);
    while (fgets(command, sizeof command, stdin)) {
        say(arena, obey(arena, command, name));
    }
    ga_arena_close(arena);
    return 0;
}

static int fail(ga_status status)
{
    say(NULL, status);
    return 1;
}

static int publish(const char *place, const char *name, const char *size)
{
    ga_arena *arena;
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_SHARE_FD | GA_ARENA_EXACT,
                                .place =
                                    strcmp(place, "host") == 0 ? GA_PLACE_HOST : GA_PLACE_DEVICE};
    ga_status status = ga_arena_open(&arena, &options);
    if (status == GA_OK) {
        status = grow(arena, strtoull(size, NULL, 10) * MIB);
    }
    if (status == GA_OK) {
        status = ga_arena_publish(arena, name);
    }
    return status == GA_OK ? serve(arena, name) : fail(status);
}

static ga_arena_access access_of(const char *text)
{
    return strcmp(text, "read") == 0 ? GA_ARENA_READ : GA_ARENA_READ_WRITE;
}

static int join(const char *access, const char *name)
{
    ga_arena *arena;
    ga_status status = ga_arena_join(&arena, name, access_of(access));
    return status == GA_OK ? serve(arena, name) : fail(status);
}

static int churn(const char *access, const char *name)
{
    ga_arena *arena;
    puts("begins");
    fflush(stdout);
    while (ga_arena_join(&arena, name, access_of(access)) == GA_OK) {
        ga_arena_close(arena);
    }
    return fail(GA_ERR_IO);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        return 2;
    }
    bool joins = strcmp(argv[1], "join") == 0;
    vmm_driver_start(&(vmm_driver_options){.hidden = joins && argc > 4 ? atoi(argv[4]) : 0});
    return joins                             ? join(argv[2], argv[3])
           : strcmp(argv[1], "publish") == 0 ? publish(argv[2], argv[3], argc > 4 ? argv[4] : "2")
                                             : churn(argv[2], argv[3]);
}
