/* SPDX-License-Identifier: MIT
 *
 * Facts about the machine from /proc, /sys, system calls and the CUDA driver. A fact that cannot be
 * read stays zero.
 */
#include "machine.h"
#include "cuda_driver.h"

#include <dirent.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- small files -------------------------------------------------------------------------- */

/* The file's first line without its newline; false if there is none. */
static bool read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");
    bool got = file && fgets(line, (int)size, file);
    if (file) {
        fclose(file);
    }
    line[got ? strcspn(line, "\n") : 0] = '\0';
    return got;
}

static uint64_t read_number(const char *path, uint64_t fallback)
{
    char line[64];
    uint64_t number;
    return read_line(path, line, sizeof line) && sscanf(line, "%" SCNu64, &number) == 1 ? number
                                                                                        : fallback;
}

/* The text after ": " in the first line of the file that begins with `key`. */
static bool read_field(const char *path, const char *key, char *value, size_t size)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        found = colon && strncmp(line, key, strlen(key)) == 0;
        if (found) {
            colon += 1 + strspn(colon + 1, " \t");
            snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        }
    }
    if (file) {
        fclose(file);
    }
    return found;
}

/* ---- the machine -------------------------------------------------------------------------- */

/* On Arm, Linux reports numbers in place of a name. */
static void read_processor(char *name, size_t size)
{
    static const char cpuinfo[] = "/proc/cpuinfo";
    char implementer[32];
    char part[32];
    if (read_field(cpuinfo, "model name", name, size)) {
        return;
    }
    if (read_field(cpuinfo, "CPU implementer", implementer, sizeof implementer) &&
        read_field(cpuinfo, "CPU part", part, sizeof part)) {
        snprintf(name, size, "Arm processor, implementer %s, part %s", implementer, part);
        return;
    }
    snprintf(name, size, "unknown");
}

static int usable_cores(int otherwise)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : otherwise;
}

static uint64_t read_memory(void)
{
    char text[64] = "";
    uint64_t kib = 0;
    if (read_field("/proc/meminfo", "MemTotal", text, sizeof text)) {
        sscanf(text, "%" SCNu64, &kib);
    }
    return kib * 1024;
}

/* The kernel writes "always [madvise] never", the mode in force in brackets. */
static void read_huge_pages(char *mode, size_t size)
{
    char line[128];
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
    const char *open = strchr(line, '[');
    snprintf(mode, size, "%.*s", open ? (int)strcspn(open + 1, "]") : 0, open ? open + 1 : "");
}

static void read_page_size(const char *folder, const char *name, ga_machine *out)
{
    uint64_t kib;
    char path[512];
    if (sscanf(name, "hugepages-%" SCNu64 "kB", &kib) != 1 ||
        out->page_sizes == GA_MACHINE_PAGE_SIZES) {
        return;
    }
    ga_machine_pages *pages = &out->pages[out->page_sizes++];
    pages->size = kib * 1024;
    snprintf(path, sizeof path, "%s/%s/nr_hugepages", folder, name);
    pages->reserved = read_number(path, 0);
    snprintf(path, sizeof path, "%s/%s/free_hugepages", folder, name);
    pages->free = read_number(path, 0);
}

static int by_size(const void *a, const void *b)
{
    const ga_machine_pages *left = a;
    const ga_machine_pages *right = b;
    return (left->size > right->size) - (left->size < right->size);
}

static void read_page_sizes(ga_machine *out)
{
    static const char folder[] = "/sys/kernel/mm/hugepages";
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    while (entries && (entry = readdir(entries))) {
        read_page_size(folder, entry->d_name, out);
    }
    if (entries) {
        closedir(entries);
    }
    qsort(out->pages, (size_t)out->page_sizes, sizeof *out->pages, by_size);
}

static bool has_membarrier(void)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

static uint64_t read_address_limit(void)
{
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? limit.rlim_cur : UINT64_MAX;
}

void ga_machine_read(ga_machine *out)
{
    *out = (ga_machine){
        .cores = (int)sysconf(_SC_NPROCESSORS_ONLN),
        .memory = read_memory(),
        .page_size = (uint64_t)sysconf(_SC_PAGESIZE),
        .membarrier = has_membarrier(),
        .overcommit = (int)read_number("/proc/sys/vm/overcommit_memory", UINT64_MAX),
        .address_limit = read_address_limit(),
    };
    out->usable_cores = usable_cores(out->cores);
    read_processor(out->processor, sizeof out->processor);
    read_huge_pages(out->huge_pages, sizeof out->huge_pages);
    read_page_sizes(out);
}

/* ---- the driver and its devices ----------------------------------------------------------- */

ga_status ga_machine_read_driver(ga_machine_driver *out)
{
    const ga_cuda_driver *driver;
    int version = 0;
    *out = (ga_machine_driver){0};
    ga_status status = ga_cuda_driver_get(&driver);
    if (status != GA_OK) {
        return status;
    }
    read_line("/sys/module/nvidia/version", out->release, sizeof out->release);
    status = GA_CUDA_CALL(driver, cuDriverGetVersion, &version);
    out->cuda_major = version / 1000;
    out->cuda_minor = version % 1000 / 10;
    return status == GA_OK ? ga_cuda_device_count(&out->devices) : status;
}

static uint64_t granularity(const ga_cuda_driver *driver, int device, int which)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    size_t bytes = 0;
    driver->cuMemGetAllocationGranularity(&bytes, &prop, which);
    return bytes;
}

static ga_status read_attributes(const ga_cuda_driver *driver, CUdevice device,
                                 ga_machine_device *out)
{
    int vmm = 0;
    int pools = 0;
    const struct {
        CUdevice_attribute attribute;
        int *value;
    } queries[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &out->major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &out->minor},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &vmm},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &pools},
    };
    ga_status status = GA_OK;
    for (size_t i = 0; status == GA_OK && i < sizeof queries / sizeof *queries; i++) {
        status = GA_CUDA_CALL(driver, cuDeviceGetAttribute, queries[i].value, queries[i].attribute,
                              device);
    }
    out->vmm = vmm;
    out->pools = pools;
    return status;
}

ga_status ga_machine_read_device(int ordinal, ga_machine_device *out)
{
    ga_cuda_scope scope;
    CUdevice device = 0;
    size_t memory = 0;
    *out = (ga_machine_device){0};
    ga_status status = ga_cuda_enter(&scope, ordinal);
    if (status != GA_OK) {
        return status;
    }
    const ga_cuda_driver *driver = scope.driver;
    status = GA_CUDA_CALL(driver, cuDeviceGet, &device, ordinal);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuDeviceGetName, out->name, sizeof out->name, device);
    }
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuDeviceTotalMem, &memory, device);
    }
    if (status == GA_OK) {
        status = read_attributes(driver, device, out);
    }
    out->memory = memory;
    if (out->vmm) {
        out->granularity_minimum = granularity(driver, ordinal, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        out->granularity_recommended =
            granularity(driver, ordinal, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    }
    ga_cuda_leave(&scope);
    return status;
}
