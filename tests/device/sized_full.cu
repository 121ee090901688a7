/* SPDX-License-Identifier: MIT
 *
 * Heaps of all sizes that are used up: how much a large one serves before the first NULL, and that it serves
 * as much again after everything has been freed in random order; heaps that grow under their kernels; and
 * long random scripts.
 */
#define GA_KERNEL_ONLY GA_KERNEL_KIND_SIZED
#include "sized_gpu.h"

/* ---- scripts ---------------------------------------------------------------------------- */

enum {
    SLOTS = 8
};

/* What a thread has in a slot: its block, and the size and tag of it. */
typedef struct slot {
    char *block;
    uint32_t size, tag;
} slot;

/* Sizes of a mix: mostly small. */
static __device__ uint32_t size_of(uint32_t random)
{
    uint32_t power = 4u + random % 8u;
    return (4u + random / 8u % (1u << power)) & ~3u;
}

static __device__ void put(ga_kernel_heap heap, slot *s, uint32_t random, slab_tally *tally)
{
    s->size = size_of(random);
    s->tag = random;
    s->block = (char *)ga_kernel_malloc(heap, s->size);
    sized_check_pointer(s->block, tally);
    if (s->block) {
        slab_write(s->block, s->size, s->tag);
    }
    slab_count(s->block ? &tally->given : &tally->full, 1);
}

static __device__ void drop(ga_kernel_heap heap, slot *s, slab_tally *tally)
{
    slab_holds(s->block, s->size, s->tag, tally);
    ga_kernel_free(heap, s->block);
    s->block = NULL;
    slab_count(&tally->released, 1);
}

/* Each thread goes on with the slots of another one of the last launch. */
static __global__ void script_kernel(ga_kernel_heap heap, slot *slots, uint32_t n, uint32_t launch,
                                     uint32_t steps, slab_tally *tally)
{
    uint32_t i = slab_thread();
    slot *mine = slots + (size_t)((i + launch * 7919u) % n) * SLOTS;
    uint32_t random = ga_bits_mix(i + launch * 0x9e3779b9u);
    for (uint32_t step = 0; step < steps; step++) {
        random = ga_bits_mix(random + step);
        slot *s = mine + random / 4096u % SLOTS;
        if (s->block) {
            drop(heap, s, tally);
        } else if (random % 4u) {
            put(heap, s, random, tally);
        }
    }
}

static __global__ void drop_all_kernel(ga_kernel_heap heap, slot *slots, uint32_t n,
                                       slab_tally *tally)
{
    uint32_t i = slab_thread();
    for (uint32_t k = 0; i < n && k < SLOTS; k++) {
        if (slots[(size_t)i * SLOTS + k].block) {
            drop(heap, slots + (size_t)i * SLOTS + k, tally);
        }
    }
}

/* The CPU's part: what threads hold is what is live, and no two blocks lie over each other. */
static int compare_slots(const void *a, const void *b)
{
    const slot *left = (const slot *)a, *right = (const slot *)b;
    return left->block < right->block ? -1 : left->block > right->block;
}

static uint64_t audit_slots(slot *all, uint32_t count)
{
    uint64_t live = 0;
    const slot *before = NULL;
    qsort(all, count, sizeof *all, compare_slots);
    for (uint32_t i = 0; i < count; i++) {
        if (all[i].block && before && before->block + before->size > all[i].block) {
            FAIL("blocks apart from each other, got %u bytes at %p and %u at %p", before->size,
                 (void *)before->block, all[i].size, (void *)all[i].block);
        }
        before = all[i].block ? &all[i] : before;
        live += all[i].block != NULL;
    }
    return live;
}

