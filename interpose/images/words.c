/* SPDX-License-Identifier: MIT
 *
 * Numbers in the place of addresses: each instruction that takes the address of one of the named
 * variables gets the number instead, and the relocation goes.
 *
 *   ga_cubin_write_words
 *     write_relocated     for each section of relocations
 *       write_half        half of a number into an instruction
 */
#include "cubin.h"
#include "info.h"

#include <gpualloc/backend.h>

#include <string.h>

/* One call in progress. */
typedef struct work {
    const ga_cubin *cubin;
    uint8_t *bytes; /* the cubin's, writable */
    const ga_cubin_words *words;
} work;

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

/* False: the symbol is none of the variables. */
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

/* A move of half of an address to a register. */
static ga_status write_half(const work *w, const ga_cubin_section *target,
                            const ga_cubin_relocation *r, uint64_t value)
{
    bool is_half = r->type == GA_R_ABS32_HI_32 || r->type == GA_R_ABS32_LO_32;
    uint64_t half = r->type == GA_R_ABS32_HI_32 ? value >> 32 : value & UINT32_MAX;
    bool is_within =
        target->content.size >= 16 && r->offset <= target->content.size - 16; /* an instruction */
    uint8_t *at = is_within ? w->bytes + target->header.sh_offset + r->offset : NULL;
    if (!at || !is_half || strncmp(target->name, ".text.", 6) != 0 || r->addend ||
        load64(at) >> 32) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "cubin: relocation of type %u at byte %llu of %s: expected a half of an "
                       "address in an instruction",
                       r->type, (unsigned long long)r->offset, target->name);
    }
    store64(at, load64(at) | half << 32);
    return GA_OK;
}

/* Write to the places of section `index`, and move the entries that stay to its front. */
static ga_status write_relocated(const work *w, size_t index, const ga_cubin_section *section)
{
    ga_cubin_section target;
    size_t step;
    ga_status status = ga_cubin_relocates(w->cubin, section, &target, &step);
    uint8_t *entries = w->bytes + section->header.sh_offset;
    uint64_t kept = 0;
    for (size_t at = 0; status == GA_OK && at < section->content.size; at += step) {
        uint64_t value;
        ga_cubin_relocation r = ga_cubin_relocation_at(section, at);
        if (find_word(w, r.symbol, &value)) {
            status = write_half(w, &target, &r, value);
        } else {
            memmove(entries + kept, entries + at, step);
            kept += step;
        }
    }
    if (status == GA_OK) {
        store64(w->bytes + w->cubin->sections + index * sizeof section->header +
                    offsetof(Elf64_Shdr, sh_size),
                kept);
    }
    return status;
}

ga_status ga_cubin_write_words(const ga_cubin *cubin, uint8_t *bytes, const ga_cubin_words *words)
{
    work w = {.cubin = cubin, .bytes = bytes, .words = words};
    ga_cubin_section section;
    ga_status status = GA_OK;
    for (size_t i = 1; status == GA_OK && i < cubin->section_count; i++) {
        if (!ga_cubin_section_at(cubin, i, &section)) {
            return ga_fail(GA_ERR_UNSUPPORTED, "cubin: expected section %zu within the file", i);
        }
        if (ga_cubin_has_relocations(&section)) {
            status = write_relocated(&w, i, &section);
        }
    }
    return status;
}
