/* SPDX-License-Identifier: MIT
 *
 * Litmus tests of the vocabulary's memory orders, for each scope: two warps of a block, two blocks,
 * and the host. simt_litmus.h has the body of a thread. A forbidden outcome fails the case; so does
 * a small number of exchanged messages, because it proves nothing.
 */
#include "simt_gpu.h"
#include "simt_host.h"

/* A tile with gaps for messages between tiles. */
#define LITMUS_GAPS 0x7f0ff5eau

typedef enum litmus_roles {
    BOTH_ROLES,
    ALL_WRITE,
    ALL_READ
} litmus_roles;

typedef struct litmus_run {
    uint32_t roles;
    uint32_t unit; /* threads of a group */
    uint32_t rounds;
    uint32_t patience;
    uint32_t seed;
} litmus_run;

#define SCOPED(name) name
#include "simt_litmus_kernels.h"
#undef SCOPED
#define SCOPED(name) name##_block
#include "simt_litmus_kernels.h"
#undef SCOPED
#define SCOPED(name) name##_system
#include "simt_litmus_kernels.h"
#undef SCOPED

typedef struct scope {
    const char *name;
    const char *between;
    uint32_t unit; /* threads of a group */
    void (*messages)(litmus_cell *, litmus_edge, litmus_run, litmus_result *);
    void (*tile_messages)(litmus_board *, uint32_t, litmus_edge, litmus_run, litmus_result *);
    void (*slots)(uint32_t *, litmus_cell *, uint32_t, bool, litmus_run, litmus_result *);
} scope;

#define BLOCKS          264u
#define THREADS         64u /* of a block */
#define DEVICE_PATIENCE 100000u
#define HOST_PATIENCE   (1u << 21) /* polls over the bus, or by the host, which yields */

static const scope of_block = {"block",        "two warps of a block", 32,
                               messages_block, tile_messages_block,    slots_block};
static const scope of_device = {"device", "two blocks", THREADS, messages, tile_messages, slots};
static const scope of_system = {"system",        "two blocks",         THREADS,
                                messages_system, tile_messages_system, slots_system};

typedef struct named_edge {
    const char *name;
    litmus_edge edge;
} named_edge;

static const named_edge edges[] = {
    {"store_release -> load_acquire", {PUBLISH_STORE, LOOK_LOAD, DATA_PLAIN}},
    {"store_release -> load_acquire, relaxed data", {PUBLISH_STORE, LOOK_LOAD, DATA_RELAXED}},
    {"cas_release -> load_acquire", {PUBLISH_CAS, LOOK_LOAD, DATA_PLAIN}},
    {"exchange_release -> load_acquire", {PUBLISH_EXCHANGE, LOOK_LOAD, DATA_PLAIN}},
    {"or_release -> load_acquire", {PUBLISH_OR, LOOK_LOAD, DATA_PLAIN}},
    {"and_release -> load_acquire", {PUBLISH_AND, LOOK_LOAD, DATA_PLAIN}},
    {"add_release -> load_acquire", {PUBLISH_ADD, LOOK_LOAD, DATA_PLAIN}},
    {"post_or_release -> load_acquire", {PUBLISH_POST_OR, LOOK_LOAD, DATA_PLAIN}},
    {"post_and_release -> load_acquire", {PUBLISH_POST_AND, LOOK_LOAD, DATA_PLAIN}},
    {"post_add_release -> load_acquire", {PUBLISH_POST_ADD, LOOK_LOAD, DATA_PLAIN}},
    {"store_release -> exchange_acquire", {PUBLISH_STORE, LOOK_EXCHANGE, DATA_PLAIN}},
    {"store_release -> or_acquire", {PUBLISH_STORE, LOOK_OR, DATA_PLAIN}},
    {"store_release -> and_acquire", {PUBLISH_STORE, LOOK_AND, DATA_PLAIN}},
    {"store_release -> add_acquire", {PUBLISH_STORE, LOOK_ADD, DATA_PLAIN}},
    {"store_release -> cas_acquire", {PUBLISH_STORE, LOOK_CAS, DATA_PLAIN}},
    {"or_release -> cas_acquire that fails", {PUBLISH_OR, LOOK_CAS, DATA_PLAIN}},
    {"post_and_release -> or_acquire", {PUBLISH_POST_AND, LOOK_OR, DATA_PLAIN}},
    {"or_acq_rel -> or_acq_rel", {PUBLISH_OR_ACQ_REL, LOOK_OR_ACQ_REL, DATA_PLAIN}},
    {"cas_acq_rel -> cas_acq_rel", {PUBLISH_CAS_ACQ_REL, LOOK_CAS_ACQ_REL, DATA_PLAIN}},
};

