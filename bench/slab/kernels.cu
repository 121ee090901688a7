/* SPDX-License-Identifier: MIT
 *
 * SlabAlloc in kernels against preallocated memory. Each figure is the median of several rounds, in
 * which the limit and ours take turns; the spread is the fastest and slowest round. Prints GPU,
 * driver and date. bench/README.md explains the lines.
 *
 * Over a parent that grows (--parent vmm), the heap begins with its default capacity, and a kernel
 * makes it grow before the measurement. The view is that of the beginning.
 *
 *   bench-slab-kernels [--parent cuda|vmm] [--rounds N] [--only WORDS]
 */
#define PROGRAM "bench-slab-kernels"
#include "measure.cuh"

/* ---- kernels --------------------------------------------------------------------------------- */

/* The limit: preallocated units. */
KERNEL take_slots(char *slots, uint32_t unit, void **out)
{
    uint32_t i = thread_number();
    void *slot = slots + (uint64_t)i * unit;
    touch(slot, i);
    out[i] = slot;
}

KERNEL touch_slots(char *slots, uint32_t unit)
{
    uint32_t i = thread_number();
    touch(slots + (uint64_t)i * unit, i);
}

KERNEL claim(ga_kernel_heap heap, void **out, uint32_t *failed)
{
    uint32_t i = thread_number();
    void *unit = ga_slab_claim(heap);
    if (unit) {
        touch(unit, i);
    } else {
        atomicAdd(failed, 1u);
    }
    out[i] = unit;
}

KERNEL claim_and_forget(ga_kernel_heap heap, uint32_t *failed)
{
    void *unit = ga_slab_claim(heap);
    if (unit) {
        touch(unit, thread_number());
    } else {
        atomicAdd(failed, 1u);
    }
}

KERNEL claim_addresses(ga_kernel_heap heap, uint32_t *out)
{
    out[thread_number()] = ga_slab_claim_address(heap);
}

/* Units that a former launch claimed. Where they lie apart, this is the limit. */
KERNEL touch_units(void *const *in)
{
    uint32_t i = thread_number();
    if (in[i]) {
        touch(in[i], i);
    }
}

/* CUDA's own malloc, the baseline that in-kernel allocation has. */
KERNEL claim_cuda(void **out, uint32_t size, uint32_t *failed)
{
    uint32_t i = thread_number();
    void *unit = malloc(size);
    if (unit) {
        touch(unit, i);
    } else {
        atomicAdd(failed, 1u);
    }
    out[i] = unit;
}

KERNEL free_cuda(void **in)
{
    free(in[thread_number()]);
}

/* Thread i frees the unit of thread i, or with a stride that of another thread, so that every unit
 * of a warp lies in another word. */
KERNEL release(ga_kernel_heap heap, void **in)
{
    ga_slab_release(heap, in[thread_number()]);
}

__global__ void __launch_bounds__(1024, 2) release_any(ga_kernel_heap heap, void **in)
{
    ga_slab_release(heap, in[thread_number()]);
}

/* Several frees that wait once, as a kernel does that destroys a structure. */
KERNEL release_four(ga_kernel_heap heap, void **in)
{
    void *units[4];
    for (int k = 0; k < 4; k++) {
        units[k] = in[thread_number() + k * gridDim.x * blockDim.x];
    }
    ga_slab_release_several(heap, units, 4);
}

KERNEL release_apart(ga_kernel_heap heap, void **in, uint32_t n)
{
    uint32_t i = thread_number();
    ga_slab_release(heap, in[i % 32u * (n / 32u) + i / 32u]);
}

KERNEL release_addresses(ga_kernel_heap heap, const uint32_t *in)
{
    ga_slab_release_address(heap, in[thread_number()]);
}

KERNEL claim_and_release(ga_kernel_heap heap, uint32_t pairs, uint32_t *failed)
{
    for (uint32_t i = 0; i < pairs; i++) {
        void *unit = ga_slab_claim(heap);
        if (unit) {
            touch(unit, i);
        } else {
            atomicAdd(failed, 1u);
        }
        ga_slab_release(heap, unit);
    }
}

/* Free each unit with a probability of `permille` in 1,000, so that free units are scattered. */
KERNEL release_some(ga_kernel_heap heap, void **in, uint32_t permille)
{
    uint32_t i = thread_number();
    ga_slab_release(heap, ga_bits_mix(i) % 1000u < permille ? in[i] : NULL);
}

enum {
    IN_SEQUENCE = 32 /* units that a tile takes, one after the other */
};