static void one_script(int device, const char *spec, uint64_t operations)
{
    const uint32_t n = suite.quick ? 1024 : 32768, steps = suite.quick ? 8 : 64;
    slot *slots = (slot *)suite_memory((size_t)n * SLOTS * sizeof *slots);
    slot *copy = (slot *)malloc((size_t)n * SLOTS * sizeof *copy);
    uint64_t done = 0, held = 0;
    sized_rig r;
    if (slots && copy && sized_set_up(&r, device, spec, 1)) {
        for (uint32_t launch = 0; done < operations; launch++) {
            script_kernel<<<n / SLAB_BLOCK, SLAB_BLOCK>>>(r.view, slots, n, launch, steps, r.tally);
            KERNELS_DONE();
            slab_tally found = READ_TALLY(r.tally);
            held += found.given - found.released;
            done += found.given + found.full + found.released;
            if (!(launch % 16u)) {
                CUDA_DONE(cudaMemcpy(copy, slots, (size_t)n * SLOTS * sizeof *copy,
                                     cudaMemcpyDeviceToHost));
                EXPECT_EQUAL("the blocks that threads hold", audit_slots(copy, n * SLOTS), held);
                sized_expect_live(&r, held, 0);
                EXPECT_STATUS(ga_heap_kernel_view(r.heap, &r.view), GA_OK);
            }
            if (!found.given && !found.released) {
                FAIL("launch %u to do something", launch);
                break;
            }
        }
        drop_all_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r.view, slots, n, r.tally);
        KERNELS_DONE();
        READ_TALLY(r.tally);
        sized_expect_live(&r, 0, 0);
        sized_tear_down(&r);
    }
    free(copy);
    cudaFree(slots);
}

static void scripts(int device)
{
    uint64_t operations = suite.operations ? suite.operations : suite.quick ? 20000 : 100000000;
    one_script(device, "slab:unit=classes,capacity=512M/cuda", operations);
    one_script(device,
               suite.quick ? "slab:unit=classes,capacity=2M/cuda"
                           : "slab:unit=classes,capacity=64M/cuda", /* not for all */
               operations / 2);
}

/* ---- a large heap, again and again ------------------------------------------------------ */

/* How many threads ask at once: a NULL is noticed after them. */
static uint32_t launch_size(void)
{
    return suite.quick ? 1u << 12 : 1u << 18;
}

static __device__ sized_asking mix_of(uint32_t round)
{
    sized_asking asking = {16, 2048, round};
    return asking;
}

/* Thread i asks for block first + i, and marks both its ends. */
static __global__ void serve_kernel(ga_kernel_heap heap, char **blocks, uint32_t first,
                                    uint32_t round, uint64_t *bytes, slab_tally *tally)
{
    uint32_t i = first + slab_thread();
    uint32_t size = sized_of(mix_of(round), i);
    char *block = (char *)ga_kernel_malloc(heap, size);
    blocks[i] = block;
    if (block) {
        *(uint32_t *)block = i;
        *(uint32_t *)(block + (size - 4u) / 4u * 4u) = i;
    }
    uint32_t sum = ga_lanes_sum(ga_tile_of(32), block ? size : 0);
    uint32_t given = ga_bits_count(ga_lanes_nonzero(ga_tile_of(32), block != NULL));
    if (ga_warp_lane() == 0) {
        slab_count(bytes, sum);
        slab_count(&tally->given, given);
        slab_count(&tally->full, 32u - given);
    }
}

/* A number below n, another for each i below n: i's place in an order of chance (a walk through a
 * permutation of the numbers below 2^bits). */
static __device__ uint32_t shuffled(uint32_t i, uint32_t n, uint32_t bits, uint32_t seed)
{
    uint32_t mask = (1u << bits) - 1u;
    do {
        i = (i * 0x9e3779b1u + seed) & mask;
        i ^= i >> (bits / 2u);
        i = (i * 0x85ebca6bu + seed) & mask;
        i ^= i >> (bits / 2u);
    } while (i >= n);
    return i;
}

static __global__ void end_kernel(ga_kernel_heap heap, char **blocks, uint32_t n, uint32_t bits,
                                  uint32_t round, slab_tally *tally)
{
    uint32_t thread = slab_thread();
    if (thread >= n) {
        return;
    }
    uint32_t i = shuffled(thread, n, bits, round * 77u + 13u);
    uint32_t size = sized_of(mix_of(round), i);
    char *block = blocks[i];
    if (block) {
        uint32_t first = *(const volatile uint32_t *)block;
        uint32_t last = *(const volatile uint32_t *)(block + (size - 4u) / 4u * 4u);
        if (first != i || last != i) {
            slab_note_wrong(tally, SLAB_OVERLAP, (uint64_t)block, first != i ? first : last, i);
        }
        slab_count(&tally->released, 1);
        ga_kernel_free(heap, block);
    }
}