/* Without an order: shows that the tests above would detect it. */
static const named_edge weak_edges[] = {
    {"store_release -> load_relaxed", {PUBLISH_STORE, LOOK_RELAXED, DATA_CACHED}},
    {"store_relaxed -> load_acquire", {PUBLISH_RELAXED, LOOK_LOAD, DATA_CACHED}},
    {"store_relaxed -> load_relaxed", {PUBLISH_RELAXED, LOOK_RELAXED, DATA_CACHED}},
};

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

/* ---- results ------------------------------------------------------------------------------ */

static void add_result(litmus_result *sum, const litmus_result *part)
{
    if (part->late && !sum->late) {
        sum->index = part->index;
        memcpy(sum->expected, part->expected, sizeof sum->expected);
        memcpy(sum->got, part->got, sizeof sum->got);
    }
    sum->seen += part->seen;
    sum->missed += part->missed;
    sum->late += part->late;
}

/* Wait for the kernel, fetch its result, clear it, and add it to `sum`. */
static bool collect(litmus_result *d_result, litmus_result *sum)
{
    litmus_result part;
    if (!CUDA_DONE(cudaGetLastError()) || !CUDA_DONE(cudaDeviceSynchronize()) ||
        !CUDA_DONE(cudaMemcpy(&part, d_result, sizeof part, cudaMemcpyDeviceToHost)) ||
        !CUDA_DONE(cudaMemset(d_result, 0, sizeof part))) {
        return false;
    }
    add_result(sum, &part);
    return true;
}

/* `total` messages were sent. */
static void judge(const char *name, uint32_t total, const litmus_result *got)
{
    printf("    %-44s %9u messages, %u read, %u too late\n", name, total, got->seen, got->late);
    if (got->late) {
        FAIL("%s: no message read before it was there, got %u; the first: message %u, words "
             "%#x and %#x, expected %#x and %#x",
             name, got->late, got->index, got->got[0], got->got[1], got->expected[0],
             got->expected[1]);
    }
    if (got->seen < total / 2) {
        FAIL("%s: at least half of %u messages to be read, got %u (%u given up)", name, total,
             got->seen, got->missed);
    }
}

static void inform(const char *name, uint32_t total, const litmus_result *got)
{
    printf("    for information: %-27s %9u messages, %u read, %u of them weak\n", name, total,
           got->seen, got->late);
}

/* ---- messages between threads ------------------------------------------------------------- */

static __global__ void clear_cells(litmus_cell *cells, uint32_t count)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x) {
        memset(&cells[i], 0, sizeof cells[i]);
        cells[i].flag = LITMUS_EMPTY;
    }
}

static uint32_t launches(void)
{
    return suite.quick ? 1 : 16;
}

static void send_messages(const scope *scope, const named_edge *edge, litmus_cell *cells,
                          litmus_result *d_result, bool must)
{
    litmus_run run = {BOTH_ROLES, scope->unit, suite.quick ? 2u : 16u, DEVICE_PATIENCE, 0};
    uint32_t count = BLOCKS * THREADS / 2 * run.rounds;
    litmus_result sum = {};
    for (uint32_t i = 0; i < launches(); i++) {
        clear_cells<<<1024, 256>>>(cells, count);
        scope->messages<<<BLOCKS, THREADS>>>(cells, edge->edge, run, d_result);
        if (!collect(d_result, &sum)) {
            return;
        }
    }
    (must ? judge : inform)(edge->name, count * launches(), &sum);
}

