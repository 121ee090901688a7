/* SPDX-License-Identifier: MIT
 *
 * Arenas over the real driver: growing, moving, sharing, and refusals.
 */
#include "arena.h"

#include <stdio.h>
#include <stdlib.h>

static const uint64_t PIECE = 64 << 10; /* bytes that are written and checked at each place */

bool arena_open(ga_arena **arena, int device, uint32_t flags, uint64_t reserve)
{
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = flags,
                                .place = GA_PLACE_DEVICE,
                                .device = device,
                                .reserve = reserve};
    ga_status status = ga_arena_open(arena, &options);
    if (status != GA_OK) {
        printf("    status %d: %s\n", (int)status, ga_error_text());
    }
    return status == GA_OK;
}

bool arena_grow(ga_arena *arena, uint64_t size)
{
    ga_status status = ga_arena_grow(arena, size);
    if (status != GA_OK) {
        printf("    %llu bytes: status %d: %s\n", (unsigned long long)size, (int)status,
               ga_error_text());
    }
    return status == GA_OK && ga_arena_size(arena) >= size;
}

bool arena_fill_at(ga_arena *arena, int device, uint64_t at, unsigned char value)
{
    return device_fill(device, (char *)ga_arena_base(arena) + at, value, PIECE);
}

bool arena_holds_at(ga_arena *arena, int device, uint64_t at, unsigned char value)
{
    return device_holds(device, (char *)ga_arena_base(arena) + at, value, PIECE);
}

/* ---- growing ----------------------------------------------------------------------------- */

/* A value of its own at each end of each growth. */
static void grows_by_doubling(int device)
{
    ga_arena *arena;
    ga_arena_stats stats;
    uint64_t had = 0;
    unsigned char value = 1;
    REQUIRE(arena_open(&arena, device, 0, 0));
    char *base = ga_arena_base(arena);
    EXPECT(ga_arena_reserved(arena) == (uint64_t)1 << 40);
    for (uint64_t size = 2 * MIB; size <= 4 * GIB; size *= 2, value += 2) {
        REQUIRE(arena_grow(arena, size));
        EXPECT(ga_arena_base(arena) == base);
        EXPECT(arena_fill_at(arena, device, had, value));
        had = ga_arena_size(arena);
        EXPECT(arena_fill_at(arena, device, had - PIECE, (unsigned char)(value + 1)));
    }
    value = 1;
    for (uint64_t size = 0; size < had; size = size ? 2 * size : 2 * MIB, value += 2) {
        uint64_t end = size ? 2 * size : 2 * MIB;
        EXPECT(arena_holds_at(arena, device, size, value));
        EXPECT(arena_holds_at(arena, device, end - PIECE, (unsigned char)(value + 1)));
    }
    ga_arena_get_stats(arena, &stats);
    EXPECT(stats.backed == 4 * GIB && stats.growths == 12);
    printf("    12 growths, 2 MiB to 4 GiB: us p50 %.0f, p99 %.0f, worst %.0f\n",
           1e-3 * (double)stats.grow_ns_p50, 1e-3 * (double)stats.grow_ns_p99,
           1e-3 * (double)stats.grow_ns_max);
    ga_arena_close(arena);
}

/* 8 TiB are available everywhere; how much more depends on the system's address space. */
static void reserves_much(int device)
{
    static const uint64_t TIB = (uint64_t)1 << 40;
    for (uint64_t tebibytes = 1; tebibytes <= 64; tebibytes *= 2) {
        ga_arena *arena;
        if (!arena_open(&arena, device, 0, tebibytes * TIB)) {
            EXPECT(tebibytes > 8);
            break;
        }
        printf("    %d TiB reserved\n", (int)tebibytes);
        EXPECT(arena_grow(arena, 2 * MIB));
        EXPECT(arena_fill_at(arena, device, 0, 9) && arena_holds_at(arena, device, 0, 9));
        ga_arena_close(arena);
    }
}

uint64_t arena_free_memory(int device)
{
    ga_cuda_scope scope;
    size_t available = 0;
    size_t total = 0;
    if (ga_cuda_enter(&scope, device) == GA_OK) {
        scope.driver->cuMemGetInfo(&available, &total);
        ga_cuda_leave(&scope);
    }
    return available;
}

/* The committed memory is the driver's count, and all of it is freed. Others may use the card a
 * bit. */
