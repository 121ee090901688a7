/* SPDX-License-Identifier: MIT
 *
 * `gpualloc check`: the features that this machine supports, for people and as JSON.
 * gpualloc-check(1) has the keys.
 */
#include "../../liballoc/device/device.h"
#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/machine.h"
#include "cli.h"
#include "suggest.h"

#include <gpualloc/gpualloc.h>

#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A feature that works, or the reason why it does not. */
typedef struct answer {
    bool works;
    char reason[512]; /* "" if it works */
} answer;

typedef struct device_facts {
    answer usable;
    ga_machine_device facts;
    answer code; /* the library's device code runs there */
} device_facts;

typedef struct check_facts {
    ga_machine machine;
    answer driver;
    ga_machine_driver driver_facts;
    device_facts devices[GA_CUDA_DEVICES];
} check_facts;

/* ---- asking -------------------------------------------------------------------------------- */

static answer answer_of(ga_status status)
{
    answer it = {.works = status == GA_OK};
    if (!it.works) {
        snprintf(it.reason, sizeof it.reason, "%s", ga_error_text());
    }
    return it;
}

static void ask_device(int device, device_facts *out)
{
    out->usable = answer_of(ga_machine_read_device(device, &out->facts));
    out->code = out->usable;
    if (out->usable.works) {
        out->code = answer_of(ga_device_probe(device));
    }
}

static int device_count(const check_facts *facts)
{
    int count = facts->driver_facts.devices;
    return count < GA_CUDA_DEVICES ? count : GA_CUDA_DEVICES;
}

static void ask(check_facts *out)
{
    ga_machine_read(&out->machine);
    out->driver = answer_of(ga_machine_read_driver(&out->driver_facts));
    for (int i = 0; i < device_count(out); i++) {
        ask_device(i, &out->devices[i]);
    }
}

/* ---- as JSON ------------------------------------------------------------------------------- */

static json_t *json_huge_pages(const ga_machine *machine)
{
    json_t *reserved = json_array();
    for (int i = 0; i < machine->page_sizes; i++) {
        const ga_machine_pages *pages = &machine->pages[i];
        json_array_append_new(
            reserved, json_pack("{s:I, s:I, s:I}", "size", (json_int_t)pages->size, "total",
                                (json_int_t)pages->reserved, "free", (json_int_t)pages->free));
    }
    const char *mode = machine->huge_pages;
    return json_pack("{s:s?, s:o}", "transparent", *mode ? mode : NULL, "reserved", reserved);
}

static const char *overcommit_text(int mode)
{
    static const char *const texts[] = {"heuristic", "always", "never"};
    return mode >= 0 && mode < 3 ? texts[mode] : "unknown";
}

static json_t *json_memory(const ga_machine *machine)
{
    bool limited = machine->address_limit != UINT64_MAX;
    return json_pack("{s:I, s:I, s:s, s:o}", "total", (json_int_t)machine->memory, "page_size",
                     (json_int_t)machine->page_size, "overcommit",
                     overcommit_text(machine->overcommit), "address_limit",
                     limited ? json_integer((json_int_t)machine->address_limit) : json_null());
}

static json_t *json_code(const answer *code)
{
    return json_pack("{s:b, s:s?}", "runs", code->works, "reason",
                     code->works ? NULL : code->reason);
}

static json_t *json_device(int index, const device_facts *device)
{
    char capability[32];
    const ga_machine_device *facts = &device->facts;
    snprintf(capability, sizeof capability, "%d.%d", facts->major, facts->minor);
    json_t *vmm = json_pack("{s:b, s:I, s:I}", "supported", facts->vmm, "granularity_minimum",
                            (json_int_t)facts->granularity_minimum, "granularity_recommended",
                            (json_int_t)facts->granularity_recommended);
    bool usable = device->usable.works;
    return json_pack("{s:i, s:b, s:s?, s:s, s:s, s:I, s:o, s:b, s:o}", "index", index, "usable",
                     usable, "reason", usable ? NULL : device->usable.reason, "name", facts->name,
                     "compute_capability", capability, "memory", (json_int_t)facts->memory, "vmm",
                     vmm, "memory_pools", facts->pools, "device_code", json_code(&device->code));
}

static json_t *json_cuda(const check_facts *facts)
{
    const ga_machine_driver *driver = &facts->driver_facts;
    char version[32];
    snprintf(version, sizeof version, "%d.%d", driver->cuda_major, driver->cuda_minor);
    json_t *devices = json_array();
    for (int i = 0; i < device_count(facts); i++) {
        json_array_append_new(devices, json_device(i, &facts->devices[i]));
    }
    bool works = facts->driver.works;
    return json_pack("{s:b, s:s?, s:s?, s:s?, s:o}", "usable", works, "reason",
                     works ? NULL : facts->driver.reason, "driver",
                     *driver->release ? driver->release : NULL, "version", works ? version : NULL,
                     "devices", devices);
}

