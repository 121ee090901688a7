/* SPDX-License-Identifier: MIT
 *
 * Each word of the vocabulary on the GPU: tiles of 4 to 32 lanes against the CPU side, and tiles
 * with gaps, which the CPU does not have, against the plain reference.
 */
#include "simt_gpu.h"
#include "simt_reference.h"

#include "../support/random.h"

#define BLOCK 256u

typedef struct batch {
    uint32_t tiles;
    simt_input *in;     /* host */
    simt_output *out;   /* host: the GPU's results */
    simt_input *d_in;   /* device */
    simt_output *d_out; /* device */
} batch;

static bool batch_begin(batch *batch, uint32_t tiles)
{
    batch->tiles = tiles;
    batch->in = (simt_input *)aligned_alloc(alignof(simt_input), tiles * sizeof(simt_input));
    batch->out = (simt_output *)calloc(tiles, sizeof(simt_output));
    batch->d_in = (simt_input *)suite_memory(tiles * sizeof(simt_input));
    batch->d_out = (simt_output *)suite_memory(tiles * sizeof(simt_output));
    return batch->in && batch->out && batch->d_in && batch->d_out;
}

static bool batch_send(batch *batch)
{
    return CUDA_DONE(cudaMemcpy(batch->d_in, batch->in, batch->tiles * sizeof *batch->in,
                                cudaMemcpyHostToDevice));
}

static bool batch_fetch(batch *batch)
{
    return CUDA_DONE(cudaGetLastError()) && CUDA_DONE(cudaDeviceSynchronize()) &&
           CUDA_DONE(cudaMemcpy(batch->out, batch->d_out, batch->tiles * sizeof *batch->out,
                                cudaMemcpyDeviceToHost));
}

static void batch_end(batch *batch)
{
    free(batch->in);
    free(batch->out);
    cudaFree(batch->d_in);
    cudaFree(batch->d_out);
}

static uint32_t all_lanes(uint32_t width)
{
    return width < 32u ? (1u << width) - 1u : 0xffffffffu;
}

/* Compare tile `i` with the expected result; false if it differs. */
static bool batch_check(batch *batch, uint32_t i, const simt_output *expected)
{
    char text[400];
    if (!simt_differs(&batch->in[i], expected, &batch->out[i], text, sizeof text)) {
        return true;
    }
    FAIL("in tile %u %s", i, text);
    return false;
}

/* ---- tiles of one width ------------------------------------------------------------------- */

#define DEFINE_WORDS_KERNEL(width)                                                                 \
    static __global__ void words_##width(simt_input *in, simt_output *out)                         \
    {                                                                                              \
        uint32_t tile = (blockIdx.x * blockDim.x + threadIdx.x) / width;                           \
        simt_words(ga_tile_of(width), false, in + tile, out + tile);                               \
    }
DEFINE_WORDS_KERNEL(4)
DEFINE_WORDS_KERNEL(8)
DEFINE_WORDS_KERNEL(16)
DEFINE_WORDS_KERNEL(32)

static void launch_words(uint32_t width, batch *batch)
{
    uint32_t blocks = batch->tiles * width / BLOCK;
    switch (width) {
    case 4:
        words_4<<<blocks, BLOCK>>>(batch->d_in, batch->d_out);
        break;
    case 8:
        words_8<<<blocks, BLOCK>>>(batch->d_in, batch->d_out);
        break;
    case 16:
        words_16<<<blocks, BLOCK>>>(batch->d_in, batch->d_out);
        break;
    default:
        words_32<<<blocks, BLOCK>>>(batch->d_in, batch->d_out);
        break;
    }
}