static void memory_is_accounted(int device)
{
    const uint64_t slack = 256 * MIB;
    uint64_t before = arena_free_memory(device);
    if (before < 8 * GIB) {
        SKIP("too little memory is free");
    }
    for (int round = 0; round < 20; round++) {
        ga_arena *arena;
        REQUIRE(arena_open(&arena, device, GA_ARENA_EXACT, 0));
        REQUIRE(arena_grow(arena, 2 * GIB));
        uint64_t now = arena_free_memory(device);
        EXPECT(now + 2 * GIB <= before + slack && now + 2 * GIB + slack >= before);
        EXPECT(ga_arena_shrink(arena, GIB) == GA_OK && ga_arena_size(arena) == GIB);
        now = arena_free_memory(device);
        EXPECT(now + GIB <= before + slack && now + GIB + slack >= before);
        ga_arena_close(arena);
    }
    EXPECT(arena_free_memory(device) + slack >= before);
}

static void shrinks_and_grows_again(int device)
{
    ga_arena *arena;
    REQUIRE(arena_open(&arena, device, GA_ARENA_EXACT, 0));
    for (int i = 1; i <= 8; i++) {
        REQUIRE(arena_grow(arena, (uint64_t)i * 32 * MIB));
        EXPECT(arena_fill_at(arena, device, (uint64_t)(i - 1) * 32 * MIB, (unsigned char)i));
    }
    for (int round = 0; round < 10; round++) {
        EXPECT(ga_arena_shrink(arena, 64 * MIB + 1) == GA_OK);
        EXPECT(ga_arena_size(arena) == 96 * MIB);
        REQUIRE(arena_grow(arena, 256 * MIB));
        EXPECT(arena_fill_at(arena, device, 256 * MIB - PIECE, 77));
        EXPECT(arena_holds_at(arena, device, 256 * MIB - PIECE, 77));
    }
    for (int i = 1; i <= 3; i++) {
        EXPECT(arena_holds_at(arena, device, (uint64_t)(i - 1) * 32 * MIB, (unsigned char)i));
    }
    ga_arena_close(arena);
}

/* A growth, and its report, while `stream` has work; the result of that work must be right. */
static void grow_beside(int device, const ga_cuda_driver *driver, CUstream stream)
{
    enum {
        FILLS = 400
    };
    ga_arena *busy;
    ga_arena *grown;
    REQUIRE(arena_open(&busy, device, 0, 0) && arena_open(&grown, device, GA_ARENA_EXACT, 0));
    REQUIRE(arena_grow(busy, GIB));
    CUdeviceptr base = (CUdeviceptr)ga_arena_base(busy);
    for (int i = 1; i <= FILLS; i++) {
        EXPECT(driver->cuMemsetD8Async(base, (unsigned char)i, GIB, stream) == CUDA_SUCCESS);
    }
    for (uint64_t size = 32 * MIB; size <= 2 * GIB; size += 32 * MIB) {
        REQUIRE(arena_grow(grown, size));
    }
    bool runs = driver->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    printf("    after 64 growths the work beside them %s\n", runs ? "still ran" : "had ended");
    EXPECT(arena_fill_at(grown, device, 2 * GIB - PIECE, 5));
    EXPECT(arena_holds_at(grown, device, 2 * GIB - PIECE, 5));
    EXPECT(driver->cuStreamSynchronize(stream) == CUDA_SUCCESS);
    EXPECT(arena_holds_at(busy, device, 0, FILLS & 255));
    EXPECT(arena_holds_at(busy, device, GIB - PIECE, FILLS & 255));
    ga_arena_close(grown);
    ga_arena_close(busy);
}

static void grows_beside_work(int device)
{
    ga_cuda_scope scope;
    CUstream stream;
    REQUIRE(ga_cuda_enter(&scope, device) == GA_OK);
    CUresult made = scope.driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    EXPECT(made == CUDA_SUCCESS);
    if (made == CUDA_SUCCESS) {
        grow_beside(device, scope.driver, stream);
        scope.driver->cuStreamDestroy(stream);
    }
    ga_cuda_leave(&scope);
}

/* ---- more addresses ---------------------------------------------------------------------- */

/* True if the addresses directly behind are taken, because the test has mapped them or another
 * mapping is there. */