template <uint32_t WIDTH>
__global__ void __launch_bounds__(THREADS) one_by_one(ga_kernel_heap heap, uint32_t *failed)
{
    ga_slab_tile_cache cache = ga_slab_tile_cache_begin(heap, WIDTH);
    for (uint32_t i = 0; i < IN_SEQUENCE; i++) {
        void *unit = ga_slab_tile_cache_claim(&cache);
        if (cache.tile.lane == 0) {
            if (unit) {
                touch(unit, i);
            } else {
                atomicAdd(failed, 1u);
            }
        }
    }
    ga_slab_tile_cache_end(&cache);
}

/* The paper's allocator: one atomic a unit. */
template <uint32_t WIDTH> KERNEL one_by_one_pure(ga_kernel_heap heap, uint32_t *failed)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    ga_tile tile = ga_tile_of(WIDTH);
    ga_slab_resident resident;
    ga_slab_resident_begin(slab, tile, thread_number() / WIDTH, &resident);
    for (uint32_t i = 0; i < IN_SEQUENCE; i++) {
        uint32_t unit = ga_slab_claim_one(slab, tile, &resident);
        if (tile.lane == 0) {
            if (unit != GA_SLAB_FULL) {
                touch(ga_slab_pointer(slab, unit), i);
            } else {
                atomicAdd(failed, 1u);
            }
        }
    }
}

KERNEL slots_one_by_one(char *slots)
{
    uint32_t warp = thread_number() / 32u;
    for (uint32_t i = 0; i < IN_SEQUENCE; i++) {
        if (threadIdx.x % 32u == 0) {
            touch(slots + ((uint64_t)warp * IN_SEQUENCE + i) * 128u, i);
        }
    }
}

/* ---- heaps ----------------------------------------------------------------------------------- */

typedef struct slab {
    ga_heap *heap;
    ga_kernel_heap view;
} slab;

static uint32_t *failed_claims;

static uint32_t take_failed()
{
    uint32_t n;
    MUST(cudaMemcpy(&n, failed_claims, sizeof n, cudaMemcpyDeviceToHost));
    MUST(cudaMemset(failed_claims, 0, sizeof n));
    return n;
}

static const char *parent = "cuda";

static void reset(const slab *s)
{
    if (ga_heap_reset(s->heap) != GA_OK) {
        fprintf(stderr, "bench-slab-kernels: %s\n", ga_error_text());
        exit(1);
    }
}

/* False if it does not fit into the card's memory. */
static bool open_slab(slab *s, uint32_t unit, uint64_t units)
{
    char spec[128];
    bool grows = strcmp(parent, "vmm") == 0;
    if (grows) {
        snprintf(spec, sizeof spec, "slab:unit=%u/vmm", unit);
    } else {
        snprintf(spec, sizeof spec, "slab:unit=%u,capacity=%llu,addressing=light/%s", unit,
                 (unsigned long long)(unit * units), parent);
    }
    if (ga_heap_open(&s->heap, GA_PLACE_KERNEL, 0, spec) != GA_OK ||
        ga_heap_kernel_view(s->heap, &s->view) != GA_OK) {
        printf("%s: %s\n", spec, ga_error_text());
        failures++;
        return false;
    }
    if (grows) {
        claim_and_forget<<<(uint32_t)(units / THREADS), THREADS>>>(s->view, failed_claims);
        reset(s);
    }
    return true;
}

static char *slots; /* as large as the largest demand */
static void **pointers;
static uint32_t *addresses;

/* ---- the lines ------------------------------------------------------------------------------- */

static void claims(uint32_t unit, uint32_t n)
{
    char name[64];
    slab s;
    figure limit, ours;
    snprintf(name, sizeof name, "claim %u B x 2^%d", unit, __builtin_ctz(n));
    if (!wanted(name) || !open_slab(&s, unit, 2ull * n)) {
        return;
    }
    in_turn(
        [&] { take_slots<<<n / THREADS, THREADS>>>(slots, unit, pointers); }, [&] { reset(&s); },
        [&] { claim<<<n / THREADS, THREADS>>>(s.view, pointers, failed_claims); }, &limit, &ours);
    line(name, n, limit, ours, take_failed());
    snprintf(name, sizeof name, "claim %u B x 2^%d, pointer not kept", unit, __builtin_ctz(n));
    in_turn([&] { touch_slots<<<n / THREADS, THREADS>>>(slots, unit); }, [&] { reset(&s); },
            [&] { claim_and_forget<<<n / THREADS, THREADS>>>(s.view, failed_claims); }, &limit,
            &ours);
    line(name, n, limit, ours, take_failed());
    ga_heap_reset(s.heap);
    ga_heap_close(s.heap);
}

