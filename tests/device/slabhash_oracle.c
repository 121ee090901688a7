/* SPDX-License-Identifier: MIT
 *
 * See slabhash_oracle.h.
 */
#include "slabhash_oracle.h"

#include "../support/histories.h"

#include <gpualloc/slabhash.h>

const char *slabhash_try_checker(void)
{
    return history_try_checker();
}

static history_kind kind_of(uint32_t op)
{
    switch (op) {
    case GA_SLABHASH_INSERT:
        return HISTORY_INSERT;
    case GA_SLABHASH_REPLACE:
        return HISTORY_UPSERT;
    case GA_SLABHASH_DELETE:
        return HISTORY_REMOVE;
    case GA_SLABHASH_APPLY:
        return HISTORY_ADD;
    default:
        return HISTORY_LOOKUP;
    }
}

bool slabhash_linearizable(const slabhash_record *calls, uint32_t count, uint64_t key)
{
    history_call own[HISTORY_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const slabhash_record *c = &calls[i];
        if (c->key == key && n < HISTORY_MAX) {
            own[n++] = (history_call){.kind = kind_of(c->op),
                                      .key = key,
                                      .value = c->value,
                                      .found = c->found,
                                      .was = c->was,
                                      .began = c->began,
                                      .ended = c->ended};
        }
    }
    bool right = history_linearizable(own, n, key);
    if (!right) {
        history_print(own, n, key);
    }
    return right;
}
