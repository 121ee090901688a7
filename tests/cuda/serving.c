/* SPDX-License-Identifier: MIT
 *
 * The calls that a CUDA program may make, under each spec, and their results. Device memory is host
 * memory here, so blocks are written to.
 *
 *   serving CASE driver|heap [plain]
 *
 * The second argument tells whether the driver or a heap serves blocks without a stream; `plain`:
 * they are the driver's blocks all the same.
 */
#include "cases.h"

enum {
    INVALID = CUDA_ERROR_INVALID_VALUE
};

static bool by_heap; /* not the driver */
static bool plain;   /* a heap whose blocks are the driver's */

static CUdeviceptr alloc(size_t size)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, size));
    CHECK(block && block % 512 == 0, "%llx", block);
    memset((void *)block, 0x5a, size);
    return block;
}

static size_t available(void)
{
    size_t free_bytes = 0;
    size_t total = 0;
    CHECK_SAME(0, cu.info(&free_bytes, &total));
    CHECK(free_bytes <= total, "%zu of %zu", free_bytes, total);
    return free_bytes;
}

/* ---- blocks -------------------------------------------------------------------------------- */

enum {
    BLOCKS = 200
};

static size_t size_of(int i)
{
    return (size_t)(i % 7 ? i * 1000 + 1 : i * 7000 + 1);
}

static void blocks(void)
{
    CUdeviceptr at[BLOCKS];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            at[i] = alloc(size_of(i));
            memset((void *)at[i], i, size_of(i));
        }
        for (int i = 0; i < BLOCKS; i++) {
            const unsigned char *bytes = (const unsigned char *)at[i];
            CHECK(bytes[0] == i && bytes[size_of(i) - 1] == i, "block %d is another's, too", i);
            CHECK_SAME(0, cu.free(at[i]));
        }
    }
    CHECK_SAME(0, cu.free(0));
    bool theirs = cu.calls("cuMemAlloc_v2") > 0;
    CHECK(theirs == (!by_heap), "%llu calls", (unsigned long long)cu.calls("cuMemAlloc_v2"));
}

/* The driver's own results for misuse. */
static void wrong(void)
{
    CUdeviceptr block = alloc(1000);
    CUdeviceptr big = alloc(3 * MIB);
    int mine = 0;
    CUdeviceptr none = 0;
    CHECK_SAME(INVALID, cu.alloc(&none, 0));
    CHECK_SAME(CUDA_ERROR_OUT_OF_MEMORY, cu.alloc(&none, SIZE_MAX / 2 - 4096));
    CHECK_SAME(INVALID, cu.free((CUdeviceptr)&mine));
    CHECK_SAME(INVALID, cu.free(block + 256));
    CHECK_SAME(INVALID, cu.free_on((CUdeviceptr)&mine, NULL));
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(INVALID, cu.free(block));
    CHECK_SAME(0, cu.free(big));
    CHECK_SAME(INVALID, cu.free(big));
}

static void pitch(void)
{
    CUdeviceptr block = 0;
    size_t row = 0;
    CHECK_SAME(0, cu.alloc_pitch(&block, &row, 1000, 10, 4));
    CHECK_SAME(1024, row);
    memset((void *)block, 1, row * 10);
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(INVALID, cu.alloc_pitch(&block, &row, 1000, 10, 3));
    CHECK_SAME(INVALID, cu.alloc_pitch(&block, &row, 0, 10, 4));
}

/* ---- questions ----------------------------------------------------------------------------- */