/* Nine tenths taken by claims, in order or with the free units scattered; then the scattered units
 * written once more, without a claim. */
static void claims_when_full(uint32_t unit)
{
    char name[64];
    slab s;
    figure limit, ours;
    uint64_t units = std::min<uint64_t>((60ull << 30) / unit, 1ull << 28) >> 20 << 20;
    uint32_t fill = (uint32_t)(units / 10 * 9 / THREADS * THREADS);
    uint32_t n = (uint32_t)std::min<uint64_t>(unit <= 128 ? 1u << 24 : 1u << 22,
                                              (units - fill) / 10 * 9 / THREADS * THREADS);
    void **filled;
    snprintf(name, sizeof name, "claim %u B, heap 90 %% full", unit);
    if (!wanted(name) || !open_slab(&s, unit, units)) {
        return;
    }
    MUST(cudaMalloc(&filled, units * sizeof *filled));
    in_turn([&] { take_slots<<<n / THREADS, THREADS>>>(slots, unit, pointers); },
            [&] {
                reset(&s);
                claim<<<fill / THREADS, THREADS>>>(s.view, filled, failed_claims);
            },
            [&] { claim<<<n / THREADS, THREADS>>>(s.view, pointers, failed_claims); }, &limit,
            &ours);
    line(name, n, limit, ours, take_failed());
    snprintf(name, sizeof name, "claim %u B, heap 90 %% full, scattered", unit);
    in_turn([&] { take_slots<<<n / THREADS, THREADS>>>(slots, unit, pointers); },
            [&] {
                reset(&s);
                claim<<<(uint32_t)(units / THREADS), THREADS>>>(s.view, filled, failed_claims);
                release_some<<<(uint32_t)(units / THREADS), THREADS>>>(s.view, filled, 100);
            },
            [&] { claim<<<n / THREADS, THREADS>>>(s.view, pointers, failed_claims); }, &limit,
            &ours);
    line(name, n, limit, ours, take_failed());
    in_turn([&] { touch_slots<<<n / THREADS, THREADS>>>(slots, unit); }, [] {},
            [&] { touch_units<<<n / THREADS, THREADS>>>(pointers); }, &limit, &ours);
    snprintf(name, sizeof name, "write %u B, these units", unit);
    line(name, n, limit, ours, take_failed());
    MUST(cudaFree(filled));
    ga_heap_reset(s.heap);
    ga_heap_close(s.heap);
}

static void frees(uint32_t unit, uint32_t n)
{
    char name[64];
    slab s;
    figure none, ours;
    auto limit = [] { nothing<<<1, 1>>>(); };
    auto fill = [&] {
        reset(&s);
        claim<<<n / THREADS, THREADS>>>(s.view, pointers, failed_claims);
    };
    snprintf(name, sizeof name, "free %u B x 2^%d", unit, __builtin_ctz(n));
    if (!wanted(name) || !open_slab(&s, unit, 2ull * n)) {
        return;
    }
    in_turn(
        limit, fill, [&] { release<<<n / THREADS, THREADS>>>(s.view, pointers); }, &none, &ours);
    line(name, n, figure{}, ours, take_failed());
    for (uint32_t threads : {256u, 1024u}) {
        snprintf(name, sizeof name, "free %u B x 2^%d, blocks of %u", unit, __builtin_ctz(n),
                 threads);
        in_turn(
            limit, fill, [&] { release_any<<<n / threads, threads>>>(s.view, pointers); }, &none,
            &ours);
        line(name, n, figure{}, ours, take_failed());
    }
    snprintf(name, sizeof name, "free %u B x 2^%d, four a thread", unit, __builtin_ctz(n));
    in_turn(
        limit, fill, [&] { release_four<<<n / THREADS / 4, THREADS>>>(s.view, pointers); }, &none,
        &ours);
    line(name, n, figure{}, ours, take_failed());
    snprintf(name, sizeof name, "free %u B x 2^%d, by address", unit, __builtin_ctz(n));
    in_turn(
        limit,
        [&] {
            reset(&s);
            claim_addresses<<<n / THREADS, THREADS>>>(s.view, addresses);
        },
        [&] { release_addresses<<<n / THREADS, THREADS>>>(s.view, addresses); }, &none, &ours);
    line(name, n, figure{}, ours, take_failed());
    snprintf(name, sizeof name, "free %u B x 2^%d, a word each", unit, __builtin_ctz(n));
    in_turn(
        limit, fill, [&] { release_apart<<<n / THREADS, THREADS>>>(s.view, pointers, n); }, &none,
        &ours);
    line(name, n, figure{}, ours, take_failed());
    ga_heap_close(s.heap);
}

