/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc for all sizes against preallocated memory: ga_kernel_malloc() over a heap of
 * size classes, or, with LINKED defined, malloc and free themselves, replaced by
 * libgpualloc-kernel.a, over the spec in GPUALLOC_KERNEL, else the default. Figures are medians of
 * several rounds, in which the limit and ours take turns. bench/README.md explains the lines.
 *
 *   bench-slab-sizes [--rounds N] [--only WORDS]
 *   bench-slab-sizes-linked [--rounds N] [--only WORDS]
 */
#ifdef LINKED
#define PROGRAM "bench-slab-sizes-linked"
#else
#define PROGRAM        "bench-slab-sizes"
#define GA_KERNEL_ONLY GA_KERNEL_KIND_SIZED /* one backend, chosen when it is built */
#endif
#include "calls.cuh"
#include "measure.cuh"
#include "mixed.cuh"

#include <gpualloc/kernel.h>

#ifndef SPEC
#define SPEC "slab:unit=classes/vmm"
#endif

/* ---- kernels --------------------------------------------------------------------------------- */

KERNEL take_slots(char *slots, uint32_t size, void **out)
{
    uint32_t i = thread_number();
    void *slot = slots + (uint64_t)i * size;
    touch(slot, i);
    out[i] = slot;
}

KERNEL take_offsets(char *slots, const uint64_t *offsets, void **out)
{
    uint32_t i = thread_number();
    void *slot = slots + offsets[i];
    touch(slot, i);
    out[i] = slot;
}

static __device__ void use(void *block, uint32_t i, void **out, uint32_t *failed)
{
    if (block) {
        touch(block, i);
    } else {
        atomicAdd(failed, 1u);
    }
    out[i] = block;
}

KERNEL allocate(ga_kernel_heap heap, uint32_t size, void **out, uint32_t *failed)
{
    uint32_t i = thread_number();
    use(take(heap, size), i, out, failed);
}

/* 40 registers, although that does not fill a multiprocessor, because divergent lanes keep more
 * values. */
__global__ void __launch_bounds__(THREADS, 12)
    allocate_mixed(ga_kernel_heap heap, uint32_t seed, void **out, uint32_t *failed)
{
    uint32_t i = thread_number();
    use(take(heap, mixed_size(i + seed)), i, out, failed);
}

KERNEL release(ga_kernel_heap heap, void **in)
{
    give_back(heap, in[thread_number()]);
}

/* Each warp frees blocks of other warps. */
KERNEL release_apart(ga_kernel_heap heap, void **in, uint32_t n)
{
    uint32_t i = thread_number();
    give_back(heap, in[(i & 31u) * (n / 32u) + i / 32u]);
}

KERNEL pairs_kernel(ga_kernel_heap heap, uint32_t size, uint32_t each, uint32_t *failed)
{
    for (uint32_t i = 0; i < each; i++) {
        void *block = take(heap, size);
        if (block) {
            touch(block, i);
            give_back(heap, block);
        } else {
            atomicAdd(failed, 1u);
        }
    }
}

/* One request of a warp at a time: 32 in turn. */
KERNEL one_by_one(ga_kernel_heap heap, uint32_t size, uint32_t *failed)
{
    for (uint32_t i = 0; i < 32u; i++) {
        if ((threadIdx.x & 31u) == i) {
            void *block = take(heap, size);
            if (block) {
                touch(block, i);
            } else {
                atomicAdd(failed, 1u);
            }
        }
        __syncwarp();
    }
}

/* 32 requests of one lane. */
KERNEL one_lane(ga_kernel_heap heap, uint32_t size, uint32_t *failed)
{
    if ((threadIdx.x & 31u) == 0) {
        for (uint32_t i = 0; i < 32u; i++) {
            void *block = take(heap, size);
            if (block) {
                touch(block, i);
            } else {
                atomicAdd(failed, 1u);
            }
        }
    }
}

