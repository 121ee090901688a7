/* SPDX-License-Identifier: MIT
 *
 * Two processes that share blocks by legacy IPC, under a heap whose memory others can map. The
 * first exports blocks, the second opens them; each has a driver of its own.
 *
 *   sharing CASE [SPEC]
 *
 * SPEC is the second process's GPUALLOC_DEVICE, if it is not the first one's.
 */
#include "cases.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

enum {
    LAZY = 1, /* the required flag */
    ROUNDS = 50,
    NOBODY = 65534
};

static int other;       /* the socket to the other process */
static pid_t the_first; /* its number, in the second */

typedef struct message {
    cu_handle handle;
    size_t size;
    int value; /* the value of its bytes */
} message;

static void tell(const void *what, size_t size)
{
    CHECK(write(other, what, size) == (ssize_t)size, "the other is gone");
}

static void hear(void *what, size_t size)
{
    CHECK(read(other, what, size) == (ssize_t)size, "the other is gone");
}

/* Wait until both processes are here. */
static void meet(void)
{
    char here = 1;
    tell(&here, 1);
    hear(&here, 1);
}

static CUdeviceptr alloc(size_t size, int value)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, size));
    memset((void *)block, value, size);
    return block;
}

static bool holds(CUdeviceptr block, size_t size, int value)
{
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != value) {
            return false;
        }
    }
    return true;
}

static void give(CUdeviceptr block, size_t size, int value)
{
    message m = {.size = size, .value = value};
    CHECK_SAME(0, cu.ipc(&m.handle, block));
    tell(&m, sizeof m);
}

static CUdeviceptr take(message *m)
{
    CUdeviceptr block = 0;
    hear(m, sizeof *m);
    CHECK_SAME(0, cu.ipc_open(&block, m->handle, LAZY));
    CHECK(block != 0, "none");
    return block;
}

/* ---- one gives, one takes ------------------------------------------------------------------- */

static const size_t sizes[] = {1000, 700 * KIB, 3 * MIB, 40 * MIB + 1};

enum {
    SIZES = sizeof sizes / sizeof *sizes
};

static void maps_first(void)
{
    for (int i = 0; i < SIZES; i++) {
        cu_handle again;
        message m;
        CUdeviceptr beside = alloc(sizes[i], 99);
        CUdeviceptr block = alloc(sizes[i], i + 1);
        give(block, sizes[i], i + 1);
        hear(&m, sizeof m);
        CHECK(holds(block, sizes[i], i + 100), "%zu bytes", sizes[i]);
        CHECK(holds(beside, sizes[i], 99), "%zu bytes beside", sizes[i]);
        CHECK_SAME(0, cu.ipc(&again, block));
        CHECK(memcmp(&again, &m.handle, sizeof again) == 0, "another handle");
        CHECK_SAME(0, cu.ipc(&again, block + sizes[i] - 1)); /* of the block, as the driver's */
        CHECK(memcmp(&again, &m.handle, sizeof again) == 0, "another handle for an address within");
        CHECK_SAME(0, cu.free(block));
        CHECK_SAME(0, cu.free(beside));
    }
}

static void check_answers(CUdeviceptr block, size_t size)
{
    CUdeviceptr base = 0;
    CUcontext context = NULL;
    CUcontext current = NULL;
    size_t length = 0;
    CHECK_SAME(0, cu.range(&base, &length, block + size - 1));
    CHECK(base == block && length == size, "%llx, %zu", base, length);
    CHECK_SAME(0, cu.attribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block));
    CHECK_SAME(0, cu.get_current(&current));
    CHECK(context == current, "another context");
}

static void maps_second(void)
{
    uint64_t mappings = 0;
    for (int i = 0; i < SIZES; i++) {
        message m;
        CUdeviceptr again = 0;
        mappings = i ? mappings : cu.count().mappings;
        CUdeviceptr block = take(&m);
        CHECK(holds(block, m.size, m.value), "%zu bytes", m.size);
        check_answers(block, m.size);
        CHECK_SAME(0, cu.ipc_open(&again, m.handle, LAZY));
        CHECK_SAME(block, again);
        CHECK(cu.free(block) != CUDA_SUCCESS, "freed");
        memset((void *)block, i + 100, m.size);
        CHECK_SAME(0, cu.ipc_close(block));
        CHECK(holds(block, m.size, i + 100), "closed too early");
        CHECK_SAME(0, cu.ipc_close(block));
        CHECK(cu.ipc_close(block) != CUDA_SUCCESS, "closed once more");
        CHECK_SAME(mappings, cu.count().mappings);
        tell(&m, sizeof m);
    }
}