static void messages_in(const scope *scope)
{
    litmus_cell *cells = (litmus_cell *)suite_memory(BLOCKS * THREADS / 2 * 16 * sizeof *cells);
    litmus_result *d_result = (litmus_result *)suite_memory(sizeof *d_result);
    if (cells && d_result) {
        printf("    scope %s, between %s\n", scope->name, scope->between);
        for (uint32_t i = 0; i < COUNT(edges); i++) {
            send_messages(scope, &edges[i], cells, d_result, true);
        }
        for (uint32_t i = 0; i < COUNT(weak_edges); i++) {
            send_messages(scope, &weak_edges[i], cells, d_result, false);
        }
    }
    cudaFree(cells);
    cudaFree(d_result);
}

static void messages_of_block(int device)
{
    (void)device;
    messages_in(&of_block);
}

static void messages_of_device(int device)
{
    (void)device;
    messages_in(&of_device);
}

static void messages_of_system(int device)
{
    (void)device;
    messages_in(&of_system);
}

/* ---- messages between tiles --------------------------------------------------------------- */

static __global__ void clear_boards(litmus_board *boards, uint32_t count)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x) {
        for (uint32_t lane = 0; lane < 32u; lane++) {
            boards[i].data[lane][0] = 0;
        }
        boards[i].flag = LITMUS_EMPTY;
        boards[i].ready = 0;
    }
}

static const named_edge tile_edges[] = {
    {"publish, post_and_published -> or_acquire",
     {PUBLISH_POST_AND_PUBLISHED, LOOK_OR, DATA_PLAIN}},
    {"store_release -> load_acquire", {PUBLISH_STORE, LOOK_LOAD, DATA_PLAIN}},
    {"cas_release -> load_acquire", {PUBLISH_CAS, LOOK_LOAD, DATA_PLAIN}},
    {"post_and_release -> or_acquire", {PUBLISH_POST_AND, LOOK_OR, DATA_PLAIN}},
};

static void send_boards(const scope *scope, uint32_t width, const named_edge *edge,
                        litmus_board *boards, litmus_result *d_result, bool must)
{
    litmus_run run = {BOTH_ROLES, scope->unit, suite.quick ? 1u : 8u, DEVICE_PATIENCE, 0};
    uint32_t count = BLOCKS * THREADS / 2 / (width ? width : 32u) * run.rounds;
    litmus_result sum = {};
    char name[64];
    for (uint32_t i = 0; i < launches(); i++) {
        clear_boards<<<1024, 64>>>(boards, count);
        scope->tile_messages<<<BLOCKS, THREADS>>>(boards, width, edge->edge, run, d_result);
        if (!collect(d_result, &sum)) {
            return;
        }
    }
    if (width) {
        snprintf(name, sizeof name, "%2u lanes: %s", width, edge->name);
    } else {
        snprintf(name, sizeof name, "with gaps: %s", edge->name);
    }
    (must ? judge : inform)(name, count * launches(), &sum);
}

static void boards_in(const scope *scope)
{
    static const uint32_t widths[] = {4, 8, 16, 32, 0}; /* 0: with gaps */
    litmus_board *boards =
        (litmus_board *)suite_memory(BLOCKS * THREADS / 2 / 4 * 8 * sizeof *boards);
    litmus_result *d_result = (litmus_result *)suite_memory(sizeof *d_result);
    if (boards && d_result) {
        printf("    scope %s, between tiles of %s\n", scope->name, scope->between);
        for (uint32_t i = 0; i < COUNT(widths); i++) {
            for (uint32_t j = 0; j < COUNT(tile_edges); j++) {
                send_boards(scope, widths[i], &tile_edges[j], boards, d_result, true);
            }
            send_boards(scope, widths[i], &weak_edges[0], boards, d_result, false);
        }
    }
    cudaFree(boards);
    cudaFree(d_result);
}

