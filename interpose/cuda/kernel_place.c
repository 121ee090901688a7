/* SPDX-License-Identifier: MIT
 *
 * The heap of each device, and the image of our module with the view of that heap in it.
 *
 *   CLOSED --first code that allocates--> OPEN or FAILED --primary context goes--> CLOSED
 *      |---> CLOSED, if there is no memory
 *
 *   ga_cuda_place_open -> open_closed
 *     open_heap       as GPUALLOC_KERNEL says
 *     write_view      into the instructions of a copy of our module
 *
 * STRUCTURE  One record for each device.
 * INVARIANT  The image of an OPEN record has the view of its heap in it.
 * ORDER      The caller's lock for a device guards its record.
 * PROGRESS   A thread waits while another one opens a heap.
 */
#include "kernel_place.h"

#include "../../liballoc/linked/linked.h"
#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "../../liballoc/runtime/heap.h"
#include "../kernel/module.h"
#include "kernel_code.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CLOSED = 0,
    OPEN,
    FAILED
};

typedef struct record {
    int state;
    ga_heap *heap;
    ga_image image;   /* of our module */
    ga_status status; /* FAILED: the status and the sentence */
    char reason[512];
} record;

static record records[GA_CUDA_DEVICES];
static char *spec_at_start;

void ga_cuda_place_child(void)
{
    memset(records, 0, sizeof records);
}

/* A constructor, because programs may clear their environment before their first CUDA call. */
__attribute__((constructor)) static void begin(void)
{
    spec_at_start = ga_environment_copy("GPUALLOC_KERNEL");
}

static const char *spec(void)
{
    const char *now = ga_environment("GPUALLOC_KERNEL");
    return now ? now : spec_at_start;
}

bool ga_cuda_kernel_wanted(void)
{
    const char *wanted = spec();
    return wanted && *wanted && strcmp(wanted, "cuda") != 0;
}

void ga_cuda_kernel_stop_if_strict(void)
{
    if (ga_is_strict()) {
        ga_log(GA_LOG_ERROR, "a module cannot have gpualloc's malloc in kernels: %s",
               ga_error_text());
        _exit(2);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static ga_status check_heap(ga_heap *heap, ga_kernel_heap *view)
{
    ga_status status = ga_heap_kernel_view(heap, view);
    if (status == GA_OK && (ga_linked_calls_cuda(heap) || !ga_linked_aligns(view))) {
        return ga_fail(GA_ERR_PLACE,
                       "GPUALLOC_KERNEL: %s: expected a heap of its own with blocks aligned to 16, "
                       "as %s",
                       ga_heap_spec(heap), ga_heap_default_spec(GA_PLACE_KERNEL));
    }
    return status;
}

static ga_status open_heap(record *it, int device, ga_kernel_heap *view)
{
    ga_status status = ga_heap_open(&it->heap, GA_PLACE_KERNEL, device, spec());
    return status == GA_OK ? check_heap(it->heap, view)
                           : ga_fail(status, "GPUALLOC_KERNEL: %s", ga_error_text());
}

/* A copy of the module with the view of the heap in its instructions. */
static ga_status write_view(record *it, ga_image image, const ga_kernel_heap *view)
{
    static const char *const names[] = GA_KERNEL_MODULE_WORDS;
    uint64_t values[sizeof *view / sizeof(uint64_t)];
    ga_cubin_words words = {names, values, sizeof names / sizeof *names};
    ga_cubin cubin;
    _Static_assert(sizeof values / sizeof *values == sizeof names / sizeof *names,
                   "a variable for each word of the view");
    memcpy(values, view, sizeof values);
    uint8_t *copy = ga_libc.malloc(image.size);
    if (!copy) {
        return ga_fail(GA_ERR_MEMORY, "no memory for a copy of %zu bytes of code", image.size);
    }
    memcpy(copy, image.bytes, image.size);
    it->image = (ga_image){copy, image.size};
    ga_status status = ga_cubin_open(&cubin, it->image);
    return status == GA_OK ? ga_cubin_write_words(&cubin, copy, &words) : status;
}

static ga_status open_closed(record *it, int device, unsigned sm)
{
    const ga_kernel_code *code;
    ga_kernel_heap view;
    ga_status status = ga_kernel_code_find(&code, sm);
    if (status == GA_OK) {
        status = open_heap(it, device, &view);
    }
    return status == GA_OK ? write_view(it, code->cubin.image, &view) : status;
}

static void drop(record *it)
{
    if (it->heap) {
        ga_heap_close(it->heap);
    }
    ga_libc.free((void *)(uintptr_t)it->image.bytes);
    it->heap = NULL;
    it->image = (ga_image){0};
}

static void open_record(record *it, int device, unsigned sm)
{
    it->state = OPEN;
    it->status = open_closed(it, device, sm);
    if (it->status == GA_OK) {
        it->heap->published++;
        ga_log(GA_LOG_INFO, "malloc in kernels on device %d is served by %s", device,
               ga_heap_spec(it->heap));
        return;
    }
    snprintf(it->reason, sizeof it->reason, "%s", ga_error_text());
    it->state = it->status == GA_ERR_MEMORY ? CLOSED : FAILED; /* there may be memory later */
    drop(it);
}

ga_status ga_cuda_place_open(ga_image *out, int device, unsigned sm)
{
    record *it = &records[device];
    if (it->state == CLOSED) {
        open_record(it, device, sm);
    }
    *out = it->image;
    return it->state == OPEN ? GA_OK : ga_fail(it->status, "%s", it->reason);
}

bool ga_cuda_place_is_open(int device)
{
    return records[device].state == OPEN;
}

void ga_cuda_place_close(int device)
{
    drop(&records[device]);
    records[device] = (record){0};
}
