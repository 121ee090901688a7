/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a list with a record for each architecture; records are never removed
 * INVARIANT  a listed record does not change
 * ORDER      KC1/KC2 publish a record
 * PROGRESS   no lock, because the driver's compiler takes the lock of the dynamic linker. Threads
 *            that prepare one architecture at once all compile; the record of the first one stays
 */
#include "kernel_code.h"

#include "../../liballoc/platform/libc.h"
#include "../images/fatbin.h"
#include "../kernel/module.h"
#include "ptx_link.h"

#include <gpualloc/backend.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_REGISTERS = 0,  /* CU_JIT_MAX_REGISTERS */
    REGISTERS_MOST = 32 /* callers expect the others to survive a call of malloc */
};

typedef struct record {
    ga_kernel_code code;
    unsigned sm;
    ga_status status; /* GA_ERR_UNSUPPORTED: there is no code, for this reason */
    char reason[512];
    struct record *next;
} record;

static record *records;

/* ---- the code -------------------------------------------------------------------------------- */

static ga_status find_entry(ga_image *out, void **owned, ga_fatbin_entry *entry, ga_image fatbin,
                            unsigned sm)
{
    ga_status status = ga_fatbin_choose(entry, fatbin, sm);
    return status == GA_OK ? ga_fatbin_unpack(out, owned, entry) : status;
}

/* Constant banks at run time are those of the kernel's module, so functions must have no constants.
 * In bank 0 are parameters. The build forbids ptxas to use others, by an option that is in the fat
 * binary with the PTX, too; a driver may not know it. */
static ga_status check_constants(ga_image image, unsigned sm)
{
    static const char constants[] = ".nv.constant";
    static const char parameters[] = ".nv.constant0.";
    ga_cubin cubin;
    ga_cubin_section section;
    ga_status status = ga_cubin_open(&cubin, image);
    for (size_t i = 1; status == GA_OK && i < cubin.section_count; i++) {
        if (ga_cubin_section_at(&cubin, i, &section) && section.content.size &&
            strncmp(section.name, constants, sizeof constants - 1) == 0 &&
            strncmp(section.name, parameters, sizeof parameters - 1) != 0) {
            return ga_fail(GA_ERR_UNSUPPORTED,
                           "sm_%u: expected code of gpualloc without constants from the driver's "
                           "compiler, got %zu bytes in %s: needs a build with code for sm_%u",
                           sm, section.content.size, section.name, sm);
        }
    }
    return status;
}

/* `*owned` holds the PTX before, and the code after. */
static ga_status compile(ga_image *image, void **owned, const ga_fatbin_entry *entry, int device,
                         unsigned sm)
{
    int names[] = {MAX_REGISTERS};
    void *values[] = {(void *)(uintptr_t)REGISTERS_MOST};
    ga_ptx_options options = {1, names, values};
    ga_ptx_source source = {*image, entry, sm, &options};
    void *code;
    ga_status status = ga_ptx_link(image, &code, device, &source);
    ga_libc.free(*owned);
    *owned = code;
    return status == GA_OK ? check_constants(*image, sm) : status;
}

/* `*owned` is NULL, or memory that holds the code. */
static ga_status find_code(ga_image *out, void **owned, int device, unsigned sm)
{
    const ga_image code = {ga_kernel_module, (size_t)ga_kernel_module_size};
    const ga_image ptx = {ga_kernel_module_ptx, (size_t)ga_kernel_module_ptx_size};
    ga_fatbin_entry entry;
    *owned = NULL;
    if (!code.size) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "this build has no device code: nvcc was not found for it");
    }
    ga_status status = find_entry(out, owned, &entry, code, sm);
    if (status == GA_OK) {
        return status;
    }
    status = find_entry(out, owned, &entry, ptx, sm);
    return status == GA_OK ? compile(out, owned, &entry, device, sm) : status;
}

/* ---- what callers need ----------------------------------------------------------------------- */

