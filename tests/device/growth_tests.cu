/* SPDX-License-Identifier: MIT
 *
 * Growth under running kernels on GPUs (docs/internals/growth.md): an arena that the pager backs
 * while kernels take all there is. Every unit must have been prepared before it is used, be taken
 * once, and hold at the end what its owner wrote. One line a case, then `N passed, N failed, N
 * skipped`; above each line what was seen, times for information. Exit status 0, 1 when a case
 * failed, 77 without a GPU.
 *
 *   growth_tests [--only WORDS] [--quick]
 *       the cases whose name contains the words; fewer kernels
 */
#include <gpualloc/arena.h>
#include <gpualloc/detail/growth/growth.h>

#include "gpu_suite.h"

extern "C" {
#include "growth/pager.h"
/* See arena/growth_probe.h; for the host. */
ga_status ga_growth_try(int device);
}

#define UNIT       4096u /* bytes */
#define STEP       (2u << 20)
#define STEP_UNITS (STEP / UNIT)
#define THREADS    256u
#define READY_UNIT 0x600df00du
#define MANY_STEPS 1024u /* 2 GiB */

/* ---- growing memory ----------------------------------------------------------------------- */

/* In device memory. */
typedef struct subject {
    ga_growth growth;
    char *base;
    uint64_t next;  /* relaxed: hands out units */
    uint64_t taken; /* relaxed: sums, read behind the kernel */
    uint64_t refused[GA_GROWTH_REASONS];
    uint64_t unprepared;               /* units that were used too early */
    uint64_t strange;                  /* units with neither that value nor their owner's */
    uint64_t left;                     /* units that were not claimed */
    uint32_t prepared[4 * MANY_STEPS]; /* number of times that each step was prepared */
} subject;

/* The host's half. */
typedef struct host {
    ga_arena *arena;
    ga_pager_client *client;
    subject *on_device;
    uint32_t limit;    /* steps */
    uint32_t failures; /* requests that are still to be refused for lack of memory */
} host;

/* Doubles the committed memory, up to the limit. */
static ga_growth_reason back(void *context, uint32_t wanted, uint32_t *backed)
{
    host *h = (host *)context;
    if (h->failures) {
        h->failures--;
        return GA_GROWTH_MEMORY;
    }
    uint32_t reach = wanted > 2u * *backed ? wanted : 2u * *backed;
    reach = reach < h->limit ? reach : h->limit;
    if (reach > *backed && ga_arena_grow(h->arena, (uint64_t)reach * STEP) != GA_OK) {
        printf("    the arena: %s\n", ga_error_text());
        return GA_GROWTH_MEMORY;
    }
    *backed = reach > *backed ? reach : *backed;
    return *backed >= wanted ? GA_GROWTH_GRANTED : GA_GROWTH_LIMIT;
}

static subject read_subject(const host *h)
{
    static subject copy;
    CUDA_DONE(cudaMemcpy(&copy, h->on_device, sizeof copy, cudaMemcpyDeviceToHost));
    return copy;
}

/* Starts with nothing committed. `mailbox`: one without a pager, or NULL. */
static bool begin(host *h, int device, uint32_t limit, ga_mailbox *mailbox)
{
    static subject first;
    ga_arena_options options = {};
    memset(&first, 0, sizeof first);
    options.options_size = sizeof options;
    options.flags = GA_ARENA_EXACT;
    options.place = GA_PLACE_DEVICE;
    options.device = device;
    h->limit = limit;
    if (ga_arena_open(&h->arena, &options) != GA_OK ||
        ga_pager_add(&h->client, device, 0, back, h) != GA_OK) {
        FAIL("an arena and a pager, got \"%s\"", ga_error_text());
        return false;
    }
    first.growth = ga_growth_first(mailbox ? mailbox : ga_pager_mailbox(h->client), 0);
    first.growth.timeout_ns = mailbox ? 20000000u : first.growth.timeout_ns; /* ns */
    first.base = (char *)ga_arena_base(h->arena);
    return CUDA_DONE(cudaMalloc(&h->on_device, sizeof first)) &&
           CUDA_DONE(cudaMemcpy(h->on_device, &first, sizeof first, cudaMemcpyHostToDevice));
}

static void end(host *h)
{
    ga_pager_remove(h->client);
    cudaFree(h->on_device);
    ga_arena_close(h->arena);
}

/* ---- kernels ------------------------------------------------------------------------------ */

GA_SIMT void prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    subject *s = (subject *)context;
    for (uint32_t i = from * STEP_UNITS + ga_tile_ranks(tile); i < to * STEP_UNITS;
         i += ga_tile_size(tile)) {
        *(uint32_t *)(s->base + (uint64_t)i * UNIT) = READY_UNIT;
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        for (uint32_t step = from; step < to; step++) {
            s->prepared[step]++;
        }
    }
}

