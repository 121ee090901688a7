/* SPDX-License-Identifier: MIT
 *
 * Primary contexts and captures: missing in vmm_driver.
 */
#include "libcuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one form, in a table */

#define WORDS                                                                                      \
    stand_in_word a, stand_in_word b, stand_in_word c, stand_in_word d, stand_in_word e,           \
        stand_in_word f

enum {
    ILLEGAL_STATE = 401,
    CAPTURE_UNSUPPORTED = 900,
    MODE_RELAXED = 2
};

/* ---- beginning ----------------------------------------------------------------------------- */

ga_cuda_driver stand_in_table;
static pid_t starter; /* the process that called cuInit(); 0: none. Relaxed, as all words here: each
                       * is independent */
static bool shut_down;

/* vmm_driver puts its table here instead of into a runtime of ours. */
void ga_cuda_driver_set(const ga_cuda_driver *driver)
{
    stand_in_table = driver ? *driver : (ga_cuda_driver){0};
}

/* Kernels of the library's are not run here. */
void vmm_kernels_fill(ga_cuda_driver *table);
void vmm_kernels_clear(void);
void vmm_kernels_wait(void);

void vmm_kernels_fill(ga_cuda_driver *table)
{
    (void)table;
}

void vmm_kernels_clear(void)
{
}

void vmm_kernels_wait(void)
{
}

static uint64_t number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : 0;
}

static void begin(void)
{
    vmm_driver_options options = {.devices = (int)number_in("STAND_IN_DEVICES"),
                                  .sm = (int)number_in("STAND_IN_SM"),
                                  .memory = number_in("STAND_IN_MEMORY"),
                                  .pinned = number_in("STAND_IN_PINNED"),
                                  .no_fd = number_in("STAND_IN_NO_FD"),
                                  .rdma = !number_in("STAND_IN_NO_RDMA")};
    vmm_driver_start(&options);
}

CUresult stand_in_arrive(bool needs_init)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    if (__atomic_load_n(&shut_down, __ATOMIC_RELAXED)) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    pid_t who = __atomic_load_n(&starter, __ATOMIC_RELAXED);
    return needs_init && who != getpid() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

STAND_IN_API CUresult cuInit(unsigned flags);

CUresult cuInit(unsigned flags)
{
    CUresult refusal = stand_in_arrive(false);
    pid_t before = 0;
    if (!__atomic_compare_exchange_n(&starter, &before, getpid(), false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) &&
        before != getpid()) {
        return CUDA_ERROR_NOT_INITIALIZED; /* it does not outlive fork() */
    }
    return refusal == CUDA_SUCCESS ? stand_in_table.cuInit(flags) : refusal;
}

uint64_t stand_in_arrived(const char *name)
{
    return vmm_driver_calls(name);
}

vmm_driver_counts stand_in_count(void)
{
    return vmm_driver_count();
}

bool stand_in_accessible(const void *start, size_t size, unsigned bits)
{
    return vmm_driver_accessible(start, size, bits);
}

void stand_in_hold(CUstream stream)
{
    vmm_driver_hold(stream);
}

void stand_in_let_go(CUstream stream)
{
    vmm_driver_let_go(stream);
}

void stand_in_shut_down(void)
{
    __atomic_store_n(&shut_down, true, __ATOMIC_RELAXED);
}

/* ---- contexts ------------------------------------------------------------------------------ */

STAND_IN_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);

static CUcontext own_context(CUdevice device)
{
    CUcontext own = NULL;
    stand_in_table.cuDevicePrimaryCtxRetain(&own, device);
    stand_in_table.cuDevicePrimaryCtxRelease(device);
    return own;
}

static int device_count(void)
{
    int count = 0;
    stand_in_table.cuDeviceGetCount(&count);
    return count;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUcontext current = NULL;
    CUresult result = stand_in_arrive(true);
    if (result == CUDA_SUCCESS && stand_in_other_device(device)) {
        return CUDA_SUCCESS;
    }
    result = result == CUDA_SUCCESS ? stand_in_table.cuCtxGetCurrent(&current) : result;
    for (*device = 0; result == CUDA_SUCCESS && current && *device < device_count(); ++*device) {
        if (own_context(*device) == current) {
            return CUDA_SUCCESS;
        }
    }
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result;
}

