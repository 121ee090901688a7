/* SPDX-License-Identifier: MIT
 *
 * The litmus tests' kernels for one scope; included for each by simt_litmus.cu.
 */

/* Threads are in groups of `unit`: threads of an even group write, those of the next one read. Or
 * all do one of the two, and the host does the other. */
static __global__ void SCOPED(messages)(litmus_cell *cells, litmus_edge edge, litmus_run run,
                                        litmus_result *result)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t threads = gridDim.x * blockDim.x;
    uint32_t group = thread / run.unit;
    bool writes = run.roles == BOTH_ROLES ? group % 2u == 0 : run.roles == ALL_WRITE;
    uint32_t pair = run.roles == BOTH_ROLES ? group / 2u * run.unit + thread % run.unit : thread;
    uint32_t pairs = run.roles == BOTH_ROLES ? threads / 2u : threads;
    uint32_t missed = 0;
    for (uint32_t round = 0; round < run.rounds && missed < LITMUS_GIVE_UP; round++) {
        uint32_t index = round * pairs + pair;
        missed += !SCOPED(litmus_message)(cells, edge, writes, index, run.patience, result);
    }
}

/* As above by tiles. */
static __device__ __forceinline__ void SCOPED(tile_rounds)(ga_tile tile, litmus_board *boards,
                                                           litmus_edge edge, litmus_run run,
                                                           litmus_result *result)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t group = thread / run.unit;
    uint32_t pair = (group / 2u * run.unit + thread % run.unit) / tile.width;
    uint32_t pairs = gridDim.x * blockDim.x / 2u / tile.width;
    uint32_t missed = 0;
    for (uint32_t round = 0; round < run.rounds && missed < LITMUS_GIVE_UP; round++) {
        missed += !SCOPED(litmus_tile_message)(tile, boards, edge, group % 2u == 0,
                                               round * pairs + pair, run.patience, result);
    }
}

static __global__ void SCOPED(tile_messages)(litmus_board *boards, uint32_t width, litmus_edge edge,
                                             litmus_run run, litmus_result *result)
{
    switch (width) {
    case 4:
        SCOPED(tile_rounds)(ga_tile_of(4), boards, edge, run, result);
        break;
    case 8:
        SCOPED(tile_rounds)(ga_tile_of(8), boards, edge, run, result);
        break;
    case 16:
        SCOPED(tile_rounds)(ga_tile_of(16), boards, edge, run, result);
        break;
    case 32:
        SCOPED(tile_rounds)(ga_tile_of(32), boards, edge, run, result);
        break;
    default:
        if ((LITMUS_GAPS >> (threadIdx.x % 32u)) & 1u) {
            SCOPED(tile_rounds)(ga_tile_among(LITMUS_GAPS), boards, edge, run, result);
        }
        break;
    }
}

/* Each group of `unit` threads shares `count` slots of its own. */
static __global__ void SCOPED(slots)(uint32_t *bitmap, litmus_cell *slots, uint32_t count,
                                     bool ordered, litmus_run run, litmus_result *result)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t first = thread / run.unit * count;
    for (uint32_t round = 0; round < run.rounds; round++) {
        uint32_t slot = first + ga_bits_mix(thread * run.rounds + round + run.seed) % count;
        SCOPED(litmus_own)(bitmap, slots, slot, ordered, result);
    }
}