GA_SIMT_SLOW uint32_t grow(subject *s, uint32_t lanes, uint32_t want)
{
    return ga_growth_await(ga_tile_among(lanes), &s->growth, want, prepare, s);
}

GA_SIMT_SLOW void grow_ahead(subject *s, uint32_t lanes, uint32_t want)
{
    ga_growth_hint(ga_tile_among(lanes), &s->growth, want, prepare, s);
}

/* One unit for each active lane; false if there are no more. */
static __device__ bool take(subject *s, bool ahead)
{
    ga_tile tile = ga_tile_present();
    uint32_t leader = ga_tile_leader(tile);
    uint32_t count = ga_tile_size(tile);
    uint32_t first = 0; /* units are numbered below 2^32 */
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        (void)own;
        first = (uint32_t)ga_add64_relaxed(&s->next, count);
    }
    first = ga_lanes_get(tile, first, leader);
    uint32_t unit = first + ga_tile_ranks(tile);
    uint32_t want = (first + count - 1u) / STEP_UNITS + 1u; /* uniform: for the last of them */
    uint32_t found = ga_growth_ready(&s->growth) >= want ? (uint32_t)GA_GROWTH_GRANTED
                                                         : grow(s, ga_tile_members(tile), want);
    while (found == GA_GROWTH_MEMORY) {
        found = grow(s, ga_tile_members(tile), want);
    }
    if (found != GA_GROWTH_GRANTED) {
        ga_post_add64_relaxed(&s->refused[found], 1);
        return false;
    }
    if (ahead && (first & 127u) == 0) {
        grow_ahead(s, ga_tile_members(tile), want + want / 4u + 8u);
    }
    uint32_t *at = (uint32_t *)(s->base + (uint64_t)unit * UNIT);
    if (*at != READY_UNIT) { /* plainly: a stale cache line would show */
        ga_post_add64_relaxed(&s->unprepared, 1);
    }
    *at = unit;
    ga_post_add64_relaxed(&s->taken, 1);
    return true;
}

/* Whole warps. */
static __global__ void take_all(subject *s, bool ahead)
{
    while (take(s, ahead)) {
    }
}

/* Warps that have diverged into four parts, which grow at the same time. */
static __global__ void take_apart(subject *s)
{
    uint32_t part = threadIdx.x & 3u;
    bool goes_on = true;
    while (goes_on) {
        if (part == 0) {
            goes_on = take(s, false);
        } else if (part == 1) {
            goes_on = take(s, true);
        } else if (part == 2) {
            goes_on = take(s, false);
        } else {
            goes_on = take(s, true);
        }
    }
}

static __global__ void look_at_all(subject *s, uint32_t units)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < units;
         i += gridDim.x * blockDim.x) {
        uint32_t holds = *(const uint32_t *)(s->base + (uint64_t)i * UNIT);
        if (holds == READY_UNIT) {
            ga_post_add64_relaxed(&s->left, 1);
        } else if (holds != i) {
            ga_post_add64_relaxed(&s->strange, 1);
        }
    }
}

static uint32_t grid(int device)
{
    cudaDeviceProp properties;
    CUDA_DONE(cudaGetDeviceProperties(&properties, device));
    return 4u * (uint32_t)properties.multiProcessorCount;
}

/* ---- checks afterwards -------------------------------------------------------------------- */

static uint32_t longest_wait(const subject *s)
{
    uint32_t place = 0;
    for (uint32_t i = 0; i < GA_GROWTH_WAITS; i++) {
        place = s->growth.waits[i] ? i : place;
    }
    return place;
}

static void print_times(const host *h, const subject *s)
{
    ga_pager_stats stats;
    uint64_t waits = 0;
    for (uint32_t i = 0; i < GA_GROWTH_WAITS; i++) {
        waits += s->growth.waits[i];
    }
    ga_pager_get_stats(h->client, &stats);
    printf("    %llu requests, %llu refused; the host took us: p50 %.1f, p99 %.1f, p99.9 %.1f, "
           "longest %.1f; %llu waits in the kernel, the longest below %.0f us\n",
           (unsigned long long)(stats.granted + stats.refused), (unsigned long long)stats.refused,
           (double)stats.p50 / 1e3, (double)stats.p99 / 1e3, (double)stats.p999 / 1e3,
           (double)stats.max / 1e3, (unsigned long long)waits,
           (double)(2ull << longest_wait(s)) / 1e3);
}

/* All units up to the limit have been taken, but for those at its edge that were too few for a
 * tile. */