/* Bytes asked for and given before the launch with the first NULL; *asked: blocks. */
static uint64_t serve(sized_rig *r, uint32_t most, uint32_t round, uint64_t *bytes, uint32_t *asked)
{
    uint64_t sum = 0, now = 0;
    slab_tally found = {};
    *asked = 0;
    CUDA_DONE(cudaMemset(bytes, 0, sizeof *bytes));
    while (!found.full && *asked + launch_size() <= most) {
        sum = now;
        serve_kernel<<<launch_size() / SLAB_BLOCK, SLAB_BLOCK>>>(r->view, r->blocks, *asked, round,
                                                                 bytes, r->tally);
        if (!KERNELS_DONE()) {
            break;
        }
        *asked += launch_size();
        found = READ_TALLY(r->tally);
        CUDA_DONE(cudaMemcpy(&now, bytes, sizeof now, cudaMemcpyDeviceToHost));
    }
    return found.full ? sum : now;
}

/* Of 64 GB 52 GB are served before the first NULL, and after everything has been freed in an order of chance
 * it is so again. Where the device has less, less of the same share. */
static void serves_again(int device)
{
    const uint32_t rounds = suite.quick ? 2 : suite.operations ? 1000 : 5;
    size_t free_bytes = 0, total = 0;
    uint64_t capacity = suite.quick ? UINT64_C(256) << 20 : UINT64_C(64) << 30;
    uint64_t *bytes = (uint64_t *)suite_memory(sizeof *bytes);
    uint64_t least = UINT64_MAX;
    char spec[64];
    sized_rig r;
    CUDA_DONE(cudaMemGetInfo(&free_bytes, &total));
    while (capacity + (capacity >> 5) > free_bytes) {
        capacity /= 2;
    }
    uint32_t most = (uint32_t)(capacity / 900 + launch_size()), bits = 1;
    while (1u << bits < most) {
        bits++;
    }
    snprintf(spec, sizeof spec, "slab:unit=classes,capacity=%llu/cuda",
             (unsigned long long)capacity);
    if (!bytes || !sized_set_up(&r, device, spec, most)) {
        return;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t asked;
        uint64_t served = serve(&r, most, round, bytes, &asked);
        least = served < least ? served : least;
        if (served < capacity / 64 * 52) {
            FAIL("round %u to serve %llu of %llu bytes before the first NULL, got %llu", round,
                 (unsigned long long)(capacity / 64 * 52), (unsigned long long)capacity,
                 (unsigned long long)served);
            break;
        }
        end_kernel<<<slab_grid(asked), SLAB_BLOCK>>>(r.view, r.blocks, asked, bits, round, r.tally);
        if (!KERNELS_DONE()) {
            break;
        }
        READ_TALLY(r.tally);
        sized_expect_live(&r, 0, 0);
        EXPECT_STATUS(ga_heap_kernel_view(r.heap, &r.view), GA_OK);
    }
    printf(
        "    %u times all of %llu MiB: at least %llu MiB (%.1f %%) of 16 to 2048 bytes before the "
        "first NULL\n",
        rounds, (unsigned long long)(capacity >> 20), (unsigned long long)(least >> 20),
        100.0 * (double)least / (double)capacity);
    cudaFree(bytes);
    EXPECT_STATUS(ga_heap_reset(r.heap), GA_OK);
    sized_tear_down(&r);
}

/* ---- growth ----------------------------------------------------------------------------- */

