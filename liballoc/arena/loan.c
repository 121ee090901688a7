/* SPDX-License-Identifier: MIT
 *
 * A vector lent to kernels: its state for append.h is in memory of its place, and the pager backs
 * more of its arena while the kernels run. The host does not use the vector while it is lent.
 */
#include <gpualloc/backend.h>

#include "../growth/growth_probe.h"
#include "../growth/pager.h"
#include "append.h"
#include "platform/cuda_refused.h"
#include "platform/libc.h"
#include "platform/log.h"
#include "vector_state.h"

#include <inttypes.h>

enum {
    DEFAULT_STEP_BYTES = 32 << 20, /* least bytes by which kernels grow it */
    /* Most bytes that are backed ahead, because kernels wait for them. */
    AHEAD_BYTES_MAX = 1 << 30,
    STEP_BYTES_MIN = 64 << 10 /* so that 32 bits can count the steps */
};

struct ga_loan {
    ga_append *append;       /* in memory of the vector's place */
    ga_pager_client *client; /* NULL: kernels cannot grow it */
    uint64_t step;           /* bytes */
};

/* ---- the pager's side ---------------------------------------------------------------------- */

static uint32_t backed_steps(const ga_vector *v)
{
    return (uint32_t)(ga_arena_size(v->arena) / v->loan->step);
}

static bool back_steps(ga_vector *v, uint64_t steps)
{
    uint64_t bytes = steps * v->loan->step;
    return ga_vector_grow_to(v, (bytes + v->element - 1) / v->element) == GA_OK;
}

/* Steps within the limit. */
static uint32_t steps_max(const ga_vector *v)
{
    uint64_t max = v->max * v->element / v->loan->step;
    return max < UINT32_MAX ? (uint32_t)max : UINT32_MAX;
}

/* No step can be added, so no pager is needed. */
static bool is_at_limit(const ga_vector *v)
{
    return backed_steps(v) >= steps_max(v);
}

/* Back steps from `current` towards `needed`, as far as memory allows. */
static void back_towards(ga_vector *v, uint32_t current, uint32_t needed)
{
    uint32_t more = needed - current;
    while (more) {
        if (back_steps(v, current + more)) {
            current += more;
            more = more < needed - current ? more : needed - current;
        } else {
            more /= 2;
        }
    }
}

/* Double the vector, as on the host, but add at most AHEAD_BYTES_MAX at once: the next request
 * comes before that is used up. Otherwise back the requested steps. */
static ga_growth_reason back(void *context, uint32_t requested, uint32_t *backed)
{
    ga_vector *v = context;
    uint32_t current = backed_steps(v), max = steps_max(v);
    uint32_t needed = requested < max ? requested : max;
    uint64_t piece = AHEAD_BYTES_MAX / v->loan->step;
    uint64_t more = current < piece ? current : piece;
    uint64_t ahead = v->exact ? needed : current + more;
    bool reached = ahead > needed && back_steps(v, ahead < max ? ahead : max);
    if (!reached && needed > current) {
        back_towards(v, current, needed);
    }
    *backed = backed_steps(v);
    return *backed >= requested ? GA_GROWTH_GRANTED
           : requested > max    ? GA_GROWTH_LIMIT
                                : GA_GROWTH_MEMORY;
}

/* ---- memory for the state ------------------------------------------------------------------ */

static ga_status open_memory(const ga_carrier *carrier, ga_append **out)
{
    ga_cuda_scope scope;
    if (carrier->place == GA_PLACE_HOST) {
        *out = ga_libc.memalign(128, sizeof **out);
        return *out ? GA_OK : ga_fail(GA_ERR_MEMORY, "vector: no memory to lend it with");
    }
    ga_status status = ga_cuda_enter(&scope, carrier->device);
    if (status == GA_OK) {
        CUdeviceptr block = 0;
        status = GA_CUDA_CALL(scope.driver, cuMemAlloc, &block, sizeof **out);
        *out = (ga_append *)block;
        ga_cuda_leave(&scope);
    }
    return status;
}

static void close_memory(const ga_carrier *carrier, ga_append *append)
{
    if (carrier->place == GA_PLACE_HOST) {
        ga_libc.free(append);
    } else {
        ga_cuda_free_block(carrier->device, (CUdeviceptr)append);
    }
}

static ga_status write_state(const ga_vector *v)
{
    ga_pager_client *client = v->loan->client;
    /* NULL: refusals are FIXED. */
    ga_mailbox *mailbox = client ? ga_pager_mailbox(client) : NULL;
    ga_append first = {.growth = ga_growth_first(mailbox, backed_steps(v)),
                       .element = v->element,
                       .step = v->loan->step,
                       .tail = v->size,
                       .gate = ga_vector_capacity(v) << 1,
                       .refused = GA_APPEND_NONE_REFUSED};
    if (!client && is_at_limit(v)) {
        first.growth.refusal = GA_GROWTH_FOREVER | GA_GROWTH_LIMIT;
    }
    ga_status status = ga_carrier_copy_in(&v->carrier, v->loan->append, &first, sizeof first);
    return status == GA_OK ? ga_carrier_wait(&v->carrier) : status;
}