/* What a kernel needs that calls a stub, which calls a function. */
static ga_status read_needs(ga_cubin_needs *out, const ga_cubin *cubin, const char *functions)
{
    ga_cubin_needs stubs;
    ga_status status = ga_cubin_read_needs(cubin, functions, out);
    if (status == GA_OK) {
        status = ga_cubin_read_needs(cubin, GA_KERNEL_MODULE_STUBS, &stubs);
    }
    if (status == GA_OK) {
        out->registers = stubs.registers > out->registers ? stubs.registers : out->registers;
        out->stack += stubs.stack;
    }
    return status;
}

/* A kernel may keep values in registers above those that a call may change. */
static ga_status check_registers(const ga_kernel_code *code, unsigned sm)
{
    uint32_t plain = code->plain.registers;
    uint32_t most = plain > code->aligned.registers ? plain : code->aligned.registers;
    return most <= REGISTERS_MOST
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "sm_%u: functions of %u registers: expected at most %d from the compiler",
                         sm, most, REGISTERS_MOST);
}

static ga_status read_code(ga_kernel_code *code, ga_image image, unsigned sm)
{
    ga_status status = ga_cubin_open(&code->cubin, image);
    if (status == GA_OK) {
        status = read_needs(&code->plain, &code->cubin, GA_KERNEL_MODULE_NEEDS);
    }
    if (status == GA_OK) {
        status = read_needs(&code->aligned, &code->cubin, GA_KERNEL_MODULE_ALIGNED);
    }
    return status == GA_OK ? check_registers(code, sm) : status;
}

/* ---- records --------------------------------------------------------------------------------- */

static record *find_from(record *first, unsigned sm)
{
    while (first && first->sm != sm) {
        first = first->next;
    }
    return first;
}

static record *find_record(unsigned sm)
{
    /* KC2: acquire. Pairs with KC1. */
    return find_from(__atomic_load_n(&records, __ATOMIC_ACQUIRE), sm);
}

/* False: another thread was faster, and its record is in the list. */
static bool publish(record *made)
{
    do {
        /* KC2: acquire. Pairs with KC1. */
        made->next = __atomic_load_n(&records, __ATOMIC_ACQUIRE);
        if (find_from(made->next, made->sm)) {
            return false;
        }
        /* KC1: release. Pairs with KC2: a reader of the pointer sees the whole record. */
    } while (!__atomic_compare_exchange_n(&records, &made->next, made, false, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
    return true;
}

static ga_status answer(const ga_kernel_code **out, const record *r)
{
    *out = &r->code;
    return r->status == GA_OK ? GA_OK : ga_fail(r->status, "%s", r->reason);
}

/* `*owned` holds the code, or is NULL. */
static ga_status make_record(record *r, void **owned, int device)
{
    ga_image image;
    r->status = find_code(&image, owned, device, r->sm);
    if (r->status == GA_OK) {
        r->status = read_code(&r->code, image, r->sm);
    }
    if (r->status != GA_OK) {
        snprintf(r->reason, sizeof r->reason, "%s", ga_error_text());
    }
    return r->status;
}

ga_status ga_kernel_code_prepare(const ga_kernel_code **out, int device, unsigned sm)
{
    void *owned;
    record *r = find_record(sm);
    if (r) {
        return answer(out, r);
    }
    r = ga_libc.calloc(1, sizeof *r);
    if (!r) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of code for sm_%u", sm);
    }
    r->sm = sm;
    ga_status status = make_record(r, &owned, device);
    bool is_final = status == GA_OK || status == GA_ERR_UNSUPPORTED;
    bool is_listed = is_final && publish(r);
    if (status != GA_OK || !is_listed) {
        ga_libc.free(owned);
    }
    if (!is_listed) {
        ga_libc.free(r);
    }
    return is_final ? ga_kernel_code_find(out, sm) : status;
}

ga_status ga_kernel_code_find(const ga_kernel_code **out, unsigned sm)
{
    const record *r = find_record(sm);
    return r ? answer(out, r)
             : ga_fail(GA_ERR_UNSUPPORTED, "no module for sm_%u has been prepared", sm);
}