static void check_attributes(CUdeviceptr inside, CUdeviceptr start, size_t size)
{
    CUdeviceptr base = 0;
    size_t length = 0;
    int type = 0;
    CUcontext context = NULL;
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *values[] = {&type, &length, &base, &context};
    CHECK_SAME(0, cu.attributes(4, wanted, values, inside));
    CHECK_SAME(CU_MEMORYTYPE_DEVICE, type);
    CHECK_SAME(start, base);
    CHECK_SAME(size, length);
    if (by_heap) {
        CUcontext current = NULL;
        cu.get_current(&current);
        CHECK(context == current, "another context");
    }
    base = length = 0;
    CHECK_SAME(0, cu.attribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    CHECK_SAME(0, cu.attribute(&length, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    CHECK(base == start && length == size, "%llx, %zu", base, length);
}

static void questions(void)
{
    CUdeviceptr small = alloc(1000);
    CUdeviceptr next = alloc(1000);
    CUdeviceptr large = alloc(5 * MIB + 1);
    CUdeviceptr base = 0;
    size_t size = 0;
    CHECK_SAME(0, cu.range(&base, &size, small + 999));
    CHECK(base == small && size == 1000, "%llx, %zu", base, size);
    CHECK_SAME(0, cu.range(NULL, &size, large + 5 * MIB));
    CHECK_SAME(5 * MIB + 1, size);
    check_attributes(next + 500, next, 1000);
    check_attributes(large + MIB, large, 5 * MIB + 1);
    int mine = 0;
    CHECK_SAME(INVALID, cu.range(&base, &size, (CUdeviceptr)&mine));
    cu.free(small);
    cu.free(next);
    cu.free(large);
}

/* Cached memory counts as free. */
static void information(void)
{
    size_t total;
    size_t before;
    cu.free(alloc(MIB)); /* a heap sets itself up */
    CHECK_SAME(0, cu.info(&before, &total));
    CUdeviceptr block = alloc(40 * MIB);
    size_t with = available();
    CHECK(with <= before - 40 * MIB && with + 50 * MIB >= before, "%zu of %zu", with, before);
    CHECK_SAME(0, cu.free(block));
    CHECK(available() + 4 * MIB >= before, "%zu of %zu", available(), before);
}

/* ---- memory that ends ---------------------------------------------------------------------- */

/* Of a device with 64 MiB, and the rest that a limit of 32 MiB leaves of a larger one. */
static void exhausted(void)
{
    CUdeviceptr at[128];
    int got = 0;
    size_t total = 0;
    size_t there = 0;
    CHECK_SAME(0, cu.info(&there, &total));
    while (got < 128 && cu.alloc(&at[got], MIB) == CUDA_SUCCESS) {
        got++;
    }
    CHECK(got >= (int)(total / MIB) - 8 && got <= (int)(total / MIB), "%d of %zu", got, total);
    CUdeviceptr none = 1;
    CHECK_SAME(CUDA_ERROR_OUT_OF_MEMORY, cu.alloc(&none, 8 * MIB));
    for (int i = 0; i < got; i++) {
        CHECK_SAME(0, cu.free(at[i]));
    }
    CUdeviceptr large = alloc(total - 8 * MIB); /* memory that was cached in pieces is released for
                                                 * it */
    CHECK_SAME(0, cu.free(large));
}

/* Other memory of the driver can be allocated, too, when all of it is cached. */
static void given_up(void)
{
    CUdeviceptr at[10];
    for (int i = 0; i < 10; i++) {
        at[i] = alloc(6 * MIB);
    }
    for (int i = 0; i < 10; i++) {
        CHECK_SAME(0, cu.free(at[i]));
    }
    CUdeviceptr managed = 0;
    CHECK_SAME(0, cu.managed(&managed, 60 * MIB, 1));
    CHECK_SAME(0, cu.free(managed));
}

/* ---- streams ------------------------------------------------------------------------------- */

static CUdeviceptr alloc_on(size_t size, CUstream stream)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc_on(&block, size, stream));
    CHECK(block != 0, "none");
    memset((void *)block, 1, size);
    return block;
}

static void streams(void)
{
    CUstream one;
    CUstream two;
    CUmemoryPool usual;
    CUmemoryPool own;
    CUdeviceptr block = 0;
    CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
    CHECK_SAME(0, cu.stream(&one, 1));
    CHECK_SAME(0, cu.stream(&two, 1));
    for (int i = 0; i < 100; i++) {
        CHECK_SAME(0, cu.free_on(alloc_on(size_of(i), i % 2 ? one : two), i % 3 ? one : NULL));
        CHECK_SAME(0, cu.free(alloc_on(size_of(i), one)));
        CHECK_SAME(0, cu.alloc_thread(&block, size_of(i), NULL));
        CHECK_SAME(0, cu.free_thread(block, NULL));
    }
    CHECK_SAME(0, cu.default_pool(&usual, 0));
    CHECK_SAME(0, cu.alloc_from(&block, MIB, usual, one));
    CHECK_SAME(0, cu.free_on(block, one));
    CHECK_SAME(0, cu.pool_create(&own, &props));
    uint64_t before = cu.calls("cuMemAllocFromPoolAsync");
    CHECK_SAME(0, cu.alloc_from(&block, MIB, own, one));
    CHECK_SAME(before + 1, cu.calls("cuMemAllocFromPoolAsync"));
    CHECK_SAME(0, cu.free_on(block, one));
    CHECK_SAME(INVALID, cu.free_on(block, one));
    CHECK_SAME(0, cu.stream_destroy(one));
    CHECK_SAME(0, cu.stream_destroy(two));
}

/* The number of waits of a cuMemFree() during unfinished work. */
static uint64_t waits_of_a_free(size_t size)
{
    CUstream stream;
    CHECK_SAME(0, cu.stream(&stream, 0));
    CUdeviceptr block = alloc(size);
    cu.hold(stream);
    CHECK_SAME(0, cu.fill_on(block, 0, size, stream));
    uint64_t before = cu.count().waits;
    CHECK_SAME(0, cu.free(block));
    uint64_t waits = cu.count().waits - before;
    cu.let_go(stream);
    return waits;
}

static void sync_free(void)
{
    CHECK_SAME(1, waits_of_a_free(3 * MIB));
    CHECK_SAME(1, waits_of_a_free(1000));
}

static void event_free(void)
{
    CHECK_SAME(0, waits_of_a_free(3 * MIB));
    CHECK_SAME(0, waits_of_a_free(1000));
}

/* A block that is freed behind unfinished work is reused by work that follows it; the only driver
 * call is the query of the context. */
static void in_order(void)
{
    static const size_t sizes[] = {1000, 3 * MIB, 40 * MIB};
    cu.hold(NULL);
    for (size_t i = 0; i < 3; i++) {
        CUdeviceptr block = alloc(sizes[i]);
        CHECK_SAME(0, cu.fill_on(block, 0, sizes[i], NULL));
        CHECK_SAME(0, cu.free(block));
        uint64_t calls = cu.arrived(NULL);
        CHECK_SAME(block, alloc(sizes[i]));
        CHECK_SAME(calls + 1, cu.arrived(NULL));
    }
    CHECK_SAME(0, cu.count().waits);
    cu.let_go(NULL);
}

static void not_in_order(void)
{
    cu.hold(NULL);
    CUdeviceptr block = alloc(3 * MIB);
    CHECK_SAME(0, cu.fill_on(block, 0, 3 * MIB, NULL));
    CHECK_SAME(0, cu.free(block));
    CHECK(alloc(3 * MIB) != block, "it is in use yet");
    cu.let_go(NULL);
}

/* Nor is it reused while a stream has unfinished work that no other one waits for. */
static void not_beside(void)
{
    static const size_t sizes[] = {1000, 3 * MIB, 40 * MIB};
    CUstream stream;
    CHECK_SAME(0, cu.stream(&stream, 1));
    for (size_t i = 0; i < 3; i++) {
        CUdeviceptr block = alloc(sizes[i]);
        cu.hold(stream);
        CHECK_SAME(0, cu.fill_on(block, 0, sizes[i], stream));
        CHECK_SAME(0, cu.free(block));
        CUdeviceptr other = alloc(sizes[i]);
        CHECK(other != block, "it is in use yet");
        cu.let_go(stream);
        CHECK_SAME(0, cu.free(other));
    }
    CHECK_SAME(0, cu.count().waits);
}

/* ---- captures ------------------------------------------------------------------------------ */

static void capture(void)
{
    CUstream stream;
    void *graph;
    CUdeviceptr node = 0;
    CUdeviceptr none = 0;
    CHECK_SAME(0, cu.stream(&stream, 1));
    CUdeviceptr before = alloc(3 * MIB);
    CUdeviceptr other = alloc_on(3 * MIB, stream);
    CUdeviceptr freed = alloc_on(5 * MIB, stream); /* the heap keeps it: info counts that as free */
    CHECK_SAME(0, cu.free_on(freed, stream));
    size_t with = available();
    CHECK_SAME(0, cu.begin_capture(stream, 0));
    CHECK_SAME(with, available());
    CHECK_SAME(0, cu.violations());
    CHECK_SAME(0, cu.alloc_on(&node, MIB, stream)); /* a node of the graph, as without us */
    CHECK_SAME(1, cu.nodes());
    CHECK_SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.alloc(&none, MIB));
    uint64_t violations = cu.violations(); /* the program's own */
    if (by_heap) {
        CHECK_SAME(0, cu.free(before)); /* put off */
        CHECK_SAME(INVALID, cu.free_on(before, NULL));
        CHECK_SAME(0, cu.free_on(other, NULL));
    }
    CHECK_SAME(violations, cu.violations());
    CHECK_SAME(0, cu.free_on(node, stream));
    CHECK_SAME(0, cu.end_capture(stream, &graph));
    CHECK_SAME(violations, cu.violations());
    if (by_heap) {
        CHECK(available() > with + MIB, "%zu, before %zu", available(), with);
    }
    uint64_t calls = cu.calls("cuMemAlloc_v2");
    cu.free(alloc(MIB));
    CHECK(!by_heap || calls == cu.calls("cuMemAlloc_v2"), "the driver still serves");
    CHECK_SAME(0, cu.begin_capture(stream, 2)); /* relaxed: it may allocate */
    CUdeviceptr relaxed = alloc(MIB);
    CHECK_SAME(0, cu.free(relaxed));
    CHECK_SAME(0, cu.stream_destroy(stream)); /* and that is its end */
    calls = cu.calls("cuMemAlloc_v2");
    cu.free(alloc(MIB));
    CHECK(!by_heap || calls == cu.calls("cuMemAlloc_v2"), "the driver still serves");
}

