/* SPDX-License-Identifier: MIT
 *
 * The pager: a thread of the host that backs memory with more while kernels run (docs/growth.md).
 * It watches mailboxes, since a kernel cannot call the host, and calls `back` where one wishes for
 * more. There is one for each device, and only while something can grow there.
 *
 * It spends a processor's time so: just after a wish it watches all the time; then it sleeps for a
 * 32nd of the time since anything happened, so that it is late by 3 %, up to 2 ms at a time. When
 * nothing happens, that takes about 1 % of a processor.
 *
 * Thread safe. The process may fork: the child has no pager, and there calls on what the parent has
 * opened do nothing but free its record. At exit the thread is stopped first, and says goodbye in
 * every mailbox, so that kernels that still run are refused.
 */
#ifndef GPUALLOC_ARENA_PAGER_H
#define GPUALLOC_ARENA_PAGER_H

#include "../platform/latency.h"
#include "mailbox.h"

#include <gpualloc/gpualloc.h>

enum {
    GA_PAGER_HOST =
        -1 /* for `device`: what grows is used by threads, and mailboxes are plain memory */
};

typedef struct ga_pager_client ga_pager_client;

/* Back steps *backed to wanted - 1, or more, to be ahead of the next wish; *backed becomes how many
 * there are now. Where it cannot reach `wanted`, it goes as far as it can, and answers why:
 * GA_GROWTH_LIMIT or GA_GROWTH_MEMORY. Runs in the pager's thread, without its locks; signals are
 * blocked there. It must not add or remove clients. */
typedef ga_growth_reason (*ga_pager_back)(void *context, uint32_t wanted, uint32_t *backed);

/* Watch a new mailbox, of something that has `steps` steps.
 *
 * GA_ERR_ARGUMENT  `device` is below GA_PAGER_HOST or above what we keep contexts for
 * GA_ERR_MEMORY    no pinned memory, or no thread
 * GA_ERR_DEVICE    no such device, or the driver refuses */
ga_status ga_pager_add(ga_pager_client **out, int device, uint32_t steps, ga_pager_back back,
                       void *context);

/* When it returns, `back` does not run, nor will it again, and the mailbox is gone: no kernel that
 * uses it may be running. With a device's last client its thread is gone, too. NULL is ignored. */
void ga_pager_remove(ga_pager_client *client);

/* There are `steps` steps now, more or fewer than before: the host has changed it, or the limit. No
 * kernel that uses it is running, and what stands in device memory is to be made anew
 * (ga_growth_first). Waits for `back` if that runs. */
void ga_pager_restart(ga_pager_client *client, uint32_t steps);

/* A kernel may come soon: watch more closely for a while. */
void ga_pager_wake(ga_pager_client *client);

/* The mailbox as kernels address it. */
ga_mailbox *ga_pager_mailbox(const ga_pager_client *client);

typedef struct ga_pager_stats {
    uint64_t granted, refused;     /* wishes */
    uint64_t p50, p99, p999, most; /* ns, from the wish seen until the answer was there */
    uint64_t sum;                  /* the same, all together */
} ga_pager_stats;

void ga_pager_get_stats(ga_pager_client *client, ga_pager_stats *out);

/* The times themselves, added to what `out` has. */
void ga_pager_add_times(ga_pager_client *client, ga_latency *out);

/* What stands in device memory at first: `steps` steps are ready. Without a mailbox more will be
 * refused, with GA_GROWTH_FIXED. */
ga_growth ga_growth_first(ga_mailbox *mailbox, uint32_t steps);

#endif