/* ---- refusals ----------------------------------------------------------------------------- */

static void refusals_first(void)
{
    CUdeviceptr none = 0;
    CUdeviceptr block = alloc(MIB, 1);
    CUdeviceptr freed = alloc(MIB, 2);
    message m;
    CHECK_SAME(0, cu.ipc(&m.handle, block));
    CHECK_SAME(CUDA_ERROR_INVALID_CONTEXT,
               cu.ipc_open(&none, m.handle, LAZY)); /* of this process */
    give(block, MIB, 1);
    give(freed, MIB, 2);
    CHECK_SAME(0, cu.free(freed));
    meet();
    meet();
    CHECK_SAME(0, cu.reset(0));
    meet();
    meet();
}

static void refusals_second(void)
{
    message live;
    message freed;
    CUdeviceptr none = 0;
    hear(&live, sizeof live);
    hear(&freed, sizeof freed);
    meet();
    CHECK_SAME(CUDA_ERROR_INVALID_HANDLE, cu.ipc_open(&none, freed.handle, LAZY));
    CHECK_SAME(CUDA_ERROR_INVALID_VALUE, cu.ipc_open(&none, live.handle, 0));
    CHECK_SAME(CUDA_ERROR_INVALID_VALUE, cu.ipc_open(NULL, live.handle, LAZY));
    message wrong = live;
    wrong.handle.bytes[8] ^= 1; /* the process */
    CHECK_SAME(CUDA_ERROR_INVALID_HANDLE, cu.ipc_open(&none, wrong.handle, LAZY));
    wrong = live;
    wrong.handle.bytes[24] ^= 64; /* the number */
    CHECK_SAME(CUDA_ERROR_INVALID_HANDLE, cu.ipc_open(&none, wrong.handle, LAZY));
    wrong = live;
    wrong.handle.bytes[36] ^= 1; /* the size: 4 GiB more */
    CHECK_SAME(CUDA_ERROR_INVALID_HANDLE, cu.ipc_open(&none, wrong.handle, LAZY));
    CHECK_SAME(0, cu.ipc_open(&none, live.handle, LAZY));
    meet();
    meet();
    CHECK(holds(none, MIB, 1), "what was mapped went with the other's context");
    CHECK_SAME(0, cu.ipc_close(none));
    CHECK_SAME(CUDA_ERROR_INVALID_HANDLE, cu.ipc_open(&none, live.handle, LAZY));
    meet();
}

/* Its own context is destroyed with opened blocks in it. */
static void resets_first(void)
{
    CUdeviceptr block = alloc(5 * MIB, 5);
    give(block, 5 * MIB, 5);
    meet();
    CHECK(holds(block, 5 * MIB, 5), "lost");
    CHECK_SAME(0, cu.free(block));
}

static void resets_second(void)
{
    message m;
    CUdeviceptr block = take(&m);
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, cu.count().mappings);
    CHECK_SAME(0, cu.count().ranges);
    CHECK(cu.ipc_close(block) != CUDA_SUCCESS, "closed");
    meet();
}

/* ---- many blocks --------------------------------------------------------------------------- */

enum {
    MANY = 60
};

