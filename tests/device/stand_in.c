/* SPDX-License-Identifier: MIT
 *
 * A library with the interface of the CUDA driver, for the cases in which a driver refuses. It has
 * every symbol that the library looks up. cuInit returns STAND_IN_RESULT from the environment, all
 * other functions an error.
 */
#include "../../liballoc/platform/cuda_driver.h"

#include <stdlib.h>
#include <string.h>

static int answer(const char *symbol, const char **text)
{
    if (strcmp(symbol, "cuGetErrorName") == 0) {
        *text = "CUDA_ERROR_NO_DEVICE";
        return CUDA_SUCCESS;
    }
    if (strcmp(symbol, "cuGetErrorString") == 0) {
        *text = "no CUDA-capable device is detected";
        return CUDA_SUCCESS;
    }
    const char *result = getenv("STAND_IN_RESULT");
    return strcmp(symbol, "cuInit") == 0 && result ? atoi(result) : CUDA_ERROR_NO_DEVICE;
}

/* All functions take integers and pointers; only those with a text get a second argument. */
#define STAND_IN(name, symbol, parameters)                                                         \
    __attribute__((visibility("default"))) int stand_in_##name(long first,                         \
                                                               const char **text) __asm__(symbol); \
    int stand_in_##name(long first, const char **text)                                             \
    {                                                                                              \
        (void)first;                                                                               \
        return answer(symbol, text);                                                               \
    }

GA_CUDA_FUNCTIONS(STAND_IN)