/* Whether the first 16 bytes of each block are as they were written. */
KERNEL check_blocks(void **in, uint32_t *wrong)
{
    uint32_t i = thread_number();
    const uint4 *block = (const uint4 *)in[i];
    if (block && (block->x != i || block->w != i)) {
        atomicAdd(wrong, 1u);
    }
}

/* ---- heaps ----------------------------------------------------------------------------------- */

typedef struct subject {
    ga_heap *heap;
    ga_kernel_heap view;
} subject;

static uint32_t *failed_claims;
static char *slots;
static void **pointers;

static uint32_t take_failed()
{
    uint32_t n;
    MUST(cudaMemcpy(&n, failed_claims, sizeof n, cudaMemcpyDeviceToHost));
    MUST(cudaMemset(failed_claims, 0, sizeof n));
    return n;
}

/* The heap as it is when it has just been opened. */
static bool open_subject(subject *s)
{
#ifdef LINKED
    ga_status status = ga_kernel_init();
    s->heap = ga_kernel_serving(0);
    s->view = ga_kernel_heap{}; /* malloc has its own */
    if (status != GA_OK || !s->heap) {
        printf("malloc in kernels is not replaced: %s\n", ga_error_text());
        failures++;
        return false;
    }
#else
    if (ga_heap_open(&s->heap, GA_PLACE_KERNEL, 0, SPEC) != GA_OK ||
        ga_heap_kernel_view(s->heap, &s->view) != GA_OK) {
        printf("%s: %s\n", SPEC, ga_error_text());
        failures++;
        return false;
    }
#endif
    return true;
}

static void close_subject(subject *s)
{
#ifdef LINKED
    ga_kernel_close(0);
#else
    ga_heap_close(s->heap);
#endif
    s->heap = NULL;
}

static double held_bytes(const subject *s)
{
    ga_stats stats = {};
    ga_heap_stats(s->heap, &stats);
    return (double)stats.held_bytes;
}

static double live_bytes(const subject *s)
{
    ga_stats stats = {};
    ga_heap_stats(s->heap, &stats);
    return (double)stats.live_bytes;
}

static void verify(uint32_t n)
{
    check_blocks<<<n / THREADS, THREADS>>>(pointers, failed_claims);
    uint32_t wrong = take_failed();
    if (wrong) {
        printf("  WRONG: %u blocks overlap\n", wrong);
        failures++;
    }
}

/* ---- the lines ------------------------------------------------------------------------------- */

/* The warm-up lets the heap grow to the needed size; then all is freed between the rounds. */
static void single(uint32_t size, uint32_t n)
{
    char name[64];
    subject s;
    figure limit, ours, frees;
    snprintf(name, sizeof name, "malloc %u B x 2^%d", size, __builtin_ctz(n));
    if (!wanted(name) || !open_subject(&s)) {
        return;
    }
    uint32_t blocks = n / THREADS;
    auto give = [&] { release<<<blocks, THREADS>>>(s.view, pointers); };
    double cold =
        time_of([&] { allocate<<<blocks, THREADS>>>(s.view, size, pointers + n, failed_claims); });
    double held = held_bytes(&s) / ((double)size * n);
    /* the heap becomes larger than the demand */
    allocate<<<blocks, THREADS>>>(s.view, size, pointers, failed_claims);
    release<<<blocks, THREADS>>>(s.view, pointers);
    release<<<blocks, THREADS>>>(s.view, pointers + n);
    MUST(cudaDeviceSynchronize());
    take_failed();
    std::vector<double> limits, times, free_times;
    for (int i = 0; i <= rounds; i++) {
        double first = time_of([&] { take_slots<<<blocks, THREADS>>>(slots, size, pointers); });
        double second =
            time_of([&] { allocate<<<blocks, THREADS>>>(s.view, size, pointers, failed_claims); });
        verify(n);
        double third = time_of(give);
        if (i) {
            limits.push_back(first);
            times.push_back(second);
            free_times.push_back(third);
        }
    }
    limit = figure_of(limits);
    ours = figure_of(times);
    frees = figure_of(free_times);
    line(name, n, limit, ours, take_failed());
    printf("%-44s %8.1f us, %.1f times the median of later ones; held %.3f of what was asked for\n",
           "  the first kernel", cold, cold / ours.median, held);
    snprintf(name, sizeof name, "  free");
    line(name, n, figure{}, frees, 0);
    if (live_bytes(&s)) {
        printf("  LIVE: %.0f bytes\n", live_bytes(&s));
        failures++;
    }
    close_subject(&s);
}

