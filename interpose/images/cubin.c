/* SPDX-License-Identifier: MIT
 *
 * The reader of cubins. Tables may be at any offset, so they are copied out entry by entry.
 */
#include "cubin.h"

#include "cubin_format.h"
#include "info.h"

#include <gpualloc/backend.h>

#include <string.h>

static bool is_within(ga_image image, uint64_t offset, uint64_t size)
{
    return offset <= image.size && size <= image.size - offset;
}

static ga_image part(ga_image image, uint64_t offset, uint64_t size)
{
    return (ga_image){image.bytes + offset, (size_t)size};
}

/* The string at `offset` of a table, or NULL. */
static const char *string_at(ga_image table, uint64_t offset)
{
    if (offset >= table.size || !memchr(table.bytes + offset, 0, table.size - (size_t)offset)) {
        return NULL;
    }
    return (const char *)table.bytes + offset;
}

bool ga_cubin_section_at(const ga_cubin *cubin, size_t index, ga_cubin_section *out)
{
    memcpy(&out->header, cubin->image.bytes + cubin->sections + index * sizeof out->header,
           sizeof out->header);
    bool is_stored = out->header.sh_type != SHT_NOBITS && out->header.sh_type != SHT_NULL;
    uint64_t offset = is_stored ? out->header.sh_offset : 0;
    uint64_t size = is_stored ? out->header.sh_size : 0;
    if (!is_within(cubin->image, offset, size)) {
        return false;
    }
    out->content = part(cubin->image, offset, size);
    out->name = string_at(cubin->names, out->header.sh_name);
    return out->name != NULL;
}

/* ---- opening ------------------------------------------------------------------------------- */

static ga_status damaged(const char *where)
{
    return ga_fail(GA_ERR_UNSUPPORTED, "cubin: expected %s within the file", where);
}

/* The architecture, whose place in e_flags differs between versions of the format; 0: unknown. */
static unsigned sm_of(const Elf64_Ehdr *header)
{
    switch (header->e_ident[EI_OSABI]) {
    case GA_OSABI_OLD:
        return header->e_flags & 0xff;
    case GA_OSABI_NEW:
        return header->e_flags >> 8 & 0xff;
    default:
        return 0;
    }
}

static ga_status check_header(ga_cubin *out, const Elf64_Ehdr *header)
{
    const unsigned char *ident = header->e_ident;
    if (memcmp(ident, ELFMAG, SELFMAG) != 0 || ident[EI_CLASS] != ELFCLASS64 ||
        ident[EI_DATA] != ELFDATA2LSB || header->e_machine != GA_EM_CUDA ||
        header->e_shentsize != sizeof(Elf64_Shdr)) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "cubin: expected ELF of 64 bits for machine %d, got class %d, machine %d",
                       GA_EM_CUDA, ident[EI_CLASS], header->e_machine);
    }
    out->sm = sm_of(header);
    out->is_final = header->e_type == ET_EXEC;
    if (out->sm < 50) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "cubin: expected ABI 0x%x or 0x%x and sm_50 or later, got ABI 0x%x with the "
                       "flags 0x%x",
                       GA_OSABI_OLD, GA_OSABI_NEW, ident[EI_OSABI], header->e_flags);
    }
    return GA_OK;
}

/* Section 0's header holds counts that are too large for the file's header. */
static ga_status find_sections(ga_cubin *out, const Elf64_Ehdr *header)
{
    Elf64_Shdr first;
    if (!header->e_shoff || !is_within(out->image, header->e_shoff, sizeof first)) {
        return damaged("sections");
    }
    memcpy(&first, out->image.bytes + header->e_shoff, sizeof first);
    uint64_t count = header->e_shnum ? header->e_shnum : first.sh_size;
    uint64_t names = header->e_shstrndx == SHN_XINDEX ? first.sh_link : header->e_shstrndx;
    if (count > out->image.size / sizeof first || names >= count ||
        !is_within(out->image, header->e_shoff, count * sizeof first)) {
        return damaged("sections");
    }
    out->section_count = (size_t)count;
    out->sections = header->e_shoff;
    out->names = (ga_image){(const uint8_t *)"", 1}; /* until the names are known */
    memcpy(&first, out->image.bytes + out->sections + names * sizeof first, sizeof first);
    if (first.sh_type != SHT_STRTAB || !is_within(out->image, first.sh_offset, first.sh_size)) {
        return damaged("the names of sections");
    }
    out->names = part(out->image, first.sh_offset, first.sh_size);
    out->names_index = (size_t)names;
    return GA_OK;
}