/* The CPU is the oracle. */
static void compare_words(uint32_t width)
{
    batch batch;
    simt_output *expected = (simt_output *)calloc(1, sizeof *expected);
    uint64_t seed = width;
    uint32_t wrong = 0;
    if (batch_begin(&batch, suite.quick ? 256 : 8192)) {
        for (uint32_t i = 0; i < batch.tiles; i++) {
            simt_make_input(&seed, all_lanes(width), &batch.in[i]);
        }
        if (batch_send(&batch)) {
            launch_words(width, &batch);
        }
        if (batch_fetch(&batch)) {
            for (uint32_t i = 0; i < batch.tiles && wrong < 5; i++) {
                simt_cpu_words(width, &batch.in[i], expected);
                wrong += !batch_check(&batch, i, expected);
            }
        }
    }
    batch_end(&batch);
    free(expected);
}

static void words_of_4(int device)
{
    (void)device;
    compare_words(4);
}

static void words_of_8(int device)
{
    (void)device;
    compare_words(8);
}

static void words_of_16(int device)
{
    (void)device;
    compare_words(16);
}

static void words_of_32(int device)
{
    (void)device;
    compare_words(32);
}

/* ---- tiles with gaps ------------------------------------------------------------------------ */

#define PARTS 4u /* tiles of a warp; label PARTS: a lane without a tile */

/* The tiles of a warp all at once, or, with `apart`, each while it runs alone. */
static __global__ void words_among(simt_input *in, simt_output *out, const uint32_t *labels,
                                   bool apart)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t label = labels[thread];
    uint32_t tile = thread / 32u * PARTS + label;
    for (uint32_t turn = 0; turn < (apart ? PARTS : 1u); turn++) {
        if (apart ? label == turn : label < PARTS) {
            simt_words(ga_tile_among(in[tile].here), true, in + tile, out + tile);
        }
    }
}

/* Divide the warp: at random, one lane alone, all lanes together, every second or fourth. */
static void make_labels(uint64_t *seed, uint32_t warp, uint32_t *labels)
{
    for (uint32_t lane = 0; lane < 32u; lane++) {
        uint32_t any = (uint32_t)(random_next(seed) % (PARTS + 1u));
        uint32_t kinds[] = {any, any / 2u,  lane == warp % 32u ? 0u : PARTS,
                            0u,  lane % 2u, lane % 4u};
        labels[lane] = kinds[warp % 6u];
    }
}

static void make_gaps(batch *batch, uint32_t *labels)
{
    uint64_t seed = 77;
    for (uint32_t warp = 0; warp < batch->tiles / PARTS; warp++) {
        make_labels(&seed, warp, labels + warp * 32u);
        for (uint32_t part = 0; part < PARTS; part++) {
            uint32_t here = 0;
            for (uint32_t lane = 0; lane < 32u; lane++) {
                here |= labels[warp * 32u + lane] == part ? 1u << lane : 0;
            }
            simt_make_input(&seed, here ? here : 1u, &batch->in[warp * PARTS + part]);
            batch->in[warp * PARTS + part].here = here;
        }
    }
}

static void compare_gaps(bool apart)
{
    batch batch;
    simt_output *expected = (simt_output *)calloc(1, sizeof *expected);
    uint32_t tiles = suite.quick ? 256 : 8192;
    size_t size = tiles / PARTS * 32u * sizeof(uint32_t);
    uint32_t *labels = (uint32_t *)malloc(size);
    uint32_t *d_labels = (uint32_t *)suite_memory(size);
    uint32_t wrong = 0;
    if (batch_begin(&batch, tiles) && d_labels) {
        make_gaps(&batch, labels);
        if (batch_send(&batch) &&
            CUDA_DONE(cudaMemcpy(d_labels, labels, size, cudaMemcpyHostToDevice))) {
            words_among<<<tiles / PARTS * 32u / BLOCK, BLOCK>>>(batch.d_in, batch.d_out, d_labels,
                                                                apart);
        }
        if (batch_fetch(&batch)) {
            for (uint32_t i = 0; i < tiles && wrong < 5; i++) {
                simt_expect(&batch.in[i], true, expected);
                wrong += !batch_check(&batch, i, expected);
            }
        }
    }
    batch_end(&batch);
    cudaFree(d_labels);
    free(labels);
    free(expected);
}