static uint64_t sum_of_mixed(uint32_t n, std::vector<uint64_t> *offsets)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        offsets->push_back(at);
        at += (mixed_size(i) + 15u) / 16u * 16u;
    }
    return at;
}

static void mixed(uint32_t n)
{
    char name[64];
    subject s;
    uint64_t *offsets;
    std::vector<uint64_t> at;
    snprintf(name, sizeof name, "malloc 16 to 2048 B x 2^%d, mixed", __builtin_ctz(n));
    if (!wanted(name) || !open_subject(&s)) {
        return;
    }
    uint32_t blocks = n / THREADS;
    double asked = (double)sum_of_mixed(n, &at);
    MUST(cudaMalloc(&offsets, sizeof *offsets * n));
    MUST(cudaMemcpy(offsets, at.data(), sizeof *offsets * n, cudaMemcpyHostToDevice));
    std::vector<double> limits, times, frees, apart;
    double held = 0;
    for (int i = 0; i <= 2 * rounds + 1; i++) {
        double first =
            time_of([&] { take_offsets<<<blocks, THREADS>>>(slots, offsets, pointers); });
        double second = time_of(
            [&] { allocate_mixed<<<blocks, THREADS>>>(s.view, 0, pointers, failed_claims); });
        verify(n);
        if (i == 0) {
            held = held_bytes(&s);
            printf("%-44s %8.1f us the first time; held %.3f of what was asked for, live %.3f\n",
                   name, second, held / asked, live_bytes(&s) / asked);
        }
        double third =
            i % 2 ? time_of([&] { release<<<blocks, THREADS>>>(s.view, pointers); })
                  : time_of([&] { release_apart<<<blocks, THREADS>>>(s.view, pointers, n); });
        if (i > 1) {
            limits.push_back(first);
            times.push_back(second);
            (i % 2 ? frees : apart).push_back(third);
        }
    }
    line(name, n, figure_of(limits), figure_of(times), take_failed());
    line("  free, by the warps that allocated", n, figure{}, figure_of(frees), 0);
    line("  free, by others", n, figure{}, figure_of(apart), 0);
    printf("  held at the end %.3f of what was asked for\n", held_bytes(&s) / asked);
    if (live_bytes(&s)) {
        printf("  LIVE: %.0f bytes\n", live_bytes(&s));
        failures++;
    }
    MUST(cudaFree(offsets));
    close_subject(&s);
}

static void pairs(uint32_t size)
{
    const uint32_t n = 1u << 20, each = 16;
    subject s;
    figure none, ours;
    char name[64];
    snprintf(name, sizeof name, "malloc and free %u B, %u rounds", size, each);
    if (!wanted(name) || !open_subject(&s)) {
        return;
    }
    in_turn([] { nothing<<<1, 1>>>(); }, [] {},
            [&] { pairs_kernel<<<n / THREADS, THREADS>>>(s.view, size, each, failed_claims); },
            &none, &ours);
    line(name, (double)n * each, figure{}, ours, take_failed());
    close_subject(&s);
}

template <class KERNEL_OF> static void singly(const char *name, KERNEL_OF kernel)
{
    const uint32_t warps = 32768;
    subject s;
    figure none, ours;
    if (!wanted(name) || !open_subject(&s)) {
        return;
    }
    in_turn([] { nothing<<<1, 1>>>(); }, [&] { ga_heap_reset(s.heap); },
            [&] { kernel<<<warps * 32 / THREADS, THREADS>>>(s.view, 128, failed_claims); }, &none,
            &ours);
    line(name, warps * 32.0, figure{}, ours, take_failed());
    close_subject(&s);
}