static void boards_of_block(int device)
{
    (void)device;
    boards_in(&of_block);
}

static void boards_of_device(int device)
{
    (void)device;
    boards_in(&of_device);
}

static void boards_of_system(int device)
{
    (void)device;
    boards_in(&of_system);
}

/* ---- slots -------------------------------------------------------------------------------- */

/* After all have ended: the `count` slots were owned `owned` times in all. Returns the number of
 * owners that left no trace. */
static uint32_t lost_owners(const uint32_t *bitmap, const litmus_cell *slots, uint32_t count,
                            uint32_t owned)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += slots[i].data[0];
        if (i % 32u == 0 && bitmap[i / 32u]) {
            FAIL("all slots free at the end, got the word %#x", bitmap[i / 32u]);
        }
    }
    return owned - sum;
}

static void judge_slots(const char *name, uint32_t lost, const litmus_result *got, bool must)
{
    printf("    %s%s: owned %u times, %u times in disorder, %u owners' writes lost\n",
           must ? "" : "for information: ", name, got->seen, got->late, lost);
    if (must && (got->late || lost)) {
        FAIL("%s: each owner sees the last one's writes, got %u times other ones and %u lost; "
             "the first: slot %u, words %u and %u",
             name, got->late, lost, got->index, got->got[0], got->got[1]);
    }
    if (!got->seen) {
        FAIL("%s: slots to be owned, got none", name);
    }
}

static void pass_slots(const scope *scope, bool ordered)
{
    uint32_t group = scope->unit == 32u ? 64u : 1024u; /* slots of one group; of a block: 2 for each
                                                        * warp */
    uint32_t count = scope->unit == 32u ? BLOCKS * group : group;
    litmus_run run = {BOTH_ROLES, scope->unit == 32u ? THREADS : BLOCKS * THREADS,
                      suite.quick ? 8u : 256u, 0, 1};
    litmus_cell *copy = (litmus_cell *)malloc(count * sizeof *copy);
    uint32_t *bits = (uint32_t *)malloc(count / 8u);
    litmus_cell *slots = (litmus_cell *)suite_memory(count * sizeof *slots);
    uint32_t *bitmap = (uint32_t *)suite_memory(count / 8u);
    litmus_result *d_result = (litmus_result *)suite_memory(sizeof *d_result);
    litmus_result sum = {};
    if (slots && bitmap && d_result) {
        scope->slots<<<BLOCKS, THREADS>>>(bitmap, slots, group, ordered, run, d_result);
        if (collect(d_result, &sum) &&
            CUDA_DONE(cudaMemcpy(copy, slots, count * sizeof *copy, cudaMemcpyDeviceToHost)) &&
            CUDA_DONE(cudaMemcpy(bits, bitmap, count / 8u, cudaMemcpyDeviceToHost))) {
            const char *name = ordered ? "or_acquire, post_and_release" : "relaxed";
            judge_slots(name, lost_owners(bits, copy, count, sum.seen), &sum, ordered);
        }
    }
    cudaFree(slots);
    cudaFree(bitmap);
    cudaFree(d_result);
    free(bits);
    free(copy);
}

static void slots_of_block(int device)
{
    (void)device;
    pass_slots(&of_block, true);
    pass_slots(&of_block, false);
}

static void slots_of_device(int device)
{
    (void)device;
    pass_slots(&of_device, true);
    pass_slots(&of_device, false);
}

static void slots_of_system(int device)
{
    (void)device;
    pass_slots(&of_system, true);
    pass_slots(&of_system, false);
}

/* ---- with the host ------------------------------------------------------------------------ */

