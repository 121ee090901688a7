/* SPDX-License-Identifier: MIT
 *
 * Launches of emulated kernels.
 */
#ifndef GPUALLOC_TESTS_EMULATED_LAUNCH_H
#define GPUALLOC_TESTS_EMULATED_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    EMULATED_BLOCKS = 8,             /* that run at a time */
    EMULATED_SHARED_BYTES = 64 << 10 /* of dynamic shared memory, at most */
};

/* In which order the threads of a block go on. */
typedef enum emulated_order {
    EMULATED_RANDOM,
    EMULATED_LOWEST,  /* the first that can */
    EMULATED_HIGHEST, /* the last that can */
    EMULATED_BY_WARP, /* one warp as long as it can, then any */
    EMULATED_ORDERS
} emulated_order;

/* For the launches that follow. `naps`: blocks sleep now and then. */
typedef struct emulated_options {
    uint64_t seed;
    emulated_order order;
    uint32_t naps;    /* one in so many barriers; 0: none */
    unsigned seconds; /* of a launch, at most; then it hangs */
} emulated_options;

/* Less than the library's limits; 0: these. */
typedef struct emulated_limits {
    uint32_t buffers;  /* for bitmaps of wide rows */
    uint32_t deferred; /* entries of a block's ring */
    uint32_t span;     /* columns of a bitmap that is not wide */
} emulated_limits;

#ifdef __cplusplus
extern "C" {
#endif

extern emulated_limits emulated_most;

extern emulated_options emulated;

/* Runs a kernel, and waits for it. False if there is none of that name. */
bool emulated_launch(const char *name, unsigned blocks, unsigned threads, unsigned shared,
                     void **parameters);

#ifdef __cplusplus
}
#endif

#endif