/* 2^20 requests of 128 bytes in each of several launches whose blocks are kept, in a heap that has
 * the memory. The home words of all warps are full from the second launch on. */
template <class LAUNCH> static void kept(const char *name, LAUNCH launch)
{
    const uint32_t n = 1u << 20, all = 8;
    std::vector<double> times[all - 2];
    subject s;
    if (!wanted(name) || !open_subject(&s)) {
        return;
    }
    for (int i = 0; i < rounds; i++) {
        ga_heap_reset(s.heap);
        allocate<<<all * n / THREADS, THREADS>>>(s.view, 128, pointers, failed_claims);
        release<<<all * n / THREADS, THREADS>>>(s.view, pointers);
        for (std::vector<double> &each : times) {
            each.push_back(time_of([&] { launch(s.view, n / THREADS); }));
        }
    }
    printf("%-44s", name);
    for (std::vector<double> &each : times) {
        printf(" %.2f", n / figure_of(each).median / 1e3);
    }
    printf(" G/s, launch after launch%s\n", take_failed() ? "  FAILED" : "");
    ga_heap_reset(s.heap);
    close_subject(&s);
}

static void set_up()
{
    const char *name = "set-up";
    std::vector<double> times;
    if (!wanted(name)) {
        return;
    }
    for (int i = 0; i < rounds; i++) {
        struct timespec a, b;
        subject s;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (!open_subject(&s)) {
            return;
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        times.push_back((double)(b.tv_sec - a.tv_sec) * 1e6 +
                        (double)(b.tv_nsec - a.tv_nsec) / 1e3);
        close_subject(&s);
    }
    figure ours = figure_of(times);
    printf("%-44s %8.1f us (%.1f to %.1f)\n", "set-up, parent included", ours.median, ours.high,
           ours.low);
}

static void registers()
{
    cudaFuncAttributes of, mixed;
    MUST(cudaFuncGetAttributes(&of, allocate));
    printf("%-44s %8d registers, %zu bytes of local memory\n", "malloc and a touch", of.numRegs,
           of.localSizeBytes);
    MUST(cudaFuncGetAttributes(&of, release));
    MUST(cudaFuncGetAttributes(&mixed, allocate_mixed));
    printf("%-44s %8d registers, %zu bytes of local memory\n", "  where sizes are mixed",
           mixed.numRegs, mixed.localSizeBytes);
    printf("%-44s %8d registers, %zu bytes of local memory\n", "free", of.numRegs,
           of.localSizeBytes);
}

int main(int argc, char **argv)
{
    int status = read_arguments(argc, argv);
    if (status) {
        return status;
    }
    describe();
    prepare_measuring();
    MUST(cudaMalloc(&slots, (size_t)20 << 30));
    MUST(cudaMalloc(&pointers, sizeof *pointers << 25));
    MUST(cudaMalloc(&failed_claims, sizeof *failed_claims));
    MUST(cudaMemset(failed_claims, 0, sizeof *failed_claims));
    registers();
    for (uint32_t size : {16u, 64u, 128u, 1024u, 4096u}) {
        single(size, size <= 128 ? 1u << 24 : 1u << 22);
    }
    for (uint32_t size : {16u, 128u, 1024u, 4096u}) {
        single(size, 1u << 20);
    }
    mixed(1u << 20);
    mixed(1u << 23);
    pairs(128);
    singly("one at a time, lane after lane, 128 B", one_by_one);
    singly("one at a time, one lane, 128 B", one_lane);
    kept("kept, 128 B", [](ga_kernel_heap view, uint32_t blocks) {
        allocate<<<blocks, THREADS>>>(view, 128, pointers, failed_claims);
    });
    kept("kept, 128 B, lane after lane", [](ga_kernel_heap view, uint32_t blocks) {
        one_by_one<<<blocks, THREADS>>>(view, 128, failed_claims);
    });
    set_up();
    return failures != 0;
}
