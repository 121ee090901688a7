/* SPDX-License-Identifier: MIT
 *
 * Ranks that are threads of one process, one for each GPU: NCCL, meetings, and ends. Included after
 * PROGRAM is defined.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_SHARDED_RANKS_CUH
#define GPUALLOC_BENCH_SLABHASH_SHARDED_RANKS_CUH

#include <gpualloc/slabhash_nccl.cuh>

#include <algorithm>
#include <chrono>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <vector>

#include "commit.h"

namespace
{

const char *nccl_file = "libnccl.so.2";

inline void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, PROGRAM ": %s: %s\n", what, ga_error_text());
        exit(1);
    }
}

inline void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, PROGRAM ": %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

/* ---- NCCL ------------------------------------------------------------------------------------ */

struct {
    int (*init)(void **comms, int count, const int *devices);
    int (*begin)(void);
    int (*end)(void);
    int (*send)(const void *, size_t, int, int, void *, cudaStream_t);
    int (*receive)(void *, size_t, int, int, void *, cudaStream_t);
    int (*version)(int *);
} nccl;

inline void load_nccl()
{
    void *library = dlopen(nccl_file, RTLD_NOW | RTLD_GLOBAL);
    setenv("GPUALLOC_NCCL", nccl_file, 1); /* so that the library uses the same */
    if (!library) {
        fprintf(stderr, PROGRAM ": %s\n", dlerror());
        exit(77);
    }
    *(void **)&nccl.init = dlsym(library, "ncclCommInitAll");
    *(void **)&nccl.begin = dlsym(library, "ncclGroupStart");
    *(void **)&nccl.end = dlsym(library, "ncclGroupEnd");
    *(void **)&nccl.send = dlsym(library, "ncclSend");
    *(void **)&nccl.receive = dlsym(library, "ncclRecv");
    *(void **)&nccl.version = dlsym(library, "ncclGetVersion");
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* All threads wait for each other. */
struct barrier {
    pthread_barrier_t of;
    explicit barrier(int count)
    {
        pthread_barrier_init(&of, NULL, (unsigned)count);
    }
    void meet()
    {
        pthread_barrier_wait(&of);
    }
};

inline double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

inline double median(std::vector<double> of)
{
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

/* Half the interquartile range, in percent of the median. */
inline double spread(std::vector<double> of)
{
    std::sort(of.begin(), of.end());
    return (of[of.size() * 3 / 4] - of[of.size() / 4]) / 2 / of[of.size() / 2] * 100;
}

inline void print_machine(int ranks)
{
    cudaDeviceProp properties;
    int driver = 0, version = 0;
    char date[32];
    time_t seconds = time(NULL);
    check(cudaGetDeviceProperties(&properties, 0), "properties");
    check(cudaDriverGetVersion(&driver), "driver");
    nccl.version(&version);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
    printf(PROGRAM " %s, %s, %d of %s, driver %d, NCCL %d\n", GA_BENCH_COMMIT, date, ranks,
           properties.name, driver, version);
}

} // namespace

#endif
