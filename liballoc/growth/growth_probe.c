/* SPDX-License-Identifier: MIT
 *
 * The host's half of the trial: a small arena, a pager client, and one warp that makes it grow.
 */
#include "growth_probe.h"

#include "../device/device.h"
#include "../platform/cuda_refused.h"
#include "pager.h"

#include <gpualloc/arena.h>
#include <gpualloc/backend.h>

#include <pthread.h>
#include <string.h>

static const uint64_t TIMEOUT_NS = 2000000000;

/* Results per device, guarded by the lock. */
static struct {
    bool final;
    ga_status status;
    char text[400];
} results[GA_CUDA_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct trial {
    int device;
    ga_arena *arena;
    uint64_t granule;
    ga_pager_client *client;
    ga_growth_probe probe; /* sent to the device, and copied back */
} trial;

static ga_growth_reason back(void *context, uint32_t requested, uint32_t *backed)
{
    trial *t = context;
    if (ga_arena_grow(t->arena, requested * t->granule) != GA_OK) {
        return GA_GROWTH_MEMORY;
    }
    *backed = requested;
    return GA_GROWTH_GRANTED;
}

/* Copy to the device, run, copy back: all on the device's own stream. */
static ga_status run(trial *t, const ga_cuda_scope *scope, CUfunction kernel, CUdeviceptr block)
{
    const ga_cuda_driver *driver = scope->driver;
    void *parameters[] = {&block};
    ga_status status =
        GA_CUDA_CALL(driver, cuMemcpyHtoDAsync, block, &t->probe, sizeof t->probe, scope->stream);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuLaunchKernel, kernel, 1, 1, 1, GA_GROWTH_PROBE_LANES, 1, 1,
                              0, scope->stream, parameters, NULL);
    }
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuMemcpyDtoHAsync, &t->probe, block, sizeof t->probe,
                              scope->stream);
    }
    return status == GA_OK ? GA_CUDA_CALL(driver, cuStreamSynchronize, scope->stream) : status;
}

static ga_status evaluate(const trial *t)
{
    static const char *const why[GA_GROWTH_REASONS] = {
        [GA_GROWTH_LIMIT] = "there is a limit",
        [GA_GROWTH_MEMORY] = "no memory could be mapped",
        [GA_GROWTH_GONE] = "the driver maps nothing until the kernel has ended",
        [GA_GROWTH_FIXED] = "it is fixed"};
    if (t->probe.state != GA_GROWTH_GRANTED) {
        /* Out of memory says nothing about the device. */
        return ga_fail(t->probe.state == GA_GROWTH_MEMORY ? GA_ERR_MEMORY : GA_ERR_UNSUPPORTED,
                       "growth: device %d: memory does not grow while a kernel runs: %s", t->device,
                       t->probe.state < GA_GROWTH_REASONS ? why[t->probe.state] : "no answer");
    }
    if (t->probe.correct_words != GA_GROWTH_PROBE_STEPS * GA_GROWTH_PROBE_LANES) {
        return ga_fail(
            GA_ERR_UNSUPPORTED,
            "growth: device %d: a kernel read %u words of memory that was mapped while it "
            "ran, %u as they had been written",
            t->device, GA_GROWTH_PROBE_STEPS * GA_GROWTH_PROBE_LANES, t->probe.correct_words);
    }
    return GA_OK;
}

static ga_status run_and_evaluate(trial *t)
{
    CUfunction kernel;
    ga_cuda_scope scope;
    CUdeviceptr block = 0;
    ga_status status = ga_device_function(&kernel, t->device, "ga_growth_probe_kernel");
    if (status == GA_OK) {
        status = ga_cuda_enter(&scope, t->device);
    }
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(scope.driver, cuMemAlloc, &block, sizeof t->probe);
    if (status == GA_OK) {
        status = run(t, &scope, kernel, block);
        ga_cuda_drop_block(scope.driver, t->device, block);
    }
    ga_cuda_leave(&scope);
    return status == GA_OK ? evaluate(t) : status;
}

static ga_status open_arena(trial *t)
{
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_EXACT,
                                .place = GA_PLACE_DEVICE,
                                .device = t->device,
                                .reserve = 1 << 30};
    ga_arena_stats stats;
    ga_status status = ga_arena_open(&t->arena, &options);
    if (status == GA_OK) {
        ga_arena_get_stats(t->arena, &stats);
        t->granule = stats.granule;
    }
    return status;
}

static ga_status run_trial(int device)
{
    trial t = {.device = device};
    ga_status status = open_arena(&t);
    if (status == GA_OK) {
        status = ga_pager_add(&t.client, device, 0, back, &t);
    }
    if (status == GA_OK) {
        t.probe.growth = ga_growth_first(ga_pager_mailbox(t.client), 0);
        t.probe.growth.timeout_ns = TIMEOUT_NS;
        t.probe.base = ga_arena_base(t.arena);
        t.probe.step_bytes = t.granule;
        status = run_and_evaluate(&t);
    }
    ga_pager_remove(t.client);
    ga_arena_close(t.arena);
    return status;
}

ga_status ga_growth_try(int device)
{
    if (device < 0 || device >= GA_CUDA_DEVICES) {
        return ga_fail(GA_ERR_DEVICE, "growth: no CUDA device %d", device);
    }
    pthread_mutex_lock(&lock);
    if (!results[device].final) {
        ga_status status = run_trial(device);
        results[device].status = status;
        /* Only the device's own answer is final: memory may become free, a driver may be loaded. */
        results[device].final = status == GA_OK || status == GA_ERR_UNSUPPORTED;
        if (status != GA_OK) {
            strncpy(results[device].text, ga_error_text(), sizeof results[device].text - 1);
        }
    } else if (results[device].status != GA_OK) {
        ga_fail(results[device].status, "%s", results[device].text);
    }
    ga_status status = results[device].status;
    pthread_mutex_unlock(&lock);
    return status;
}

void ga_growth_forget(void)
{
    memset(results, 0, sizeof results);
}
