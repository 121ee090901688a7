/* SPDX-License-Identifier: MIT */
#include "kernel_code.h"

#include "../../liballoc/platform/libc.h"
#include "../images/cubin.h"
#include "../images/fatbin.h"
#include "../kernel/module.h"
#include "ptx_link.h"

#include <gpualloc/backend.h>

#include <string.h>

enum {
    MAX_REGISTERS = 0, /* CU_JIT_MAX_REGISTERS */
    REGISTERS = 32     /* callers expect the others to survive a call of malloc */
};

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
    void *values[] = {(void *)(uintptr_t)REGISTERS};
    ga_ptx_options options = {1, names, values};
    ga_ptx_source source = {*image, entry, sm, &options};
    void *code;
    ga_status status = ga_ptx_link(image, &code, device, &source);
    ga_libc.free(*owned);
    *owned = code;
    return status == GA_OK ? check_constants(*image, sm) : status;
}

ga_status ga_kernel_code_find(ga_image *out, void **owned, int device, unsigned sm)
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