/* ---- contexts, devices and processes ------------------------------------------------------- */

static void reset(void)
{
    CUcontext context;
    for (int round = 0; round < 3; round++) {
        CUdeviceptr lost = alloc(MIB);
        alloc(10 * MIB);
        size_t with = available();
        CHECK_SAME(0, cu.reset(0));
        CHECK(cu.free(lost) != CUDA_SUCCESS, "freed");
        CHECK_SAME(0, cu.retain(&context, 0));
        CHECK_SAME(0, cu.push(context));
        if (by_heap) {
            CHECK_SAME(INVALID, cu.free(lost));
        }
        CHECK(available() > with || !by_heap, "%zu, before %zu", available(), with);
    }
}

static void contexts(void)
{
    CUcontext other;
    CUcontext primary;
    CUdeviceptr before = alloc(MIB);
    uint64_t calls = cu.calls("cuMemAlloc_v2");
    CHECK_SAME(0, cu.create(&other, NULL, 0, 0, 0));
    CUdeviceptr theirs = alloc(MIB);
    CHECK_SAME(calls + 1, cu.calls("cuMemAlloc_v2"));
    CHECK_SAME(0, cu.free(theirs));
    CHECK_SAME(0, cu.free(before));
    CHECK_SAME(0, cu.pop(&primary));
    CHECK_SAME(0, cu.free(alloc(MIB)));
    CHECK_SAME(calls + (by_heap ? 1 : 2), cu.calls("cuMemAlloc_v2"));
}

