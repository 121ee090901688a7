/* SPDX-License-Identifier: MIT
 *
 * The list of all workloads.
 */
#include "device/workloads.h"
#include "host/workloads.h"

#include <string.h>

static const ga_bench_workload *const all[] = {
    &ga_bench_same_size,      &ga_bench_random_size_workload, &ga_bench_producer_consumer,
    &ga_bench_realloc_growth, &ga_bench_long_lived,           &ga_bench_latency,
    &ga_bench_device_alloc,
};

const ga_bench_workload *ga_bench_workload_at(size_t index)
{
    return index < sizeof all / sizeof *all ? all[index] : NULL;
}

const ga_bench_workload *ga_bench_workload_find(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return NULL;
}
