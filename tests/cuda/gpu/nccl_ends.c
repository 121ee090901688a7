/* SPDX-License-Identifier: MIT
 *
 * When NCCL ends registrations, and begins them, on two devices of one process, under the preload
 * with `vmm`: in groups, and with communicators that do not block. For NCCL 2.27 or later, which is
 * found at run time.
 *
 *   nccl-ends
 *
 * Exit status 1: a line ends in NO, or a call failed; 77: fewer than two devices, or no NCCL.
 */
#include "say.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
    SKIP = 77,
    RANKS = 2,
    IN_PROGRESS = 7, /* ncclInProgress */
    SYMMETRIC = 1    /* NCCL_WIN_COLL_SYMMETRIC */
};

#define SIZE ((size_t)64 << 20)

/* ncclConfig_t as of 2.18; later versions accept it by its size and version. */
typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_size, ctas_min, ctas_max;
    const char *net;
    int splits_share;
} config;

typedef struct unique_id {
    char bytes[128];
} unique_id;

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(ncclGetVersion, (int *version))                                                              \
    X(ncclGetUniqueId, (unique_id * id))                                                           \
    X(ncclCommInitAll, (void **comms, int count, const int *devices))                              \
    X(ncclCommInitRankConfig, (void **comm, int count, unique_id id, int rank, config *how))       \
    X(ncclCommDestroy, (void *comm))                                                               \
    X(ncclCommAbort, (void *comm))                                                                 \
    X(ncclCommGetAsyncError, (void *comm, int *error))                                             \
    X(ncclGroupStart, (void))                                                                      \
    X(ncclGroupEnd, (void))                                                                        \
    X(ncclMemAlloc, (void **block, size_t size))                                                   \
    X(ncclMemFree, (void *block))                                                                  \
    X(ncclCommRegister, (void *comm, void *block, size_t size, void **handle))                     \
    X(ncclCommWindowRegister, (void *comm, void *block, size_t size, void **window, int flags))    \
    X(ncclCommWindowDeregister, (void *comm, void *window))
/* clang-format on */

#define MEMBER(symbol, parameters) int(*symbol) parameters;
static struct {
    FUNCTIONS(MEMBER)
} nccl;

static bool find_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
#define FIND(symbol, parameters) *(void **)&nccl.symbol = library ? dlsym(library, #symbol) : NULL;
    FUNCTIONS(FIND)
    return nccl.ncclCommWindowRegister && nccl.ncclCommInitRankConfig;
}

static int not_so;

static void check(const char *what, int holds)
{
    need(what, holds);
    not_so += !holds;
}

static void must(const char *what, int result)
{
    if (result) {
        printf("%s: error %d\n", what, result);
        exit(1);
    }
}

/* ---- blocks, one on each device -------------------------------------------------------------- */

typedef struct pair {
    void *of[RANKS];
} pair;

static void on(int device)
{
    must("cudaSetDevice", (int)cudaSetDevice(device));
}

