/* SPDX-License-Identifier: MIT
 *
 * UCX between two devices, a process each, on memory of several sources: messages, which the other
 * process receives and checks, and reads of registered memory (ucp_mem_map, ucp_get_nbx). Prints
 * rates, and whether the block can be exported as a dma-buf. For a machine with two devices, and a
 * UCX with support for CUDA: libucp.so.0 of PyPI's libucx-cu13, on LD_LIBRARY_PATH.
 *
 *   ucx-buffers [first]
 *
 * first: each process sees its own device first, as number 0. UCX_PROTO_INFO=y shows how UCX
 * carries them. Exit status 1: a line ends in NO, or a call failed; 77: fewer than two devices, or
 * no support for CUDA.
 */
#include "say.h"

#include <gpualloc/arena.h>
#include <gpualloc/gpualloc.h>

#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

enum {
    SKIP = 77,
    RANKS = 2,
    MESSAGES = 10,
    KEY_MOST = 4096,
    ADDRESS_MOST = 8192,
    TAG = 5
};

#define SIZE    ((size_t)64 << 20)
#define READING 0.3 /* seconds at most */

typedef enum source {
    PLAIN,      /* cuMemAlloc */
    REGISTERED, /* vmm:register=on */
    SHARED,     /* vmm:share=fd */
    ARENA,      /* GA_ARENA_SHARE_FD */
    SOURCES
} source;

static const char *const names[SOURCES] = {"cuMemAlloc", "vmm:register=on", "vmm:share=fd",
                                           "an arena, share=fd"};

/* Shared by the processes. */
static struct {
    pthread_barrier_t together;
    size_t length[RANKS];
    char address[RANKS][ADDRESS_MOST];
    size_t key_length;
    char key[KEY_MOST];
    uint64_t remote; /* the address of rank 1's block */
} * world;

static int not_so;

static void check(const char *what, bool holds)
{
    printf("%-60s %s\n", what, holds ? "yes" : "NO");
    not_so += !holds;
}

static void must(const char *what, int result)
{
    if (result) {
        printf("%s: error %d\n", what, result);
        exit(1);
    }
}

static void meet(void)
{
    pthread_barrier_wait(&world->together);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---- UCX --------------------------------------------------------------------------------- */

typedef struct rank {
    int number, device;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h end; /* to the other rank */
} rank;

static void begin_ucx(rank *r)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    ucp_address_t *address;
    size_t length;
    must("ucp_init", ucp_init(&params, NULL, &r->context));
    must("ucp_context_query", ucp_context_query(r->context, &attributes));
    if (!(attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA))) {
        printf("skipped: a UCX without support for CUDA\n");
        exit(SKIP);
    }
    must("ucp_worker_create", ucp_worker_create(r->context, &worker, &r->worker));
    must("ucp_worker_get_address", ucp_worker_get_address(r->worker, &address, &length));
    must("the address", length > ADDRESS_MOST);
    memcpy(world->address[r->number], address, length);
    ucp_worker_release_address(r->worker, address);
    meet();
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                          .address = (ucp_address_t *)world->address[1 - r->number]};
    must("ucp_ep_create", ucp_ep_create(r->worker, &to, &r->end));
}

static void finish(const rank *r, const char *what, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request)) {
        printf("%s: %s\n", what, ucs_status_string(UCS_PTR_STATUS(request)));
        exit(1);
    }
    if (request) {
        double end = now() + 5;
        while (ucp_request_check_status(request) == UCS_INPROGRESS && now() < end) {
            ucp_worker_progress(r->worker);
        }
        ucs_status_t status = ucp_request_check_status(request);
        ucp_request_free(request);
        if (status != UCS_OK) {
            printf("%s: %s\n", what, ucs_status_string(status));
            exit(1);
        }
    }
}

/* All work of both ranks is done. */
static void flush(const rank *r)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    finish(r, "ucp_worker_flush_nbx", ucp_worker_flush_nbx(r->worker, &none));
}

/* Waits for the other rank, and goes on with UCX's work meanwhile. */
static void meet_busy(const rank *r, int *arrived)
{
    __atomic_fetch_add(arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(arrived, __ATOMIC_SEQ_CST) % RANKS) {
        ucp_worker_progress(r->worker);
    }
}

static int *arrivals; /* shared: one counter for each meeting */
static int meetings;

