/* SPDX-License-Identifier: MIT
 *
 * Streams and events, copies and fills.
 */
#include "vmm_state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- streams ----------------------------------------------------------------------------- */

/* The legacy and the per-thread default stream have the numbers 1 and 2. NULL: no such stream. */
static vmm_stream *stream_of(CUstream stream)
{
    int device = vmm_current_device();
    if ((uintptr_t)stream <= 2) {
        return device >= 0 ? &vmm.devices[device].null_stream : NULL;
    }
    for (vmm_stream *s = vmm.streams; s; s = s->next) {
        if (s == stream) {
            return s;
        }
    }
    return NULL;
}

/* Returns true if the stream's work up to `number` has ended, and all work that it waited for. */
static bool has_ended(const vmm_stream *stream, uint64_t number)
{
    if (stream->done < number) {
        return false;
    }
    for (unsigned i = 0; i < stream->gate_count; i++) {
        const vmm_gate *gate = &stream->gates[i];
        if (gate->from <= number && !has_ended(gate->on, gate->done)) {
            return false;
        }
    }
    return true;
}

static void put_work(vmm_stream *stream)
{
    stream->put++;
    stream->done = stream->held ? stream->done : stream->put;
}

/* As time would: end the stream's work, and the work that it waits for. */
static void finish(vmm_stream *stream)
{
    stream->done = stream->put;
    for (unsigned i = 0; i < stream->gate_count; i++) {
        vmm_gate *gate = &stream->gates[i];
        gate->on->done = gate->on->done > gate->done ? gate->on->done : gate->done;
    }
    stream->gate_count = 0;
}

static void wait_for(vmm_stream *stream)
{
    vmm.waits += !has_ended(stream, stream->put);
    finish(stream);
}

void vmm_finish(int device)
{
    bool waited = false;
    for (vmm_stream *s = vmm.streams; s; s = s->next) {
        if (s->device == device) {
            waited = waited || !has_ended(s, s->put);
            finish(s);
        }
    }
    vmm_stream *null = &vmm.devices[device].null_stream;
    waited = waited || !has_ended(null, null->put);
    finish(null);
    vmm.waits += waited;
}

