/* SPDX-License-Identifier: MIT
 *
 * The memory orders of simt/ between threads: writes before any release are visible after any
 * acquire, the owner of a slot sees the previous owner's writes, and lock holders follow one
 * another. The bodies are those of tests/device/simt_litmus.h, which the GPU runs; here the thread
 * sanitizer checks them, too.
 */
#include "device/simt_host.h"
#include "stress.h"

#include <stdio.h>
#include <string.h>

enum {
    MESSAGES = 200,
    SLOTS = 32,
    OWNERS = 4,
    ATTEMPTS = 2000,
    TURNS = 200,
    PATIENCE = 1 << 24
};

static litmus_cell cells[MESSAGES];
static litmus_edge edge;
static litmus_result results[OWNERS]; /* of each thread */
static uint32_t bitmap;
static uint32_t had[OWNERS];

static void need(bool holds, const char *what, uint32_t seen, uint32_t expected)
{
    if (!holds) {
        fprintf(stderr, "%s: %u of %u; released by %u, acquired by %u, data %u; too late: %u\n",
                what, seen, expected, edge.publish, edge.look, edge.data, results[0].late);
        stress_need(false, "the vocabulary's order");
    }
}

static void clear(uint32_t flag)
{
    memset(cells, 0, sizeof cells);
    memset(results, 0, sizeof results);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        cells[i].flag = flag;
    }
}

static void exchange(size_t number)
{
    simt_host_messages(cells, edge, number == 1, MESSAGES, PATIENCE, &results[number]);
}

static void messages(uint32_t publish, uint32_t look, uint32_t data)
{
    clear(LITMUS_EMPTY);
    edge = (litmus_edge){publish, look, data};
    stress_threads(2, exchange);
    need(results[0].seen == MESSAGES && !results[0].late, "messages read", results[0].seen,
         MESSAGES);
}

static void own(size_t number)
{
    had[number] = simt_host_own(&bitmap, cells, SLOTS, ATTEMPTS, &results[number]);
}

static void slots(void)
{
    uint32_t sum = 0;
    uint32_t expected = 0;
    uint32_t late = 0;
    clear(0);
    stress_threads(OWNERS, own);
    for (uint32_t i = 0; i < SLOTS; i++) {
        sum += cells[i].data[0];
    }
    for (uint32_t i = 0; i < OWNERS; i++) {
        expected += had[i];
        late += results[i].late;
    }
    need(sum == expected && !late && !bitmap, "owners that left a trace", sum, expected);
}

static void take_turns(size_t number)
{
    had[number] = simt_host_turns(cells, (uint32_t)number, TURNS, PATIENCE, &results[number]);
}

static void turns(void)
{
    clear(0);
    stress_threads(2, take_turns);
    need(had[0] + had[1] == TURNS && !results[0].late && !results[1].late, "turns", had[0] + had[1],
         TURNS);
}

static _Alignas(16) uint64_t both[2];

static void raise_some(size_t number)
{
    had[number] = 0;
    for (uint32_t i = 0; i < ATTEMPTS; i++) {
        had[number] += litmus_raise(both, (i + number) % 2u) ? 1u : 0u;
    }
}

/* Changes of 64 bits and of 128 bits to the same memory are atomic with respect to each other. */
static void widths(void)
{
    memset(both, 0, sizeof both);
    stress_threads(OWNERS, raise_some);
    for (uint32_t i = 0; i < OWNERS; i++) {
        need(had[i] == ATTEMPTS, "words raised", had[i], ATTEMPTS);
    }
    need(both[0] == OWNERS * ATTEMPTS, "words of 64 bits raised", (uint32_t)both[0],
         OWNERS * ATTEMPTS);
    need(both[1] == OWNERS * ATTEMPTS / 2, "words of 128 bits raised", (uint32_t)both[1],
         OWNERS * ATTEMPTS / 2);
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    do {
        for (uint32_t publish = 0; publish < PUBLISH_RELAXED; publish++) {
            for (uint32_t look = 0; look < LOOK_RELAXED; look++) {
                messages(publish, look, DATA_PLAIN);
            }
        }
        messages(PUBLISH_STORE, LOOK_LOAD, DATA_RELAXED);
        slots();
        turns();
        if (GA_HAS_CAS128) {
            widths();
        }
    } while (stress_goes_on());
    return 0;
}