static void meet_at_work(const rank *r)
{
    meet_busy(r, arrivals + meetings++);
}

static void end_ucx(const rank *r)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    meet_at_work(r);
    finish(r, "ucp_ep_close_nbx", ucp_ep_close_nbx(r->end, &none));
    meet_at_work(r);
    ucp_worker_destroy(r->worker);
    ucp_cleanup(r->context);
}

/* ---- sources of memory ------------------------------------------------------------------- */

typedef struct block {
    void *start;
    ga_heap *heap;
    ga_arena *arena;
} block;

static void ok(const char *what, ga_status status)
{
    if (status != GA_OK) {
        printf("%s: %s\n", what, ga_error_text());
        exit(1);
    }
}

static void take(const rank *r, source from, block *out)
{
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_SHARE_FD,
                                .place = GA_PLACE_DEVICE,
                                .device = r->device,
                                .reserve = 4 * SIZE};
    *out = (block){.start = NULL};
    switch (from) {
    case PLAIN:
        must("cudaMalloc", (int)cudaMalloc(&out->start, SIZE));
        break;
    case ARENA:
        ok("ga_arena_open", ga_arena_open(&out->arena, &options));
        ok("ga_arena_grow", ga_arena_grow(out->arena, SIZE));
        out->start = ga_arena_base(out->arena);
        break;
    default:
        ok("ga_heap_open", ga_heap_open(&out->heap, GA_PLACE_DEVICE, r->device, names[from]));
        ok("ga_alloc", ga_alloc(out->heap, SIZE, 0, &out->start));
        break;
    }
}

static void give_back(source from, block *of)
{
    if (from == PLAIN) {
        must("cudaFree", (int)cudaFree(of->start));
    } else if (from == ARENA) {
        ga_arena_close(of->arena);
    } else {
        ok("ga_free", ga_free(of->heap, of->start));
        ok("ga_heap_close", ga_heap_close(of->heap));
    }
}

/* As UCX asks for network cards. */
static bool exports(const block *of)
{
    int fd = -1;
    CUresult (*range_handle)(void *, CUdeviceptr, size_t, CUmemRangeHandleType,
                             unsigned long long) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    *(void **)&range_handle = driver ? dlsym(driver, "cuMemGetHandleForAddressRange") : NULL;
    CUresult result = range_handle ? range_handle(&fd, (CUdeviceptr)of->start, SIZE,
                                                  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)
                                   : CUDA_ERROR_NOT_FOUND;
    if (fd >= 0) {
        close(fd);
    } else {
        printf("cuMemGetHandleForAddressRange: error %d\n", (int)result);
    }
    return fd >= 0;
}

/* ---- transfers --------------------------------------------------------------------------- */

/* A word for each 4 bytes, so that a byte at a wrong place is seen. */
static void fill(void *start, unsigned salt)
{
    unsigned *host = malloc(SIZE);
    for (size_t i = 0; i < SIZE / sizeof *host; i++) {
        host[i] = (unsigned)i * 2654435761u + salt;
    }
    must("cudaMemcpy", (int)cudaMemcpy(start, host, SIZE, cudaMemcpyHostToDevice));
    free(host);
}

static bool is_filled(const void *start, unsigned salt)
{
    unsigned *host = malloc(SIZE);
    bool good = true;
    must("cudaMemcpy", (int)cudaMemcpy(host, start, SIZE, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < SIZE / sizeof *host; i++) {
        good &= host[i] == (unsigned)i * 2654435761u + salt;
    }
    free(host);
    return good;
}

static void carry(const rank *r, void *start)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    if (r->number == 0) {
        finish(r, "ucp_tag_send_nbx", ucp_tag_send_nbx(r->end, start, SIZE, TAG, &none));
    } else {
        finish(r, "ucp_tag_recv_nbx",
               ucp_tag_recv_nbx(r->worker, start, SIZE, TAG, (ucp_tag_t)-1, &none));
    }
}

