/* SPDX-License-Identifier: MIT
 *
 * Registers and stacks of kernels that call our functions: read from a kernel of our module, and
 * raised in the program's.
 */
#include "cubin.h"
#include "info.h"

#include <gpualloc/backend.h>

#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_kernel(const ga_cubin *cubin, uint64_t index, const char *kernel)
{
    Elf64_Sym symbol;
    const char *name;
    return ga_cubin_symbol_at(cubin, index, &symbol, &name) && strcmp(name, kernel) == 0 &&
           symbol.st_other & GA_STO_ENTRY;
}

/* From the attributes of all functions. */
static void read_global(const ga_cubin *cubin, const ga_cubin_section *section, const char *kernel,
                        ga_cubin_needs *out)
{
    ga_info_entry entry;
    for (size_t at = 0; ga_info_next(&entry, section->content, &at);) {
        if (entry.is_number && is_kernel(cubin, entry.symbol, kernel)) {
            out->registers = entry.attribute == GA_INFO_REGCOUNT ? entry.number : out->registers;
            out->stack = entry.attribute == GA_INFO_MIN_STACK_SIZE ? entry.number : out->stack;
        }
    }
}

ga_status ga_cubin_read_needs(const ga_cubin *cubin, const char *kernel, ga_cubin_needs *out)
{
    ga_cubin_section section;
    out->registers = out->parameters = 0;
    out->stack = GA_STACK_SIZE_UNKNOWN;
    for (size_t i = 1; i < cubin->section_count; i++) {
        if (!ga_cubin_section_at(cubin, i, &section)) {
            continue;
        }
        if (ga_info_is_global(&section)) {
            read_global(cubin, &section, kernel, out);
        } else if (ga_info_is_local(&section) &&
                   strcmp(section.name + sizeof GA_INFO_LOCAL - 1, kernel) == 0) {
            out->parameters = ga_info_parameters(section.content);
        }
    }
    return out->registers && out->parameters && out->stack != GA_STACK_SIZE_UNKNOWN
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "cubin: expected registers, stack and parameters of a kernel \"%s\", got "
                         "%u, %u and %u",
                         kernel, out->registers, out->stack, out->parameters);
}

/* ---- raising --------------------------------------------------------------------------------- */

/* One raise in progress. */
typedef struct work {
    const ga_cubin *cubin;
    uint8_t *bytes; /* the cubin's, writable */
    const ga_cubin_needs *needs;
} work;

static uint32_t raised(const ga_info_entry *entry, const ga_cubin_needs *needs)
{
    if (entry->attribute == GA_INFO_REGCOUNT) {
        return entry->number < needs->registers ? needs->registers : entry->number;
    }
    if (entry->attribute != GA_INFO_MIN_STACK_SIZE && entry->attribute != GA_INFO_MAX_STACK_SIZE) {
        return entry->number;
    }
    return entry->number < GA_STACK_SIZE_UNKNOWN - needs->stack ? entry->number + needs->stack
                                                                : needs->recursion;
}

static ga_status raise_info(const work *w, const ga_cubin_section *section)
{
    ga_info_entry entry;
    size_t at = 0;
    while (ga_info_next(&entry, section->content, &at)) {
        if (entry.is_number) {
            uint32_t number = raised(&entry, w->needs);
            memcpy(w->bytes + section->header.sh_offset + entry.number_offset, &number,
                   sizeof number);
        }
    }
    return at == section->content.size
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "cubin: %s: expected an attribute at byte %zu of %zu, got damaged data",
                         section->name, at, section->content.size);
}

/* Before sm_90, the registers are also in the top 8 bits of sh_info of a section with code. */
static void raise_header(const work *w, size_t index, const ga_cubin_section *section)
{
    uint32_t info = section->header.sh_info;
    uint32_t registers = info >> 24;
    if (registers && registers < w->needs->registers) {
        info = (info & 0xffffff) | w->needs->registers << 24;
        memcpy(w->bytes + w->cubin->sections + index * sizeof section->header +
                   offsetof(Elf64_Shdr, sh_info),
               &info, sizeof info);
    }
}

static ga_status check_parameters(const work *w, const ga_cubin_section *section)
{
    uint32_t parameters = ga_info_parameters(section->content);
    return !parameters || parameters == w->needs->parameters
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "cubin: %s: expected parameters at byte %u of constant bank 0, got %u",
                         section->name, w->needs->parameters, parameters);
}

static ga_status raise_section(const work *w, size_t index, const ga_cubin_section *section)
{
    if (ga_info_is_local(section)) {
        return check_parameters(w, section);
    }
    if (ga_info_is_global(section)) {
        return raise_info(w, section);
    }
    if (section->header.sh_type == SHT_PROGBITS && strncmp(section->name, ".text.", 6) == 0) {
        raise_header(w, index, section);
    }
    return GA_OK;
}

ga_status ga_cubin_raise_needs(const ga_cubin *cubin, uint8_t *bytes, const ga_cubin_needs *needs)
{
    work w = {.cubin = cubin, .bytes = bytes, .needs = needs};
    ga_cubin_section section;
    ga_status status = GA_OK;
    for (size_t i = 1; status == GA_OK && i < cubin->section_count; i++) {
        if (!ga_cubin_section_at(cubin, i, &section)) {
            return ga_fail(GA_ERR_UNSUPPORTED, "cubin: expected section %zu within the file", i);
        }
        status = raise_section(&w, i, &section);
    }
    return status;
}
