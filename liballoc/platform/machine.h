/* SPDX-License-Identifier: MIT
 *
 * The properties of this machine, from the kernel and the CUDA driver. Queries about devices start
 * the driver; the others do not. Sizes are in bytes. All functions are thread safe.
 */
#ifndef GPUALLOC_PLATFORM_MACHINE_H
#define GPUALLOC_PLATFORM_MACHINE_H

#include <gpualloc/gpualloc.h>

enum {
    GA_MACHINE_PAGE_SIZES = 8
};

/* Explicit huge pages of one size. */
typedef struct ga_machine_pages {
    uint64_t size;
    uint64_t reserved;
    uint64_t free;
} ga_machine_pages;

typedef struct ga_machine {
    char processor[128]; /* its full name */
    int cores;           /* online */
    int usable_cores;    /* that this process may run on */
    uint64_t memory;
    uint64_t page_size;
    char huge_pages[16]; /* transparent ones: "always", "madvise", "never"; "" without them */
    int page_sizes;      /* number of entries of `pages` in use */
    ga_machine_pages pages[GA_MACHINE_PAGE_SIZES];
    bool membarrier;        /* MEMBARRIER_CMD_PRIVATE_EXPEDITED */
    int overcommit;         /* vm.overcommit_memory: 0 heuristic, 1 always, 2 never; -1 unknown */
    uint64_t address_limit; /* RLIMIT_AS; UINT64_MAX: none */
} ga_machine;

void ga_machine_read(ga_machine *out);

/* Bytes that this process can still fill, as far as the kernel reports: free memory and swap,
 * within its memory cgroups, RLIMIT_AS, RLIMIT_DATA and, if the kernel never overcommits, the
 * commit limit. UINT64_MAX if nothing is known. Other processes change it at any time, so use it
 * only to refuse a request that would end in the OOM killer. Allocates nothing and keeps errno.
 * Reads about ten small files, about 50 us, so call it for large requests only. */
uint64_t ga_machine_memory_available(void);

/* Bytes that all processes together can have at most: total memory and swap, or the commit limit if
 * the kernel never overcommits. UINT64_MAX if the kernel always overcommits, and if nothing is
 * known. For memory that is committed in pieces and need not all be filled: the kernel checks each
 * piece alone. Allocates nothing and keeps errno; reads two files. */
uint64_t ga_machine_memory_total(void);

/* The two above with `root` before the path of each file, for tests. */
uint64_t ga_machine_memory_available_in(const char *root);
uint64_t ga_machine_memory_total_in(const char *root);

/* Version and devices of the CUDA driver. GA_ERR_DEVICE if there is no driver. */
typedef struct ga_machine_driver {
    char release[32]; /* "580.95.05", of the kernel module; "" if the kernel does not report it */
    int cuda_major, cuda_minor; /* the highest CUDA version that it supports */
    int devices;
} ga_machine_driver;

ga_status ga_machine_read_driver(ga_machine_driver *out);

typedef struct ga_machine_device {
    char name[128];   /* its full name */
    int major, minor; /* compute capability */
    uint64_t memory;
    bool vmm; /* reserve, create and map work, as the vmm backend needs */
    uint64_t granularity_minimum, granularity_recommended; /* of vmm; 0 without */
    bool pools;                                            /* memory pools, as the async backend
                                                            * needs */
} ga_machine_device;

ga_status ga_machine_read_device(int device, ga_machine_device *out);

#endif
