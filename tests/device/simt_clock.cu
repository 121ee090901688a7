/* SPDX-License-Identifier: MIT
 *
 * Functions whose results differ on the GPU from call to call: the clock, sleep and noise. They
 * cannot be compared with the CPU, so each has checks of its own.
 */
#include "simt_gpu.h"

#include "../../liballoc/simt/clock.h"
#include "../../liballoc/simt/simt.h"

#include <time.h>

enum {
    CLOCK_THREADS = 1024,
    CLOCK_READS = 4096, /* of each thread */
    NOISE_CALLS = 64,   /* of each thread */
    SLEEPS = 100,
    SLEEP_NS = 100000
};

static const uint64_t SPIN_NS = 20000000;

typedef struct clock_facts {
    uint64_t back;   /* reads that were less than the previous one */
    uint64_t stood;  /* threads whose clock did not advance */
    uint64_t quiet;  /* threads that got one value of noise each time */
    uint64_t slept;  /* ns, for all sleeps */
    uint64_t waited; /* ns, at least SPIN_NS */
} clock_facts;

static __device__ void count(uint64_t *sum, bool holds)
{
    if (holds) {
        ga_post_add64_relaxed(sum, 1); /* relaxed: read when the kernel has ended */
    }
}

static __global__ void read_clock(clock_facts *facts)
{
    uint64_t first = ga_clock_ns();
    uint64_t before = first;
    for (uint32_t i = 0; i < CLOCK_READS; i++) {
        uint64_t now = ga_clock_ns();
        count(&facts->back, now < before);
        before = now;
    }
    for (uint32_t i = 0; i < SLEEPS && before == first;
         i++) { /* the clock's steps are long, then */
        ga_clock_sleep(SLEEP_NS);
        before = ga_clock_ns();
    }
    count(&facts->stood, before == first);
}

static __global__ void make_noise(clock_facts *facts)
{
    uint32_t first = ga_tile_noise();
    uint32_t others = 0;
    for (uint32_t i = 1; i < NOISE_CALLS; i++) {
        others += ga_tile_noise() != first;
    }
    count(&facts->quiet, !others);
}

static __global__ void sleep_often(clock_facts *facts)
{
    uint64_t began = ga_clock_ns();
    for (uint32_t i = 0; i < SLEEPS; i++) {
        ga_clock_sleep(SLEEP_NS);
    }
    facts->slept = ga_clock_ns() - began;
}

static __global__ void wait_long(clock_facts *facts)
{
    uint64_t began = ga_clock_ns();
    uint64_t now = began;
    while (now - began < SPIN_NS) {
        now = ga_clock_ns();
    }
    facts->waited = now - began;
}

static uint64_t host_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool fetch_facts(const clock_facts *d_facts, clock_facts *facts)
{
    return KERNELS_DONE() &&
           CUDA_DONE(cudaMemcpy(facts, d_facts, sizeof *facts, cudaMemcpyDeviceToHost));
}

/* A sleep takes up to twice the requested time; half of that again is allowed for the machine. */
static void check_sleep(const clock_facts *facts)
{
    const uint64_t max = (uint64_t)SLEEPS * SLEEP_NS * 3;
    if (facts->slept > max) {
        FAIL("%d sleeps of %d ns to take at most %llu ns, got %llu", SLEEPS, SLEEP_NS,
             (unsigned long long)max, (unsigned long long)facts->slept);
    }
}

/* The clock counts nanoseconds: the host's clock around it has advanced by no less. */
static void check_wait(const clock_facts *facts, uint64_t host)
{
    if (host + host / 100 + 2000 < facts->waited) {
        FAIL("%llu ns in a kernel to be at most the host's, got %llu ns there",
             (unsigned long long)facts->waited, (unsigned long long)host);
    }
}

void simt_clock(int device)
{
    clock_facts facts = {};
    clock_facts *d_facts = (clock_facts *)suite_memory(sizeof facts);
    (void)device;
    if (!d_facts) {
        return;
    }
    read_clock<<<CLOCK_THREADS / 128, 128>>>(d_facts);
    make_noise<<<CLOCK_THREADS / 128, 128>>>(d_facts);
    sleep_often<<<1, 1>>>(d_facts);
    if (fetch_facts(d_facts, &facts)) {
        uint64_t began = host_ns();
        wait_long<<<1, 1>>>(d_facts);
        if (fetch_facts(d_facts, &facts)) {
            check_wait(&facts, host_ns() - began);
        }
        EXPECT_EQUAL("reads of the clock before the last one", facts.back, 0);
        EXPECT_EQUAL("threads whose clock stands", facts.stood, 0);
        EXPECT_EQUAL("threads to whom noise is always the same", facts.quiet, 0);
        check_sleep(&facts);
    }
    cudaFree(d_facts);
}