/* The one table of symbols. A cubin without one calls nothing. */
static ga_status find_symbols(ga_cubin *out)
{
    ga_cubin_section section;
    ga_cubin_section strings;
    for (size_t i = 1; i < out->section_count; i++) {
        if (!ga_cubin_section_at(out, i, &section)) {
            return damaged("each section");
        }
        if (section.header.sh_type != SHT_SYMTAB) {
            continue;
        }
        if (out->symbols.size || section.header.sh_entsize != sizeof(Elf64_Sym) ||
            section.header.sh_link >= out->section_count ||
            !ga_cubin_section_at(out, section.header.sh_link, &strings)) {
            return damaged("one table of symbols, with its names,");
        }
        out->symbols = section.content;
        out->symbols_index = i;
        out->strings = strings.content;
        out->strings_index = section.header.sh_link;
    }
    return GA_OK;
}

ga_status ga_cubin_open(ga_cubin *out, ga_image image)
{
    Elf64_Ehdr header;
    *out = (ga_cubin){.image = image};
    if (image.size < sizeof header) {
        return damaged("a header");
    }
    memcpy(&header, image.bytes, sizeof header);
    ga_status status = check_header(out, &header);
    if (status == GA_OK) {
        status = find_sections(out, &header);
    }
    return status == GA_OK ? find_symbols(out) : status;
}

/* ---- symbols ------------------------------------------------------------------------------- */

bool ga_cubin_symbol_at(const ga_cubin *cubin, uint64_t index, Elf64_Sym *out, const char **name)
{
    if (index >= cubin->symbols.size / sizeof *out) {
        return false;
    }
    memcpy(out, cubin->symbols.bytes + index * sizeof *out, sizeof *out);
    *name = string_at(cubin->strings, out->st_name);
    return *name != NULL;
}

unsigned ga_cubin_call_at(const ga_cubin *cubin, uint64_t index)
{
    Elf64_Sym symbol;
    const char *name;
    bool is_undefined =
        ga_cubin_symbol_at(cubin, index, &symbol, &name) && symbol.st_shndx == SHN_UNDEF;
    return is_undefined ? ga_image_call_of(name, strlen(name)) : 0;
}

unsigned ga_cubin_calls(const ga_cubin *cubin)
{
    unsigned calls = 0;
    for (uint64_t i = 0; i < cubin->symbols.size / sizeof(Elf64_Sym); i++) {
        calls |= ga_cubin_call_at(cubin, i);
    }
    return calls;
}

/* ---- relocations --------------------------------------------------------------------------- */

bool ga_cubin_has_relocations(const ga_cubin_section *section)
{
    return section->header.sh_type == SHT_REL || section->header.sh_type == SHT_RELA;
}

ga_status ga_cubin_relocates(const ga_cubin *cubin, const ga_cubin_section *section,
                             ga_cubin_section *target, size_t *step)
{
    *step = section->header.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    if (section->header.sh_entsize != *step || section->content.size % *step) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "cubin: %s: expected entries of %zu bytes, got %zu bytes of %llu",
                       section->name, *step, section->content.size,
                       (unsigned long long)section->header.sh_entsize);
    }
    if (section->header.sh_info >= cubin->section_count ||
        !ga_cubin_section_at(cubin, section->header.sh_info, target)) {
        return ga_fail(GA_ERR_UNSUPPORTED, "cubin: %s: expected a section to relocate, got %u",
                       section->name, section->header.sh_info);
    }
    return GA_OK;
}

ga_cubin_relocation ga_cubin_relocation_at(const ga_cubin_section *section, size_t offset)
{
    Elf64_Rela entry = {0};
    size_t size = section->header.sh_type == SHT_RELA ? sizeof entry : sizeof(Elf64_Rel);
    memcpy(&entry, section->content.bytes + offset, size);
    return (ga_cubin_relocation){.offset = entry.r_offset,
                                 .addend = (uint64_t)entry.r_addend,
                                 .type = (uint32_t)ELF64_R_TYPE(entry.r_info),
                                 .symbol = (uint32_t)ELF64_R_SYM(entry.r_info)};
}
