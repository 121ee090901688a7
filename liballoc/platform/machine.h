/* SPDX-License-Identifier: MIT
 *
 * What this machine is and supports, as the kernel and the CUDA driver tell it. Asking about
 * devices starts the driver; asking about the rest does not.
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
    int cores;           /* that are on line */
    int usable_cores;    /* that this process may run on */
    uint64_t memory;
    uint64_t page_size;
    char huge_pages[16]; /* transparent ones: "always", "madvise", "never"; "" without them */
    int page_sizes;      /* how many of `pages` are filled in */
    ga_machine_pages pages[GA_MACHINE_PAGE_SIZES];
    bool membarrier;        /* MEMBARRIER_CMD_PRIVATE_EXPEDITED */
    int overcommit;         /* vm.overcommit_memory: 0 heuristic, 1 always, 2 never; -1 unknown */
    uint64_t address_limit; /* RLIMIT_AS; UINT64_MAX: none */
} ga_machine;

void ga_machine_read(ga_machine *out);

/* Bytes that this process can still fill, as far as the kernel tells: free memory and swap, within
 * its memory cgroups, RLIMIT_AS, RLIMIT_DATA and, where the kernel never overcommits, what it may
 * still promise. UINT64_MAX where nothing is known. Other processes' needs change it at any time:
 * use it to refuse a request that must end in the OOM killer. Allocates nothing and keeps errno;
 * reads some ten small files, about 50 us, so ask for large requests only. */
uint64_t ga_machine_memory_available(void);

/* Bytes that processes can never fill, because the machine has no more: memory and swap in all, or
 * the commit limit where the kernel never overcommits. UINT64_MAX where the kernel always
 * overcommits, as its administrator wants, and where nothing is known. For memory that is committed
 * piece by piece and need not be filled: the kernel checks each piece alone. As above, with two
 * files. */
uint64_t ga_machine_memory_total(void);

/* The two above with `root` before the path of each file, for tests. */
uint64_t ga_machine_memory_available_in(const char *root);
uint64_t ga_machine_memory_total_in(const char *root);

/* What the CUDA driver is. GA_ERR_DEVICE where there is none; ga_error_text() says why. */
typedef struct ga_machine_driver {
    char release[32]; /* "580.95.05", the kernel module's; "" where the kernel does not tell */
    int cuda_major, cuda_minor; /* the CUDA version that it serves */
    int devices;
} ga_machine_driver;

ga_status ga_machine_read_driver(ga_machine_driver *out);

typedef struct ga_machine_device {
    char name[128];   /* its full name */
    int major, minor; /* compute capability */
    uint64_t memory;
    bool vmm; /* reserve, create, map: what the vmm backend needs */
    uint64_t granularity_minimum, granularity_recommended; /* of vmm; 0 without */
    bool pools;                                            /* what the async backend needs */
} ga_machine_device;

ga_status ga_machine_read_device(int device, ga_machine_device *out);

#endif