/* jansson passes a NULL on, so one check at the end is enough. */
static int print_json(const check_facts *facts)
{
    const ga_machine *machine = &facts->machine;
    json_t *root = json_pack("{s:s, s:{s:s, s:i, s:i}, s:o, s:o, s:b, s:o}", "gpualloc",
                             ga_version_text(), "processor", "name", machine->processor, "cores",
                             machine->cores, "usable_cores", machine->usable_cores, "memory",
                             json_memory(machine), "huge_pages", json_huge_pages(machine),
                             "membarrier", machine->membarrier, "cuda", json_cuda(facts));
    bool failed = !root || json_dumpf(root, stdout, JSON_COMPACT) != 0;
    putchar('\n');
    json_decref(root);
    if (failed) {
        fputs("gpualloc check: the facts cannot be written as JSON\n", stderr);
    }
    return failed ? GA_CLI_FAILED : GA_CLI_OK;
}

/* ---- for people ---------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void row(const char *name, const char *format, ...)
{
    va_list args;
    printf("%-20s ", name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

typedef struct size_text {
    char text[32];
} size_text;

/* "2 MiB", "139.8 GiB" */
static size_text in_words(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024) {
        value /= 1024;
        unit++;
    }
    size_text it;
    int decimals = value != (double)(uint64_t)value;
    snprintf(it.text, sizeof it.text, "%.*f %s", decimals, value, units[unit]);
    return it;
}

static void print_huge_pages(const ga_machine *machine)
{
    const char *mode = machine->huge_pages;
    const char *meaning = strcmp(mode, "always") == 0    ? "yes: everywhere"
                          : strcmp(mode, "madvise") == 0 ? "yes: for memory that asks for them"
                          : strcmp(mode, "never") == 0   ? "no: switched off"
                                                         : "no: this kernel has none";
    row("transparent", "%s%s%s%s", meaning, *mode ? " (" : "", mode, *mode ? ")" : "");
    for (int i = 0; i < machine->page_sizes; i++) {
        const ga_machine_pages *pages = &machine->pages[i];
        size_text size = in_words(pages->size);
        if (pages->reserved) {
            row(size.text, "yes: %" PRIu64 " reserved, %" PRIu64 " of them free", pages->reserved,
                pages->free);
        } else {
            row(size.text, "no: none reserved");
        }
    }
}

static void print_machine(const ga_machine *machine)
{
    bool limited = machine->address_limit != UINT64_MAX;
    puts("MACHINE");
    row("processor", "%s", machine->processor);
    row("cores", "%d, %d of them for this process", machine->cores, machine->usable_cores);
    row("memory", "%s in pages of %s", in_words(machine->memory).text,
        in_words(machine->page_size).text);
    row("overcommit", "%s (vm.overcommit_memory=%d)", overcommit_text(machine->overcommit),
        machine->overcommit);
    row("address space", "%s", limited ? in_words(machine->address_limit).text : "no limit");
    row("membarrier", "%s",
        machine->membarrier ? "yes" : "no: the kernel lacks MEMBARRIER_CMD_PRIVATE_EXPEDITED");
    puts("\nHUGE PAGES");
    print_huge_pages(machine);
}

static void print_answer(const char *name, const answer *it, const char *detail)
{
    row(name, "%s: %s", it->works ? "yes" : "no", it->works ? detail : it->reason);
}

static void print_device(int index, const device_facts *device)
{
    const ga_machine_device *facts = &device->facts;
    printf("\nDEVICE %d\n", index);
    if (!device->usable.works) {
        print_answer("usable", &device->usable, "");
        return;
    }
    row("name", "%s", facts->name);
    row("compute capability", "%d.%d", facts->major, facts->minor);
    row("memory", "%s", in_words(facts->memory).text);
    if (facts->vmm) {
        row("growable arenas", "yes: in steps of %s, better %s",
            in_words(facts->granularity_minimum).text,
            in_words(facts->granularity_recommended).text);
    } else {
        row("growable arenas", "no: the device cannot map memory into reserved addresses");
    }
    row("memory pools", "%s", facts->pools ? "yes" : "no: the device has none");
    print_answer("device code", &device->code, "the probe kernel ran and answered right");
}

static int print_table(const check_facts *facts)
{
    const ga_machine_driver *driver = &facts->driver_facts;
    char detail[128];
    print_machine(&facts->machine);
    puts("\nCUDA");
    snprintf(detail, sizeof detail, "%s%sfor CUDA %d.%d", driver->release,
             *driver->release ? ", " : "", driver->cuda_major, driver->cuda_minor);
    print_answer("driver", &facts->driver, detail);
    row("devices", "%d", driver->devices);
    for (int i = 0; i < device_count(facts); i++) {
        print_device(i, &facts->devices[i]);
    }
    return GA_CLI_OK;
}

/* ---- the command --------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "Write JSON, for programs", 0},
    {0},
};

static const char doc[] =
    "Report the features that this machine supports.\v"
    "A kernel is run on each CUDA device. GPUALLOC_CUDA_DRIVER names another driver library than "
    "libcuda.so.1.\n\n"
    "Examples:\n"
    "  gpualloc check\n"
    "  gpualloc check --json | jq -r '.cuda.devices[].name'";

static error_t parse(int key, char *arg, struct argp_state *state)
{
    bool *json = state->input;
    switch (key) {
    case 'j':
        *json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "expected no argument, got \"%s\"", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int ga_cmd_check(int argc, char **argv)
{
    static const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
    static check_facts facts; /* static because it is large */
    bool json = false;
    ga_suggest_parse(&argp, argc, argv, 0, &json);
    ask(&facts);
    return json ? print_json(&facts) : print_table(&facts);
}
