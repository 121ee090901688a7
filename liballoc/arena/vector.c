/* SPDX-License-Identifier: MIT
 *
 * Vectors over arenas. The arena is opened with GA_ARENA_EXACT, because the vector decides how far
 * to grow ahead.
 */
#include <gpualloc/backend.h>

#include "platform/libc.h"
#include "state.h"
#include "vector_state.h"

#include <inttypes.h>

enum {
    SCRATCH_BYTES =
        /* Bytes behind the elements, to move a tail on a device by a shorter distance. */
        1 << 20
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t largest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- open and close ------------------------------------------------------------------------ */

static ga_status check_options(size_t element, const ga_arena_options *options, ga_stream stream)
{
    if (!options || options->options_size != sizeof *options) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "vector: options of %u bytes; expected options_size to be %zu",
                       options ? options->options_size : 0, sizeof *options);
    }
    if (!element || element > PTRDIFF_MAX) {
        return ga_fail(GA_ERR_ARGUMENT, "vector: elements of %zu bytes; expected 1 to %td", element,
                       PTRDIFF_MAX);
    }
    if (stream && options->place != GA_PLACE_DEVICE) {
        return ga_fail(GA_ERR_ARGUMENT, "vector: a stream for the place %s; expected NULL",
                       ga_place_text(options->place));
    }
    return GA_OK;
}

static ga_status set_up(ga_vector *v, size_t element, const ga_arena_options *options,
                        ga_stream stream)
{
    ga_arena_options exact_options = *options;
    uint64_t limit = options->limit ? least(options->limit, PTRDIFF_MAX) : PTRDIFF_MAX;
    exact_options.flags |= GA_ARENA_EXACT;
    *v = (ga_vector){.carrier = {options->place, options->device, (CUstream)stream},
                     .element = element,
                     .max = limit / element,
                     .exact = options->flags & GA_ARENA_EXACT};
    return ga_arena_open(&v->arena, &exact_options);
}

ga_status ga_vector_open(ga_vector **out, size_t element, const ga_arena_options *options,
                         ga_stream stream)
{
    if (!out) {
        return ga_fail(GA_ERR_ARGUMENT, "vector: nowhere to put the vector; expected a pointer");
    }
    *out = NULL;
    ga_status status = check_options(element, options, stream);
    if (status != GA_OK) {
        return status;
    }
    ga_vector *v = ga_libc.malloc(sizeof *v);
    if (!v) {
        return ga_fail(GA_ERR_MEMORY, "vector: no memory for %zu bytes of its own", sizeof *v);
    }
    status = set_up(v, element, options, stream);
    if (status != GA_OK) {
        ga_libc.free(v);
        return status;
    }
    *out = v;
    return GA_OK;
}

void ga_vector_close(ga_vector *vector)
{
    if (vector) {
        ga_loan_end(vector);
        ga_carrier_wait(&vector->carrier); /* a lost device has no work left */
        ga_arena_close(vector->arena);
        ga_libc.free(vector);
    }
}

/* ---- properties ---------------------------------------------------------------------------- */

void *ga_vector_data(const ga_vector *vector)
{
    return vector ? ga_arena_base(vector->arena) : NULL;
}

uint64_t ga_vector_size(const ga_vector *vector)
{
    return vector ? vector->size : 0;
}

uint64_t ga_vector_capacity(const ga_vector *vector)
{
    return vector ? ga_arena_size(vector->arena) / vector->element : 0;
}

size_t ga_vector_element(const ga_vector *vector)
{
    return vector ? vector->element : 0;
}

ga_arena *ga_vector_arena(const ga_vector *vector)
{
    return vector ? vector->arena : NULL;
}

static ga_status no_vector(void)
{
    return ga_fail(GA_ERR_ARGUMENT, "vector: no vector; expected one that is open");
}

ga_status ga_vector_wait(ga_vector *vector)
{
    return vector ? ga_carrier_wait(&vector->carrier) : no_vector();
}

/* Used by all calls on elements or room. */
static ga_status check_vector(const ga_vector *v)
{
    if (v && v->loan) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "vector: it is lent to kernels; expected it to be lent no more");
    }
    return v ? GA_OK : no_vector();
}