static pair take(int filled)
{
    pair made;
    for (int i = 0; i < RANKS; i++) {
        on(i);
        must("ncclMemAlloc", nccl.ncclMemAlloc(&made.of[i], SIZE));
        must("cudaMemset", (int)cudaMemset(made.of[i], filled, SIZE));
        must("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
    }
    return made;
}

static void give(const pair *blocks)
{
    for (int i = 0; i < RANKS; i++) {
        on(i);
        must("ncclMemFree", nccl.ncclMemFree(blocks->of[i]));
        must("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
    }
}

/* A freed pair, filled with 5, has its memory, whatever else is allocated. */
static void check_stays(const char *what, const pair *freed)
{
    pair other = take(6);
    int stays = 1;
    for (int i = 0; i < RANKS; i++) {
        on(i);
        stays = stays && other.of[i] != freed->of[i] && holds(freed->of[i], SIZE, 5);
    }
    check(what, stays);
    give(&other);
}

/* One of a few requests gets each block. */
static void check_reused(const char *what, const pair *freed)
{
    pair tries[3];
    int found[RANKS] = {0};
    for (int t = 0; t < 3; t++) {
        tries[t] = take(7);
        for (int i = 0; i < RANKS; i++) {
            found[i] = found[i] || tries[t].of[i] == freed->of[i];
        }
    }
    for (int t = 0; t < 3; t++) {
        give(&tries[t]);
    }
    check(what, found[0] && found[1]);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static void destroyed_in_a_group(bool aborts)
{
    void *comms[RANKS], *handle = NULL;
    pair blocks = take(5);
    must("ncclCommInitAll", nccl.ncclCommInitAll(comms, RANKS, (int[]){0, 1}));
    for (int i = 0; i < RANKS; i++) {
        on(i);
        must("ncclCommRegister", nccl.ncclCommRegister(comms[i], blocks.of[i], SIZE, &handle));
    }
    give(&blocks);
    must("ncclGroupStart", nccl.ncclGroupStart());
    for (int i = 0; i < RANKS; i++) {
        on(i);
        must("the end", aborts ? nccl.ncclCommAbort(comms[i]) : nccl.ncclCommDestroy(comms[i]));
    }
    check_stays(aborts ? "aborted in a group: blocks stay until its end"
                       : "destroyed in a group: blocks stay until its end",
                &blocks);
    must("ncclGroupEnd", nccl.ncclGroupEnd());
    check_reused("and are reused after it", &blocks);
}

/* ---- communicators that do not block --------------------------------------------------------- */

/* Until no communicator has an operation in progress. */
static void settle(void **comms)
{
    for (int i = 0; i < RANKS; i++) {
        int error = IN_PROGRESS;
        while (error == IN_PROGRESS) {
            must("ncclCommGetAsyncError", nccl.ncclCommGetAsyncError(comms[i], &error));
        }
        must("a communicator", error);
    }
}

static void may_go_on(const char *what, int result)
{
    must(what, result == IN_PROGRESS ? 0 : result);
}

static void begin_nonblocking(void **comms)
{
    unique_id id;
    config how = {sizeof how, 0xcafebeef, 21901, 0, INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN};
    must("ncclGetUniqueId", nccl.ncclGetUniqueId(&id));
    must("ncclGroupStart", nccl.ncclGroupStart());
    for (int i = 0; i < RANKS; i++) {
        on(i);
        may_go_on("ncclCommInitRankConfig",
                  nccl.ncclCommInitRankConfig(&comms[i], RANKS, id, i, &how));
    }
    may_go_on("ncclGroupEnd", nccl.ncclGroupEnd());
    settle(comms);
}

static void windows(void **comms, bool grouped)
{
    void *made[RANKS] = {NULL};
    pair blocks = take(5);
    must("ncclGroupStart", grouped ? nccl.ncclGroupStart() : 0);
    for (int i = 0; i < RANKS; i++) {
        on(i);
        may_go_on("ncclCommWindowRegister",
                  nccl.ncclCommWindowRegister(comms[i], blocks.of[i], SIZE, &made[i], SYMMETRIC));
        printf("a window %s\n", made[i] ? "at once" : "later");
    }
    may_go_on("ncclGroupEnd", grouped ? nccl.ncclGroupEnd() : 0);
    settle(comms);
    check("windows", made[0] != NULL && made[1] != NULL);
    give(&blocks);
    check_stays(grouped ? "windows of a group: blocks stay" : "windows: blocks stay", &blocks);
    for (int i = 0; i < RANKS; i++) {
        on(i);
        may_go_on("ncclCommWindowDeregister", nccl.ncclCommWindowDeregister(comms[i], made[i]));
    }
    settle(comms);
    check_reused("and are reused", &blocks);
}

static void nonblocking(void)
{
    void *comms[RANKS], *handle = NULL;
    begin_nonblocking(comms);
    windows(comms, false);
    windows(comms, true);
    pair blocks = take(5);
    for (int i = 0; i < RANKS; i++) {
        on(i);
        may_go_on("ncclCommRegister", nccl.ncclCommRegister(comms[i], blocks.of[i], SIZE, &handle));
    }
    give(&blocks);
    check_stays("registered with communicators that do not block: blocks stay", &blocks);
    for (int i = 0; i < RANKS; i++) {
        on(i);
        must("ncclCommDestroy", nccl.ncclCommDestroy(comms[i]));
    }
    check_reused("and are reused once these are destroyed", &blocks);
}

int main(void)
{
    int devices = 0, version = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < RANKS || !find_nccl()) {
        puts("two devices and NCCL 2.27 are needed");
        return SKIP;
    }
    must("ncclGetVersion", nccl.ncclGetVersion(&version));
    printf("NCCL %d\n", version);
    destroyed_in_a_group(false);
    destroyed_in_a_group(true);
    nonblocking();
    return not_so != 0;
}