static int active[VMM_DRIVER_DEVICES]; /* the device's own context is in use */

static int bad_devices;

int stand_in_bad_devices(void)
{
    return bad_devices;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *is_active)
{
    CUresult result = stand_in_arrive(true);
    *flags = 0;
    if (result == CUDA_SUCCESS && (device < 0 || device >= device_count())) {
        __atomic_fetch_add(&bad_devices, 1, __ATOMIC_RELAXED); /* a figure */
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *is_active = result == CUDA_SUCCESS && __atomic_load_n(&active[device], __ATOMIC_RELAXED);
    return result;
}

static CUresult reset(WORDS);

static int references[VMM_DRIVER_DEVICES];

static CUresult retain(WORDS)
{
    CUdevice device = (CUdevice)b;
    CUresult result = stand_in_table.cuDevicePrimaryCtxRetain((CUcontext *)a, device);
    if (result == CUDA_SUCCESS) {
        __atomic_fetch_add(&references[device], 1, __ATOMIC_RELAXED);
        __atomic_store_n(&active[device], 1, __ATOMIC_RELAXED);
    }
    return result;
}

/* A reference for a caller that bypasses the preload. */
CUresult stand_in_retain(CUcontext *context, CUdevice device)
{
    return retain((stand_in_word)context, (stand_in_word)device, 0, 0, 0, 0);
}

/* The last reference destroys the context, with all memory in it. */
static CUresult release(WORDS)
{
    CUresult result = stand_in_table.cuDevicePrimaryCtxRelease((CUdevice)a);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (__atomic_fetch_sub(&references[a], 1, __ATOMIC_RELAXED) <= 0) {
        __atomic_store_n(&references[a], 0, __ATOMIC_RELAXED);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return __atomic_load_n(&references[a], __ATOMIC_RELAXED) ? CUDA_SUCCESS
                                                             : reset(a, b, c, d, e, f);
}

/* ---- their flags --------------------------------------------------------------------------- */

static unsigned flags_of[VMM_DRIVER_DEVICES + 1]; /* the last: of those that are no device's own */

/* Of the current context; NULL: there is none. */
static unsigned *current_flags(void)
{
    CUcontext current = NULL;
    CUdevice device;
    if (cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current ||
        cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return NULL;
    }
    return &flags_of[stand_in_is_other(current) ? VMM_DRIVER_DEVICES : device];
}

STAND_IN_API CUresult cuCtxGetFlags(unsigned *flags);

CUresult cuCtxGetFlags(unsigned *flags)
{
    CUresult result = stand_in_arrive(true);
    const unsigned *current = result == CUDA_SUCCESS ? current_flags() : NULL;
    if (current) {
        *flags = __atomic_load_n(current, __ATOMIC_RELAXED);
    }
    return result == CUDA_SUCCESS && !current ? CUDA_ERROR_INVALID_CONTEXT : result;
}

static CUresult set_flags(WORDS)
{
    unsigned *current = current_flags();
    if (!current || a & ~(stand_in_word)0xff) {
        return current ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    }
    __atomic_store_n(current, (unsigned)a, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static CUresult set_primary_flags(WORDS)
{
    if ((int)a < 0 || (int)a >= device_count() || b & ~(stand_in_word)0xff) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    __atomic_store_n(&flags_of[a], (unsigned)b, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static CUresult reset(WORDS)
{
    stand_in_modules_gone(own_context((CUdevice)a));
    vmm_driver_destroy_context((CUdevice)a);
    __atomic_store_n(&flags_of[a], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&active[a], 0, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static CUresult done(WORDS)
{
    return CUDA_SUCCESS;
}

/* ---- captures ------------------------------------------------------------------------------ */

static struct {
    pthread_mutex_t lock;
    CUstream streams[STAND_IN_CAPTURES];
    CUcontext contexts[STAND_IN_CAPTURES];
    int modes[STAND_IN_CAPTURES];
    stand_in_graph *graphs[STAND_IN_CAPTURES];
    int count;
    uint64_t violations, nodes;
} captures = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int capture_of(CUstream stream)
{
    for (int i = 0; i < captures.count; i++) {
        if (captures.streams[i] == stream) {
            return i;
        }
    }
    return -1;
}

bool stand_in_capturing(CUstream stream)
{
    pthread_mutex_lock(&captures.lock);
    bool capturing = capture_of(stream) >= 0;
    pthread_mutex_unlock(&captures.lock);
    return capturing;
}

CUresult stand_in_unsafe(bool always)
{
    CUresult result = CUDA_SUCCESS;
    bool relaxed = stand_in_thread_mode() == MODE_RELAXED;
    pthread_mutex_lock(&captures.lock);
    for (int i = 0; i < captures.count; i++) {
        if (always || (!relaxed && captures.modes[i] != MODE_RELAXED)) {
            result = CAPTURE_UNSUPPORTED;
        }
    }
    captures.violations += result != CUDA_SUCCESS;
    pthread_mutex_unlock(&captures.lock);
    return result;
}

void stand_in_violate(void)
{
    pthread_mutex_lock(&captures.lock);
    captures.violations++;
    pthread_mutex_unlock(&captures.lock);
}

uint64_t stand_in_violations(void)
{
    return captures.violations;
}

void stand_in_add_node(void)
{
    pthread_mutex_lock(&captures.lock);
    captures.nodes++;
    pthread_mutex_unlock(&captures.lock);
}

uint64_t stand_in_nodes(void)
{
    return captures.nodes;
}

static CUresult begin_capture(CUstream stream, int mode)
{
    CUcontext context = NULL;
    cuCtxGetCurrent(&context);
    pthread_mutex_lock(&captures.lock);
    bool fits = captures.count < STAND_IN_CAPTURES && capture_of(stream) < 0;
    if (fits) {
        captures.streams[captures.count] = stream;
        captures.contexts[captures.count] = context;
        captures.graphs[captures.count] = stand_in_graph_create();
        captures.modes[captures.count++] = mode;
    }
    pthread_mutex_unlock(&captures.lock);
    return fits ? CUDA_SUCCESS : ILLEGAL_STATE;
}

stand_in_graph *stand_in_graph_of(CUstream stream)
{
    pthread_mutex_lock(&captures.lock);
    int at = capture_of(stream);
    stand_in_graph *graph = at >= 0 ? captures.graphs[at] : NULL;
    pthread_mutex_unlock(&captures.lock);
    return graph;
}

static CUresult end_of(CUstream stream, stand_in_graph **graph)
{
    pthread_mutex_lock(&captures.lock);
    int at = capture_of(stream);
    *graph = at >= 0 ? captures.graphs[at] : NULL;
    if (at >= 0) {
        captures.count--;
        captures.graphs[at] = captures.graphs[captures.count];
        captures.streams[at] = captures.streams[captures.count];
        captures.contexts[at] = captures.contexts[captures.count];
        captures.modes[at] = captures.modes[captures.count];
    }
    pthread_mutex_unlock(&captures.lock);
    return at >= 0 ? CUDA_SUCCESS : ILLEGAL_STATE;
}

/* A capture in the context; NULL: there is none. */
static CUstream capturing_in(CUcontext context)
{
    CUstream found = NULL;
    pthread_mutex_lock(&captures.lock);
    for (int i = 0; i < captures.count; i++) {
        found = captures.contexts[i] == context ? captures.streams[i] : found;
    }
    pthread_mutex_unlock(&captures.lock);
    return found;
}

void stand_in_captures_gone(CUcontext context)
{
    for (CUstream stream; (stream = capturing_in(context));) {
        stand_in_graph *graph;
        end_of(stream, &graph);
        stand_in_graph_destroy(graph);
    }
}

static CUresult begin_v1(WORDS)
{
    return begin_capture((CUstream)a, 0);
}

static CUresult begin_v2(WORDS)
{
    return begin_capture((CUstream)a, (int)b);
}

static CUresult begin_to_graph(WORDS)
{
    return begin_capture((CUstream)a, (int)f);
}

static CUresult end_capture(WORDS)
{
    return end_of((CUstream)a, (stand_in_graph **)b);
}

static CUresult stream_destroy(WORDS)
{
    stand_in_graph *graph;
    end_of((CUstream)a, &graph);
    stand_in_graph_destroy(graph);
    stand_in_blocking_stream((CUstream)a, false);
    return stand_in_table.cuStreamDestroy((CUstream)a);
}

STAND_IN_API CUresult cuStreamIsCapturing(CUstream stream, int *status);
STAND_IN_API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
STAND_IN_API CUresult cuCtxSynchronize(void);
STAND_IN_API CUresult cuStreamSynchronize(CUstream stream);
STAND_IN_API CUresult cuEventQuery(CUevent event);
STAND_IN_API CUresult cuCtxRecordEvent(CUcontext context, CUevent event);

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    CUresult result = stand_in_arrive(true);
    *status = stand_in_capturing(stream);
    bool legacy = (uintptr_t)stream <= 1;
    for (int i = 0; legacy && i < captures.count; i++) {
        if (stand_in_is_blocking(captures.streams[i])) {
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return result;
}

static CUstream green; /* of a green context, the last one */

STAND_IN_API CUresult cuGreenCtxStreamCreate(CUstream *stream, void *context, unsigned flags,
                                             int priority);

CUresult cuGreenCtxStreamCreate(CUstream *stream, void *context, unsigned flags, int priority)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_table.cuStreamCreate(stream, flags) : result;
    green = result == CUDA_SUCCESS ? *stream : green;
    return result;
}

/* All other streams here are of the context that is current. */
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    return green && stream == green ? CUDA_ERROR_NOT_SUPPORTED : cuCtxGetCurrent(context);
}

CUresult cuCtxSynchronize(void)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_unsafe(true) : result;
    return result == CUDA_SUCCESS ? stand_in_table.cuCtxSynchronize() : result;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_unsafe(false) : result;
    return result == CUDA_SUCCESS ? stand_in_table.cuStreamSynchronize(stream) : result;
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_unsafe(true) : result;
    return result == CUDA_SUCCESS ? stand_in_table.cuCtxRecordEvent(context, event) : result;
}

CUresult cuEventQuery(CUevent event)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_unsafe(false) : result;
    return result == CUDA_SUCCESS ? stand_in_table.cuEventQuery(event) : result;
}

/* ---- by symbol ---------------------------------------------------------------------------- */

stand_in_function *stand_in_own_context(const char *symbol)
{
    static const struct {
        const char *symbol;
        stand_in_function *function;
    } own[] = {
        {"cuStreamBeginCapture", begin_v1},
        {"cuStreamBeginCapture_ptsz", begin_v1},
        {"cuStreamBeginCapture_v2", begin_v2},
        {"cuStreamBeginCapture_v2_ptsz", begin_v2},
        {"cuStreamBeginCaptureToGraph", begin_to_graph},
        {"cuStreamBeginCaptureToGraph_ptsz", begin_to_graph},
        {"cuStreamEndCapture", end_capture},
        {"cuStreamEndCapture_ptsz", end_capture},
        {"cuStreamDestroy_v2", stream_destroy},
        {"cuDevicePrimaryCtxRetain", retain},
        {"cuDevicePrimaryCtxRelease", release},
        {"cuDevicePrimaryCtxRelease_v2", release},
        {"cuDevicePrimaryCtxReset", reset},
        {"cuDevicePrimaryCtxReset_v2", reset},
        {"cuDevicePrimaryCtxSetFlags", set_primary_flags},
        {"cuDevicePrimaryCtxSetFlags_v2", set_primary_flags},
        {"cuCtxSetFlags", set_flags},
        {"cuCtxEnablePeerAccess", done},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(own[i].symbol, symbol) == 0) {
            return own[i].function;
        }
    }
    return NULL;
}