static char *element_at(const ga_vector *v, uint64_t at)
{
    return (char *)ga_arena_base(v->arena) + at * v->element;
}

static ga_status check_range(const ga_vector *v, uint64_t at, uint64_t n)
{
    ga_status status = check_vector(v);
    if (status == GA_OK && (at > v->size || n > v->size - at)) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "vector: %" PRIu64 " elements from %" PRIu64
                       " on; expected them to be within "
                       "its %" PRIu64,
                       n, at, v->size);
    }
    return status;
}

static ga_status check_memory(uint64_t n, const void *memory)
{
    return memory || !n ? GA_OK
                        : ga_fail(GA_ERR_ARGUMENT,
                                  "vector: NULL for %" PRIu64 " elements; expected memory", n);
}

/* ---- room ---------------------------------------------------------------------------------- */

/* Reserve addresses behind: double them if possible. */
static ga_status extend_addresses(ga_vector *v, uint64_t bytes)
{
    uint64_t twice = 2 * ga_arena_reserved(v->arena);
    if (twice > bytes && ga_arena_extend(v->arena, twice) == GA_OK) {
        return GA_OK;
    }
    return ga_arena_extend(v->arena, bytes);
}

/* Grow to more bytes than are reserved. */
static ga_status grow_beyond(ga_vector *v, uint64_t bytes)
{
    ga_status status = ga_arena_check_max(v->arena, bytes);
    if (status != GA_OK) {
        return status;
    }
    status = extend_addresses(v, bytes);
    if (status != GA_OK) {
        return status == GA_ERR_SIZE ? status : GA_ERR_CANNOT_GROW;
    }
    return ga_arena_grow(v->arena, bytes);
}

ga_status ga_vector_grow_to(ga_vector *v, uint64_t n)
{
    uint64_t bytes = n * v->element;
    if (n > v->max) {
        return ga_fail(GA_ERR_MEMORY,
                       "vector: room for %" PRIu64
                       " elements of %zu bytes; expected at most %" PRIu64 ", by its limit",
                       n, v->element, v->max);
    }
    ga_status status = ga_arena_grow(v->arena, bytes);
    return status == GA_ERR_CANNOT_GROW ? grow_beyond(v, bytes) : status;
}

/* The growth rule of §A.2.2, for `more` additional elements, as far as the machine has memory. */
static uint64_t next_capacity(const ga_vector *v, uint64_t more)
{
    uint64_t desired = largest(v->size + largest(v->size, more), 2 * ga_vector_capacity(v));
    desired = least(desired, v->max);
    return least(desired, ga_arena_max(v->arena, desired * v->element) / v->element);
}

static ga_status check_size(const ga_vector *v, uint64_t size, uint64_t more)
{
    uint64_t max = PTRDIFF_MAX / v->element;
    if (size > max || more > max - size) {
        return ga_fail(GA_ERR_SIZE,
                       "vector: %" PRIu64 " and %" PRIu64
                       " more elements of %zu bytes; expected at "
                       "most %" PRIu64,
                       size, more, v->element, max);
    }
    return GA_OK;
}

/* Room for `more` additional elements. */
static ga_status make_room(ga_vector *v, uint64_t more)
{
    ga_status status = check_size(v, v->size, more);
    if (status != GA_OK || more <= ga_vector_capacity(v) - v->size) {
        return status;
    }
    uint64_t needed = v->size + more, desired = next_capacity(v, more);
    if (!v->exact && desired > needed) {
        status = ga_vector_grow_to(v, desired);
        if (status != GA_ERR_MEMORY && status != GA_ERR_CANNOT_GROW) {
            return status;
        }
    }
    return ga_vector_grow_to(v, needed);
}

ga_status ga_vector_reserve(ga_vector *vector, uint64_t n)
{
    ga_status status = check_vector(vector);
    if (status == GA_OK) {
        status = check_size(vector, 0, n);
    }
    if (status != GA_OK || n <= ga_vector_capacity(vector)) {
        return status;
    }
    return ga_vector_grow_to(vector, n);
}