static void words_with_gaps(int device)
{
    (void)device;
    compare_gaps(false);
}

static void words_with_gaps_apart(int device)
{
    (void)device;
    compare_gaps(true);
}

/* ---- which lanes are there ---------------------------------------------------------------- */

typedef struct presence {
    uint32_t lanes;
    uint32_t size;
    uint32_t sum; /* of the lanes' numbers in the warp */
    uint32_t rank;
    bool whole; /* the tile is a whole warp */
} presence;

static __device__ presence describe(ga_tile tile)
{
    presence is;
    is.lanes = ga_tile_members(tile);
    is.size = ga_tile_size(tile);
    is.sum = ga_lanes_sum(tile, ga_warp_lane());
    is.rank = ga_tile_ranks(tile);
    is.whole = ga_warp_is_whole(is.lanes);
    return is;
}

/* Which of the lanes in the branch are there is the hardware's choice, but all of them agree. */
static __global__ void present(const uint32_t *masks, presence *out)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    if ((masks[thread / 32u] >> (thread % 32u)) & 1u) {
        out[thread] = describe(ga_tile_present());
    }
}

/* A tile's lanes as a tile of the warp's lanes. */
static __global__ void regroup(uint32_t width, presence *out)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    ga_tile tile = width == 4    ? ga_tile_of(4)
                   : width == 8  ? ga_tile_of(8)
                   : width == 16 ? ga_tile_of(16)
                                 : ga_tile_of(32);
    out[thread] = describe(ga_tile_among(ga_tile_members(tile)));
}

static uint32_t sum_of_places(uint32_t bits)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 32u; i++) {
        sum += (bits >> i) & 1u ? i : 0;
    }
    return sum;
}

/* Lane `lane` found itself among `got.lanes`, all of them in `mask`. */
static bool presence_is_right(presence got, uint32_t mask, uint32_t lane)
{
    uint32_t below = got.lanes & all_lanes(lane);
    return ((got.lanes >> lane) & 1u) && !(got.lanes & ~mask) &&
           got.size == (uint32_t)__builtin_popcount(got.lanes) &&
           got.sum == sum_of_places(got.lanes) && got.whole == (got.lanes == 0xffffffffu) &&
           got.rank == (lane ? (uint32_t)__builtin_popcount(below) : 0);
}

static void check_presence(presence got, uint32_t mask, uint32_t lane)
{
    if (!presence_is_right(got, mask, lane)) {
        FAIL("lane %u of the lanes %#x to be in a tile of such, got the tile %#x with %u "
             "lanes, their sum %u, own rank %u, %s",
             lane, mask, got.lanes, got.size, got.sum, got.rank,
             got.whole ? "a whole warp" : "no whole warp");
    }
}

static void tiles_of_present_lanes(int device)
{
    enum {
        WARPS = 256
    };
    (void)device;
    uint64_t seed = 3;
    uint32_t masks[WARPS];
    presence *got = (presence *)calloc(WARPS * 32, sizeof *got);
    presence *d_got = (presence *)suite_memory(WARPS * 32 * sizeof *got);
    uint32_t *d_masks = (uint32_t *)suite_memory(sizeof masks);
    for (uint32_t i = 0; i < WARPS; i++) {
        masks[i] = i < 32 ? 1u << i : i == 32 ? 0xffffffffu : (uint32_t)random_next(&seed);
    }
    if (d_got && d_masks &&
        CUDA_DONE(cudaMemcpy(d_masks, masks, sizeof masks, cudaMemcpyHostToDevice))) {
        present<<<WARPS * 32 / BLOCK, BLOCK>>>(d_masks, d_got);
        if (CUDA_DONE(cudaMemcpy(got, d_got, WARPS * 32 * sizeof *got, cudaMemcpyDeviceToHost))) {
            for (uint32_t i = 0; i < WARPS * 32; i++) {
                if ((masks[i / 32] >> (i % 32)) & 1u) {
                    check_presence(got[i], masks[i / 32], i % 32);
                }
            }
        }
    }
    cudaFree(d_got);
    cudaFree(d_masks);
    free(got);
}

