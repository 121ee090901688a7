/* SPDX-License-Identifier: MIT */
#include "entropy.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <time.h>

/* The last step of splitmix64: each number to another. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t gather(void)
{
    static uint64_t calls;
    struct timespec now = {0};
    uint64_t words[2] = {0};
    const void *start = (const void *)getauxval(AT_RANDOM); /* 16 bytes, of each execve() */
    if (start) {
        memcpy(words, start, sizeof words);
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t moment = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    /* relaxed: the calls need different numbers, in no order. */
    uint64_t call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return mix(mix(mix(words[0] ^ moment) ^ words[1] ^ (uintptr_t)&now) + call);
}

uint64_t ga_entropy(void)
{
    int error = errno;
    uint64_t word;
    if (getrandom(&word, sizeof word, GRND_NONBLOCK) != (ssize_t)sizeof word) {
        word = gather();
    }
    errno = error;
    return word;
}
