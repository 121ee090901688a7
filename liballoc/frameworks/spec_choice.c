/* SPDX-License-Identifier: MIT */
#include "spec_choice.h"

#include "../platform/cuda_driver.h"
#include "../platform/environment.h"
#include "../platform/libc.h"
#include "../runtime/heap.h"

#include <gpualloc/backend.h>

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

ga_status ga_choice_set(const char *spec)
{
    size_t size = strlen(spec) + 1;
    ga_status status = check_opened(spec);
    if (status != GA_OK || (chosen && strcmp(chosen, spec) == 0)) {
        return status;
    }
    char *copy = ga_libc.malloc(size);
    if (!copy) {
        return ga_fail(GA_ERR_MEMORY, "no memory for a spec of %zu bytes", size);
    }
    ga_libc.free(chosen); /* no heap is open with it: its text is another one */
    chosen = memcpy(copy, spec, size);
    return GA_OK;
}