static void tiles_of_a_tiles_lanes(int device)
{
    (void)device;
    presence got[BLOCK];
    presence *d_got = (presence *)suite_memory(sizeof got);
    for (uint32_t width = 4; d_got && width <= 32u; width *= 2) {
        regroup<<<1, BLOCK>>>(width, d_got);
        if (CUDA_DONE(cudaMemcpy(got, d_got, sizeof got, cudaMemcpyDeviceToHost))) {
            for (uint32_t i = 0; i < BLOCK; i++) {
                uint32_t lane = i % 32u;
                uint32_t mask = all_lanes(width) << (lane / width * width);
                check_presence(got[i], mask, lane);
                if (got[i].lanes != mask) {
                    FAIL("the tile of the lanes %#x, got %#x", mask, got[i].lanes);
                }
            }
        }
    }
    cudaFree(d_got);
}

/* ---- atomics ------------------------------------------------------------------------------- */

static __global__ void atomics(const simt_atomic_input *in, simt_atomic_output *out)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    simt_atomics(in + thread, out + thread);
}

static void atomics_alone(int device)
{
    (void)device;
    uint32_t count = suite.quick ? 256 : 4096;
    uint64_t seed = 9;
    uint32_t wrong = 0;
    char text[400];
    simt_atomic_input *in = (simt_atomic_input *)calloc(count, sizeof *in);
    simt_atomic_output *out = (simt_atomic_output *)calloc(count, sizeof *out);
    simt_atomic_output *expected = (simt_atomic_output *)calloc(1, sizeof *expected);
    simt_atomic_input *d_in = (simt_atomic_input *)suite_memory(count * sizeof *in);
    simt_atomic_output *d_out = (simt_atomic_output *)suite_memory(count * sizeof *out);
    for (uint32_t i = 0; i < count; i++) {
        simt_make_atomic_input(&seed, &in[i]);
    }
    if (d_in && d_out &&
        CUDA_DONE(cudaMemcpy(d_in, in, count * sizeof *in, cudaMemcpyHostToDevice))) {
        atomics<<<count / BLOCK, BLOCK>>>(d_in, d_out);
        if (CUDA_DONE(cudaMemcpy(out, d_out, count * sizeof *out, cudaMemcpyDeviceToHost))) {
            for (uint32_t i = 0; i < count && wrong < 5; i++) {
                simt_cpu_atomics(&in[i], expected);
                if (simt_atomics_differ(&in[i], expected, &out[i], text, sizeof text)) {
                    FAIL("of thread %u %s", i, text);
                    wrong++;
                }
            }
        }
    }
    cudaFree(d_in);
    cudaFree(d_out);
    free(in);
    free(out);
    free(expected);
}

const test_case simt_word_cases[] = {
    {"words, tiles of 4 lanes, as on the CPU", words_of_4},
    {"words, tiles of 8 lanes, as on the CPU", words_of_8},
    {"words, tiles of 16 lanes, as on the CPU", words_of_16},
    {"words, tiles of 32 lanes, as on the CPU", words_of_32},
    {"words, up to 4 tiles with gaps in a warp at once", words_with_gaps},
    {"words, up to 4 tiles with gaps in a warp, one by one", words_with_gaps_apart},
    {"the tile of the lanes that are present", tiles_of_present_lanes},
    {"the tile of another tile's lanes", tiles_of_a_tiles_lanes},
    {"tiles that meet", simt_meetings},
    {"the clock, sleep and noise", simt_clock},
    {"epochs of tiles", simt_epochs},
    {"atomics of every order, scope and width, as on the CPU", atomics_alone},
};
const size_t simt_word_case_count = sizeof simt_word_cases / sizeof simt_word_cases[0];
