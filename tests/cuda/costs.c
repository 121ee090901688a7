/* SPDX-License-Identifier: MIT
 *
 * The number of driver calls per cuMemAlloc() and cuMemFree(), once a program has all its memory. A
 * driver call costs about as much as the rest of the work, so an additional one must not go
 * unnoticed.
 *
 *   costs CASE PER-ALLOC PER-FREE
 *
 * Both are the highest permitted numbers of calls, for 1000 of them.
 */
#include "cases.h"

enum {
    WARM = 40,
    ROUNDS = 40
};

/* Packed blocks, blocks with addresses of their own, and an odd size of each. */
static const size_t sizes[] = {512,     4 * KIB, 100000,   600 * KIB,
                               3 * MIB, 8 * MIB, 20000001, 64 * MIB};

enum {
    SIZES = sizeof sizes / sizeof *sizes
};

typedef struct tally {
    uint64_t allocs, frees;
    uint64_t for_allocs, for_frees; /* calls of the driver */
} tally;

static CUdeviceptr take(tally *t, size_t size)
{
    CUdeviceptr block = 0;
    uint64_t before = cu.arrived(NULL);
    CHECK_SAME(0, cu.alloc(&block, size));
    t->for_allocs += cu.arrived(NULL) - before;
    t->allocs++;
    return block;
}

static void give(tally *t, CUdeviceptr block)
{
    uint64_t before = cu.arrived(NULL);
    CHECK_SAME(0, cu.free(block));
    t->for_frees += cu.arrived(NULL) - before;
    t->frees++;
}

/* As in a training step: results are kept for a while, temporary blocks are freed at once. */
static void step(tally *t)
{
    CUdeviceptr kept[SIZES];
    for (size_t i = 0; i < SIZES; i++) {
        kept[i] = take(t, sizes[i]);
        give(t, take(t, sizes[(i + 3) % SIZES]));
    }
    for (size_t i = SIZES; i-- > 0;) {
        give(t, kept[i]);
    }
}

/* Finish all work of the device before the next call. */
static void idle(tally *t)
{
    step(t);
}

/* The device is behind by a step or two, as it is where the program prepares its work ahead. */
static void behind(tally *t)
{
    cu.let_go(NULL);
    cu.hold(NULL);
    step(t);
    step(t);
}

static void measure(void (*run)(tally *), tally *t)
{
    static const char *const names[] = {
        "cuCtxGetCurrent",   "cuCtxPushCurrent", "cuCtxSynchronize", "cuCtxRecordEvent",
        "cuEventCreate",     "cuEventRecord",    "cuEventQuery",     "cuEventSynchronize",
        "cuStreamWaitEvent", "cuMemCreate",      "cuMemMap",         "cuMemUnmap",
        "cuMemSetAccess",    "cuMemRelease"};
    uint64_t before[sizeof names / sizeof *names];
    tally unseen = {0};
    for (int i = 0; i < WARM; i++) {
        run(&unseen);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        before[i] = cu.arrived(names[i]);
    }
    for (int i = 0; i < ROUNDS; i++) {
        run(t);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t calls = cu.arrived(names[i]) - before[i];
        if (calls) {
            printf("%-20s %6.3f for each pair\n", names[i], (double)calls / (double)t->allocs);
        }
    }
}

static void check(const char *what, uint64_t calls, uint64_t times, const char *max)
{
    uint64_t each = calls * 1000 / times;
    printf("%-8s %6.3f calls\n", what, (double)each / 1000);
    CHECK(each <= strtoull(max, NULL, 10), "%llu for 1000, expected at most %s",
          (unsigned long long)each, max);
}

static const struct {
    const char *name;
    void (*run)(tally *);
} cases[] = {{"idle", idle}, {"behind", behind}};

int main(int argc, char **argv)
{
    cu_open(0);
    for (size_t i = 0; argc > 3 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            tally t = {0};
            measure(cases[i].run, &t);
            cu.let_go(NULL);
            check("alloc", t.for_allocs, t.allocs, argv[2]);
            check("free", t.for_frees, t.frees, argv[3]);
            return not_so != 0;
        }
    }
    puts("no such case");
    return 2;
}
