/* SPDX-License-Identifier: MIT
 *
 * Stream captures, through functions of the driver that older drivers do not have.
 *
 * ORDER      PC1/PC2 publish the functions of the driver
 * PROGRESS   no lock, because dlsym() takes the lock of the dynamic linker. Threads that come at
 *            once all look up, and the record of the first one stays
 */
#include "cuda_captures.h"

#include "cuda_driver.h"
#include "libc.h"

#include <string.h>

typedef struct CUgraph_st *CUgraph;
typedef struct CUuserObject_st *CUuserObject;

enum {
    MODE_RELAXED = 2,
    MODE_UNKNOWN = -1,
    NO_DESTRUCTOR_SYNC = 1, /* CU_USER_OBJECT_NO_DESTRUCTOR_SYNC */
    MOVE = 1                /* CU_GRAPH_USER_OBJECT_MOVE */
};

/* cuStreamGetCaptureInfo_v2 and _v3 differ in one optional argument before the last. A function
 * that the driver does not have is NULL. */
typedef struct capture_calls {
    CUresult (*is_capturing)(CUstream stream, int *status);
    CUresult (*info_2)(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                       const void **nodes, size_t *count);
    CUresult (*info_3)(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                       const void **nodes, const void **edges, size_t *count);
    CUresult (*create)(CUuserObject *object, void *pointer, void (*destroy)(void *pointer),
                       unsigned count, unsigned flags);
    CUresult (*retain)(CUgraph graph, CUuserObject object, unsigned count, unsigned flags);
    CUresult (*exchange)(int *mode);
} capture_calls;

static capture_calls *calls; /* NULL: not looked up yet; never freed */
static bool unwatched;

void ga_cuda_captures_unwatch(void)
{
    unwatched = true;
}

static capture_calls *find_calls(void)
{
    /* PC2: acquire. Pairs with PC1. */
    return __atomic_load_n(&calls, __ATOMIC_ACQUIRE);
}

static void look_up(void)
{
    capture_calls *none = NULL;
    capture_calls *made = ga_libc.calloc(1, sizeof *made);
    if (!made) {
        return; /* the next call tries again */
    }
    const struct {
        void *function;
        const char *symbol;
    } rows[] = {{&made->is_capturing, "cuStreamIsCapturing"},
                {&made->info_2, "cuStreamGetCaptureInfo_v2"},
                {&made->info_3, "cuStreamGetCaptureInfo_v3"},
                {&made->create, "cuUserObjectCreate"},
                {&made->retain, "cuGraphRetainUserObject"},
                {&made->exchange, "cuThreadExchangeStreamCaptureMode"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = ga_cuda_driver_symbol(rows[i].symbol);
        memcpy(rows[i].function, &function, sizeof function);
    }
    /* PC1: release. Pairs with PC2: a reader of the pointer sees the functions. */
    if (!__atomic_compare_exchange_n(&calls, &none, made, false, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED)) {
        ga_libc.free(made);
    }
}

/* Zeros until the driver is loaded. */
static const capture_calls *captures_calls(void)
{
    static const capture_calls none;
    const capture_calls *there = find_calls();
    if (__builtin_expect(there != NULL, 1)) {
        return there;
    }
    if (!unwatched && ga_cuda_driver_symbol("cuStreamIsCapturing")) {
        look_up();
        there = find_calls();
    }
    return there ? there : &none;
}

bool ga_cuda_captures_watched(void)
{
    return captures_calls()->is_capturing != NULL;
}

ga_cuda_capture_state ga_cuda_is_capturing(CUstream stream)
{
    const capture_calls *driver = captures_calls();
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result =
        driver->is_capturing ? driver->is_capturing(stream, &status) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        return GA_CUDA_CAPTURE_IMPLICIT;
    }
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE ? GA_CUDA_CAPTURE_OWN
                                                                             : GA_CUDA_CAPTURE_NONE;
}

static bool get_info(const capture_calls *driver, CUstream stream, uint64_t *id, CUgraph *graph)
{
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver->info_2) {
        result = driver->info_2(stream, &status, id, graph, NULL, NULL);
    } else if (driver->info_3) {
        result = driver->info_3(stream, &status, id, graph, NULL, NULL, NULL);
    }
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

bool ga_cuda_capture_number(CUstream stream, uint64_t *number)
{
    CUgraph graph = NULL;
    return get_info(captures_calls(), stream, number, &graph);
}

bool ga_cuda_capture_watch(CUstream stream, void (*destroyed)(void *context), void *context)
{
    const capture_calls *driver = captures_calls();
    CUuserObject object = NULL;
    CUgraph graph = NULL;
    uint64_t id = 0;
    /* If the graph refuses the object, the object leaks on purpose: its release would call
     * destroyed(). */
    return driver->create && driver->retain && get_info(driver, stream, &id, &graph) &&
           driver->create(&object, context, destroyed, 1, NO_DESTRUCTOR_SYNC) == CUDA_SUCCESS &&
           driver->retain(graph, object, 1, MOVE) == CUDA_SUCCESS;
}

int ga_cuda_relax_mode(void)
{
    const capture_calls *driver = captures_calls();
    int mode = MODE_RELAXED;
    return driver->exchange && driver->exchange(&mode) == CUDA_SUCCESS ? mode : MODE_UNKNOWN;
}

void ga_cuda_restore_mode(int mode)
{
    if (mode != MODE_UNKNOWN) {
        captures_calls()->exchange(&mode); /* there, because ga_cuda_relax_mode() has called it */
    }
}