/* From 4 MiB on, all at once; and again in what has grown. */
static void grows(int device)
{
    const uint32_t n = suite.quick ? 1u << 16 : 1u << 21;
    sized_rig r;
    if (!sized_set_up(&r, device, "slab:unit=classes,capacity=4M,limit=8G/vmm", n)) {
        return;
    }
    for (uint32_t round = 0; round < 3; round++) {
        sized_asking asking = {1, round ? 2048u : 256u, round};
        EXPECT_EQUAL("the blocks given", sized_ask_all(&r, asking, n), n);
        sized_expect_live(&r, n, 0);
        sized_free_all(&r, asking, n, 100003);
        sized_expect_live(&r, 0, 0);
        EXPECT_STATUS(ga_heap_kernel_view(r.heap, &r.view), GA_OK);
    }
    sized_tear_down(&r);
}

/* Up to its limit: no more, not much less, and it says so at once after. */
static void ends_at_its_limit(int device)
{
    const uint32_t n = 200000;
    sized_rig r;
    if (!sized_set_up(&r, device, "slab:unit=classes,capacity=4M,limit=64M/vmm", n)) {
        return;
    }
    sized_asking asking = {1000, 1024, 3};
    for (uint32_t round = 0; round < 4; round++) {
        uint64_t given = sized_ask_all(&r, asking, n);
        EXPECT_EQUAL("the blocks of 1 KiB given of 64 MiB", given, 64u << 10);
        sized_expect_live(&r, given, 1000);
        sized_free_all(&r, asking, n, 1);
        sized_expect_live(&r, 0, 0);
        EXPECT_STATUS(ga_heap_kernel_view(r.heap, &r.view), GA_OK);
    }
    sized_tear_down(&r);
}

/* Several streams, each of which grows it. */
static void grows_on_streams(int device)
{
    enum {
        STREAMS = 4
    };
    const uint32_t each = suite.quick ? 1u << 14 : 1u << 19;
    cudaStream_t streams[STREAMS];
    sized_rig r;
    if (!sized_set_up(&r, device, "slab:unit=classes,capacity=4M,limit=8G/vmm",
                      (size_t)STREAMS * each)) {
        return;
    }
    sized_asking asking = {16, 1500, 9};
    for (uint32_t k = 0; k < STREAMS; k++) {
        CUDA_DONE(cudaStreamCreate(&streams[k]));
        sized_ask_kernel<<<slab_grid(each), SLAB_BLOCK, 0, streams[k]>>>(
            r.view, r.blocks + (size_t)k * each, asking, each, r.tally);
        sized_look_kernel<<<slab_grid(each), SLAB_BLOCK, 0, streams[k]>>>(
            r.blocks + (size_t)k * each, asking, each, r.tally);
    }
    KERNELS_DONE();
    EXPECT_EQUAL("the blocks given", READ_TALLY(r.tally).given, (uint64_t)STREAMS * each);
    sized_expect_live(&r, (uint64_t)STREAMS * each, 0);
    for (uint32_t k = 0; k < STREAMS; k++) { /* each by another stream */
        sized_look_kernel<<<slab_grid(each), SLAB_BLOCK>>>(r.blocks + (size_t)k * each, asking,
                                                           each, r.tally);
        sized_free_kernel<<<slab_grid(each), SLAB_BLOCK, 0, streams[(k + 1) % STREAMS]>>>(
            r.view, r.blocks + (size_t)k * each, each, 7919, r.tally);
    }
    KERNELS_DONE();
    READ_TALLY(r.tally);
    sized_expect_live(&r, 0, 0);
    for (uint32_t k = 0; k < STREAMS; k++) {
        cudaStreamDestroy(streams[k]);
    }
    sized_tear_down(&r);
}

extern const test_case slab_sized_growing_cases[] = {
    {"sized: growing", grows},
    {"sized: growing to its limit", ends_at_its_limit},
    {"sized: growing on streams", grows_on_streams},
};
extern const size_t slab_sized_growing_case_count =
    sizeof slab_sized_growing_cases / sizeof *slab_sized_growing_cases;

extern const test_case slab_sized_full_cases[] = {
    {"sized: scripts", scripts},
    {"sized: a large heap serves again", serves_again},
};
extern const size_t slab_sized_full_case_count =
    sizeof slab_sized_full_cases / sizeof *slab_sized_full_cases;
