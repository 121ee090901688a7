/* SPDX-License-Identifier: MIT
 *
 * A batch of mixed calls, one after the other. Textually included behind the including variant's
 * variant_lookup, variant_remove and variant_put, which it calls.
 */
#ifndef GPUALLOC_LFHT_MIXED_H
#define GPUALLOC_LFHT_MIXED_H

#include "map.h"

_Static_assert((int)LFHT_INSERT == GA_LFHT_INSERT - GA_LFHT_INSERT &&
                   (int)LFHT_UPSERT == GA_LFHT_UPSERT - GA_LFHT_INSERT &&
                   (int)LFHT_REPLACE == GA_LFHT_REPLACE - GA_LFHT_INSERT &&
                   (int)LFHT_COMPARE == GA_LFHT_COMPARE_REPLACE - GA_LFHT_INSERT,
               "changes in the order of the calls");

static ga_status batch_do_call(ga_lfht *map, ga_lfht_call *call)
{
    if (call->op == GA_LFHT_LOOKUP) {
        return variant_lookup(map, call->key, &call->was);
    }
    if (call->op == GA_LFHT_REMOVE) {
        return variant_remove(map, call->key, &call->was);
    }
    lfht_change change = {(lfht_change_kind)(call->op - GA_LFHT_INSERT), call->key, call->value,
                          call->expected};
    return variant_put(map, &change, &call->was);
}

/* Make n calls in their order, and stop at the first that fails. */
static ga_status batch_do_calls(ga_lfht *map, ga_lfht_call *calls, size_t n, size_t *done)
{
    ga_status status = GA_OK;
    for (size_t i = 0; i < n && status == GA_OK; i++) {
        status = batch_do_call(map, &calls[i]);
        *done += status == GA_OK;
    }
    return status;
}

#endif
