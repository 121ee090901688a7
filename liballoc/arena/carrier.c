/* SPDX-License-Identifier: MIT
 *
 * Bytes of the host by memcpy, of a device by the driver's copies.
 */
#include "carrier.h"

#include <string.h>

enum {
    HOST_FILL =
        256 << 10,      /* bytes that stay in a core's cache: what a fill on the host copies on */
    FAR_APART = 4 << 20 /* bytes: pieces of that size are copied at nearly full speed */
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
    ga_cuda_pointer what;
    ga_status status = ga_cuda_describe(&w->scope, pointer, &what);
    *host = what.memory_type != CU_MEMORYTYPE_DEVICE;
    return status;
}

static ga_status device_bring(const work *w, char *to, const char *from, uint64_t size)
{
    bool host;
    ga_status status = is_host(w, from, &host);
    if (status != GA_OK || !host) {
        return status == GA_OK ? copy_within(w, to, from, size) : status;
    }
    return GA_CUDA_CALL(w->scope.driver, cuMemcpyHtoDAsync, (CUdeviceptr)to, from, size, w->stream);
}

static ga_status device_take(const work *w, char *to, const char *from, uint64_t size)
{
    bool host;
    ga_status status = is_host(w, to, &host);
    if (status != GA_OK || !host) {
        return status == GA_OK ? copy_within(w, to, from, size) : status;
    }
    return GA_CUDA_CALL(w->scope.driver, cuMemcpyDtoHAsync, to, (CUdeviceptr)from, size, w->stream);
}

/* One piece of a shift; `scratch` NULL: directly. */
static ga_status shift_piece(const work *w, char *to, const char *from, uint64_t size,
                             char *scratch)
{
    if (!scratch) {
        return copy_within(w, to, from, size);
    }
    ga_status status = copy_within(w, scratch, from, size);
    return status == GA_OK ? copy_within(w, to, scratch, size) : status;
}

/* Up: from the end on. Down: from the start on. So a piece never covers what is still to be moved,
 * and one that is no longer than the way does not even overlap itself. */
static ga_status device_shift(const work *w, char *to, const char *from, uint64_t size,
                              char *scratch, uint64_t room)
{
    bool up = to > from;
    uint64_t way = up ? (uint64_t)(to - from) : (uint64_t)(from - to);
    bool direct = way >= least(size, FAR_APART) || way >= room;
    uint64_t piece = direct ? way : room;
    ga_status status = GA_OK;
    for (uint64_t done = 0; way && done < size && status == GA_OK;) {
        uint64_t n = least(piece, size - done);
        uint64_t at = up ? size - done - n : done;
        status = shift_piece(w, to + at, from + at, n, direct ? NULL : scratch);
        done += n;
    }
    return status;
}

/* The first element, then over and over what there is already. */
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

static bool all_the_same(const char *value, size_t element)
{
    return !memcmp(value, value + 1, element - 1);
}

/* Whether it is the same four bytes over and over, at an address for words. */
static bool is_of_words(const char *to, const char *value, size_t element)
{
    return (uintptr_t)to % 4 == 0 && element % 4 == 0 && !memcmp(value, value + 4, element - 4);
}

static ga_status device_fill(const work *w, char *to, const char *value, size_t element,
                             uint64_t bytes)
{
    uint32_t word;
    if (all_the_same(value, element)) {
        return GA_CUDA_CALL(w->scope.driver, cuMemsetD8Async, (CUdeviceptr)to,
                            (unsigned char)value[0], bytes, w->stream);
    }
    if (is_of_words(to, value, element)) {
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
    if (all_the_same(value, element)) {
        memset(to, value[0], bytes);
        return;
    }
    memcpy(to, value, element);
    uint64_t most = element > HOST_FILL ? element : HOST_FILL / element * element;
    for (uint64_t done = element; done < bytes;) {
        uint64_t n = least(least(done, most), bytes - done);
        memcpy(to + done, to, n);
        done += n;
    }
}

/* ---- either -------------------------------------------------------------------------------- */

static ga_status begin(const ga_carrier *carrier, work *w)
{
    w->stream = carrier->stream;
    return ga_cuda_enter(&w->scope, carrier->device);
}

static ga_status end(const work *w, ga_status status)
{
    ga_cuda_leave(&w->scope);
    return status;
}

static ga_status carry(const ga_carrier *carrier, void *to, const void *from, uint64_t size,
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
    ga_status status = begin(carrier, &w);
    return status == GA_OK ? end(&w, on_device(&w, to, from, size)) : status;
}

ga_status ga_carrier_bring(const ga_carrier *carrier, void *to, const void *from, uint64_t size)
{
    return carry(carrier, to, from, size, device_bring);
}

ga_status ga_carrier_take(const ga_carrier *carrier, void *to, const void *from, uint64_t size)
{
    return carry(carrier, to, from, size, device_take);
}

ga_status ga_carrier_shift(const ga_carrier *carrier, void *to, const void *from, uint64_t size,
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
    ga_status status = begin(carrier, &w);
    return status == GA_OK ? end(&w, device_shift(&w, to, from, size, scratch, room)) : status;
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
    ga_status status = begin(carrier, &w);
    return status == GA_OK ? end(&w, device_fill(&w, to, value, element, count * element)) : status;
}

ga_status ga_carrier_wait(const ga_carrier *carrier)
{
    work w;
    if (carrier->place == GA_PLACE_HOST) {
        return GA_OK;
    }
    ga_status status = begin(carrier, &w);
    return status == GA_OK ? end(&w, device_wait(&w)) : status;
}

ga_status ga_carrier_end(const ga_carrier *carrier, ga_status status)
{
    if (carrier->stream || carrier->place == GA_PLACE_HOST) {
        return status;
    }
    ga_status waited = ga_carrier_wait(carrier);
    return status == GA_OK ? waited : status;
}
