/* SPDX-License-Identifier: MIT
 *
 * The bytes that a program has in blocks, and the limit on them.
 */
#include "device.h"

ga_cuda_settings ga_cuda_active_settings;

uint64_t ga_cuda_used(const ga_cuda_device_ref *ref)
{
    return __atomic_load_n(&ref->device->used, __ATOMIC_RELAXED); /* relaxed: a figure */
}

void ga_cuda_uncharge_device(ga_cuda_device *d, uint64_t size)
{
    __atomic_fetch_sub(&d->used, size, __ATOMIC_RELAXED); /* relaxed: a figure */
}

bool ga_cuda_charge_device(ga_cuda_device *d, uint64_t size)
{
    /* relaxed, both: a figure. An amount over the limit is never added, because other threads would
     * see it. */
    uint64_t before = __atomic_load_n(&d->used, __ATOMIC_RELAXED);
    do {
        if (before > ga_cuda_active_settings.limit ||
            size > ga_cuda_active_settings.limit - before) {
            return false;
        }
    } while (!__atomic_compare_exchange_n(&d->used, &before, before + size, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

bool ga_cuda_charge(const ga_cuda_device_ref *ref, size_t size)
{
    return ga_cuda_charge_device(ref->device, size);
}

void ga_cuda_uncharge(const ga_cuda_device_ref *ref, size_t size)
{
    ga_cuda_uncharge_device(ref->device, size);
}
