/* SPDX-License-Identifier: MIT
 *
 * Meetings of the ranks that share a window: work on the streams of all ranks before it is done
 * before the work after it.
 *
 * STRUCTURE  Numbers in memory that the processes of the host share (nccl_numbers.c), one for each
 *            pair of ranks. In a meeting the stream of each rank writes the meeting's number for
 *            each other one, and waits until those for this rank have reached it. That needs no
 *            kernel, for which there may be no room on the device before the shard's has ended.
 *            Where such memory cannot be had, a meeting is an all-reduce of NCCL.
 *
 * PROGRESS   An abort stores numbers far ahead, without the driver, which may be busy with a call
 *            that waits for the stream. The watch stores them again, because a number that another
 *            rank has sent may arrive after that.
 *
 * ORDER      `meetings` and stores of an abort are relaxed: a number that is ahead is enough.
 */
#include "nccl.h"

#include "platform/entropy.h"
#include "platform/environment.h"

#include <gpualloc/backend.h>

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    FAR_AHEAD = 1 << 30,
    QUEUES_LEAST = 8, /* of the hardware, as by default */
    TRIAL_MS = 2000
};

/* With few hardware queues the waits of a stream could hold up others. */
static bool waits_on_streams(const nccl_link *l)
{
    const char *queues = ga_environment("CUDA_DEVICE_MAX_CONNECTIONS");
    return l->driver->cuStreamWriteValue32 && l->driver->cuStreamWaitValue32 &&
           (!queues || atoi(queues) >= QUEUES_LEAST);
}

static uint32_t index_of(const nccl_link *l, uint32_t to, uint32_t from)
{
    return to * l->ranks + from;
}

/* ---- the numbers ----------------------------------------------------------------------------- */

static uint64_t bytes_of(const nccl_link *l)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = (uint64_t)l->ranks * l->ranks * sizeof *l->window.numbers;
    return (bytes + page - 1) / page * page;
}