static CUdeviceptr stand_behind(const ga_cuda_driver *driver, const ga_arena *arena)
{
    CUdeviceptr got = 0;
    CUdeviceptr behind = (CUdeviceptr)ga_arena_base(arena) + ga_arena_reserved(arena);
    if (driver->cuMemAddressReserve(&got, 64 * MIB, 0, behind, 0) != CUDA_SUCCESS) {
        return 0;
    }
    return got;
}

static void extends(int device)
{
    ga_arena *arena;
    REQUIRE(arena_open(&arena, device, 0, 64 * MIB));
    REQUIRE(arena_grow(arena, 62 * MIB));
    EXPECT(arena_fill_at(arena, device, 60 * MIB, 3));
    char *base = ga_arena_base(arena);
    ga_status status = ga_arena_extend(arena, 256 * MIB);
    printf("    directly behind: %s\n", status == GA_OK ? "extended" : ga_error_text());
    EXPECT(status == GA_OK ||
           (status == GA_ERR_CANNOT_GROW && ga_arena_reserved(arena) == 64 * MIB));
    if (status == GA_OK) {
        REQUIRE(arena_grow(arena, 256 * MIB)); /* over the seam */
        EXPECT(ga_arena_base(arena) == base);
        EXPECT(device_fill(device, base + 63 * MIB, 4, 2 * MIB));
        EXPECT(device_holds(device, base + 63 * MIB, 4, 2 * MIB));
        EXPECT(arena_holds_at(arena, device, 60 * MIB, 3));
    }
    ga_arena_close(arena);
}

static void move_it(int device, const ga_cuda_driver *driver)
{
    ga_arena *arena;
    REQUIRE(arena_open(&arena, device, GA_ARENA_EXACT, 64 * MIB));
    for (int i = 1; i <= 8; i++) {
        REQUIRE(arena_grow(arena, (uint64_t)i * 8 * MIB));
        EXPECT(arena_fill_at(arena, device, (uint64_t)(i - 1) * 8 * MIB, (unsigned char)i));
    }
    void *base = ga_arena_base(arena);
    uint64_t before = arena_free_memory(device);
    CUdeviceptr behind = stand_behind(driver, arena);
    REQUIRE(behind);
    EXPECT(ga_arena_extend(arena, 128 * MIB) == GA_ERR_CANNOT_GROW);
    EXPECT(test_error_has("the addresses from"));
    ga_status status = ga_arena_move(arena, GIB);
    if (status != GA_OK) {
        printf("    status %d: %s\n", (int)status, ga_error_text());
    }
    EXPECT(status == GA_OK && ga_arena_base(arena) != base && ga_arena_reserved(arena) == GIB);
    for (int i = 1; i <= 8; i++) {
        EXPECT(arena_holds_at(arena, device, (uint64_t)(i - 1) * 8 * MIB, (unsigned char)i));
    }
    EXPECT(arena_free_memory(device) + 64 * MIB > before); /* nothing was copied */
    EXPECT(arena_grow(arena, 128 * MIB));
    EXPECT(driver->cuMemAddressFree(behind, 64 * MIB) == CUDA_SUCCESS);
    ga_arena_close(arena);
}

static void moves(int device)
{
    ga_cuda_scope scope;
    REQUIRE(ga_cuda_enter(&scope, device) == GA_OK);
    move_it(device, scope.driver);
    ga_cuda_leave(&scope);
}

/* ---- refusals ---------------------------------------------------------------------------- */

static void refuses_devices(int device)
{
    int count = 0;
    ga_arena *arena = NULL;
    ga_arena_options options = {.options_size = sizeof options, .place = GA_PLACE_DEVICE};
    (void)device;
    REQUIRE(ga_cuda_device_count(&count) == GA_OK);
    options.device = count;
    EXPECT(ga_arena_open(&arena, &options) == GA_ERR_DEVICE && !arena);
    EXPECT(test_error_has("arena: no CUDA device"));
    options.device = 0;
    options.peers = &count;
    options.peer_count = 1;
    EXPECT(ga_arena_open(&arena, &options) == GA_ERR_DEVICE && !arena);
    options.place = GA_PLACE_KERNEL;
    EXPECT(ga_arena_open(&arena, &options) == GA_ERR_ARGUMENT && !arena);
}

