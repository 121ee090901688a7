/* SPDX-License-Identifier: MIT
 *
 * Slots of 16 to 128 bytes in steps of 16, then four classes for each doubling, to 128 KiB. A run
 * has at most GA_HARDENED_SLOTS slots and about 64 KiB, so that large slots come few to a run.
 */
#include "classes.h"

#include <pthread.h>
#include <unistd.h>

enum {
    RUN_TARGET = 65536,
    STEP = 16,
    STEPS = 8, /* classes of the linear part */
    PER_DOUBLING = 4
};

ga_hardened_class ga_hardened_classes[GA_HARDENED_CLASSES];

static uint32_t round_up(uint32_t bytes, uint32_t to)
{
    return (bytes + to - 1) / to * to;
}

static uint32_t size_of_class(unsigned index)
{
    if (index < STEPS) {
        return (index + 1) * STEP;
    }
    unsigned doubling = (index - STEPS) / PER_DOUBLING;
    unsigned quarter = (index - STEPS) % PER_DOUBLING + 1;
    uint32_t base = (uint32_t)(STEP * STEPS) << doubling;
    return base + base / PER_DOUBLING * quarter;
}

static uint64_t inverse_of(uint32_t divisor)
{
    return UINT64_MAX / divisor + 1;
}

static void fill(void)
{
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < GA_HARDENED_CLASSES; i++) {
        ga_hardened_class *class = &ga_hardened_classes[i];
        uint32_t size = size_of_class(i);
        uint32_t slots = RUN_TARGET / size ? RUN_TARGET / size : 1;
        slots = slots < GA_HARDENED_SLOTS ? slots : GA_HARDENED_SLOTS;
        class->slot_bytes = size;
        class->run_bytes = round_up(slots * size, page);
        slots = class->run_bytes / size;
        class->slots = slots < GA_HARDENED_SLOTS ? slots : GA_HARDENED_SLOTS;
        class->stride = class->run_bytes + page;
        class->stride_inverse = inverse_of(class->stride);
        class->slot_inverse = inverse_of(size);
    }
}

void ga_hardened_classes_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
}

static size_t room_for(size_t size)
{
    return size + GA_HARDENED_CANARY;
}

/* A run begins at a page, so slots whose size is a power of two are aligned to it up to a page. */
static size_t aligned_room(size_t size, size_t align)
{
    size_t room = room_for(size);
    size_t power = align;
    if (align <= STEP) {
        return room;
    }
    while (power < room) {
        power <<= 1;
    }
    return power;
}

bool ga_hardened_is_small(size_t size, size_t align)
{
    return size <= GA_HARDENED_SMALL - GA_HARDENED_CANARY && align <= GA_HARDENED_PAGE &&
           aligned_room(size, align) <= GA_HARDENED_SMALL;
}

unsigned ga_hardened_class_of(size_t size, size_t align)
{
    size_t room = aligned_room(size, align);
    if (room <= STEP * STEPS) {
        return (unsigned)((room + STEP - 1) / STEP - 1);
    }
    unsigned log = 63u - (unsigned)__builtin_clzll(room - 1); /* 2^log < room <= 2^(log + 1) */
    unsigned quarter = (unsigned)((room - 1) >> (log - 2)) & 3u;
    return STEPS + (log - 7) * PER_DOUBLING + quarter;
}
