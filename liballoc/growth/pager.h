/* SPDX-License-Identifier: MIT
 *
 * The pager: a host thread that backs memory while kernels run (growth.h draws the protocol). It
 * polls the mailboxes, because a kernel cannot call the host, and calls `back` for each new
 * request. There is one pager per device, and its thread exists only while something can grow
 * there.
 *
 * Processor time: after a request the pager polls without sleeping. Then it sleeps for 1/32 of the
 * time since the last request, at most 2 ms, so that an answer comes later by 3 % of that time. An
 * idle pager takes about 1 % of a processor.
 *
 * Thread safe. The process may fork: the child has no pager, and its calls on clients of the parent
 * only free their records. At exit the thread is stopped first, and every mailbox gets the answer
 * GONE, so that kernels that still run are refused.
 */
#ifndef GPUALLOC_GROWTH_PAGER_H
#define GPUALLOC_GROWTH_PAGER_H

#include "../platform/latency.h"
#include "mailbox.h"

#include <gpualloc/gpualloc.h>

enum {
    /* As `device`: host threads use the memory, and mailboxes are plain memory. */
    GA_PAGER_HOST = -1
};

typedef struct ga_pager_client ga_pager_client;

/* Back steps *backed to `requested` - 1, or more, to be ahead of the next request, and set *backed
 * to the number of steps. If `requested` cannot be reached, go as far as possible and return the
 * reason: GA_GROWTH_LIMIT or GA_GROWTH_MEMORY. Runs in the pager's thread, without its locks and
 * with signals blocked. It must not add or remove clients. */
typedef ga_growth_reason (*ga_pager_back)(void *context, uint32_t requested, uint32_t *backed);

/* Open a mailbox, for memory that has `steps` steps, and serve it.
 *
 * GA_ERR_ARGUMENT  `device` is below GA_PAGER_HOST or above the supported devices
 * GA_ERR_MEMORY    no pinned memory, or no thread
 * GA_ERR_DEVICE    no such device, or the driver refuses
 * GA_ERR_UNSUPPORTED  the process is ending */
ga_status ga_pager_add(ga_pager_client **out, int device, uint32_t steps, ga_pager_back back,
                       void *context);

/* On return `back` neither runs nor will run again, and the mailbox is unmapped: no kernel that
 * uses it may be running. The last client of a device ends its thread. NULL is ignored. */
void ga_pager_remove(ga_pager_client *client);

/* Set the number of steps, after the host has changed it or the limit. No kernel that uses the
 * memory may be running, and the state in device memory must be initialised again
 * (ga_growth_first). Waits for a running `back`. */
void ga_pager_restart(ga_pager_client *client, uint32_t steps);

/* A kernel may start soon: poll more often for a while. */
void ga_pager_wake(ga_pager_client *client);

/* The mailbox's address for kernels. */
ga_mailbox *ga_pager_mailbox(const ga_pager_client *client);

typedef struct ga_pager_stats {
    uint64_t granted, refused;    /* requests */
    uint64_t p50, p99, p999, max; /* ns, from the poll that saw a request until its answer */
    uint64_t sum;                 /* ns, of all requests */
} ga_pager_stats;

void ga_pager_get_stats(ga_pager_client *client, ga_pager_stats *out);

/* Add the times of all requests to `out`. */
void ga_pager_add_times(ga_pager_client *client, ga_latency *out);

/* The initial state in device memory: `steps` steps are ready. Without a mailbox all further steps
 * are refused with GA_GROWTH_FIXED. */
ga_growth ga_growth_first(ga_mailbox *mailbox, uint32_t steps);

#endif