static void expect_all_taken(host *h, int device)
{
    uint32_t units = h->limit * STEP_UNITS;
    look_at_all<<<grid(device), THREADS>>>(h->on_device, units);
    CUDA_DONE(cudaDeviceSynchronize());
    subject s = read_subject(h);
    EXPECT_EQUAL("units taken or left", s.taken + s.left, units);
    EXPECT_EQUAL("units left, in tiles", s.left / 32u, 0);
    EXPECT_EQUAL("units used before they were prepared", s.unprepared, 0);
    EXPECT_EQUAL("units that do not hold what was written", s.strange, 0);
    EXPECT_EQUAL("steps that are ready", s.growth.ready, h->limit);
    EXPECT_EQUAL("bytes that are backed", ga_arena_size(h->arena), (uint64_t)h->limit * STEP);
    EXPECT_EQUAL("lanes that were told the pager is gone", s.refused[GA_GROWTH_GONE], 0);
    EXPECT_EQUAL("lanes that were told it cannot grow", s.refused[GA_GROWTH_FIXED], 0);
    for (uint32_t step = 0; step < h->limit; step++) {
        if (s.prepared[step] != 1u) {
            FAIL("step %u to be prepared once, got %u times", step, s.prepared[step]);
            break;
        }
    }
    print_times(h, &s);
}

/* ---- cases -------------------------------------------------------------------------------- */

static void trial(int device)
{
    for (int i = 0; i < 2; i++) {
        if (ga_growth_try(device) != GA_OK) {
            FAIL("the library's own trial to succeed, got \"%s\"", ga_error_text());
        }
    }
}

static void whole_warps(int device)
{
    for (int ahead = 0; ahead < 2; ahead++) {
        host h = {};
        if (begin(&h, device, MANY_STEPS, NULL)) {
            take_all<<<grid(device), THREADS>>>(h.on_device, ahead != 0);
            CUDA_DONE(cudaDeviceSynchronize());
            printf("    2 GiB in 4 KiB units%s\n", ahead ? ", asked for ahead" : "");
            expect_all_taken(&h, device);
        }
        end(&h);
    }
}

static void warps_that_have_parted(int device)
{
    host h = {};
    if (begin(&h, device, MANY_STEPS / 4u, NULL)) {
        take_apart<<<grid(device), THREADS>>>(h.on_device);
        CUDA_DONE(cudaDeviceSynchronize());
        expect_all_taken(&h, device);
    }
    end(&h);
}

