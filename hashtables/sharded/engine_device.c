/* SPDX-License-Identifier: MIT
 *
 * Memory of a device: kernels (sort_kernel.cuh, all_kernel.cuh), and two streams beside the
 * caller's: of the exchange, and one for the host's waits.
 */
#include "sharded.h"
#include "sort_team.h"

#include "device/device.h"

enum {
    BLOCKS_EACH = 2,   /* of a multiprocessor, as the registers of the sort allow; where there is
                              * shared memory for one room only, half of them run later */
    COUNTING_EACH = 4, /* and as many threads as it has */
    SLICE_LEAST = 1 << 23,
    GUESS_LEAST = 1 << 15,                 /* from there on pads cost less than the count */
    SORT_MOST = GA_SHARDED_SORT_BYTES / 4, /* requests of a block at once */
    ROOM_BYTES = sizeof(ga_sharded_room)
};

typedef enum kernel {
    COUNT,
    COMBINE,
    PAD,
    SORT,
    SORT_WIDE,
    GATHER,
    GATHER_WIDE,
    ORDER,
    MOVE
} kernel;

/* `has_room`: it has a ga_sharded_room in dynamic shared memory. */
static const struct {
    const char *name;
    bool has_room;
} kernels[GA_SHARDED_KERNELS] = {
    [COUNT] = {"ga_sharded_count_kernel", false},
    [COMBINE] = {"ga_sharded_combine_kernel", true},
    [PAD] = {"ga_sharded_pad_kernel", false},
    [SORT] = {"ga_sharded_sort_kernel", true},
    [SORT_WIDE] = {"ga_sharded_sort_wide_kernel", true},
    [GATHER] = {"ga_sharded_gather_kernel", true},
    [GATHER_WIDE] = {"ga_sharded_gather_wide_kernel", true},
    [ORDER] = {"ga_sharded_order_kernel", true},
    [MOVE] = {"ga_sharded_move_kernel", false},
};

static ga_status device_enter(ga_slabhash_sharded *table, void *scope)
{
    return ga_cuda_enter(scope, table->exchange.device);
}

static void device_leave(void *scope)
{
    ga_cuda_leave(scope);
}

static ga_status driver_of(const ga_cuda_driver **driver)
{
    return ga_cuda_driver_get(driver);
}

/* A room is larger than what the driver allows without a call. The carveout is in percent; by
 * default the driver reserves shared memory for one block only. */
static ga_status allow_room(const ga_cuda_driver *driver, CUfunction function)
{
    ga_status status =
        GA_CUDA_CALL(driver, cuFuncSetAttribute, function,
                     CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)ROOM_BYTES);
    return status ? status
                  : GA_CUDA_CALL(driver, cuFuncSetAttribute, function,
                                 CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
}

/* The driver loads a kernel when it is first asked for, and may wait for all work on the device
 * then. */
static ga_status load_kernels(const ga_cuda_driver *driver, ga_slabhash_sharded *table)
{
    ga_status status = GA_OK;
    for (int i = 0; status == GA_OK && i < GA_SHARDED_KERNELS; i++) {
        status = ga_device_function((CUfunction *)&table->kernels[i], table->exchange.device,
                                    kernels[i].name);
        if (status == GA_OK && kernels[i].has_room) {
            status = allow_room(driver, table->kernels[i]);
        }
    }
    return status;
}

/* The exchange stream has the highest priority. Otherwise its kernels would wait until all blocks
 * of the shard's kernels in the queue have begun, because these fill the device. */
