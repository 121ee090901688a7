/* SPDX-License-Identifier: MIT
 *
 * The patch: addresses for the relocations of CUDA's allocation functions, and larger registers
 * and stacks; or numbers for the relocations of variables.
 *
 *   ga_cubin_patch, ga_cubin_write_words
 *     patch_relocations   for each section of relocations
 *       patch_one         write the address
 *     raise_needs         .nv.info, and registers in the headers of sections with code
 */
#include "cubin.h"
#include "info.h"

#include <gpualloc/backend.h>

#include <string.h>

/* One patch in progress. */
typedef struct work {
    const ga_cubin *cubin;
    uint8_t *bytes; /* the cubin's, writable */
    const ga_cubin_callee *callee;
    const ga_cubin_words *words; /* set if numbers are written, and no callees */
} work;

typedef struct relocation {
    uint64_t offset, addend;
    uint32_t type, symbol;
    uint64_t value; /* of the symbol, if it is one of ours */
} relocation;

static uint64_t load64(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

static void store64(uint8_t *to, uint64_t word)
{
    memcpy(to, &word, sizeof word);
}

static bool begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool find_word(const work *w, uint32_t index, uint64_t *value)
{
    Elf64_Sym symbol;
    const char *name;
    if (!ga_cubin_symbol_at(w->cubin, index, &symbol, &name)) {
        return false;
    }
    for (size_t i = 0; i < w->words->count; i++) {
        if (strcmp(name, w->words->names[i]) == 0) {
            *value = w->words->values[i];
            return true;
        }
    }
    return false;
}

/* False: the symbol is none that is replaced. */
static bool find_value(const work *w, uint32_t symbol, uint64_t *value)
{
    if (w->words) {
        return find_word(w, symbol, value);
    }
    unsigned call = ga_cubin_call_at(w->cubin, symbol);
    if (call) {
        *value = w->callee->addresses[__builtin_ctz(call)];
    }
    return call != 0;
}

/* ---- relocations --------------------------------------------------------------------------- */

static ga_status not_understood(const ga_cubin_section *target, const relocation *r)
{
    return ga_fail(GA_ERR_UNSUPPORTED,
                   "cubin: relocation of type %u at byte %llu of %s: expected 64 bits of "
                   ".nv.constant4, the target of a call, or a half of an address in an instruction",
                   r->type, (unsigned long long)r->offset, target->name);
}

static uint8_t *place_of(const work *w, const ga_cubin_section *target, const relocation *r,
                         size_t size)
{
    if (r->offset > target->content.size || target->content.size - r->offset < size) {
        return NULL;
    }
    return w->bytes + target->header.sh_offset + r->offset;
}

/* `CALL.ABS` of 16 bytes. The target's bits are zeros before. */
static ga_status patch_call(const work *w, const ga_cubin_section *target, const relocation *r)
{
    uint8_t *at = place_of(w, target, r, 16);
    uint64_t units = r->value / 4;
    bool is_split = r->type == GA_R_ABS55_16_34;
    if (!at || r->addend || (load64(at) & GA_CALL_ABS_MASK) != GA_CALL_ABS) {
        return not_understood(target, r);
    }
    uint64_t low = load64(at);
    uint64_t high = load64(at + 8);
    uint64_t field = is_split ? units >> 8 : units; /* its low 30 bits are bits 34 to 63 */
    uint64_t used = is_split ? UINT64_C(0xff) << 16 | UINT64_MAX << 34 : UINT64_MAX << 34;
    if (low & used || high & 0x1ffff || units >> (is_split ? 55 : 47)) {
        return not_understood(target, r);
    }
    low |= field << 34 | (is_split ? (units & 0xff) << 16 : 0);
    store64(at, low);
    store64(at + 8, high | field >> 30);
    return GA_OK;
}

/* An entry of constant bank 4, from which the kernel loads the address that it calls. */
static ga_status patch_constant(const work *w, const ga_cubin_section *target, const relocation *r)
{
    uint8_t *at = place_of(w, target, r, 8);
    if (!at || r->addend || load64(at)) {
        return not_understood(target, r);
    }
    store64(at, r->value);
    return GA_OK;
}

/* A move of half of an address to a register. */
static ga_status patch_half(const work *w, const ga_cubin_section *target, const relocation *r)
{
    uint8_t *at = place_of(w, target, r, 16);
    uint64_t half = r->type == GA_R_ABS32_HI_32 ? r->value >> 32 : r->value & UINT32_MAX;
    if (!at || r->addend || load64(at) >> 32) {
        return not_understood(target, r);
    }
    store64(at, load64(at) | half << 32);
    return GA_OK;
}

static ga_status patch_one(const work *w, const ga_cubin_section *target, const relocation *r)
{
    bool is_code = begins_with(target->name, ".text.");
    if (w->words) {
        bool is_half = r->type == GA_R_ABS32_LO_32 || r->type == GA_R_ABS32_HI_32;
        return is_code && is_half ? patch_half(w, target, r) : not_understood(target, r);
    }
    if (r->type == GA_R_64 && begins_with(target->name, ".nv.constant4")) {
        return patch_constant(w, target, r);
    }
    if (is_code && (r->type == GA_R_ABS47_34 || r->type == GA_R_ABS55_16_34)) {
        return patch_call(w, target, r);
    }
    return not_understood(target, r);
}

static relocation relocation_at(const ga_cubin_section *section, size_t offset)
{
    Elf64_Rela entry = {0};
    size_t size = section->header.sh_type == SHT_RELA ? sizeof entry : sizeof(Elf64_Rel);
    memcpy(&entry, section->content.bytes + offset, size);
    return (relocation){.offset = entry.r_offset,
                        .addend = (uint64_t)entry.r_addend,
                        .type = (uint32_t)ELF64_R_TYPE(entry.r_info),
                        .symbol = (uint32_t)ELF64_R_SYM(entry.r_info)};
}

static uint8_t *header_of(const work *w, size_t index)
{
    return w->bytes + w->cubin->sections + index * sizeof(Elf64_Shdr);
}

/* Patch the places of section `index`, and move the entries that stay to its front. */
static ga_status patch_relocations(const work *w, size_t index, const ga_cubin_section *section)
{
    ga_cubin_section target;
    size_t step = section->header.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    if (section->header.sh_entsize != step || section->content.size % step) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "cubin: %s: expected entries of %zu bytes, got %zu bytes of %llu",
                       section->name, step, section->content.size,
                       (unsigned long long)section->header.sh_entsize);
    }
    if (section->header.sh_info >= w->cubin->section_count ||
        !ga_cubin_section_at(w->cubin, section->header.sh_info, &target)) {
        return ga_fail(GA_ERR_UNSUPPORTED, "cubin: %s: expected a section to relocate, got %u",
                       section->name, section->header.sh_info);
    }
    uint8_t *entries = w->bytes + section->header.sh_offset;
    uint64_t kept = 0;
    for (size_t at = 0; at < section->content.size; at += step) {
        relocation r = relocation_at(section, at);
        bool ours = find_value(w, r.symbol, &r.value);
        ga_status status = ours ? patch_one(w, &target, &r) : GA_OK;
        if (status != GA_OK) {
            return status;
        }
        if (!ours) {
            memmove(entries + kept, entries + at, step);
            kept += step;
        }
    }
    store64(header_of(w, index) + offsetof(Elf64_Shdr, sh_size), kept);
    return GA_OK;
}

