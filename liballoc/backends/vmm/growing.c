/* SPDX-License-Identifier: MIT
 *
 * The table holds copies, identified by their `own` pointer; an unused entry is all zeros.
 */
#include "growing.h"

#include "../../arena/growing.h"

static ga_growing *find_entry(ga_vmm *vmm, const void *own)
{
    for (size_t i = 0; i < GA_VMM_GROWINGS; i++) {
        if (vmm->growings[i].own == own) {
            return &vmm->growings[i];
        }
    }
    return NULL;
}

/* Replace the entry with this `own` by `growing`. Returns false if there is none. */
static bool replace_entry(ga_vmm *vmm, const void *own, const ga_growing *growing)
{
    pthread_mutex_lock(&vmm->lock);
    ga_growing *entry = find_entry(vmm, own);
    if (entry) {
        *entry = *growing;
    }
    pthread_mutex_unlock(&vmm->lock);
    return entry != NULL;
}

static uint64_t left_of_limit(ga_vmm *vmm)
{
    pthread_mutex_lock(&vmm->lock);
    uint64_t held = vmm->pool.held + ga_vmm_growing_held(vmm);
    pthread_mutex_unlock(&vmm->lock);
    return held < vmm->pool.limit ? vmm->pool.limit - held : 0;
}

/* For one that was opened after the peers were added. */
static ga_status allow_peers(ga_vmm *vmm, const ga_growing *growing)
{
    const ga_space *space = &vmm->pool.space;
    ga_status status = GA_OK;
    pthread_mutex_lock(&vmm->lock);
    for (size_t i = 1; i < space->access_count && status == GA_OK; i++) {
        status = ga_growing_add_peer(growing, space->access[i].location.id);
    }
    pthread_mutex_unlock(&vmm->lock);
    return status;
}

ga_status ga_vmm_growing_allow(ga_vmm *vmm, int peer)
{
    ga_status status = GA_OK;
    for (size_t i = 0; i < GA_VMM_GROWINGS && status == GA_OK; i++) {
        status = vmm->growings[i].own ? ga_growing_add_peer(&vmm->growings[i], peer) : GA_OK;
    }
    return status;
}

ga_status ga_vmm_growing_open(ga_vmm *vmm, ga_growing *growing)
{
    if (!ga_vmm_on_device(vmm)) {
        return ga_fail(GA_ERR_UNSUPPORTED, "vmm: the host has no kernels");
    }
    bool limited = vmm->pool.limit != UINT64_MAX;
    uint64_t limit = limited ? left_of_limit(vmm) : 0;
    if (limited && !limit) {
        return ga_fail(GA_ERR_MEMORY, "vmm: the limit is %llu bytes, and all of it is held",
                       (unsigned long long)vmm->pool.limit);
    }
    ga_status status = ga_growing_start(growing, vmm->pool.space.device, limit);
    if (status != GA_OK) {
        return status;
    }
    if (!replace_entry(vmm, NULL, growing)) {
        ga_growing_end(growing);
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "vmm: %d memories that grow under kernels are open already, the most",
                       GA_VMM_GROWINGS);
    }
    status = allow_peers(vmm, growing);
    if (status != GA_OK) {
        ga_vmm_growing_close(vmm, growing);
    }
    return status;
}

void ga_vmm_growing_close(ga_vmm *vmm, ga_growing *growing)
{
    replace_entry(vmm, growing->own, &(ga_growing){0});
    ga_growing_end(growing);
}

uint64_t ga_vmm_growing_held(const ga_vmm *vmm)
{
    uint64_t held = 0;
    for (size_t i = 0; i < GA_VMM_GROWINGS; i++) {
        held += vmm->growings[i].own ? ga_growing_held(&vmm->growings[i]) : 0;
    }
    return held;
}
