/* SPDX-License-Identifier: MIT
 *
 * The `trace` backend. It records a free before the parent frees the block and an allocation after
 * the parent has allocated it, so that in the order of time no address is live twice.
 */
#include "trace.h"

#include "../../platform/libc.h"
#include "recorder.h"

enum {
    OPTION_FILE = 0,
    OPTION_BATCH,
    OPTION_STACKS
};

typedef struct trace_state {
    ga_heap *parent;
    ga_recorder *recorder;
    ga_place place;
    int device;
} trace_state;

static ga_status trace_open(const ga_open_args *args, void **state)
{
    trace_state *t = ga_libc.calloc(1, sizeof *t);
    if (!t) {
        return ga_fail(GA_ERR_MEMORY, "trace: no memory for the heap's record");
    }
    *t = (trace_state){.parent = args->parent, .place = args->place, .device = args->device};
    ga_status status = ga_recorder_open(&t->recorder, args->values[OPTION_FILE].text,
                                        (unsigned)args->values[OPTION_BATCH].integer,
                                        (unsigned)args->values[OPTION_STACKS].integer);
    if (status != GA_OK) {
        ga_libc.free(t);
        return status;
    }
    *state = t;
    return GA_OK;
}

static void trace_close(void *state)
{
    trace_state *t = state;
    ga_recorder_close(t->recorder);
    ga_libc.free(t);
}

/* Write the record with this heap's place and device and the current time. */
static void write_record(trace_state *t, ga_trace_record record)
{
    record.time_ns = ga_recorder_now(t->recorder);
    record.place = (uint8_t)t->place;
    record.device = (int8_t)t->device;
    if (record.operation != GA_TRACE_FREE && record.operation != GA_TRACE_RETIRE) {
        record.stack = ga_recorder_stack(t->recorder, record.time_ns);
    }
    ga_recorder_note(t->recorder, &record);
}

/* Record a request and its result. */
static ga_status record_result(trace_state *t, ga_status status, ga_trace_op op, size_t size,
                               size_t align, ga_stream stream, void **out)
{
    write_record(t, (ga_trace_record){
                        .operation = (uint8_t)(status == GA_OK ? op : GA_TRACE_FAILED),
                        .pointer = status == GA_OK ? (uintptr_t)*out : 0,
                        .size = size,
                        .align_log2 = (uint8_t)(align ? __builtin_ctzll(align) : 0),
                        .stream = (uintptr_t)stream,
                    });
    return status;
}

static ga_status trace_alloc(void *state, size_t size, void **out)
{
    trace_state *t = state;
    return record_result(t, ga_alloc(t->parent, size, 0, out), GA_TRACE_ALLOC, size, 0, NULL, out);
}

static ga_status trace_alloc_zeroed(void *state, size_t size, void **out)
{
    trace_state *t = state;
    return record_result(t, ga_alloc_zeroed(t->parent, size, 0, out), GA_TRACE_ZEROED, size, 0,
                         NULL, out);
}

static ga_status trace_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    trace_state *t = state;
    return record_result(t, ga_alloc(t->parent, size, align, out), GA_TRACE_ALLOC, size, align,
                         NULL, out);
}

static ga_status trace_alloc_on(void *state, size_t size, size_t align, ga_stream stream,
                                void **out)
{
    trace_state *t = state;
    return record_result(t, ga_alloc_on(t->parent, size, align, stream, out), GA_TRACE_ALLOC, size,
                         align, stream, out);
}

static ga_status trace_realloc(void *state, void *block, size_t size, void **out)
{
    trace_state *t = state;
    uintptr_t previous = (uintptr_t)block;
    ga_status status = ga_realloc(t->parent, block, size, 0, out);
    if (status != GA_OK) {
        return record_result(t, status, GA_TRACE_FAILED, size, 0, NULL, out);
    }
    write_record(t, (ga_trace_record){.operation = GA_TRACE_REALLOC,
                                      .pointer = (uintptr_t)*out,
                                      .previous = previous,
                                      .size = size});
    return GA_OK;
}

static ga_status trace_grow(void *state, void *block, size_t size)
{
    trace_state *t = state;
    ga_status status = ga_grow(t->parent, block, size);
    return record_result(t, status, GA_TRACE_GROW, size, 0, NULL, &block);
}

static ga_status trace_free(void *state, void *block)
{
    trace_state *t = state;
    write_record(t, (ga_trace_record){.operation = GA_TRACE_FREE, .pointer = (uintptr_t)block});
    return ga_free(t->parent, block);
}

static ga_status trace_free_on(void *state, void *block, ga_stream stream)
{
    trace_state *t = state;
    write_record(t, (ga_trace_record){.operation = GA_TRACE_FREE,
                                      .pointer = (uintptr_t)block,
                                      .stream = (uintptr_t)stream});
    return ga_free_on(t->parent, block, stream);
}

static ga_status trace_retire(void *state, void *block)
{
    trace_state *t = state;
    write_record(t, (ga_trace_record){.operation = GA_TRACE_RETIRE, .pointer = (uintptr_t)block});
    return ga_retire(t->parent, block);
}

static bool trace_owns(void *state, const void *pointer)
{
    return ga_owns(((trace_state *)state)->parent, pointer);
}

static size_t trace_usable_size(void *state, const void *block)
{
    return ga_usable_size(((trace_state *)state)->parent, block);
}

static ga_status trace_trim(void *state, size_t keep)
{
    return ga_trim(((trace_state *)state)->parent, keep);
}

static ga_status trace_each_live(void *state, ga_visit *visit, void *context)
{
    return ga_heap_each_live(((trace_state *)state)->parent, visit, context);
}

static const ga_option options[] = {
    [OPTION_FILE] = {.name = "file",
                     .type = GA_OPTION_STRING,
                     .help = "where to write; %p is the process id"},
    [OPTION_BATCH] = {.name = "batch",
                      .type = GA_OPTION_INTEGER,
                      .fallback = "128",
                      .help =
                          "records that a thread writes at once; 1: a crash or a kill loses none",
                      .min = 1,
                      .max = GA_RECORDER_BATCH},
    [OPTION_STACKS] = {.name = "stacks",
                       .type = GA_OPTION_INTEGER,
                       .fallback = "0",
                       .help = "frames of the call stack to record with each request; 0: none",
                       .min = 0,
                       .max = GA_TRACE_DEPTH_MAX},
};

const ga_backend ga_trace_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "trace",
    .help = "records every call to a file and passes it on to its parent",
    .places = GA_PLACE_BIT(GA_PLACE_HOST) | GA_PLACE_BIT(GA_PLACE_DEVICE),
    .parent_rule = GA_PARENT_REQUIRED,
    .passes_through = true,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .open = trace_open,
    .close = trace_close,
    .alloc = trace_alloc,
    .free = trace_free,
    .owns = trace_owns,
    .usable_size = trace_usable_size,
    .realloc = trace_realloc,
    .alloc_zeroed = trace_alloc_zeroed,
    .alloc_aligned = trace_alloc_aligned,
    .grow = trace_grow,
    .trim = trace_trim,
    .retire = trace_retire,
    .alloc_on = trace_alloc_on,
    .free_on = trace_free_on,
    .each_live = trace_each_live,
};