ga_status ga_vector_resize(ga_vector *vector, uint64_t n)
{
    ga_status status = check_vector(vector);
    if (status == GA_OK && n > vector->size) {
        status = make_room(vector, n - vector->size);
    }
    if (status == GA_OK) {
        vector->size = n;
    }
    return status;
}

ga_status ga_vector_shrink_to_fit(ga_vector *vector)
{
    ga_status status = check_vector(vector);
    if (status == GA_OK) {
        status = ga_vector_wait(vector);
    }
    return status == GA_OK ? ga_arena_shrink(vector->arena, vector->size * vector->element)
                           : status;
}

/* ---- elements ------------------------------------------------------------------------------ */

static ga_status copy_in(ga_vector *v, uint64_t at, uint64_t n, const void *from)
{
    return ga_carrier_copy_in(&v->carrier, element_at(v, at), from, n * v->element);
}

ga_status ga_vector_append(ga_vector *vector, uint64_t n, const void *from)
{
    ga_status status = check_vector(vector);
    if (status == GA_OK) {
        status = make_room(vector, n);
    }
    if (status == GA_OK && from) {
        status = ga_carrier_end(&vector->carrier, copy_in(vector, vector->size, n, from));
    }
    if (status == GA_OK) {
        vector->size += n;
    }
    return status;
}

ga_status ga_vector_push_back(ga_vector *vector, const void *from)
{
    ga_status status = check_memory(1, from);
    return status == GA_OK ? ga_vector_append(vector, 1, from) : status;
}

/* To move a tail of `tail` bytes by less than SCRATCH_BYTES, a device needs scratch behind the
 * `used` bytes. */
static ga_status make_scratch(ga_vector *v, uint64_t used, uint64_t tail, uint64_t distance)
{
    if (v->carrier.place == GA_PLACE_HOST || distance >= least(tail, SCRATCH_BYTES)) {
        return GA_OK;
    }
    uint64_t bytes = used + least(tail, SCRATCH_BYTES);
    if (bytes <= ga_arena_size(v->arena)) {
        return GA_OK;
    }
    return ga_vector_grow_to(v, (bytes + v->element - 1) / v->element);
}

/* Move the elements from `from` on to `to`. `end`: behind the last one, before and after the
 * move. */
static ga_status move_tail(ga_vector *v, uint64_t to, uint64_t from, uint64_t end)
{
    uint64_t used = end * v->element;
    return ga_carrier_move(&v->carrier, element_at(v, to), element_at(v, from),
                           (v->size - from) * v->element, element_at(v, end),
                           ga_arena_size(v->arena) - used);
}

/* Copy the new elements to `at`, after the tail has moved up by n. If `from` points to elements of
 * this vector, part of them has moved with the tail. */
static ga_status copy_in_after_move(ga_vector *v, uint64_t at, uint64_t n, const char *from)
{
    const char *gap = element_at(v, at), *end = element_at(v, v->size);
    uint64_t bytes = n * v->element, below = 0;
    if (!from || from + bytes <= gap || from >= end) {
        return from ? copy_in(v, at, n, from) : GA_OK;
    }
    if (from < gap) {
        below = (uint64_t)(gap - from);
    }
    ga_status status = ga_carrier_copy_in(&v->carrier, element_at(v, at), from, below);
    return status == GA_OK ? ga_carrier_copy_in(&v->carrier, element_at(v, at) + below,
                                                from + below + bytes, bytes - below)
                           : status;
}

ga_status ga_vector_insert(ga_vector *vector, uint64_t at, uint64_t n, const void *from)
{
    ga_status status = check_range(vector, at, 0);
    if (status != GA_OK || !n) {
        return status;
    }
    status = make_room(vector, n);
    if (status == GA_OK) {
        status = make_scratch(vector, (vector->size + n) * vector->element,
                              (vector->size - at) * vector->element, n * vector->element);
    }
    if (status != GA_OK) {
        return status;
    }
    status = move_tail(vector, at + n, at, vector->size + n);
    if (status == GA_OK) {
        status = copy_in_after_move(vector, at, n, from);
    }
    status = ga_carrier_end(&vector->carrier, status);
    if (status == GA_OK) {
        vector->size += n;
    }
    return status;
}