/* ---- registers and stacks ------------------------------------------------------------------ */

static uint32_t raised(const ga_info_entry *entry, const ga_cubin_callee *callee)
{
    if (entry->attribute == GA_INFO_REGCOUNT) {
        return entry->number < callee->registers ? callee->registers : entry->number;
    }
    if (entry->attribute != GA_INFO_MIN_STACK_SIZE && entry->attribute != GA_INFO_MAX_STACK_SIZE) {
        return entry->number;
    }
    return entry->number < GA_STACK_SIZE_UNKNOWN - callee->stack ? entry->number + callee->stack
                                                                 : callee->recursion;
}

static ga_status raise_info(const work *w, const ga_cubin_section *section)
{
    ga_info_entry entry;
    size_t at = 0;
    while (ga_info_next(&entry, section->content, &at)) {
        if (entry.is_number) {
            uint32_t number = raised(&entry, w->callee);
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
    if (registers && registers < w->callee->registers) {
        info = (info & 0xffffff) | w->callee->registers << 24;
        memcpy(header_of(w, index) + offsetof(Elf64_Shdr, sh_info), &info, sizeof info);
    }
}

static ga_status check_parameters(const work *w, const ga_cubin_section *section)
{
    uint32_t parameters = ga_info_parameters(section->content);
    return !parameters || parameters == w->callee->parameters
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "cubin: %s: expected parameters at byte %u of constant bank 0, got %u",
                         section->name, w->callee->parameters, parameters);
}

static ga_status raise_needs(const work *w, size_t index, const ga_cubin_section *section)
{
    if (ga_info_is_local(section)) {
        return check_parameters(w, section);
    }
    if (ga_info_is_global(section)) {
        return raise_info(w, section);
    }
    if (section->header.sh_type == SHT_PROGBITS && begins_with(section->name, ".text.")) {
        raise_header(w, index, section);
    }
    return GA_OK;
}

/* ---- the patch ----------------------------------------------------------------------------- */

static ga_status patch_section(const work *w, size_t index)
{
    ga_cubin_section section;
    if (!ga_cubin_section_at(w->cubin, index, &section)) {
        return ga_fail(GA_ERR_UNSUPPORTED, "cubin: expected section %zu within the file", index);
    }
    if (section.header.sh_type == SHT_REL || section.header.sh_type == SHT_RELA) {
        return patch_relocations(w, index, &section);
    }
    return w->words ? GA_OK : raise_needs(w, index, &section);
}

static ga_status patch_sections(const work *w)
{
    ga_status status = GA_OK;
    for (size_t i = 1; status == GA_OK && i < w->cubin->section_count; i++) {
        status = patch_section(w, i);
    }
    return status;
}

ga_status ga_cubin_write_words(const ga_cubin *cubin, uint8_t *bytes, const ga_cubin_words *words)
{
    work w = {.cubin = cubin, .bytes = bytes, .words = words};
    return patch_sections(&w);
}

ga_status ga_cubin_patch(const ga_cubin *cubin, uint8_t *bytes, const ga_cubin_callee *callee)
{
    work w = {.cubin = cubin, .bytes = bytes, .callee = callee};
    if (!cubin->is_final) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "cubin for sm_%u: expected one that is linked, got a relocatable one",
                       cubin->sm);
    }
    return patch_sections(&w);
}
