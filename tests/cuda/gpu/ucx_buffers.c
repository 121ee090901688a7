/* SPDX-License-Identifier: MIT
 *
 * Messages of UCX from one device's memory to another's, a process each, for memory of several
 * sources: what arrives is what was sent, also after blocks were freed, trimmed and allocated
 * again, when a registration that UCX keeps would lead to other memory.
 *
 *   ucx-buffers
 *
 * Needs UCX with CUDA, as libucx/lib of PyPI's libucx-cu13 has it.
 * Exit status 1: a line ends in NO, or a call failed; 77: no device.
 */
#include "say.h"

#include <gpualloc/gpualloc.h>

#include <ucp/api/ucp.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SKIP = 77,
    RANKS = 2,
    ROUNDS = 4,
    ADDRESS = 4096 /* bytes of a worker's address, at most */
};

#define SIZE ((size_t)64 << 20)

/* Of a heap; NULL: cudaMalloc. */
static const char *const sources[] = {NULL, "vmm", "vmm:register=on", "slab/vmm", "vmm:share=none"};

/* Shared by the processes. */
static struct {
    int arrived; /* ranks at all meetings so far */
    char address[RANKS][ADDRESS];
} * world;

static int rank, device, not_so;
static ucp_worker_h worker;
static ucp_ep_h to_other;

static void must(const char *what, int result)
{
    if (result) {
        printf("rank %d: %s: error %d\n", rank, what, result);
        exit(1);
    }
}

/* The other rank may need this one's progress meanwhile. */
static void meet(void)
{
    static int meetings;
    int all = RANKS * ++meetings;
    __atomic_fetch_add(&world->arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&world->arrived, __ATOMIC_ACQUIRE) < all) {
        ucp_worker_progress(worker);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void connect_ranks(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_context_h context;
    ucp_address_t *own;
    size_t size;
    must("ucp_init", ucp_init(&params, NULL, &context));
    must("ucp_worker_create", ucp_worker_create(context, &single, &worker));
    must("ucp_worker_get_address", ucp_worker_get_address(worker, &own, &size));
    must("the size of an address", size > ADDRESS);
    memcpy(world->address[rank], own, size);
    meet();
    ucp_ep_params_t other = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                             .address = (const ucp_address_t *)world->address[!rank]};
    must("ucp_ep_create", ucp_ep_create(worker, &other, &to_other));
}

static void finish(const char *what, ucs_status_ptr_t request)
{
    ucs_status_t status = UCS_PTR_IS_PTR(request) ? UCS_INPROGRESS : UCS_PTR_RAW_STATUS(request);
    while (status == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
        status = ucp_request_check_status(request);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    must(what, status);
}

/* Returns milliseconds. */
static double exchange(const void *from, void *to)
{
    ucp_request_param_t how = {0};
    struct timespec begin, end;
    meet();
    clock_gettime(CLOCK_MONOTONIC, &begin);
    ucs_status_ptr_t in = ucp_tag_recv_nbx(worker, to, SIZE, 1, ~UINT64_C(0), &how);
    ucs_status_ptr_t out = ucp_tag_send_nbx(to_other, from, SIZE, 1, &how);
    finish("ucp_tag_send_nbx", out);
    finish("ucp_tag_recv_nbx", in);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *take(ga_heap *heap, int filled)
{
    void *block = NULL;
    must("an allocation",
         heap ? (int)ga_alloc(heap, SIZE, 0, &block) : (int)cudaMalloc(&block, SIZE));
    must("cudaMemset", (int)cudaMemset(block, filled, SIZE));
    must("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
    return block;
}

static void give(ga_heap *heap, void *block)
{
    must("a free", heap ? (int)ga_free(heap, block) : (int)cudaFree(block));
}

/* The blocks of each round have other memory, and often the addresses of the last round. */
static void try_source(const char *spec)
{
    ga_heap *heap = NULL;
    double milliseconds = 0;
    bool good = true;
    if (spec && ga_heap_open(&heap, GA_PLACE_DEVICE, device, spec) != GA_OK) {
        printf("rank %d: %s: %s\n", rank, spec, ga_error_text());
        exit(1);
    }
    for (int i = 0; i < ROUNDS; i++) {
        void *from = take(heap, 10 * i + rank);
        void *between = take(heap, 99);
        void *to = take(heap, 98);
        (void)exchange(from, to); /* with the registrations of this round */
        milliseconds = exchange(from, to);
        must("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
        good = good && holds(to, SIZE, 10 * i + !rank) && holds(between, SIZE, 99);
        meet();
        give(heap, from);
        give(heap, to);
        must("ga_trim", heap ? (int)ga_trim(heap, 0) : 0);
        give(heap, between);
    }
    printf("rank %d, %.2f ms\n", rank, milliseconds);
    need(spec ? spec : "cudaMalloc", good);
    not_so += !good;
    meet();
    must("ga_heap_close", heap ? (int)ga_heap_close(heap) : 0);
}

static int run_rank(void)
{
    int devices = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(100);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        return SKIP;
    }
    device = rank % devices;
    must("cudaSetDevice", (int)cudaSetDevice(device));
    must("cudaFree", (int)cudaFree(NULL));
    connect_ranks();
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        try_source(sources[i]);
    }
    meet();
    return not_so != 0;
}

int main(void)
{
    int worst = 0;
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (rank = 0; rank < RANKS; rank++) {
        if (fork() == 0) { /* before CUDA starts */
            _exit(run_rank());
        }
    }
    for (int i = 0; i < RANKS; i++) {
        int status = 0;
        wait(&status);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        worst = worst == 1 || code == 1 ? 1 : code;
    }
    return worst;
}