/* Both devices access old and new blocks; the driver serves if a heap cannot give them access. */
static void check_shared(CUdeviceptr kept)
{
    uint64_t calls = cu.calls("cuMemAlloc_v2");
    CUdeviceptr small = alloc(1000);
    CUdeviceptr large = alloc(20 * MIB);
    CHECK_SAME(calls + (by_heap ? 0 : 2), cu.calls("cuMemAlloc_v2"));
    if (by_heap && !plain) {
        CHECK(cu.accessible((void *)kept, 5 * MIB, 3), "%llx", kept);
        CHECK(cu.accessible((void *)small, 1000, 3), "%llx", small);
        CHECK(cu.accessible((void *)large, 20 * MIB, 3), "%llx", large);
    }
    CHECK_SAME(0, cu.free(small));
    CHECK_SAME(0, cu.free(large));
}

static void two_devices(void)
{
    CUcontext one;
    CUcontext first;
    CUcontext second;
    CUdeviceptr at_first = alloc(10 * MIB);
    CUdeviceptr kept = alloc(5 * MIB);
    size_t with = available();
    CHECK_SAME(0, cu.get_current(&first));
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    CUdeviceptr at_second = alloc(30 * MIB);
    int device = -1;
    CHECK_SAME(0, cu.attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at_second));
    CHECK_SAME(1, device);
    CHECK_SAME(0, cu.free(at_first)); /* from the other's context */
    CHECK_SAME(0, cu.peer(first, 0)); /* the first's memory is to be reached */
    CHECK_SAME(0, cu.pop(&one));
    CHECK(available() > with, "%zu, before %zu", available(), with);
    check_shared(kept);
    CHECK_SAME(0, cu.free(kept));
    CHECK_SAME(0, cu.free(at_second));
}

