/* SPDX-License-Identifier: MIT
 *
 * Memory that a program has freed goes back to the device: as the driver for tests counts it.
 */
#include "cases.h"

enum {
    COUNT = 16
};

static uint64_t held(void)
{
    vmm_driver_counts counts = cu.count();
    return counts.chunk_bytes + counts.block_bytes;
}

static const size_t sizes[COUNT] = {400u * MIB, 1000,     3 * MIB,  700,      20000001, MIB,
                                    64 * MIB,   600000,   2 * MIB,  17 * MIB, 5000,     33 * MIB,
                                    4 * MIB,    90 * MIB, 11 * MIB, 256};

static void take_all(CUdeviceptr *blocks)
{
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_SAME(0, cu.alloc(&blocks[i], sizes[i]));
    }
}

static void give_all(const CUdeviceptr *blocks)
{
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_SAME(0, cu.free(blocks[i]));
    }
}

/* Under a spec that caches nothing. */
static void at_once(void)
{
    CUdeviceptr blocks[COUNT];
    take_all(blocks);
    CHECK_SAME(0, cu.free(blocks[0]));
    uint64_t rest = held();
    CHECK(rest < 400u * MIB, "%llu bytes", (unsigned long long)rest);
    CHECK_SAME(0, cu.alloc(&blocks[0], sizes[0]));
    give_all(blocks);
    CHECK_SAME(0, held());
}

static const cu_case cases[] = {{"at_once", at_once}};

int main(int argc, char **argv)
{
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
