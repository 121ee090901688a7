/* SPDX-License-Identifier: MIT */
#include "misuse.h"

#include "log.h"

#include <stdbool.h>

void ga_misuse_report(const char *call, const void *block, const char *kind)
{
    static bool reported;
    /* relaxed: elects the call that reports */
    if (!__atomic_exchange_n(&reported, true, __ATOMIC_RELAXED)) {
        ga_log(GA_LOG_WARN, "%s: %p: %s; ignored, and not reported again in this process", call,
               block, kind);
    }
}