static void pairs(uint32_t unit)
{
    const uint32_t n = 1u << 20, each = 16;
    slab s;
    figure none, ours;
    char name[64];
    snprintf(name, sizeof name, "claim and free %u B, %u rounds", unit, each);
    if (!wanted(name) || !open_slab(&s, unit, 2ull * n)) {
        return;
    }
    in_turn([] { nothing<<<1, 1>>>(); }, [] {},
            [&] { claim_and_release<<<n / THREADS, THREADS>>>(s.view, each, failed_claims); },
            &none, &ours);
    line(name, (double)n * each, figure{}, ours, take_failed());
    ga_heap_close(s.heap);
}

/* 32768 tiles take 32 units each, one after the other: 128 MiB of 128-byte units. */
static void tiles()
{
    const uint32_t count = 32768;
    const double n = (double)count * IN_SEQUENCE;
    slab s;
    figure limit, ours;
    auto slots_run = [&] { slots_one_by_one<<<count * 32 / THREADS, THREADS>>>(slots); };
    auto again = [&] { reset(&s); };
    if (!wanted("one at a time") || !open_slab(&s, 128, 2 * count * IN_SEQUENCE)) {
        return;
    }
    in_turn(
        slots_run, again,
        [&] { one_by_one<32><<<count * 32 / THREADS, THREADS>>>(s.view, failed_claims); }, &limit,
        &ours);
    line("one at a time, tile of 32", n, limit, ours, take_failed());
    in_turn(
        slots_run, again,
        [&] { one_by_one<8><<<count * 8 / THREADS, THREADS>>>(s.view, failed_claims); }, &limit,
        &ours);
    line("one at a time, tile of 8", n, limit, ours, take_failed());
    in_turn(
        slots_run, again,
        [&] { one_by_one_pure<32><<<count * 32 / THREADS, THREADS>>>(s.view, failed_claims); },
        &limit, &ours);
    line("one at a time, an atomic each, tile of 32", n, limit, ours, take_failed());
    in_turn(
        slots_run, again,
        [&] { one_by_one_pure<8><<<count * 8 / THREADS, THREADS>>>(s.view, failed_claims); },
        &limit, &ours);
    line("one at a time, an atomic each, tile of 8", n, limit, ours, take_failed());
    ga_heap_reset(s.heap);
    ga_heap_close(s.heap);
}

/* Fill to 99 % in steps of 1 %; the cost of a step against the first ones. */
static void filling()
{
    const uint32_t units = 1u << 26, step = units / 100 / THREADS * THREADS;
    std::vector<double> costs[99];
    slab s;
    if (!wanted("fill") || !open_slab(&s, 128, units)) {
        return;
    }
    for (int round = 0; round < rounds; round++) {
        reset(&s);
        for (int i = 0; i < 99; i++) {
            costs[i].push_back(time_of(
                [&] { claim_and_forget<<<step / THREADS, THREADS>>>(s.view, failed_claims); }));
        }
    }
    double empty = figure_of(costs[0]).median;
    printf("fill to 99 %%, 2^26 x 128 B, cost of 1 %% in us:");
    for (int i : {0, 1, 10, 25, 50, 75, 85, 89, 90, 91, 95, 98}) {
        printf(" %d%%: %.1f", i, figure_of(costs[i]).median);
    }
    printf("\n%-44s %8.2f  failed claims: %u\n", "cost at 90 % over cost when empty",
           figure_of(costs[90]).median / empty, take_failed());
    ga_heap_reset(s.heap);
    ga_heap_close(s.heap);
}

static double now_us()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* A parent with preallocated memory, so that set-up is only the slab's own work. */
static char *held, *held_next;

static ga_status held_open(const ga_open_args *, void **)
{
    held_next = held;
    return GA_OK;
}

static void held_close(void *)
{
}

static ga_status held_alloc(void *, size_t size, void **out)
{
    *out = held_next;
    held_next += (size + 511) / 512 * 512;
    return GA_OK;
}

static ga_status held_free(void *, void *)
{
    return GA_OK;
}

static bool held_owns(void *, const void *)
{
    return true;
}