/* From rank 0 to rank 1. */
static void send_messages(const rank *r, source from, void *start)
{
    char line[80];
    fill(start, r->number ? 0 : 77u + from);
    meet_at_work(r);
    carry(r, start);
    flush(r);
    if (r->number == 1) {
        snprintf(line, sizeof line, "%s: a message is received", names[from]);
        check(line, is_filled(start, 77u + from));
    }
    meet_at_work(r);
    double begin = now();
    for (int i = 0; i < MESSAGES; i++) {
        carry(r, start);
    }
    if (r->number == 1) {
        printf("%s: messages: %.1f GB/s\n", names[from],
               (double)SIZE * MESSAGES / (now() - begin) / 1e9);
    }
    meet_at_work(r);
}

static void pack_key(const rank *r, void *start, ucp_mem_h *memory)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = start,
                                   .length = SIZE};
    void *key;
    must("ucp_mem_map", ucp_mem_map(r->context, &params, memory));
    must("ucp_rkey_pack", ucp_rkey_pack(r->context, *memory, &key, &world->key_length));
    must("the key", world->key_length > KEY_MOST);
    memcpy(world->key, key, world->key_length);
    ucp_rkey_buffer_release(key);
    world->remote = (uint64_t)(uintptr_t)start;
}

static void get(const rank *r, source from, void *start)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    ucp_rkey_h key;
    char line[80];
    must("ucp_ep_rkey_unpack", ucp_ep_rkey_unpack(r->end, world->key, &key));
    double begin;
    finish(r, "ucp_get_nbx", ucp_get_nbx(r->end, start, SIZE, world->remote, key, &none));
    flush(r);
    snprintf(line, sizeof line, "%s: registered memory is read", names[from]);
    check(line, is_filled(start, 99u + from));
    int reads = 0;
    for (begin = now(); reads < MESSAGES && now() - begin < READING; reads++) {
        finish(r, "ucp_get_nbx", ucp_get_nbx(r->end, start, SIZE, world->remote, key, &none));
    }
    flush(r);
    printf("%s: reads: %.1f GB/s\n", names[from], (double)SIZE * reads / (now() - begin) / 1e9);
    ucp_rkey_destroy(key);
}

/* Rank 0 reads what rank 1 has registered. */
static void read_registered(const rank *r, source from, void *start)
{
    ucp_mem_h memory = NULL;
    fill(start, r->number ? 99u + from : 0);
    if (r->number == 1) {
        pack_key(r, start, &memory);
    }
    meet_at_work(r);
    if (r->number == 0) {
        get(r, from, start);
    }
    meet_at_work(r);
    if (memory) {
        must("ucp_mem_unmap", ucp_mem_unmap(r->context, memory));
    }
}

static int run(int number, bool is_first)
{
    rank r = {.number = number, .device = is_first ? 0 : number};
    must("cudaSetDevice", (int)cudaSetDevice(r.device));
    must("cudaFree", (int)cudaFree(NULL)); /* a context, before UCX looks for one */
    begin_ucx(&r);
    for (source from = PLAIN; from < SOURCES; from++) {
        block of;
        char line[80];
        take(&r, from, &of);
        if (number == 0) {
            snprintf(line, sizeof line, "%s: a dma-buf", names[from]);
            printf("%-60s %s\n", line, exports(&of) ? "yes" : "none");
        }
        send_messages(&r, from, of.start);
        read_registered(&r, from, of.start);
        fflush(stdout);
        meet_at_work(&r);
        give_back(from, &of);
    }
    end_ucx(&r);
    return not_so != 0;
}

static void *share(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

int main(int argc, char **argv)
{
    bool is_first = argc > 1 && strcmp(argv[1], "first") == 0;
    pthread_barrierattr_t attributes;
    pid_t children[RANKS];
    int failed = 0, skipped = 0;
    world = share(sizeof *world);
    arrivals = share(1 << 16);
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&world->together, &attributes, RANKS);
    for (int i = 0; i < RANKS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            int count = 0;
            if (is_first) {
                setenv("CUDA_VISIBLE_DEVICES", i ? "1,0" : "0,1", 1);
            }
            bool there = cudaGetDeviceCount(&count) == cudaSuccess && count >= RANKS;
            exit(there ? run(i, is_first) : SKIP);
        }
    }
    for (int i = 0; i < RANKS; i++) {
        int status;
        waitpid(children[i], &status, 0);
        skipped += WIFEXITED(status) && WEXITSTATUS(status) == SKIP;
        failed += !WIFEXITED(status) || WEXITSTATUS(status);
    }
    return skipped == RANKS ? SKIP : failed != 0;
}