static CUresult make_stream(CUstream *stream, int priority)
{
    int device = vmm_current_device();
    if (device < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    vmm_stream *made = calloc(1, sizeof *made);
    VMM_REQUIRE(made != NULL);
    made->device = device;
    made->priority = priority;
    made->ours = vmm.devices[device].retained;
    vmm.devices[device].retained = false;
    made->next = vmm.streams;
    vmm.streams = made;
    *stream = made;
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *stream, unsigned flags)
{
    VMM_CALL(cuStreamCreate)
    return flags & ~1u ? CUDA_ERROR_INVALID_VALUE : make_stream(stream, 0);
}

static CUresult stream_create_with_priority(CUstream *stream, unsigned flags, int priority)
{
    VMM_CALL(cuStreamCreateWithPriority)
    return flags & ~1u ? CUDA_ERROR_INVALID_VALUE : make_stream(stream, priority);
}

static CUresult priority_range(int *least, int *greatest)
{
    VMM_CALL(cuCtxGetStreamPriorityRange)
    *least = 0;
    *greatest = -5;
    return vmm_current_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult get_priority(CUstream stream, int *priority)
{
    VMM_CALL(cuStreamGetPriority)
    const vmm_stream *s = stream_of(stream);
    *priority = s ? s->priority : 0;
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Marks that wait for a destroyed stream wait no more: its work counts as ended. */
static void forget_stream(const vmm_stream *gone)
{
    for (struct CUevent_st *e = vmm.events; e; e = e->next) {
        for (size_t i = 0; i < e->count; i++) {
            e->marks[i].on = e->marks[i].on == gone ? NULL : e->marks[i].on;
        }
    }
    for (vmm_stream *s = vmm.streams; s; s = s->next) {
        for (unsigned i = 0; i < s->gate_count; i++) {
            if (s->gates[i].on == gone) {
                s->gates[i--] = s->gates[--s->gate_count];
            }
        }
    }
}

static CUresult stream_destroy(CUstream stream)
{
    VMM_CALL(cuStreamDestroy)
    vmm_stream **link = &vmm.streams;
    while (*link && *link != stream) {
        link = &(*link)->next;
    }
    if (!*link) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *link = stream->next;
    forget_stream(stream);
    free(stream);
    return CUDA_SUCCESS;
}

static CUresult stream_synchronize(CUstream stream)
{
    VMM_CALL(cuStreamSynchronize)
    vmm_stream *s = stream_of(stream);
    if (!s) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    wait_for(s);
    return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream stream)
{
    VMM_CALL(cuStreamQuery)
    const vmm_stream *s = stream_of(stream);
    if (!s) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return has_ended(s, s->put) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static vmm_stream *named(CUstream stream)
{
    return (uintptr_t)stream <= 2 ? &vmm.devices[0].null_stream : stream_of(stream);
}

void vmm_driver_hold(CUstream stream)
{
    vmm_lock();
    vmm_stream *s = named(stream);
    VMM_REQUIRE(s != NULL);
    s->held = true;
    vmm_unlock(NULL);
}

void vmm_driver_let_go(CUstream stream)
{
    vmm_lock();
    vmm_stream *s = named(stream);
    VMM_REQUIRE(s != NULL);
    s->held = false;
    s->done = s->put;
    vmm_unlock(NULL);
}

/* ---- events ------------------------------------------------------------------------------ */

static struct CUevent_st *event_of(CUevent event)
{
    for (struct CUevent_st *e = vmm.events; e; e = e->next) {
        if (e == event) {
            return e;
        }
    }
    return NULL;
}

static CUresult event_create(CUevent *event, unsigned flags)
{
    VMM_CALL(cuEventCreate)
    if (vmm_current_device() < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct CUevent_st *made = calloc(1, sizeof *made);
    VMM_REQUIRE(made != NULL);
    (void)flags;
    made->next = vmm.events;
    vmm.events = made;
    *event = made;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    VMM_CALL(cuEventDestroy)
    struct CUevent_st **link = &vmm.events;
    while (*link && *link != event) {
        link = &(*link)->next;
    }
    if (!*link) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *link = event->next;
    free(event->marks);
    free(event);
    return CUDA_SUCCESS;
}

static void mark(struct CUevent_st *e, vmm_stream *s)
{
    e->marks = realloc(e->marks, (e->count + 1) * sizeof *e->marks);
    VMM_REQUIRE(e->marks != NULL);
    put_work(s);
    e->marks[e->count++] = (vmm_mark){s, s->put};
}

static CUresult event_record(CUevent event, CUstream stream)
{
    VMM_CALL(cuEventRecord)
    struct CUevent_st *e = event_of(event);
    vmm_stream *s = stream_of(stream);
    if (!e || !s) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    e->count = 0;
    mark(e, s);
    return CUDA_SUCCESS;
}

/* Of the device whose own context is current, which must be `context`. */
static CUresult context_record(CUcontext context, CUevent event)
{
    VMM_CALL(cuCtxRecordEvent)
    struct CUevent_st *e = event_of(event);
    int device = vmm_current_device();
    if (!context || device < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!e) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    e->count = 0;
    mark(e, &vmm.devices[device].null_stream);
    for (vmm_stream *s = vmm.streams; s; s = s->next) {
        if (s->device == device) {
            mark(e, s);
        }
    }
    return CUDA_SUCCESS;
}

static bool mark_has_ended(const vmm_mark *m)
{
    return !m->on || has_ended(m->on, m->number);
}

static bool event_has_ended(const struct CUevent_st *event)
{
    bool ended = true;
    for (size_t i = 0; i < event->count; i++) {
        ended = ended && mark_has_ended(&event->marks[i]);
    }
    return ended;
}

static CUresult event_query(CUevent event)
{
    VMM_CALL(cuEventQuery)
    const struct CUevent_st *e = event_of(event);
    if (!e) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return event_has_ended(e) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_synchronize(CUevent event)
{
    VMM_CALL(cuEventSynchronize)
    struct CUevent_st *e = event_of(event);
    if (!e) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!event_has_ended(e)) {
        vmm.waits++;
        for (size_t i = 0; i < e->count; i++) {
            if (!mark_has_ended(&e->marks[i])) {
                finish(e->marks[i].on);
            }
        }
    }
    return CUDA_SUCCESS;
}

static void drop_ended_gates(vmm_stream *s)
{
    for (unsigned i = 0; i < s->gate_count; i++) {
        if (has_ended(s->gates[i].on, s->gates[i].done)) {
            s->gates[i--] = s->gates[--s->gate_count];
        }
    }
}

static CUresult stream_wait_event(CUstream stream, CUevent event, unsigned flags)
{
    VMM_CALL(cuStreamWaitEvent)
    vmm_stream *s = stream_of(stream);
    const struct CUevent_st *e = event_of(event);
    if (!s || !e || flags) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    drop_ended_gates(s);
    uint64_t from = s->put + 1;
    for (size_t i = 0; i < e->count; i++) {
        const vmm_mark *m = &e->marks[i];
        if (m->on != s && !mark_has_ended(m)) {
            VMM_REQUIRE(s->gate_count < VMM_GATES);
            s->gates[s->gate_count++] = (vmm_gate){m->on, m->number, from};
        }
    }
    if (!event_has_ended(e)) {
        put_work(s);
    }
    return CUDA_SUCCESS;
}

/* ---- copies and fills -------------------------------------------------------------------- */

static CUresult begin_work(CUstream stream)
{
    vmm_stream *s = stream_of(stream);
    if (!s) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    put_work(s);
    return CUDA_SUCCESS;
}

/* Copies of overlapping ranges are undefined in the real driver: here they end the program. */
static CUresult copy(void *to, const void *from, size_t size, CUstream stream)
{
    CUresult result = begin_work(stream);
    if (result == CUDA_SUCCESS && size) {
        bool apart = (uintptr_t)to + size <= (uintptr_t)from ||
                     (uintptr_t)from + size <= (uintptr_t)to || to == from;
        VMM_REQUIRE(apart);
        memmove(to, from, size);
    }
    return result;
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    VMM_CALL(cuMemcpyHtoDAsync)
    return copy((void *)(uintptr_t)to, from, size, stream);
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    VMM_CALL(cuMemcpyDtoHAsync)
    return copy(to, (const void *)(uintptr_t)from, size, stream);
}

static CUresult copy_within(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    VMM_CALL(cuMemcpyDtoDAsync)
    return copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size, stream);
}

static CUresult fill_bytes(CUdeviceptr to, unsigned char value, size_t size, CUstream stream)
{
    VMM_CALL(cuMemsetD8Async)
    CUresult result = begin_work(stream);
    if (result == CUDA_SUCCESS && size) {
        memset((void *)(uintptr_t)to, value, size);
    }
    return result;
}

static CUresult fill_words(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    VMM_CALL(cuMemsetD32Async)
    CUresult result = begin_work(stream);
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        ((unsigned *)(uintptr_t)to)[i] = value;
    }
    return result;
}

/* ---- values ------------------------------------------------------------------------------ */

static CUresult stream_write_value(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags)
{
    VMM_CALL(cuStreamWriteValue32)
    CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : begin_work(stream);
    if (result == CUDA_SUCCESS) {
        __atomic_store_n((uint32_t *)(uintptr_t)at, value, __ATOMIC_RELEASE);
    }
    return result;
}

static CUresult begin_wait(CUstream stream, unsigned flags)
{
    VMM_CALL(cuStreamWaitValue32)
    return flags != CU_STREAM_WAIT_VALUE_GEQ ? CUDA_ERROR_INVALID_VALUE : begin_work(stream);
}

static int waiting; /* threads that wait for a value */

int vmm_driver_waiting(void)
{
    return __atomic_load_n(&waiting, __ATOMIC_SEQ_CST);
}

/* Without the lock, because other threads write the value. */
static CUresult stream_wait_value(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags)
{
    CUresult result = begin_wait(stream, flags);
    __atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST);
    while (result == CUDA_SUCCESS &&
           (int32_t)(__atomic_load_n((uint32_t *)(uintptr_t)at, __ATOMIC_ACQUIRE) - value) < 0) {
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    __atomic_fetch_sub(&waiting, 1, __ATOMIC_SEQ_CST);
    return result;
}

/* ---- begin and end ----------------------------------------------------------------------- */

void vmm_work_fill(ga_cuda_driver *table)
{
    table->cuStreamCreate = stream_create;
    table->cuStreamCreateWithPriority = stream_create_with_priority;
    table->cuCtxGetStreamPriorityRange = priority_range;
    table->cuStreamGetPriority = get_priority;
    table->cuStreamDestroy = stream_destroy;
    table->cuStreamSynchronize = stream_synchronize;
    table->cuStreamQuery = stream_query;
    table->cuStreamWaitEvent = stream_wait_event;
    table->cuStreamWriteValue32 = vmm.options.no_stream_values ? NULL : stream_write_value;
    table->cuStreamWaitValue32 = vmm.options.no_stream_values ? NULL : stream_wait_value;
    table->cuEventCreate = event_create;
    table->cuEventDestroy = event_destroy;
    table->cuEventRecord = event_record;
    table->cuCtxRecordEvent = vmm.options.no_context_events ? NULL : context_record;
    table->cuEventQuery = event_query;
    table->cuEventSynchronize = event_synchronize;
    table->cuMemcpyHtoDAsync = copy_in;
    table->cuMemcpyDtoHAsync = copy_out;
    table->cuMemcpyDtoDAsync = copy_within;
    table->cuMemsetD8Async = fill_bytes;
    table->cuMemsetD32Async = fill_words;
}

void vmm_work_clear(void)
{
    while (vmm.events) {
        struct CUevent_st *event = vmm.events;
        vmm.events = event->next;
        free(event->marks);
        free(event);
    }
    while (vmm.streams) {
        vmm_stream *stream = vmm.streams;
        vmm.streams = stream->next;
        free(stream);
    }
}