static void set_up()
{
    static ga_backend parent;
    const size_t size = (size_t)64 << 30;
    std::vector<double> times;
    char spec[96];
    if (!wanted("set-up")) {
        return;
    }
    parent.abi = GA_BACKEND_ABI;
    parent.size = sizeof parent;
    parent.name = "held";
    parent.help = "memory that is there already";
    parent.places = GA_PLACE_BIT(GA_PLACE_DEVICE);
    parent.open = held_open;
    parent.close = held_close;
    parent.alloc = held_alloc;
    parent.free = held_free;
    parent.owns = held_owns;
    MUST(cudaMalloc(&held, size + size / 128));
    snprintf(spec, sizeof spec, "slab:unit=128,capacity=%zu,addressing=light/held", size);
    ga_backend_register(&parent);
    for (int i = 0; i <= rounds; i++) {
        ga_heap *heap;
        MUST(cudaDeviceSynchronize());
        double start = now_us();
        if (ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec) != GA_OK) {
            printf("%s: %s\n", spec, ga_error_text());
            failures++;
            return;
        }
        times.push_back(now_us() - start);
        ga_heap_close(heap);
    }
    figure f = figure_of(times);
    printf("%-44s %8.1f us (%.1f to %.1f), its parent's part aside\n", "set-up of 64 GB", f.median,
           f.low, f.high);
    MUST(cudaFree(held));
}

/* CUDA's malloc in kernels, with a heap as large as ours. */
static void cuda_malloc()
{
    const uint32_t n = 1u << 20, unit = 128;
    if (!wanted("CUDA malloc")) {
        return;
    }
    std::vector<double> claims_us, frees_us;
    for (int i = 0; i < 3; i++) {
        claims_us.push_back(
            time_of([&] { claim_cuda<<<n / THREADS, THREADS>>>(pointers, unit, failed_claims); }));
        frees_us.push_back(time_of([&] { free_cuda<<<n / THREADS, THREADS>>>(pointers); }));
    }
    line("CUDA malloc 128 B x 2^20", n, figure{}, figure_of(claims_us), take_failed());
    line("CUDA free 128 B x 2^20", n, figure{}, figure_of(frees_us), 0);
}

static void registers()
{
    cudaFuncAttributes a;
    MUST(cudaFuncGetAttributes(&a, (const void *)claim_addresses));
    printf("%-44s %8d registers, %zu bytes of stack\n", "ga_slab_claim_address", a.numRegs,
           a.localSizeBytes);
    MUST(cudaFuncGetAttributes(&a, (const void *)claim_and_forget));
    printf("%-44s %8d registers, %zu bytes of stack\n", "ga_slab_claim and a touch", a.numRegs,
           a.localSizeBytes);
}

/* ---- the program ----------------------------------------------------------------------------- */

static void prepare()
{
    MUST(cudaDeviceSetLimit(cudaLimitMallocHeapSize, (size_t)512 << 20));
    prepare_measuring();
    MUST(cudaMalloc(&slots, (size_t)16 << 30));
    MUST(cudaMalloc(&pointers, sizeof *pointers << 24));
    MUST(cudaMalloc(&addresses, sizeof *addresses << 24));
    MUST(cudaMalloc(&failed_claims, sizeof *failed_claims));
    MUST(cudaMemset(failed_claims, 0, sizeof *failed_claims));
}

static void measure_all()
{
    std::vector<double> empty;
    for (int i = 0; i < rounds; i++) {
        empty.push_back(time_of([] { nothing<<<1, 32>>>(); }));
    }
    printf("%-44s %8.1f us\n", "empty kernel", figure_of(empty).median);
    registers();
    for (uint32_t unit : {16u, 48u, 64u, 128u, 1024u, 4096u}) {
        claims(unit, unit <= 128 ? 1u << 24 : 1u << 22);
    }
    for (uint32_t unit : {16u, 128u, 1024u, 4096u}) {
        claims(unit, 1u << 20);
    }
    for (uint32_t unit : {16u, 64u, 128u, 1024u, 4096u}) {
        claims_when_full(unit);
    }
    frees(128, 1u << 24);
    frees(16, 1u << 24);
    frees(128, 1u << 20);
    pairs(128);
    tiles();
    filling();
    set_up();
    cuda_malloc();
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--parent") == 0) {
        parent = argv[2];
        argc -= 2;
        argv += 2;
    }
    int status = read_arguments(argc, argv);
    if (status) {
        return status;
    }
    describe();
    prepare();
    measure_all();
    return failures != 0;
}