static bool host_atomics_are_native(int device)
{
    int native = 0;
    return cudaDeviceGetAttribute(&native, cudaDevAttrHostNativeAtomicSupported, device) ==
               cudaSuccess &&
           native;
}

static __global__ void wait_for_host(const uint32_t *flag, uint32_t patience, uint32_t *seen)
{
    *seen = litmus_wait_ready_system(flag, patience) ? 1u : 0u;
}

/* True if a kernel runs while the host continues, which a sanitizer or CUDA_LAUNCH_BLOCKING may
 * prevent. */
static bool kernels_run_beside_host(void)
{
    uint32_t *words = (uint32_t *)simt_pinned_memory(2 * sizeof *words);
    bool beside = false;
    if (words) {
        wait_for_host<<<1, 1>>>(words, HOST_PATIENCE / 4u, words + 1);
        if (CUDA_DONE(cudaGetLastError())) {
            __atomic_store_n(words, 1u, __ATOMIC_RELAXED); /* relaxed: it carries no other data */
        }
        beside = CUDA_DONE(cudaDeviceSynchronize()) && words[1];
    }
    cudaFreeHost(words);
    return beside;
}

#define NOT_BESIDE "kernels do not run beside the host here"

/* The GPU reads or writes messages 0 to pairs * rounds - 1, each thread its own; the host does the
 * other thing with all of them. */
static void exchange_with_host(const named_edge *edge, bool host_writes, litmus_cell *cells,
                               litmus_result *d_result)
{
    uint32_t roles = host_writes ? ALL_READ : ALL_WRITE;
    litmus_run run = {roles, 1, suite.quick ? 4u : 400u, HOST_PATIENCE, 0};
    uint32_t count = THREADS * run.rounds;
    litmus_result sum = {};
    litmus_result own = {};
    memset(cells, 0, count * sizeof *cells);
    for (uint32_t i = 0; i < count; i++) {
        cells[i].flag = LITMUS_EMPTY;
    }
    messages_system<<<1, THREADS>>>(cells, edge->edge, run, d_result);
    if (CUDA_DONE(cudaGetLastError())) {
        simt_host_messages(cells, edge->edge, host_writes, count, HOST_PATIENCE, &own);
    }
    if (collect(d_result, &sum)) {
        add_result(&sum, &own);
        judge(edge->name, count, &sum);
    }
}

/* Atomics that change a word of the host's count only where the bus has them. */
static void exchange_all_with_host(int device, bool host_writes)
{
    litmus_cell *cells = (litmus_cell *)simt_pinned_memory(THREADS * 400u * sizeof *cells);
    litmus_result *d_result = (litmus_result *)suite_memory(sizeof *d_result);
    if (cells && d_result) {
        for (uint32_t i = 0; i < COUNT(edges); i++) {
            bool device_changes = host_writes ? edges[i].edge.look != LOOK_LOAD
                                              : edges[i].edge.publish != PUBLISH_STORE;
            if (!device_changes || host_atomics_are_native(device)) {
                exchange_with_host(&edges[i], host_writes, cells, d_result);
            }
        }
    }
    cudaFreeHost(cells);
    cudaFree(d_result);
}

static void messages_to_host(int device)
{
    if (!kernels_run_beside_host()) {
        SKIP(NOT_BESIDE);
    }
    exchange_all_with_host(device, false);
}

static void messages_from_host(int device)
{
    if (!kernels_run_beside_host()) {
        SKIP(NOT_BESIDE);
    }
    exchange_all_with_host(device, true);
}

static __global__ void turns(litmus_cell *cell, uint32_t first, uint32_t count, uint32_t patience,
                             uint32_t *had, litmus_result *result)
{
    *had = litmus_turns_system(cell, first, count, patience, result);
}