static ga_status read_state(const ga_vector *v, ga_append *last)
{
    ga_status status = ga_carrier_wait(&v->carrier);
    if (status == GA_OK) {
        status = ga_carrier_copy_out(&v->carrier, last, v->loan->append, sizeof *last);
    }
    return status == GA_OK ? ga_carrier_wait(&v->carrier) : status;
}

/* ---- lending ------------------------------------------------------------------------------- */

/* True if memory grows under running kernels of the device; otherwise logs a warning. */
static bool can_grow(int device)
{
    if (device == GA_PAGER_HOST || ga_growth_try(device) == GA_OK) {
        return true;
    }
    ga_log(GA_LOG_WARN, "vector: device %d: vectors grow between launches only: %s", device,
           ga_error_text());
    return false;
}

static ga_status begin_loan(ga_vector *v)
{
    int device = v->carrier.place == GA_PLACE_HOST ? GA_PAGER_HOST : v->carrier.device;
    ga_status status = open_memory(&v->carrier, &v->loan->append);
    if (status == GA_OK && !is_at_limit(v) && can_grow(device)) {
        status = ga_pager_add(&v->loan->client, device, backed_steps(v), back, v);
    }
    return status == GA_OK ? write_state(v) : status;
}

void ga_loan_end(ga_vector *v)
{
    if (v->loan) {
        ga_pager_remove(v->loan->client);
        if (v->loan->append) {
            close_memory(&v->carrier, v->loan->append);
        }
        ga_libc.free(v->loan);
        v->loan = NULL;
    }
}

static ga_status check_loan(const ga_vector *v, bool lent, const void *out)
{
    if (!v || !out) {
        return ga_fail(GA_ERR_ARGUMENT, "vector: no %s; expected one", v ? "view" : "vector");
    }
    if (lent != (v->loan != NULL)) {
        return ga_fail(GA_ERR_ARGUMENT, "vector: it is %s; expected it %s",
                       lent ? "not lent to kernels" : "lent to kernels",
                       lent ? "to be" : "to be lent no more");
    }
    return GA_OK;
}

ga_status ga_vector_lend(ga_vector *vector, uint64_t step, ga_kernel_vector *out)
{
    ga_status status = check_loan(vector, false, out);
    if (status != GA_OK) {
        return status;
    }
    if ((step && step < STEP_BYTES_MIN) || step > PTRDIFF_MAX) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "vector: steps of %" PRIu64 " bytes; expected 0 or at least %d", step,
                       STEP_BYTES_MIN);
    }
    if (vector->element > UINT32_MAX) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "vector: kernels append elements of %zu bytes; expected at most %u",
                       vector->element, UINT32_MAX);
    }
    vector->loan = ga_libc.calloc(1, sizeof *vector->loan);
    if (!vector->loan) {
        return ga_fail(GA_ERR_MEMORY, "vector: no memory to lend it with");
    }
    vector->loan->step = step ? step : DEFAULT_STEP_BYTES;
    status = begin_loan(vector);
    if (status != GA_OK) {
        ga_loan_end(vector);
        return status;
    }
    *out = (ga_kernel_vector){GA_KERNEL_VECTOR_ABI, (uint32_t)vector->element,
                              ga_vector_data(vector), vector->loan->append};
    return GA_OK;
}

/* ---- taking back --------------------------------------------------------------------------- */

static const char *text_of(uint32_t reason)
{
    static const char *const texts[GA_GROWTH_REASONS] = {
        "", "limit or addresses reached", "out of memory", "the pager did not answer",
        "it grows between launches only"};
    return reason < GA_GROWTH_REASONS ? texts[reason] : "?";
}

static void fill_result(const ga_vector *v, const ga_append *last, ga_vector_appended *out)
{
    ga_pager_stats pager = {0};
    uint64_t end = last->tail < last->refused ? last->tail : last->refused;
    if (v->loan->client) {
        ga_pager_get_stats(v->loan->client, &pager);
    }
    *out = (ga_vector_appended){.appended = end - v->size,
                                .refused = last->tail - end,
                                .reason = text_of(last->reason),
                                .growths = pager.granted,
                                .grow_ns_p50 = pager.p50,
                                .grow_ns_p99 = pager.p99,
                                .grow_ns_p999 = pager.p999,
                                .grow_ns_max = pager.max};
}

ga_status ga_vector_end_loan(ga_vector *vector, ga_vector_appended *out)
{
    ga_append last;
    ga_vector_appended result;
    ga_status status = check_loan(vector, true, &result);
    if (status != GA_OK) {
        return status;
    }
    status = read_state(vector, &last);
    if (status == GA_OK) {
        fill_result(vector, &last, &result);
        vector->size += result.appended;
        if (out) {
            *out = result;
        }
    }
    ga_loan_end(vector);
    return status;
}