static int descriptors(void)
{
    int count = 0;
    for (int fd = 3; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* The number of sockets of this process, besides the one to the other. */
static int sockets(void)
{
    int count = 0;
    for (int fd = 3; fd < 64; fd++) {
        char at[64];
        char name[64] = "";
        snprintf(at, sizeof at, "/proc/self/fd/%d", fd);
        count += readlink(at, name, sizeof name - 1) > 0 && strstr(name, "socket") && fd != other;
    }
    return count;
}

/* Any number of exported blocks takes only one descriptor, for the answers. */
static void many_first(void)
{
    CUdeviceptr blocks[MANY];
    message all[MANY];
    give(alloc(MIB, 0), MIB, 0);
    meet();
    for (int i = 0; i < MANY; i++) {
        blocks[i] = alloc(20 * KIB, i + 1); /* their memory is a file or two of the driver's */
    }
    while (sockets() > 1) { /* the answer to the first request is still under way */
        usleep(1000);
    }
    int before = descriptors();
    for (int i = 0; i < MANY; i++) {
        all[i] = (message){.size = 20 * KIB, .value = i + 1};
        CHECK_SAME(0, cu.ipc(&all[i].handle, blocks[i]));
    }
    CHECK_SAME(before, descriptors());
    for (int i = 0; i < MANY; i++) {
        tell(&all[i], sizeof all[i]);
    }
    meet();
    for (int i = 0; i < MANY; i++) {
        CHECK_SAME(0, cu.free(blocks[i]));
    }
}

static void many_second(void)
{
    message m;
    CHECK_SAME(0, cu.ipc_close(take(&m)));
    meet();
    int before = descriptors();
    for (int i = 0; i < MANY; i++) {
        CUdeviceptr block = take(&m);
        CHECK(holds(block, m.size, m.value), "block %d", i);
        CHECK_SAME(0, cu.ipc_close(block));
    }
    CHECK_SAME(before, descriptors());
    meet();
}

/* ---- processes that do not answer --------------------------------------------------------- */

static void stops_first(void)
{
    give(alloc(MIB, 1), MIB, 1);
    give(alloc(MIB, 2), MIB, 2);
    meet();
}

typedef struct opening {
    CUcontext context;
    message m;
    CUdeviceptr block;
    CUresult result;
    bool begun;
} opening;

static void *open_it(void *argument)
{
    opening *o = argument;
    o->result = cu.push(o->context);
    __atomic_store_n(&o->begun, true, __ATOMIC_RELAXED); /* a hint */
    o->result = o->result ? o->result : cu.ipc_open(&o->block, o->m.handle, LAZY);
    return NULL;
}

/* A thread that waits for another process delays no other thread. */
static void stops_second(void)
{
    message m;
    opening o = {0};
    pthread_t thread;
    CUdeviceptr base = 0;
    CUdeviceptr block = take(&m);
    hear(&o.m, sizeof o.m);
    CHECK_SAME(0, cu.get_current(&o.context));
    CHECK_SAME(0, kill(the_first, SIGSTOP));
    CHECK_SAME(0, pthread_create(&thread, NULL, open_it, &o));
    while (!__atomic_load_n(&o.begun, __ATOMIC_RELAXED)) { /* see there */
        usleep(1000);
    }
    usleep(100000); /* it waits for the answer */
    time_t begin = time(NULL);
    CHECK_SAME(0, cu.range(&base, NULL, block + 1000));
    CHECK(base == block, "%llx", base);
    CHECK_SAME(0, cu.ipc_close(block));
    CHECK(time(NULL) - begin <= 3, "they wait, too");
    CHECK_SAME(0, kill(the_first, SIGCONT));
    CHECK_SAME(0, pthread_join(thread, NULL));
    CHECK_SAME(0, o.result);
    CHECK(holds(o.block, MIB, 2), "another block");
    CHECK_SAME(0, cu.ipc_close(o.block));
    meet();
}

/* ---- captures ------------------------------------------------------------------------------- */

static void captures_first(void)
{
    give(alloc(5 * MIB, 5), 5 * MIB, 5);
    meet();
}

/* A block that is closed while a stream captures is unmapped after the capture. */
static void captures_second(void)
{
    message m;
    CUstream stream;
    void *graph;
    CUdeviceptr again = 0;
    uint64_t mappings = cu.count().mappings;
    CUdeviceptr block = take(&m);
    uint64_t with = cu.count().mappings;
    CHECK_SAME(0, cu.stream(&stream, 1));
    CHECK_SAME(0, cu.begin_capture(stream, 0));
    CHECK_SAME(0, cu.ipc_close(block));
    CHECK(cu.ipc_close(block) != CUDA_SUCCESS, "closed twice");
    CHECK_SAME(with, cu.count().mappings);
    CHECK(holds(block, m.size, m.value), "work in flight may use it");
    CHECK_SAME(0, cu.end_capture(stream, &graph));
    CHECK_SAME(mappings, cu.count().mappings);
    CHECK_SAME(0, cu.violations());
    CHECK_SAME(0, cu.ipc_open(&again, m.handle, LAZY));
    CHECK_SAME(0, cu.begin_capture(stream, 0));
    CHECK_SAME(0, cu.ipc_close(again));
    CHECK_SAME(0, cu.reset(0)); /* and that is its end */
    CHECK_SAME(0, cu.count().mappings);
    meet();
}

/* ---- a driver that fails --------------------------------------------------------------------- */

static void fails_first(void)
{
    give(alloc(5 * MIB, 5), 5 * MIB, 5);
    give(alloc(MIB, 1), MIB, 1);
    meet();
}

/* True if the counts are equal, except the waits. */
static bool is_same(const vmm_driver_counts *a, const vmm_driver_counts *b)
{
    return a->ranges == b->ranges && a->mappings == b->mappings && a->handles == b->handles &&
           a->chunks == b->chunks && a->events == b->events;
}

/* False: there are less calls than that. */
static bool open_while_failing(const message *m, uint64_t n, uint64_t more)
{
    CUdeviceptr block = 0;
    cu.fail_any(n, more, CUDA_ERROR_UNKNOWN);
    CUresult result = cu.ipc_open(&block, m->handle, LAZY);
    if (result == CUDA_SUCCESS) {
        result = cu.ipc_close(block); /* closed, with any result of the driver */
        CHECK_SAME(0, result);
    }
    bool has_failed = cu.has_failed();
    cu.fail_any(0, 0, CUDA_SUCCESS);
    return has_failed;
}

/* Once the driver has recovered, the next block that is opened finds nothing left of those
 * before. */
static void fails_second(void)
{
    static const uint64_t more[] = {0, 4, 9};
    message m;
    message next;
    hear(&m, sizeof m);
    hear(&next, sizeof next);
    while (open_while_failing(&m, 1000, 0)) {
    }
    vmm_driver_counts before = cu.count();
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        for (uint64_t n = 1; open_while_failing(&m, n, more[i]); n++) {
            CUdeviceptr block = 0;
            CHECK_SAME(0, cu.ipc_open(&block, next.handle, LAZY));
            CHECK(holds(block, next.size, next.value), "call %d", (int)n);
            CHECK_SAME(0, cu.ipc_close(block));
            vmm_driver_counts after = cu.count();
            CHECK(is_same(&before, &after), "call %d, then %d: something is left", (int)n,
                  (int)more[i]);
        }
    }
    meet();
}

/* ---- processes that end or fork ----------------------------------------------------------- */

/* The child has its parent's open blocks, and does not answer. */
static void ends_first(void)
{
    CHECK(sockets() == 0, "there are others");
    give(alloc(MIB, 1), MIB, 1);
    CHECK_SAME(1, sockets());
    if (fork() == 0) {
        int left = sockets();
        pid_t self = getpid();
        tell(&left, sizeof left);
        tell(&self, sizeof self);
        pause(); /* until the second kills it */
        _exit(0);
    }
    fflush(stdout);
    _exit(not_so != 0);
}

static void ends_second(void)
{
    message m;
    char end;
    int left = -1;
    pid_t child = 0;
    siginfo_t ended;
    CUdeviceptr none = 0;
    hear(&m, sizeof m);
    hear(&left, sizeof left);
    hear(&child, sizeof child);
    CHECK_SAME(0, left);
    CHECK_SAME(0, waitid(P_PID, (id_t)the_first, &ended, WEXITED | WNOWAIT));
    CHECK_SAME(CUDA_ERROR_INVALID_HANDLE, cu.ipc_open(&none, m.handle, LAZY));
    CHECK_SAME(0, kill(child, SIGKILL));
    CHECK(read(other, &end, 1) <= 0, "still there");
}

/* ---- both at once -------------------------------------------------------------------------- */

static void both(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        message m;
        size_t size = (size_t)(i % 5 + 1) * MIB;
        CUdeviceptr mine = alloc(size, i);
        give(mine, size, i);
        CUdeviceptr theirs = take(&m);
        CHECK(holds(theirs, m.size, m.value), "round %d", i);
        CHECK_SAME(0, cu.ipc_close(theirs));
        meet();
        CHECK_SAME(0, cu.free(mine));
    }
}