static void turns_with_host(int device)
{
    (void)device;
    if (!kernels_run_beside_host()) {
        SKIP(NOT_BESIDE);
    }
    uint32_t count = suite.quick ? 100u : 20000u;
    litmus_cell *cell = (litmus_cell *)simt_pinned_memory(sizeof *cell);
    uint32_t *had = (uint32_t *)simt_pinned_memory(sizeof *had);
    litmus_result *d_result = (litmus_result *)suite_memory(sizeof *d_result);
    for (uint32_t first = 0; cell && had && d_result && first < 2u; first++) {
        litmus_result sum = {};
        litmus_result own = {};
        memset(cell, 0, sizeof *cell);
        *had = 0;
        turns<<<1, 1>>>(cell, first, count, HOST_PATIENCE, had, d_result);
        uint32_t host_had = 0;
        if (CUDA_DONE(cudaGetLastError())) {
            host_had = simt_host_turns(cell, 1u - first, count, HOST_PATIENCE, &own);
        }
        if (!collect(d_result, &sum)) {
            break;
        }
        add_result(&sum, &own);
        printf("    %s first: %u turns of the host, %u of the GPU, %u stale words\n",
               first ? "the host" : "the GPU", host_had, *had, sum.late);
        if (host_had != count / 2 || *had != count / 2 || sum.late) {
            FAIL("%u turns of each and no stale word, got %u of the host, %u of the GPU, %u "
                 "stale words; the first in turn %u, word %u: %u",
                 count / 2, host_had, *had, sum.late, sum.index, sum.got[1], sum.got[0]);
        }
    }
    cudaFreeHost(cell);
    cudaFreeHost(had);
    cudaFree(d_result);
}

static void slots_with_host(int device)
{
    enum {
        SLOTS = 32
    };
    if (!host_atomics_are_native(device)) {
        SKIP("this device's atomics on host memory are not atomic for the host");
    }
    litmus_run run = {BOTH_ROLES, THREADS, suite.quick ? 16u : 2000u, 0, 1};
    litmus_cell *slots = (litmus_cell *)simt_pinned_memory(SLOTS * sizeof *slots);
    uint32_t *bitmap = (uint32_t *)simt_pinned_memory(sizeof *bitmap);
    litmus_result *d_result = (litmus_result *)suite_memory(sizeof *d_result);
    litmus_result sum = {};
    litmus_result own = {};
    if (slots && bitmap && d_result) {
        slots_system<<<1, THREADS>>>(bitmap, slots, SLOTS, true, run, d_result);
        uint32_t host_had = simt_host_own(bitmap, slots, SLOTS, 100u * run.rounds, &own);
        if (collect(d_result, &sum)) {
            add_result(&sum, &own);
            printf("    the host had %u\n", host_had);
            judge_slots("shared with the host", lost_owners(bitmap, slots, SLOTS, sum.seen), &sum,
                        true);
        }
    }
    cudaFreeHost(slots);
    cudaFreeHost(bitmap);
    cudaFree(d_result);
}

const test_case simt_litmus_cases[] = {
    {"atomics by many threads, of each scope", simt_races},
    {"litmus: messages, block scope", messages_of_block},
    {"litmus: messages, device scope", messages_of_device},
    {"litmus: messages, system scope", messages_of_system},
    {"litmus: messages to the host, system scope", messages_to_host},
    {"litmus: messages from the host, system scope", messages_from_host},
    {"litmus: turns with the host, system scope", turns_with_host},
    {"litmus: messages between tiles, block scope", boards_of_block},
    {"litmus: messages between tiles, device scope", boards_of_device},
    {"litmus: messages between tiles, system scope", boards_of_system},
    {"litmus: slots owned in turn, block scope", slots_of_block},
    {"litmus: slots owned in turn, device scope", slots_of_device},
    {"litmus: slots owned in turn, system scope", slots_of_system},
    {"litmus: slots shared with the host, system scope", slots_with_host},
};
const size_t simt_litmus_case_count = sizeof simt_litmus_cases / sizeof simt_litmus_cases[0];