/* Both devices access the blocks of both, without a call of the program: the driver copies between
 * them. */
static void both_are_reached(void)
{
    CUcontext one;
    CUcontext second;
    CUdeviceptr early = alloc(5 * MIB);
    bool mapped = by_heap && !plain;
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    CUdeviceptr other = alloc(30 * MIB);
    CHECK_SAME(0, cu.pop(&one));
    CUdeviceptr late = alloc(1000);
    CHECK(!mapped || cu.accessible((void *)early, 5 * MIB, 3), "%llx", early);
    CHECK(!mapped || cu.accessible((void *)other, 30 * MIB, 3), "%llx", other);
    CHECK(!mapped || cu.accessible((void *)late, 1000, 3), "%llx", late);
    CHECK_SAME(0, cu.free(early));
    CHECK_SAME(0, cu.free(other));
    CHECK_SAME(0, cu.free(late));
}

static CUcontext make_current(CUdevice device)
{
    CUcontext context;
    CHECK_SAME(0, cu.retain(&context, device));
    CHECK_SAME(0, cu.push(context));
    return context;
}

static size_t available_on(CUdevice device)
{
    CUcontext one;
    make_current(device);
    size_t now = available();
    CHECK_SAME(0, cu.pop(&one));
    return now;
}

/* The free memory of one device does not depend on the other. */
static void information_of_each(void)
{
    CUcontext one;
    for (int device = 0; device < 2; device++) {
        size_t here = available_on(device);
        size_t there = available_on(!device);
        make_current(device);
        CUdeviceptr block = alloc(30 * MIB);
        CHECK_SAME(0, cu.pop(&one));
        CHECK(available_on(device) + 30 * MIB <= here, "%zu, before %zu", available_on(device),
              here);
        CHECK_SAME(there, available_on(!device));
        make_current(!device);
        CHECK_SAME(0, cu.free(block));
        CHECK(cu.free(block) != CUDA_SUCCESS, "freed twice");
        CHECK_SAME(0, cu.pop(&one));
        CHECK(available_on(device) + 2 * MIB >= here, "%zu, before %zu", available_on(device),
              here);
    }
}

/* Both devices access each other's memory; `answer` is the driver's result for that. The current
 * context is `context`. */
static void let_both_in(CUcontext context, CUcontext other, CUresult answer)
{
    CUcontext one;
    cu.fail("cuCtxEnablePeerAccess", answer ? 2 : 0, answer);
    CHECK_SAME(answer, cu.peer(other, 0));
    CHECK_SAME(0, cu.push(other));
    CHECK_SAME(answer, cu.peer(context, 0));
    CHECK_SAME(0, cu.pop(&one));
}

/* Reset each device in its turn, while both access each other's memory: the other's blocks stay,
 * and once peer access is enabled again old and new blocks are accessible. */
