/* SPDX-License-Identifier: MIT
 *
 * Commits one misuse of the driver's calls that free device memory:
 *
 *   abused KIND
 *
 * Prints "refused" if the call returns CUDA_ERROR_INVALID_VALUE without an effect, "harmless" if it
 * succeeds without an effect, otherwise "not seen". test_security.py compares that with
 * docs/security.md.
 */
#include "cases.h"

enum {
    BLOCKS = 32,
    SMALL = 1000,
    LARGE = 40 * MIB,
    INVALID = 1
};

static CUdeviceptr blocks[BLOCKS]; /* live, or 0 */
static size_t block_size;

static CUdeviceptr alloc(size_t size)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, size));
    return block;
}

static CUdeviceptr begin(int count, size_t size)
{
    block_size = size;
    for (int i = 0; i < count; i++) {
        blocks[i] = alloc(size);
    }
    return blocks[count / 2];
}

static void release(int i)
{
    CHECK_SAME(0, cu.free(blocks[i]));
    blocks[i] = 0;
}

static bool overlap(CUdeviceptr a, CUdeviceptr b)
{
    return a && b && a < b + block_size && b < a + block_size;
}

/* Later blocks must not overlap each other or those that are live. */
static bool has_two_owners(int count)
{
    CUdeviceptr later[BLOCKS] = {0};
    for (int i = 0; i < count; i++) {
        later[i] = alloc(block_size);
        for (int j = 0; j < BLOCKS; j++) {
            if (overlap(later[i], blocks[j]) || (j < i && overlap(later[i], later[j]))) {
                return true;
            }
        }
    }
    return false;
}

static void judge(CUresult result, int count)
{
    bool harm = has_two_owners(count);
    CHECK(result == CUDA_SUCCESS || result == INVALID, "%d", result);
    puts(harm ? "not seen" : result != CUDA_SUCCESS ? "refused" : "harmless");
}

static void double_free(void)
{
    CUdeviceptr gone = begin(BLOCKS, SMALL);
    release(BLOCKS / 2);
    judge(cu.free(gone), BLOCKS);
}

static void double_free_later(void)
{
    CUdeviceptr gone = begin(BLOCKS, SMALL);
    release(BLOCKS / 2);
    release(0);
    judge(cu.free(gone), BLOCKS);
}

static void double_free_large(void)
{
    CUdeviceptr gone = begin(4, LARGE);
    release(2);
    judge(cu.free(gone), 4);
}

static void double_free_on_stream(void)
{
    CUdeviceptr gone = begin(BLOCKS, SMALL);
    release(BLOCKS / 2);
    judge(cu.free_on(gone, NULL), BLOCKS);
}

/* Freed with a stream, then without. */
static void double_free_of_stream(void)
{
    CUdeviceptr block = 0;
    begin(BLOCKS, SMALL);
    CHECK_SAME(0, cu.alloc_on(&block, SMALL, NULL));
    CHECK_SAME(0, cu.free_on(block, NULL));
    judge(cu.free(block), BLOCKS);
}

static void interior_free(void)
{
    judge(cu.free(begin(BLOCKS, SMALL) + 256), BLOCKS);
}

static void interior_free_large(void)
{
    judge(cu.free(begin(4, LARGE) + 2 * MIB), 4);
}

static void foreign_free(void)
{
    static int variable;
    begin(BLOCKS, SMALL);
    judge(cu.free((CUdeviceptr)(uintptr_t)&variable), BLOCKS);
}

static void host_free(void)
{
    void *pinned = NULL;
    begin(BLOCKS, SMALL);
    CHECK_SAME(0, cu.host_alloc(&pinned, SMALL, 0));
    judge(cu.free((CUdeviceptr)(uintptr_t)pinned), BLOCKS);
}

static const cu_case cases[] = {
    {"double-free", double_free},
    {"double-free-later", double_free_later},
    {"double-free-large", double_free_large},
    {"double-free-on-stream", double_free_on_stream},
    {"double-free-of-stream", double_free_of_stream},
    {"interior-free", interior_free},
    {"interior-free-large", interior_free_large},
    {"foreign-free", foreign_free},
    {"host-free", host_free},
};

int main(int argc, char **argv)
{
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
