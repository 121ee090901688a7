/* SPDX-License-Identifier: MIT */
#include "spec_choice.h"

#include "../platform/cuda_driver.h"
#include "../platform/environment.h"
#include "../platform/libc.h"
#include "../runtime/heap.h"

#include <gpualloc/backend.h>

#include <stdbool.h>
#include <string.h>

static char *chosen; /* NULL: GPUALLOC_DEVICE */

/* As users wrote them, because that is what the next one is compared with; NULL: no heap is open.
 * These texts are not freed. */
static const char *opened[GA_CUDA_DEVICES];

const char *ga_choice_spec(void)
{
    return chosen;
}

void ga_choice_opened(int device)
{
    const char *spec = chosen ? chosen : ga_environment_copy("GPUALLOC_DEVICE");
    opened[device] = spec ? spec : ga_heap_default_spec(GA_PLACE_DEVICE);
}

static ga_status check_opened(const char *spec)
{
    for (int device = 0; device < GA_CUDA_DEVICES; device++) {
        if (opened[device] && strcmp(opened[device], spec) != 0) {
            return ga_fail(GA_ERR_SPEC,
                           "the heap of device %d is open with the spec \"%.200s\"; expected the "
                           "same, got \"%.200s\"",
                           device, opened[device], spec);
        }
    }
    return GA_OK;
}

static bool is_opened(const char *text)
{
    bool is = false;
    for (int device = 0; device < GA_CUDA_DEVICES; device++) {
        is = is || opened[device] == text;
    }
    return is;
}

static void replace(char *text)
{
    if (chosen && !is_opened(chosen)) {
        ga_libc.free(chosen);
    }
    chosen = text;
}

ga_status ga_choice_set(const char *spec)
{
    ga_status status = spec ? check_opened(spec) : GA_OK;
    if (status != GA_OK || (spec && chosen && strcmp(chosen, spec) == 0)) {
        return status;
    }
    size_t size = spec ? strlen(spec) + 1 : 0;
    char *copy = spec ? ga_libc.malloc(size) : NULL;
    if (spec && !copy) {
        return ga_fail(GA_ERR_MEMORY, "no memory for a spec of %zu bytes", size);
    }
    replace(spec ? memcpy(copy, spec, size) : NULL);
    return GA_OK;
}