static void two_kernels_at_once(int device)
{
    host h = {};
    cudaStream_t streams[2];
    for (int i = 0; i < 2; i++) {
        CUDA_DONE(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    if (begin(&h, device, MANY_STEPS, NULL)) {
        for (int i = 0; i < 2; i++) {
            take_all<<<grid(device) / 4u, THREADS, 0, streams[i]>>>(h.on_device, i == 1);
        }
        CUDA_DONE(cudaDeviceSynchronize());
        expect_all_taken(&h, device);
    }
    end(&h);
    for (int i = 0; i < 2; i++) {
        cudaStreamDestroy(streams[i]);
    }
}

/* A pager for each device, both at work. */
static void beside_another_device(int device)
{
    host hosts[2] = {};
    int devices[] = {device, 0}, count = 1;
    CUDA_DONE(cudaGetDeviceCount(&count));
    devices[1] = (device + 1) % count;
    if (devices[1] == device) {
        SKIP("no other device");
    }
    bool begun = true;
    for (int i = 0; i < 2; i++) {
        CUDA_DONE(cudaSetDevice(devices[i]));
        begun = begin(&hosts[i], devices[i], MANY_STEPS, NULL) && begun;
    }
    for (int i = 0; i < 2 && begun; i++) {
        CUDA_DONE(cudaSetDevice(devices[i]));
        take_all<<<grid(devices[i]), THREADS>>>(hosts[i].on_device, i == 1);
    }
    for (int i = 0; i < 2; i++) {
        CUDA_DONE(cudaSetDevice(devices[i]));
        CUDA_DONE(cudaDeviceSynchronize());
        if (begun) {
            expect_all_taken(&hosts[i], devices[i]);
        }
        end(&hosts[i]);
    }
    CUDA_DONE(cudaSetDevice(device));
}

static void nothing_to_be_had(int device)
{
    host h = {};
    if (begin(&h, device, 0, NULL)) {
        take_all<<<grid(device), THREADS>>>(h.on_device, false);
        CUDA_DONE(cudaDeviceSynchronize());
        subject s = read_subject(&h);
        EXPECT_EQUAL("units taken", s.taken, 0);
        EXPECT_EQUAL("lanes told of the limit", s.refused[GA_GROWTH_LIMIT],
                     (uint64_t)grid(device) * THREADS);
        print_times(&h, &s);
    }
    end(&h);
}

static void out_of_memory_for_a_while(int device)
{
    host h = {};
    h.failures = 5;
    if (begin(&h, device, MANY_STEPS / 8u, NULL)) {
        take_all<<<grid(device), THREADS>>>(h.on_device, false);
        CUDA_DONE(cudaDeviceSynchronize());
        expect_all_taken(&h, device);
        EXPECT_EQUAL("requests that were to be refused", h.failures, 0);
    }
    end(&h);
}

/* The kernel ends: that is the case. */
static void a_pager_that_never_answers(int device)
{
    host h = {};
    ga_mailbox *mailbox;
    ga_mailbox *for_kernels;
    CUDA_DONE(cudaHostAlloc((void **)&mailbox, sizeof *mailbox, cudaHostAllocMapped));
    CUDA_DONE(cudaHostGetDevicePointer((void **)&for_kernels, mailbox, 0));
    memset(mailbox, 0, sizeof *mailbox);
    if (begin(&h, device, MANY_STEPS, for_kernels)) {
        take_all<<<grid(device), THREADS>>>(h.on_device, true);
        CUDA_DONE(cudaDeviceSynchronize());
        subject s = read_subject(&h);
        EXPECT_EQUAL("lanes told that the pager is gone", s.refused[GA_GROWTH_GONE],
                     (uint64_t)grid(device) * THREADS);
        EXPECT_EQUAL("that steps were wished for", mailbox->request >> 32 != 0, true);
        print_times(&h, &s);
    }
    end(&h);
    cudaFreeHost(mailbox);
}

/* Each has an arena of its own, beside cudaMalloc and copies on another stream. */
static void many_in_a_row(int device)
{
    int kernels = suite.quick ? 20 : 200;
    uint64_t bytes = 0;
    cudaStream_t stream;
    CUDA_DONE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < kernels; i++) {
        host h = {};
        char *other = NULL;
        if (begin(&h, device, 64, NULL)) {
            take_all<<<grid(device), THREADS>>>(h.on_device, i % 2 == 1);
            if (CUDA_DONE(cudaMalloc(&other, 8 << 20))) {
                CUDA_DONE(cudaMemcpyAsync(other, other + (4 << 20), 4 << 20,
                                          cudaMemcpyDeviceToDevice, stream));
            }
            CUDA_DONE(cudaDeviceSynchronize());
            subject s = read_subject(&h);
            EXPECT_EQUAL("units taken, in tiles", (s.taken + 31u) / 32u, 64u * STEP_UNITS / 32u);
            EXPECT_EQUAL("units used before they were prepared", s.unprepared, 0);
            bytes += ga_arena_size(h.arena);
        }
        cudaFree(other);
        end(&h);
    }
    cudaStreamDestroy(stream);
    printf("    %d kernels grew %.1f GB while they ran\n", kernels, (double)bytes / 1e9);
}

/* cudaFree waits for running kernels. If it keeps the pager out of the driver for that time,
 * kernels get the result that the pager is gone: they end, and nothing more is required. */
static void beside_a_free(int device)
{
    int kernels = suite.quick ? 4 : 20;
    int refused = 0;
    for (int i = 0; i < kernels; i++) {
        host h = {};
        void *other = NULL;
        CUDA_DONE(cudaMalloc(&other, 8 << 20));
        if (begin(&h, device, MANY_STEPS, NULL)) {
            uint64_t patience = 200000000; /* ns */
            CUDA_DONE(cudaMemcpy(&h.on_device->growth.timeout_ns, &patience, sizeof patience,
                                 cudaMemcpyHostToDevice));
            take_all<<<grid(device), THREADS>>>(h.on_device, true);
            cudaFree(other);
            CUDA_DONE(cudaDeviceSynchronize());
            subject s = read_subject(&h);
            EXPECT_EQUAL("units used before they were prepared", s.unprepared, 0);
            refused += s.refused[GA_GROWTH_GONE] != 0;
        }
        end(&h);
    }
    printf("    for information: cudaFree kept the pager away from %d of %d kernels\n", refused,
           kernels);
}

/* ---- the program -------------------------------------------------------------------------- */

static const test_case cases[] = {
    {"the library's own trial", trial},
    {"whole warps take all there is", whole_warps},
    {"warps that have parted grow beside each other", warps_that_have_parted},
    {"two kernels at once", two_kernels_at_once},
    {"beside growth on another device", beside_another_device},
    {"nothing to be had", nothing_to_be_had},
    {"out of memory for a while", out_of_memory_for_a_while},
    {"a pager that never answers", a_pager_that_never_answers},
    {"many kernels in a row", many_in_a_row},
    {"beside a cudaFree", beside_a_free},
};

static void run_on(int device)
{
    test_run("growth", cases, sizeof cases / sizeof *cases, device, suite.only);
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, run_on);
}