/* A flag works, or is refused by a sentence that names it; and the rest works as before. */
static void try_flag(int device, const char *name, uint32_t flag)
{
    ga_arena *arena = NULL;
    ga_arena_options options = {
        .options_size = sizeof options, .flags = flag, .place = GA_PLACE_DEVICE, .device = device};
    ga_status status = ga_arena_open(&arena, &options);
    printf("    %s: %s\n", name, status == GA_OK ? "granted" : ga_error_text());
    EXPECT(status == GA_OK || (status == GA_ERR_UNSUPPORTED && !arena));
    if (status == GA_OK) {
        EXPECT(arena_grow(arena, 8 * MIB));
        EXPECT(arena_fill_at(arena, device, 0, 6) && arena_holds_at(arena, device, 0, 6));
        ga_arena_close(arena);
    }
    REQUIRE(arena_open(&arena, device, 0, 0));
    EXPECT(arena_grow(arena, 8 * MIB));
    ga_arena_close(arena);
}

static void flags_are_granted_or_refused(int device)
{
    try_flag(device, "SHARE_FD", GA_ARENA_SHARE_FD);
    try_flag(device, "SHARE_FABRIC", GA_ARENA_SHARE_FABRIC);
    try_flag(device, "RDMA", GA_ARENA_RDMA);
}

/* More than the card has: refused, and nothing leaks. */
static void memory_ends(int device)
{
    ga_arena *arena;
    uint64_t before = arena_free_memory(device);
    REQUIRE(arena_open(&arena, device, 0, 0));
    REQUIRE(arena_grow(arena, 8 * MIB));
    EXPECT(arena_fill_at(arena, device, 0, 8));
    EXPECT(ga_arena_grow(arena, before + 128 * MIB) == GA_ERR_MEMORY);
    EXPECT((test_error_has("arena: no chunk of") && test_error_has("CUDA_ERROR_OUT_OF_MEMORY")) ||
           test_error_has(", by the memory of device ")); /* if less than that is in use */
    EXPECT(ga_arena_grow(arena, 2 * before + 2 * GIB) == GA_ERR_MEMORY);
    EXPECT(test_error_has(", by the memory of device "));
    EXPECT(ga_arena_size(arena) == 8 * MIB && arena_holds_at(arena, device, 0, 8));
    EXPECT(arena_free_memory(device) + 256 * MIB >= before);
    EXPECT(ga_arena_grow(arena, (uint64_t)2 << 40) == GA_ERR_CANNOT_GROW);
    EXPECT(arena_grow(arena, 64 * MIB));
    ga_arena_close(arena);
}

int arena_peer_of(int device)
{
    int count = 0;
    int can = 0;
    const ga_cuda_driver *driver;
    int peer = device ? 0 : 1;
    bool asked = ga_cuda_device_count(&count) == GA_OK && ga_cuda_driver_get(&driver) == GA_OK &&
                 peer < count && driver->cuDeviceCanAccessPeer(&can, peer, device) == CUDA_SUCCESS;
    return asked && can ? peer : -1;
}

static void peers_reach_it(int device)
{
    ga_arena *arena;
    int peer = arena_peer_of(device);
    if (peer < 0) {
        SKIP("no other device reaches the memory of this one");
    }
    ga_arena_options options = {.options_size = sizeof options,
                                .place = GA_PLACE_DEVICE,
                                .device = device,
                                .peers = &peer,
                                .peer_count = 1};
    REQUIRE(ga_arena_open(&arena, &options) == GA_OK);
    REQUIRE(arena_grow(arena, 8 * MIB));
    EXPECT(arena_fill_at(arena, device, 0, 1) && arena_holds_at(arena, peer, 0, 1));
    EXPECT(arena_fill_at(arena, peer, 0, 2) && arena_holds_at(arena, device, 0, 2));
    ga_arena_close(arena);
}

case_list arena_cases(void)
{
    static const test_case cases[] = {
        {"an arena grows by doubling", grows_by_doubling},
        {"arenas of 1 to 64 TiB", reserves_much},
        {"what is backed is accounted", memory_is_accounted},
        {"an arena shrinks and grows again", shrinks_and_grows_again},
        {"an arena grows beside other work", grows_beside_work},
        {"an arena extends", extends},
        {"an arena moves", moves},
        {"arenas of devices that are not there", refuses_devices},
        {"flags of arenas", flags_are_granted_or_refused},
        {"memory ends under an arena", memory_ends},
        {"an arena that another device reaches", peers_reach_it},
    };
    return (case_list){"arena", cases, sizeof cases / sizeof *cases};
}