static ga_status device_open(ga_slabhash_sharded *table)
{
    const ga_cuda_driver *driver;
    CUdevice device = 0;
    int count = 1, lowest = 0, highest = 0;
    size_t available = 0, total = 0;
    ga_status status = driver_of(&driver);
    status = status ? status : GA_CUDA_CALL(driver, cuDeviceGet, &device, table->exchange.device);
    status = status ? status : GA_CUDA_CALL(driver, cuMemGetInfo, &available, &total);
    status = status ? status
                    : GA_CUDA_CALL(driver, cuDeviceGetAttribute, &count,
                                   CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    status = status ? status : GA_CUDA_CALL(driver, cuCtxGetStreamPriorityRange, &lowest, &highest);
    status =
        status ? status
               : GA_CUDA_CALL(driver, cuStreamCreateWithPriority,
                              (CUstream *)&table->exchange_stream, CU_STREAM_NON_BLOCKING, highest);
    status = status ? status
                    : GA_CUDA_CALL(driver, cuStreamCreateWithPriority, (CUstream *)&table->arrivals,
                                   CU_STREAM_NON_BLOCKING, highest);
    for (int i = 0; status == GA_OK && i < GA_SHARDED_MARKS; i++) {
        status = GA_CUDA_CALL(driver, cuEventCreate, (CUevent *)&table->marks[i],
                              CU_EVENT_DISABLE_TIMING);
    }
    table->multiprocessors = (unsigned)count;
    table->memory = available;
    return status ? status : load_kernels(driver, table);
}

static void device_close(ga_slabhash_sharded *table)
{
    const ga_cuda_driver *driver;
    if (driver_of(&driver) != GA_OK) {
        return;
    }
    for (int i = 0; i < GA_SHARDED_MARKS; i++) {
        if (table->marks[i]) {
            driver->cuEventDestroy(table->marks[i]);
        }
    }
    if (table->exchange_stream) {
        driver->cuStreamDestroy(table->exchange_stream);
    }
    if (table->arrivals) {
        driver->cuStreamDestroy(table->arrivals);
    }
}

static ga_status device_allocate(ga_slabhash_sharded *table, void **block, uint64_t bytes)
{
    const ga_cuda_driver *driver;
    CUdeviceptr at = 0;
    ga_status status = driver_of(&driver);
    status = status ? status : GA_CUDA_CALL(driver, cuMemAlloc, &at, bytes ? bytes : 1);
    *block = (void *)at;
    return status == GA_ERR_MEMORY
               ? ga_fail(status, "slabhash: no memory for an exchange of %llu bytes on device %d",
                         (unsigned long long)bytes, table->exchange.device)
               : status;
}

static void device_free(ga_slabhash_sharded *table, void *block)
{
    const ga_cuda_driver *driver;
    (void)table;
    if (block && driver_of(&driver) == GA_OK) {
        driver->cuMemFree((CUdeviceptr)block);
    }
}

static ga_status device_allocate_host(ga_slabhash_sharded *table, void **block, uint64_t bytes)
{
    const ga_cuda_driver *driver;
    ga_status status = driver_of(&driver);
    (void)table;
    return status ? status : GA_CUDA_CALL(driver, cuMemHostAlloc, block, bytes, 0);
}

static void device_free_host(ga_slabhash_sharded *table, void *block)
{
    const ga_cuda_driver *driver;
    (void)table;
    if (block && driver_of(&driver) == GA_OK) {
        driver->cuMemFreeHost(block);
    }
}

static ga_status device_fill(ga_slabhash_sharded *table, void *at, int byte, uint64_t bytes,
                             void *stream)
{
    const ga_cuda_driver *driver;
    ga_status status = driver_of(&driver);
    (void)table;
    return status || !bytes ? status
                            : GA_CUDA_CALL(driver, cuMemsetD8Async, (CUdeviceptr)at,
                                           (unsigned char)byte, bytes, stream);
}

static ga_status device_put(ga_slabhash_sharded *table, void *at, const void *from, uint64_t bytes,
                            void *stream)
{
    const ga_cuda_driver *driver;
    ga_status status = driver_of(&driver);
    (void)table;
    return status || !bytes
               ? status
               : GA_CUDA_CALL(driver, cuMemcpyHtoDAsync, (CUdeviceptr)at, from, bytes, stream);
}

static ga_status device_get(ga_slabhash_sharded *table, void *to, const void *at, uint64_t bytes,
                            void *stream)
{
    const ga_cuda_driver *driver;
    ga_status status = driver_of(&driver);
    (void)table;
    return status || !bytes
               ? status
               : GA_CUDA_CALL(driver, cuMemcpyDtoHAsync, to, (CUdeviceptr)at, bytes, stream);
}

static ga_status device_wait(ga_slabhash_sharded *table, void *stream)
{
    const ga_cuda_driver *driver;
    ga_status status = driver_of(&driver);
    (void)table;
    return status ? status : GA_CUDA_CALL(driver, cuStreamSynchronize, stream);
}

static ga_status launch(ga_slabhash_sharded *table, kernel which, unsigned blocks_each,
                        uint64_t count, uint32_t wide, void *work, void *stream)
{
    const ga_cuda_driver *driver;
    void *parameters[] = {work};
    uint64_t each = wide ? SORT_MOST / 2 : SORT_MOST;
    uint64_t blocks = (count + each - 1) / each;
    uint64_t most = (uint64_t)table->multiprocessors * blocks_each;
    if (!count) {
        return GA_OK;
    }
    ga_status status = driver_of(&driver);
    return status ? status
                  : GA_CUDA_CALL(driver, cuLaunchKernel, table->kernels[which],
                                 (unsigned)(blocks < most ? blocks : most), 1, 1,
                                 GA_SHARDED_THREADS, 1, 1, kernels[which].has_room ? ROOM_BYTES : 0,
                                 stream, parameters, NULL);
}

static ga_status device_count(ga_slabhash_sharded *table, ga_sharded_sort *sort, void *stream)
{
    return launch(table, COUNT, COUNTING_EACH, sort->count, sort->is_wide, sort, stream);
}

static ga_status device_combine(ga_slabhash_sharded *table, ga_sharded_sort *sort, void *stream)
{
    return launch(table, COMBINE, BLOCKS_EACH, sort->count, sort->is_wide, sort, stream);
}

static ga_status device_pad(ga_slabhash_sharded *table, ga_sharded_pad *pad, void *stream)
{
    return launch(table, PAD, BLOCKS_EACH, (uint64_t)pad->bins * SORT_MOST, 0, pad, stream);
}

static ga_status device_sort(ga_slabhash_sharded *table, ga_sharded_sort *sort, void *stream)
{
    return launch(table, sort->is_wide ? SORT_WIDE : SORT, BLOCKS_EACH, sort->count, sort->is_wide,
                  sort, stream);
}

static ga_status device_gather(ga_slabhash_sharded *table, ga_sharded_gather *gather, void *stream)
{
    return launch(table, gather->is_wide ? GATHER_WIDE : GATHER, BLOCKS_EACH, gather->count,
                  gather->is_wide, gather, stream);
}

static ga_status device_order(ga_slabhash_sharded *table, ga_sharded_order *order, void *stream)
{
    return launch(table, ORDER, BLOCKS_EACH, order->count, order->is_wide, order, stream);
}

static ga_status device_move(ga_slabhash_sharded *table, ga_sharded_move *move, void *stream)
{
    return launch(table, MOVE, BLOCKS_EACH, move->count, 0, move, stream);
}

static ga_status device_mark(ga_slabhash_sharded *table, ga_sharded_mark mark, void *stream)
{
    const ga_cuda_driver *driver;
    ga_status status = driver_of(&driver);
    return status ? status : GA_CUDA_CALL(driver, cuEventRecord, table->marks[mark], stream);
}

static ga_status device_follow(ga_slabhash_sharded *table, ga_sharded_mark mark, void *stream)
{
    const ga_cuda_driver *driver;
    ga_status status = driver_of(&driver);
    return status ? status : GA_CUDA_CALL(driver, cuStreamWaitEvent, stream, table->marks[mark], 0);
}

const ga_sharded_engine ga_sharded_device = {
    .slice_least = SLICE_LEAST,
    .guess_least = GUESS_LEAST,
    .open = device_open,
    .close = device_close,
    .enter = device_enter,
    .leave = device_leave,
    .allocate = device_allocate,
    .free_block = device_free,
    .allocate_host = device_allocate_host,
    .free_host = device_free_host,
    .fill = device_fill,
    .put = device_put,
    .get = device_get,
    .wait = device_wait,
    .count = device_count,
    .combine = device_combine,
    .pad = device_pad,
    .sort = device_sort,
    .gather = device_gather,
    .order = device_order,
    .move = device_move,
    .mark = device_mark,
    .follow = device_follow,
};
