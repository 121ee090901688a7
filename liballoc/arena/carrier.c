/* SPDX-License-Identifier: MIT
 *
 * Copies on the host by memcpy, on a device by the driver.
 */
#include "carrier.h"

#include <string.h>

enum {
    /* A fill on the host copies pieces of this size, which stay in a core's cache. */
    FILL_PIECE_BYTES = 256 << 10,
    /* A device copies pieces of this size at nearly full speed. */
    DIRECT_PIECE_BYTES = 4 << 20
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- on a device, its context being current ------------------------------------------------- */

typedef struct work {
    ga_cuda_scope scope;
    CUstream stream;
} work;

static ga_status copy_within(const work *w, char *to, const char *from, uint64_t size)
{
    return GA_CUDA_CALL(w->scope.driver, cuMemcpyDtoDAsync, (CUdeviceptr)to, (CUdeviceptr)from,
                        size, w->stream);
}

static ga_status is_host(const work *w, const void *pointer, bool *host)
{
    ga_cuda_pointer description;
    ga_status status = ga_cuda_describe(&w->scope, pointer, &description);
    *host = description.memory_type != CU_MEMORYTYPE_DEVICE;
    return status;
}

static ga_status device_copy_in(const work *w, char *to, const char *from, uint64_t size)
{
    bool host;
    ga_status status = is_host(w, from, &host);
    if (status != GA_OK || !host) {
        return status == GA_OK ? copy_within(w, to, from, size) : status;
    }
    return GA_CUDA_CALL(w->scope.driver, cuMemcpyHtoDAsync, (CUdeviceptr)to, from, size, w->stream);
}

static ga_status device_copy_out(const work *w, char *to, const char *from, uint64_t size)
{
    bool host;
    ga_status status = is_host(w, to, &host);
    if (status != GA_OK || !host) {
        return status == GA_OK ? copy_within(w, to, from, size) : status;
    }
    return GA_CUDA_CALL(w->scope.driver, cuMemcpyDtoHAsync, to, (CUdeviceptr)from, size, w->stream);
}

/* Move one piece through `scratch`, or directly if it is NULL. */
static ga_status move_piece(const work *w, char *to, const char *from, uint64_t size, char *scratch)
{
    if (!scratch) {
        return copy_within(w, to, from, size);
    }
    ga_status status = copy_within(w, scratch, from, size);
    return status == GA_OK ? copy_within(w, to, scratch, size) : status;
}

/* Up: from the end backwards. Down: from the start forwards. So a piece never overwrites bytes that
 * are still to be moved, and a piece no longer than the distance does not overlap itself. */
static ga_status device_move_bytes(const work *w, char *to, const char *from, uint64_t size,
                                   char *scratch, uint64_t room)
{
    bool up = to > from;
    uint64_t distance = up ? (uint64_t)(to - from) : (uint64_t)(from - to);
    bool direct = distance >= least(size, DIRECT_PIECE_BYTES) || distance >= room;
    uint64_t piece = direct ? distance : room;
    ga_status status = GA_OK;
    for (uint64_t done = 0; distance && done < size && status == GA_OK;) {
        uint64_t n = least(piece, size - done);
        uint64_t at = up ? size - done - n : done;
        status = move_piece(w, to + at, from + at, n, direct ? NULL : scratch);
        done += n;
    }
    return status;
}

/* Copy the first element, then copy all that is written so far, doubling it each time. */
static ga_status device_repeat(const work *w, char *to, const char *value, uint64_t element,
                               uint64_t bytes)
{
    ga_status status = GA_CUDA_CALL(w->scope.driver, cuMemcpyHtoDAsync, (CUdeviceptr)to, value,
                                    element, w->stream);
    for (uint64_t done = element; done < bytes && status == GA_OK;) {
        uint64_t n = least(done, bytes - done);
        status = copy_within(w, to + done, to, n);
        done += n;
    }
    return status;
}

static bool is_byte_pattern(const char *value, size_t element)
{
    return !memcmp(value, value + 1, element - 1);
}

/* True if the value repeats the same four bytes and the address is aligned for words. */
static bool is_word_pattern(const char *to, const char *value, size_t element)
{
    return (uintptr_t)to % 4 == 0 && element % 4 == 0 && !memcmp(value, value + 4, element - 4);
}

static ga_status device_fill(const work *w, char *to, const char *value, size_t element,
                             uint64_t bytes)
{
    uint32_t word;
    if (is_byte_pattern(value, element)) {
        return GA_CUDA_CALL(w->scope.driver, cuMemsetD8Async, (CUdeviceptr)to,
                            (unsigned char)value[0], bytes, w->stream);
    }
    if (is_word_pattern(to, value, element)) {
        memcpy(&word, value, sizeof word);
        return GA_CUDA_CALL(w->scope.driver, cuMemsetD32Async, (CUdeviceptr)to, word, bytes / 4,
                            w->stream);
    }
    return device_repeat(w, to, value, element, bytes);
}

static ga_status device_wait(const work *w)
{
    return GA_CUDA_CALL(w->scope.driver, cuStreamSynchronize, w->stream);
}

/* ---- on the host --------------------------------------------------------------------------- */

static void host_fill(char *to, const char *value, size_t element, uint64_t bytes)
{
    if (is_byte_pattern(value, element)) {
        memset(to, value[0], bytes);
        return;
    }
    memcpy(to, value, element);
    uint64_t max = element > FILL_PIECE_BYTES ? element : FILL_PIECE_BYTES / element * element;
    for (uint64_t done = element; done < bytes;) {
        uint64_t n = least(least(done, max), bytes - done);
        memcpy(to + done, to, n);
        done += n;
    }
}

/* ---- either -------------------------------------------------------------------------------- */

static ga_status enter_device(const ga_carrier *carrier, work *w)
{
    w->stream = carrier->stream;
    return ga_cuda_enter(&w->scope, carrier->device);
}

static ga_status leave_device(const work *w, ga_status status)
{
    ga_cuda_leave(&w->scope);
    return status;
}

static ga_status copy(const ga_carrier *carrier, void *to, const void *from, uint64_t size,
                      ga_status (*on_device)(const work *w, char *to, const char *from,
                                             uint64_t size))
{
    work w;
    if (!size) {
        return GA_OK;
    }
    if (carrier->place == GA_PLACE_HOST) {
        memcpy(to, from, size);
        return GA_OK;
    }
    ga_status status = enter_device(carrier, &w);
    return status == GA_OK ? leave_device(&w, on_device(&w, to, from, size)) : status;
}

ga_status ga_carrier_copy_in(const ga_carrier *carrier, void *to, const void *from, uint64_t size)
{
    return copy(carrier, to, from, size, device_copy_in);
}

ga_status ga_carrier_copy_out(const ga_carrier *carrier, void *to, const void *from, uint64_t size)
{
    return copy(carrier, to, from, size, device_copy_out);
}

ga_status ga_carrier_move(const ga_carrier *carrier, void *to, const void *from, uint64_t size,
                          void *scratch, uint64_t room)
{
    work w;
    if (!size) {
        return GA_OK;
    }
    if (carrier->place == GA_PLACE_HOST) {
        memmove(to, from, size);
        return GA_OK;
    }
    ga_status status = enter_device(carrier, &w);
    return status == GA_OK ? leave_device(&w, device_move_bytes(&w, to, from, size, scratch, room))
                           : status;
}

ga_status ga_carrier_fill(const ga_carrier *carrier, void *to, const void *value, size_t element,
                          uint64_t count)
{
    work w;
    if (!count) {
        return GA_OK;
    }
    if (carrier->place == GA_PLACE_HOST) {
        host_fill(to, value, element, count * element);
        return GA_OK;
    }
    ga_status status = enter_device(carrier, &w);
    return status == GA_OK ? leave_device(&w, device_fill(&w, to, value, element, count * element))
                           : status;
}

ga_status ga_carrier_wait(const ga_carrier *carrier)
{
    work w;
    if (carrier->place == GA_PLACE_HOST) {
        return GA_OK;
    }
    ga_status status = enter_device(carrier, &w);
    return status == GA_OK ? leave_device(&w, device_wait(&w)) : status;
}

ga_status ga_carrier_end(const ga_carrier *carrier, ga_status status)
{
    if (carrier->stream || carrier->place == GA_PLACE_HOST) {
        return status;
    }
    ga_status waited = ga_carrier_wait(carrier);
    return status == GA_OK ? waited : status;
}
