/* SPDX-License-Identifier: MIT
 *
 * The bytes that a program has in blocks, and the limit on them.
 */
#include "device.h"

ga_cuda_settings ga_cuda_told;

uint64_t ga_cuda_used(const ga_cuda_visit *visit)
{
    return __atomic_load_n(&visit->device->used, __ATOMIC_RELAXED); /* relaxed: a figure */
}

void ga_cuda_unuse(ga_cuda_device *d, uint64_t size)
{
    __atomic_fetch_sub(&d->used, size, __ATOMIC_RELAXED); /* relaxed: a figure */
}

bool ga_cuda_reserve_for(ga_cuda_device *d, uint64_t size)
{
    /* relaxed, both: a figure. An amount over the limit is never added, because other threads would
     * see it. */
    uint64_t before = __atomic_load_n(&d->used, __ATOMIC_RELAXED);
    do {
        if (before > ga_cuda_told.limit || size > ga_cuda_told.limit - before) {
            return false;
        }
    } while (!__atomic_compare_exchange_n(&d->used, &before, before + size, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

bool ga_cuda_reserve(const ga_cuda_visit *visit, size_t size)
{
    return ga_cuda_reserve_for(visit->device, size);
}

void ga_cuda_unreserve(const ga_cuda_visit *visit, size_t size)
{
    ga_cuda_unuse(visit->device, size);
}