static void one_is_reset(void)
{
    CUcontext one;
    CUcontext context[2] = {make_current(0), make_current(1)};
    for (int device = 1; device >= 0; device--) {
        CHECK_SAME(0, cu.push(context[device]));
        let_both_in(context[device], context[!device], CUDA_SUCCESS);
        CUdeviceptr lost = alloc(3 * MIB);
        CHECK_SAME(0, cu.push(context[!device]));
        CUdeviceptr kept = alloc(5 * MIB);
        CHECK_SAME(0, cu.reset(device));
        CHECK_SAME(0x5a, ((unsigned char *)kept)[5 * MIB - 1]);
        context[device] = make_current(device);
        CHECK(!by_heap || cu.free(lost) != CUDA_SUCCESS, "freed");
        let_both_in(context[device], context[!device],
                    device ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        check_shared(kept);
        CHECK_SAME(0, cu.push(context[!device]));
        check_shared(kept);
        CHECK_SAME(0, cu.free(kept));
        for (int i = 0; i < 4; i++) {
            CHECK_SAME(0, cu.pop(&one));
        }
    }
}

/* Unfinished work of a device that may access the memory when it is freed. */
static void peers_wait(void)
{
    CUcontext one;
    CUcontext first;
    CUcontext second;
    CUstream stream;
    CUdeviceptr block = alloc(3 * MIB);
    CHECK_SAME(0, cu.get_current(&first));
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    CHECK_SAME(0, cu.peer(first, 0));
    CHECK_SAME(0, cu.stream(&stream, 1));
    cu.hold(stream);
    CHECK_SAME(0, cu.fill_on(block, 0, 3 * MIB, stream));
    CHECK_SAME(0, cu.pop(&one));
    uint64_t before = cu.count().waits;
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(before + 1, cu.count().waits);
    cu.let_go(stream);
}

static int in_child(CUdeviceptr block)
{
    CUdeviceptr mine = 0;
    size_t size;
    CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, cu.alloc(&mine, MIB));
    CHECK(cu.free(block) != CUDA_SUCCESS, "freed");
    CHECK(cu.free_on(block, NULL) != CUDA_SUCCESS, "freed");
    CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, cu.info(&size, &size));
    return not_so != 0;
}

static void forked(void)
{
    CUdeviceptr block = alloc(MIB);
    for (int i = 0; i < 3; i++) {
        pid_t child = begin_child();
        if (child == 0) {
            _exit(in_child(block));
        }
        end_child(child);
        cu.free(alloc(MIB));
    }
    CHECK_SAME(0, cu.free(block));
}

/* The child reports its own calls. */
static void reported(void)
{
    for (int i = 0; i < 10; i++) {
        CHECK_SAME(0, cu.free(alloc(MIB)));
    }
    pid_t child = begin_child();
    if (child == 0) {
        CUdeviceptr none = 0;
        exit(cu.alloc(&none, MIB) != CUDA_ERROR_NOT_INITIALIZED);
    }
    end_child(child);
}

/* A handle of the driver passes through unchanged, by value. */
static void ipc(void)
{
    cu_handle handle = {{0}};
    CUdeviceptr theirs = 0;
    CUdeviceptr block = alloc(3 * MIB);
    bool can = !by_heap || plain;
    CHECK_SAME(can ? 0 : INVALID, cu.ipc(&handle, block));
    CHECK_SAME(can ? 0 : INVALID, cu.ipc(&handle, block));
    CHECK_SAME(can ? 0 : CUDA_ERROR_INVALID_HANDLE, cu.ipc_open(&theirs, handle, 1));
    CHECK_SAME(can ? 0x7001 : 0, theirs);
    CHECK_SAME(can ? 0 : INVALID, cu.ipc_close(theirs));
    CHECK_SAME(0, cu.free(block));
}

static const cu_case cases[] = {
    {"blocks", blocks},
    {"wrong", wrong},
    {"pitch", pitch},
    {"questions", questions},
    {"information", information},
    {"exhausted", exhausted},
    {"given_up", given_up},
    {"streams", streams},
    {"sync_free", sync_free},
    {"event_free", event_free},
    {"in_order", in_order},
    {"not_in_order", not_in_order},
    {"not_beside", not_beside},
    {"capture", capture},
    {"reset", reset},
    {"contexts", contexts},
    {"two_devices", two_devices},
    {"both_are_reached", both_are_reached},
    {"information_of_each", information_of_each},
    {"one_is_reset", one_is_reset},
    {"peers_wait", peers_wait},
    {"forked", forked},
    {"reported", reported},
    {"ipc", ipc},
};

int main(int argc, char **argv)
{
    by_heap = argc > 2 && strcmp(argv[2], "heap") == 0;
    plain = argc > 3 && strcmp(argv[3], "plain") == 0;
    if (argc > 3 && strcmp(argv[3], "cleared") == 0) {
        clearenv();
    }
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