/* ---- another user -------------------------------------------------------------------------- */

static void user_first(void)
{
    give(alloc(MIB, 1), MIB, 1);
    meet();
}

/* The address at which the process of a handle answers. */
static socklen_t address_of(const cu_handle *handle, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *path = out->sun_path + 1;
    int length = snprintf(path, sizeof out->sun_path - 1, "gpualloc-cuda-");
    for (int i = 0; i < 16; i++) {
        length += snprintf(path + length, 3, "%02x", (unsigned char)handle->bytes[8 + i]);
    }
    return (socklen_t)(path + length - (char *)out);
}

/* True if it sends anything to a request made without the preload. */
static bool is_answered(const cu_handle *handle)
{
    struct sockaddr_un address;
    char answer[64];
    socklen_t size = address_of(handle, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK_SAME(0, connect(fd, (struct sockaddr *)&address, size));
    send(fd, handle->bytes + 24, 8, MSG_NOSIGNAL);
    ssize_t got = recv(fd, answer, sizeof answer, 0);
    close(fd);
    return got > 0;
}

/* A handle that another user answers for is not even requested. */
static void check_impostor(cu_handle handle)
{
    struct sockaddr_un address;
    CUdeviceptr none = 0;
    handle.bytes[8] ^= 1;
    socklen_t size = address_of(&handle, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK_SAME(0, bind(fd, (struct sockaddr *)&address, size));
    CHECK_SAME(0, listen(fd, 1));
    CHECK_SAME(0, seteuid(0));
    time_t begin = time(NULL);
    CHECK_SAME(CUDA_ERROR_INVALID_HANDLE, cu.ipc_open(&none, handle, LAZY));
    CHECK(time(NULL) - begin <= 5, "it was asked, and waited for");
    close(fd);
}

/* Runs only as root, which can change its user. */
static void user_second(void)
{
    message m;
    CUdeviceptr none = 0;
    hear(&m, sizeof m);
    CHECK(is_answered(&m.handle), "the test asks wrongly");
    if (geteuid() == 0 && seteuid(NOBODY) == 0) {
        CHECK_SAME(CUDA_ERROR_INVALID_HANDLE, cu.ipc_open(&none, m.handle, LAZY));
        CHECK(!is_answered(&m.handle), "another user gets the memory");
        check_impostor(m.handle);
    }
    meet();
}

static const struct {
    const char *name;
    void (*first)(void);
    void (*second)(void);
} cases[] = {
    {"maps", maps_first, maps_second},       {"refusals", refusals_first, refusals_second},
    {"resets", resets_first, resets_second}, {"many", many_first, many_second},
    {"stops", stops_first, stops_second},    {"captures", captures_first, captures_second},
    {"ends", ends_first, ends_second},       {"both", both, both},
    {"user", user_first, user_second},       {"fails", fails_first, fails_second},
};

static int run(void (*body)(void), int fd)
{
    other = fd;
    cu_open(0);
    body();
    fflush(stdout);
    return not_so != 0;
}

int main(int argc, char **argv)
{
    int ends[2];
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) != 0 ||
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
            continue;
        }
        pid_t first = the_first = fork();
        if (first == 0) {
            close(ends[1]);
            _exit(run(cases[i].first, ends[0]));
        }
        close(ends[0]);
        if (argc > 2) {
            setenv("GPUALLOC_DEVICE", argv[2], 1);
        }
        int status = 0;
        int result = run(cases[i].second, ends[1]);
        CHECK(waitpid(first, &status, 0) == first && status == 0, "the first: %d", status);
        printf("%s: %d not so\n", argv[1], not_so);
        return result || not_so;
    }
    puts("no such case");
    return 2;
}
