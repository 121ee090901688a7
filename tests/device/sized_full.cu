/* SPDX-License-Identifier: MIT
 *
 * Size-class heaps that run full: the amount that a large one serves before the first NULL, and
 * again after all blocks have been freed in random order; heaps that grow during their kernels; and
 * long random scripts.
 */
#define GA_KERNEL_ONLY GA_KERNEL_KIND_SIZED
#include "serves_again.h"

/* ---- scripts ---------------------------------------------------------------------------- */

enum {
    SLOTS = 8
};

/* A slot of a thread: its block, and the block's size and tag. */
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

/* Each thread continues with another thread's slots of the last launch. */
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

/* The CPU's part: the blocks of all threads are the live ones, and do not overlap. */
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

static void serves_again(int device)
{
    serves_again_under(device, "");
}

/* ---- growth ----------------------------------------------------------------------------- */

/* From 4 MiB on, all at once; and again in the grown heap. */
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

/* ---- nothing left ------------------------------------------------------------------------ */

static __global__ void fail_kernel(ga_kernel_heap heap, uint32_t size, slab_tally *tally)
{
    void *block = ga_kernel_malloc(heap, size);
    slab_count(block ? &tally->given : &tally->full, 1);
}

/* Milliseconds of 2^20 requests of `size` bytes, all of which must fail. */
static float fail_all(sized_rig *r, uint32_t size)
{
    const uint32_t n = suite.quick ? 1u << 14 : 1u << 20;
    cudaEvent_t begin, end;
    float ms = 0;
    CUDA_DONE(cudaEventCreate(&begin));
    CUDA_DONE(cudaEventCreate(&end));
    CUDA_DONE(cudaEventRecord(begin));
    fail_kernel<<<n / SLAB_BLOCK, SLAB_BLOCK>>>(r->view, size, r->tally);
    CUDA_DONE(cudaEventRecord(end));
    KERNELS_DONE();
    CUDA_DONE(cudaEventElapsedTime(&ms, begin, end));
    slab_tally found = READ_TALLY(r->tally);
    EXPECT_EQUAL("the requests that fail in a full heap", found.full, n);
    EXPECT_EQUAL("the blocks given in a full heap", found.given, 0);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return ms;
}

/* All of the heap in blocks of `size` bytes, a power of two, to the last; then it is full for every
 * size, and a block that is freed is found. */
static void fill_exactly(sized_rig *r, uint64_t capacity, uint32_t size)
{
    const uint32_t n = (uint32_t)(capacity / size);
    sized_asking asking = {size, size, 1};
    EXPECT_EQUAL("the blocks of one size that a whole heap serves", sized_ask_all(r, asking, n), n);
    float first = fail_all(r, size);
    float second = fail_all(r, size);
    float other = fail_all(r, size == 16u ? 1024u : 16u);
    printf("    %llu MiB of %u bytes: 2^20 requests that fail %.3f, %.3f, %.3f ms\n",
           (unsigned long long)(capacity >> 20), size, (double)first, (double)second,
           (double)other);
    for (uint32_t round = 0; round < 4; round++) {
        sized_free_kernel<<<1, 1>>>(r->view, r->blocks + round * 1000u, 1, 1, r->tally);
        sized_ask_kernel<<<1, 1>>>(r->view, r->blocks + round * 1000u, asking, 1, r->tally);
        KERNELS_DONE();
        EXPECT_EQUAL("a block that was freed is found", READ_TALLY(r->tally).given, 1);
    }
    sized_expect_live(r, n, size);
}

/* An empty heap serves each size, one after the other, to the last byte, without a call of the host
 * between: blocks are written and checked, so that overlaps show. */
static void serves_any_size(int device, uint64_t capacity)
{
    const uint32_t sizes[] = {16, 4096, 1024, 128, 16, 2048, 32, 1024};
    char spec[64];
    sized_rig r;
    snprintf(spec, sizeof spec, "slab:unit=classes,capacity=%llu/cuda",
             (unsigned long long)capacity);
    if (!sized_set_up(&r, device, spec, capacity / 16)) {
        return;
    }
    for (uint32_t size : sizes) {
        const uint32_t n = (uint32_t)(capacity / size);
        fill_exactly(&r, capacity, size);
        sized_free_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r.view, r.blocks, n, 1, r.tally);
        KERNELS_DONE();
        EXPECT_EQUAL("the blocks freed", READ_TALLY(r.tally).released, n);
        sized_expect_live(&r, 0, 0);
    }
    /* Mixed sizes, and then one size. */
    for (uint32_t round = 0; round < 3; round++) {
        const uint32_t n = (uint32_t)(capacity / 512);
        sized_asking asking = {16, 2048, round}, one = {1024, 1024, 0};
        sized_ask_all(&r, asking, n);
        sized_free_all(&r, asking, n, 7919);
        EXPECT_EQUAL("the blocks of 1 KiB given after mixed ones",
                     sized_ask_all(&r, one, (uint32_t)(capacity / 1024)), capacity / 1024);
        sized_free_all(&r, one, (uint32_t)(capacity / 1024), 1);
    }
    sized_tear_down(&r);
}

static void full(int device)
{
    serves_any_size(device, suite.quick ? UINT64_C(64) << 20 : UINT64_C(1) << 30);
}

extern const test_case slab_sized_growing_cases[] = {
    {"size classes: growing", grows},
    {"size classes: growing to its limit", ends_at_its_limit},
    {"size classes: growing on streams", grows_on_streams},
};
extern const size_t slab_sized_growing_case_count =
    sizeof slab_sized_growing_cases / sizeof *slab_sized_growing_cases;

extern const test_case slab_sized_full_cases[] = {
    {"size classes: scripts", scripts},
    {"size classes: a full heap, and another size", full},
    {"size classes: a large heap serves again", serves_again},
};
extern const size_t slab_sized_full_case_count =
    sizeof slab_sized_full_cases / sizeof *slab_sized_full_cases;