/* The file of the numbers, in this process and on its device. */
static bool take_numbers(nccl_link *l, int file)
{
    nccl_window *w = &l->window;
    uint64_t bytes = bytes_of(l);
    uint32_t *numbers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (numbers == MAP_FAILED) {
        return false;
    }
    if (l->driver->cuMemHostRegister(numbers, bytes, CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS) {
        munmap(numbers, bytes);
        return false;
    }
    pthread_mutex_lock(&l->lock);
    w->numbers = numbers;
    pthread_mutex_unlock(&l->lock);
    return l->driver->cuMemHostGetDevicePointer(&w->numbers_at, numbers, 0) == CUDA_SUCCESS;
}

/* From rank 0, which gives it to all others. */
static bool get_numbers(nccl_link *l, nccl_offer *offer, uint64_t name)
{
    int64_t limit_ms = (int64_t)(l->limit_ns / 1000000u);
    int64_t end = ga_local_now() + (limit_ms < TRIAL_MS ? limit_ms : TRIAL_MS);
    bool got = l->rank ? ga_nccl_fetch_numbers(offer, name, bytes_of(l), end)
                       : ga_nccl_hand_numbers(offer, l->ranks - 1, bytes_of(l), end);
    return got && take_numbers(l, offer->file);
}

void ga_nccl_end_meetings(nccl_link *l)
{
    nccl_window *w = &l->window;
    pthread_mutex_lock(&l->lock); /* beside the watch */
    uint32_t *numbers = w->numbers;
    w->numbers = NULL;
    pthread_mutex_unlock(&l->lock);
    w->is_on_streams = false;
    if (numbers && ga_cuda_has_context(l->device)) {
        (void)l->driver->cuMemHostUnregister(numbers);
    }
    if (numbers) {
        munmap(numbers, bytes_of(l));
    }
}

/* `*name` becomes that of rank 0. */
static ga_status share_name(nccl_link *l, uint64_t *word, uint64_t *name, void *stream)
{
    CUdeviceptr at = (CUdeviceptr)word;
    *name = l->rank ? 0 : *name;
    ga_status status = GA_CUDA_CALL(l->driver, cuMemcpyHtoDAsync, at, name, sizeof *name, stream);
    status = status ? status : ga_nccl_wait(l, stream);
    status = status ? status : ga_nccl_largest(l, word, 1, stream);
    status = status ? status : ga_nccl_wait(l, stream);
    status = status ? status
                    : GA_CUDA_CALL(l->driver, cuMemcpyDtoHAsync, name, at, sizeof *name, stream);
    return status ? status : ga_nccl_wait(l, stream);
}

/* ---- meetings -------------------------------------------------------------------------------- */

static CUdeviceptr number_at(const nccl_link *l, uint32_t to, uint32_t from)
{
    return l->window.numbers_at + index_of(l, to, from) * sizeof *l->window.numbers;
}

static ga_status meet_on_stream(nccl_link *l, CUstream stream)
{
    uint32_t number = __atomic_add_fetch(&l->window.meetings, 1, __ATOMIC_RELAXED); /* relaxed:
                                                                                     * ORDER */
    ga_status status = GA_OK;
    for (uint32_t rank = 0; status == GA_OK && rank < l->ranks; rank++) {
        if (rank != l->rank) {
            status = GA_CUDA_CALL(l->driver, cuStreamWriteValue32, stream,
                                  number_at(l, rank, l->rank), number, 0);
        }
    }
    for (uint32_t rank = 0; status == GA_OK && rank < l->ranks; rank++) {
        if (rank != l->rank) {
            status = GA_CUDA_CALL(l->driver, cuStreamWaitValue32, stream,
                                  number_at(l, l->rank, rank), number, CU_STREAM_WAIT_VALUE_GEQ);
        }
    }
    return status;
}

ga_status ga_nccl_meet(void *context, void *stream)
{
    nccl_link *l = context;
    if (!l->window.is_on_streams) {
        return ga_nccl_largest(l, l->window.zero, 1, stream);
    }
    if (!l->comm) {
        return ga_nccl_gone(l);
    }
    ga_nccl_arm(l);
    return ga_nccl_disarm(l, "a meeting", meet_on_stream(l, stream));
}

void ga_nccl_release_locked(nccl_link *l)
{
    const nccl_window *w = &l->window;
    uint32_t number =
        __atomic_load_n(&w->meetings, __ATOMIC_RELAXED) + FAR_AHEAD; /* relaxed: see ORDER */
    for (uint32_t rank = 0; w->numbers && rank < l->ranks; rank++) {
        __atomic_store_n(&w->numbers[index_of(l, l->rank, rank)], number,
                         __ATOMIC_RELAXED); /* relaxed: see ORDER */
    }
}

/* Whether it works here: if not, it ends all the same. */
static bool try_meeting(nccl_link *l, CUstream stream)
{
    bool good = meet_on_stream(l, stream) == GA_OK;
    CUresult result = l->driver->cuStreamQuery(stream);
    for (int ms = 0; good && result == CUDA_ERROR_NOT_READY && ms < TRIAL_MS; ms++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        result = l->driver->cuStreamQuery(stream);
    }
    good = good && result == CUDA_SUCCESS;
    if (!good) {
        pthread_mutex_lock(&l->lock);
        ga_nccl_release_locked(l);
        pthread_mutex_unlock(&l->lock);
    }
    return good;
}

/* Collective: whether all ranks have the numbers. Each asks for them only once all can use them. */
static ga_status begin_numbers(nccl_link *l, nccl_offer *offer, uint64_t *word, bool *good,
                               void *stream)
{
    uint64_t name = ga_entropy() & INT64_MAX;
    *good = waits_on_streams(l) && (l->rank || ga_nccl_offer_numbers(offer, name, bytes_of(l)));
    ga_status status = share_name(l, word, &name, stream);
    status = status ? status : ga_nccl_agree(l, word, good, stream);
    if (status == GA_OK && *good) {
        *good = get_numbers(l, offer, name);
        status = ga_nccl_agree(l, word, good, stream);
    }
    return status;
}

ga_status ga_nccl_begin_meetings(nccl_link *l, uint64_t *word, void *stream)
{
    nccl_offer offer = {.file = -1, .listener.socket = -1};
    bool good;
    ga_status status = begin_numbers(l, &offer, word, &good, stream);
    ga_nccl_end_offer(&offer);
    if (status == GA_OK && good) {
        good = try_meeting(l, stream);
        status = ga_nccl_agree(l, word, &good, stream);
    }
    l->window.is_on_streams = status == GA_OK && good;
    if (!l->window.is_on_streams) {
        ga_nccl_end_meetings(l);
    }
    return status;
}