ga_status ga_vector_erase(ga_vector *vector, uint64_t at, uint64_t n)
{
    ga_status status = check_range(vector, at, n);
    if (status != GA_OK || !n) {
        return status;
    }
    status = make_scratch(vector, vector->size * vector->element,
                          (vector->size - at - n) * vector->element, n * vector->element);
    if (status != GA_OK) {
        return status;
    }
    status = ga_carrier_end(&vector->carrier, move_tail(vector, at, at + n, vector->size));
    if (status == GA_OK) {
        vector->size -= n;
    }
    return status;
}

ga_status ga_vector_fill(ga_vector *vector, uint64_t at, uint64_t n, const void *value)
{
    ga_status status = check_range(vector, at, n);
    if (status == GA_OK) {
        status = check_memory(n, value);
    }
    if (status != GA_OK || !n) {
        return status;
    }
    return ga_carrier_end(
        &vector->carrier,
        ga_carrier_fill(&vector->carrier, element_at(vector, at), value, vector->element, n));
}

ga_status ga_vector_write(ga_vector *vector, uint64_t at, uint64_t n, const void *from)
{
    ga_status status = check_range(vector, at, n);
    if (status == GA_OK) {
        status = check_memory(n, from);
    }
    if (status != GA_OK || !n) {
        return status;
    }
    return ga_carrier_end(&vector->carrier, copy_in(vector, at, n, from));
}

ga_status ga_vector_read(ga_vector *vector, uint64_t at, uint64_t n, void *to)
{
    ga_status status = check_range(vector, at, n);
    if (status == GA_OK) {
        status = check_memory(n, to);
    }
    if (status != GA_OK || !n) {
        return status;
    }
    return ga_carrier_end(
        &vector->carrier,
        ga_carrier_copy_out(&vector->carrier, to, element_at(vector, at), n * vector->element));
}

/* ---- between vectors ----------------------------------------------------------------------- */

static ga_status check_pair(const ga_vector *to, const ga_vector *from)
{
    ga_status status = check_vector(to);
    if (status == GA_OK) {
        status = check_vector(from);
    }
    if (status == GA_OK && to->element != from->element) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "vector: elements of %zu bytes into one of %zu bytes; expected the same",
                       from->element, to->element);
    }
    return status;
}

static bool have_same_order(const ga_carrier *a, const ga_carrier *b)
{
    return a->place == b->place && a->device == b->device && a->stream == b->stream;
}

/* By the carrier of the one that is on a device, if any. */
static ga_status copy_elements(ga_vector *to, ga_vector *from)
{
    uint64_t bytes = from->size * from->element;
    if (to->carrier.place == GA_PLACE_HOST) {
        return ga_carrier_copy_out(&from->carrier, element_at(to, 0), element_at(from, 0), bytes);
    }
    return ga_carrier_copy_in(&to->carrier, element_at(to, 0), element_at(from, 0), bytes);
}

/* Neither stream waits for the other, so the host waits for both. */
static ga_status copy_across_streams(ga_vector *to, ga_vector *from)
{
    ga_status status = ga_carrier_wait(&from->carrier);
    if (status == GA_OK) {
        status = ga_carrier_wait(&to->carrier);
    }
    if (status == GA_OK) {
        status = copy_elements(to, from);
    }
    ga_status first = ga_carrier_wait(&from->carrier), second = ga_carrier_wait(&to->carrier);
    return status != GA_OK ? status : first != GA_OK ? first : second;
}

ga_status ga_vector_copy(ga_vector *to, ga_vector *from)
{
    ga_status status = check_pair(to, from);
    if (status == GA_OK && to != from) {
        status = ga_vector_reserve(to, from->size);
    }
    if (status != GA_OK || to == from) {
        return status;
    }
    status = have_same_order(&to->carrier, &from->carrier)
                 ? ga_carrier_end(&to->carrier, copy_elements(to, from))
                 : copy_across_streams(to, from);
    if (status == GA_OK) {
        to->size = from->size;
    }
    return status;
}
