/* SPDX-License-Identifier: MIT
 *
 * Two processes that share blocks by the CUDA runtime's IPC, for a machine with a GPU, to be run
 * without the preload and with it (ipc=handle, ipc=compat): both outputs must be equal.
 */
#include "say.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SKIP = 77,
    SIZES = 5
};

static const size_t sizes[SIZES] = {1000, 700 << 10, 3 << 20, (100 << 20) + 1, (size_t)1 << 30};

static int other; /* the socket to the other process */

typedef struct message {
    cudaIpcMemHandle_t handle;
    int result;
} message;

static int tell(const message *m)
{
    return write(other, m, sizeof *m) == (ssize_t)sizeof *m;
}

static int hear(message *m)
{
    return read(other, m, sizeof *m) == (ssize_t)sizeof *m;
}

/* Exports blocks, and finds the other process's contents in them. */
static void first(void)
{
    for (int i = 0; i < SIZES; i++) {
        message m = {.result = 0};
        char *beside = NULL;
        char *block = NULL;
        cudaMalloc((void **)&beside, sizes[i]);
        cudaMalloc((void **)&block, sizes[i]);
        cudaMemset(beside, 9, sizes[i]);
        cudaMemset(block, i + 1, sizes[i]);
        m.result = cudaDeviceSynchronize();
        printf("%zu bytes: %s, ", sizes[i],
               cudaGetErrorName(cudaIpcGetMemHandle(&m.handle, block)));
        if (!tell(&m) || !hear(&m)) {
            puts("the other is gone");
            return;
        }
        printf("other %s, seen %s, ", cudaGetErrorName((cudaError_t)m.result),
               holds(block, sizes[i], i + 100) ? "yes" : "NO");
        printf("beside %s, ", holds(beside, sizes[i], 9) ? "yes" : "NO");
        printf("freed %s\n", cudaGetErrorName(cudaFree(block)));
        cudaFree(beside);
    }
}

static cudaError_t use(const message *m, int i)
{
    char *block = NULL;
    char *again = NULL;
    cudaError_t result =
        cudaIpcOpenMemHandle((void **)&block, m->handle, cudaIpcMemLazyEnablePeerAccess);
    if (result != cudaSuccess) {
        return result;
    }
    if (!holds(block, sizes[i], i + 1)) {
        return cudaErrorInvalidValue;
    }
    result = cudaIpcOpenMemHandle((void **)&again, m->handle, cudaIpcMemLazyEnablePeerAccess);
    if (result != cudaSuccess || again != block) {
        return result == cudaSuccess ? cudaErrorAlreadyMapped : result;
    }
    cudaMemset(block, i + 100, sizes[i]);
    result = cudaDeviceSynchronize();
    result = result == cudaSuccess ? cudaIpcCloseMemHandle(again) : result;
    return result == cudaSuccess ? cudaIpcCloseMemHandle(block) : result;
}

static void second(void)
{
    message m;
    for (int i = 0; i < SIZES && hear(&m); i++) {
        m.result = (int)use(&m, i);
        tell(&m);
    }
}

static int has_device(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

/* Forks before either process uses CUDA, which does not survive fork(). */
int main(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) {
        return 1;
    }
    pid_t child = fork();
    other = ends[child == 0];
    close(ends[child != 0]);
    if (!has_device()) {
        return SKIP;
    }
    if (child == 0) {
        second();
        return 0;
    }
    first();
    fflush(stdout);
    close(other);
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
