/* SPDX-License-Identifier: MIT
 *
 * One published arena under threads: one grows it, shrinks it when no opener has it, and forks; two
 * publish it and end that; others open it, follow its growth and close it. An opener sees all of
 * the memory that the publisher had when it asked. A child finds the arena unlocked. Nothing is
 * left at the end.
 */
#include "stress.h"

#include "support/vmm_driver.h"

#include <gpualloc/arena.h>

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHANGERS = 2, /* that publish */
    OPENERS = 3,
    STEP = 2 << 20,
    STEPS = 8
};

static ga_arena *arena;
static char name[64];
static int working; /* relaxed: growth and openers; a flag that ends rounds and orders nothing */

static bool goes_on(void)
{
    return __atomic_load_n(&working, __ATOMIC_RELAXED) > 0;
}

static void end_part(void)
{
    __atomic_fetch_sub(&working, 1, __ATOMIC_RELAXED);
}

/* In the child no thread holds the arena's lock, and nothing is published. */
static void fork_once(void)
{
    int status = -1;
    pid_t child = fork();
    if (!child) {
        ga_arena_openers openers = {.published = true};
        alarm(20);
        _exit(ga_arena_count_openers(arena, &openers) == GA_OK && !openers.published ? 0 : 1);
    }
    NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* The first step stays. */
static void grow(void)
{
    for (int round = 0; round < 6; round++) {
        for (uint64_t step = 1; step < STEPS; step++) {
            NEED(ga_arena_grow(arena, (step + 1) * STEP) == GA_OK);
        }
        ga_status status = ga_arena_shrink(arena, STEP);
        NEED(status == GA_OK || status == GA_ERR_UNSUPPORTED);
        NEED((ga_arena_size(arena) == STEP) == (status == GA_OK));
        fork_once();
    }
    end_part();
}

static void publish(void)
{
    while (goes_on()) {
        ga_status status = ga_arena_publish(arena, name);
        NEED(status == GA_OK || status == GA_ERR_ARGUMENT);
        usleep(3000);
        ga_arena_unpublish(arena);
    }
}

static void open_once(ga_arena_access access)
{
    ga_arena *opened;
    ga_arena_openers openers;
    ga_status status = ga_arena_join(&opened, name, access);
    NEED(status == GA_OK || status == GA_ERR_IO);
    if (status != GA_OK) {
        usleep(500);
        return;
    }
    uint64_t size = ga_arena_size(opened);
    NEED(size >= STEP && size <= STEPS * (uint64_t)STEP && size % STEP == 0);
    NEED(((char *)ga_arena_base(opened))[STEP - 1] == 1);
    status = ga_arena_update(opened);
    NEED(status == GA_OK || status == GA_ERR_IO);
    NEED(ga_arena_size(opened) >= size);
    NEED(ga_arena_count_openers(opened, &openers) == GA_OK);
    uint64_t count = openers.readers + openers.writers;
    NEED(count >= 1 && count <= 2 * OPENERS); /* a child may have the openings of before its fork */
    ga_arena_close(opened);
}

static void open_often(size_t number)
{
    for (int round = 0; round < 60; round++) {
        open_once(number % 2 ? GA_ARENA_READ : GA_ARENA_READ_WRITE);
    }
    end_part();
}

static void run(size_t number)
{
    if (number == 0) {
        grow();
    } else if (number <= CHANGERS) {
        publish();
    } else if (number <= CHANGERS + OPENERS) {
        open_often(number);
    }
}

static void one_round(ga_place place)
{
    ga_arena_openers openers;
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_EXACT | GA_ARENA_SHARE_FD,
                                .place = place,
                                .reserve = STEPS * (uint64_t)STEP};
    NEED(ga_arena_open(&arena, &options) == GA_OK && ga_arena_grow(arena, STEP) == GA_OK);
    memset(ga_arena_base(arena), 1, STEP);
    working = 1 + OPENERS;
    stress_threads(1 + CHANGERS + OPENERS, run);
    NEED(ga_arena_count_openers(arena, &openers) == GA_OK);
    NEED(openers.readers + openers.writers == 0 && !openers.published);
    ga_arena_close(arena);
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    snprintf(name, sizeof name, "@gpualloc-stress-%d", (int)getpid());
    while (stress_goes_on()) {
        one_round(GA_PLACE_HOST);
        vmm_driver_start(NULL);
        one_round(GA_PLACE_DEVICE);
        vmm_driver_counts left = vmm_driver_count();
        NEED(left.ranges == 0 && left.mappings == 0 && left.handles == 0 && left.chunks == 0);
        vmm_driver_stop();
    }
    return 0;
}
