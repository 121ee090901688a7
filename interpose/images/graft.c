/* SPDX-License-Identifier: MIT
 *
 * A copy of a cubin with stubs in the place of CUDA's functions.
 *
 *   ga_cubin_serve
 *     ga_cubin_raise_needs   registers and stacks of the kernels, in the copy
 *     find_addresses         in .nv.constant4, by which code that was compiled as a whole calls
 *     add_variable           at the end of the program's constants, .nv.constant3
 *       add_addresses        a copy of the addresses behind it, in which ours can be written
 *     add_none               the function whose address the variable has at first
 *       add_relocations      for the driver, which writes that
 *     define                 for each function that the cubin calls: the symbol gets a section
 *       add_code             the stub's code: see stubs.c
 *     move_all_reads         of the addresses, to the copy
 *     finish                 tables and the file's header
 *
 * All is appended: what was in the file stays at its offset; constants and the tables that grow are
 * written anew behind it, and the old ones stay as bytes that no header names. No symbol or section
 * gets another number, so nothing else in the file changes. The driver (580) looks at sections: it
 * needs neither program headers nor attributes for the added ones.
 *
 * The driver does not tell where .nv.constant4 is in a context, so that nothing can be written
 * there. Of instructions that read it, only LDC with an offset and a register is known here; all
 * others still get the stub's address. A stub has no branch, because that would take as long as its
 * jump: there is always a function to jump to.
 *
 * The variable is a constant, because functions that order memory empty the L1 cache, but not the
 * cache of constants.
 */
#include "../../liballoc/platform/libc.h"
#include "cubin.h"
#include "info.h"
#include "stubs.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <string.h>

enum {
    VARIABLE_SIZE = sizeof(ga_cubin_variable),
    VARIABLE_WORDS = VARIABLE_SIZE / sizeof(uint64_t),
    CONSTANTS_MOST = 1 << 16,        /* bytes of a bank */
    ADDED_MOST = 3 + GA_CALLS_COUNT, /* sections: constants, their relocations, and code */
    REACH = 1 << 15,                 /* of the offset in an instruction */
    NAME_SIZE = 64,
    ADDRESS = 8, /* bytes */

    STEP = 16, /* bytes of an instruction */
    OP_LDC = 0xb82,
    BANK_BIT = 54, /* of its low 64 bits: 5 bits, and below 16 of the offset */
    OFFSET_BIT = 38,
    MODE_BIT = 14, /* of its high 64 bits, 2 bits; 0: the register is an offset and nothing else */
    MODE_MASK = 3
};

/* Bytes that grow. After a failure it stays as it is. */
typedef struct buffer {
    uint8_t *bytes;
    size_t size, capacity;
    bool has_failed;
} buffer;

typedef struct graft {
    const ga_cubin *cubin, *stubs;
    buffer file, names, strings, symbols;
    Elf64_Shdr *sections;
    size_t section_count;
    uint32_t variable;          /* its offset in the constants, */
    uint32_t constants;         /* their section */
    ga_cubin_section addresses; /* .nv.constant4; all zeros: there is no copy of it */
    ga_cubin_section address_relocations;
    uint32_t moved; /* from the offset of an address to that of its copy in the constants */
    uint32_t code[GA_CALLS_COUNT];      /* the sections of the stubs; 0: not added */
    uint64_t code_size[GA_CALLS_COUNT]; /* and their sizes */
} graft;

/* ---- buffers ------------------------------------------------------------------------------- */

static void reserve(buffer *b, size_t size)
{
    if (b->has_failed || size <= b->capacity) {
        return;
    }
    size_t capacity = size + size / 2;
    uint8_t *bytes = ga_libc.realloc(b->bytes, capacity);
    b->has_failed = !bytes;
    if (bytes) {
        b->bytes = bytes;
        b->capacity = capacity;
    }
}

/* Append at a multiple of `align`; returns the offset. */
static size_t append(buffer *b, const void *from, size_t size, size_t align)
{
    size_t at = (b->size + align - 1) / align * align;
    reserve(b, at + size + 1); /* never NULL */
    if (b->has_failed) {
        return 0;
    }
    memset(b->bytes + b->size, 0, at - b->size);
    if (size) {
        memcpy(b->bytes + at, from, size);
    }
    b->size = at + size;
    return at;
}

static uint32_t append_name(buffer *b, const char *prefix, const char *name)
{
    char whole[NAME_SIZE];
    int length = snprintf(whole, sizeof whole, "%s%s", prefix, name);
    return (uint32_t)append(b, whole, (size_t)length + 1, 1);
}

static uint32_t append_section(graft *g, const Elf64_Shdr *section)
{
    g->sections[g->section_count] = *section;
    return (uint32_t)g->section_count++;
}

static void append_object(graft *g, const char *name, uint64_t at, uint64_t size)
{
    Elf64_Sym symbol = {.st_name = append_name(&g->strings, "", name),
                        .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                        .st_shndx = (uint16_t)g->constants,
                        .st_value = at,
                        .st_size = size};
    append(&g->symbols, &symbol, sizeof symbol, 1);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static size_t step_of(const ga_cubin_section *relocations)
{
    return relocations->header.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
}

/* Whether there is an address at `offset` without an addend, which SHT_REL has there. */
static bool is_address_at(ga_image table, uint64_t offset)
{
    static const uint8_t zeros[ADDRESS];
    return table.size >= ADDRESS && offset <= table.size - ADDRESS &&
           memcmp(table.bytes + offset, zeros, ADDRESS) == 0;
}

/* Whether relocations are all of addresses without an addend, some of them of our functions. */
static bool are_addresses(const graft *g, const ga_cubin_section *from, ga_image table)
{
    bool is_called = false;
    for (size_t at = 0; at < from->content.size; at += step_of(from)) {
        ga_cubin_relocation r = ga_cubin_relocation_at(from, at);
        if (r.type != GA_R_64 || r.addend || !is_address_at(table, r.offset)) {
            return false;
        }
        is_called = is_called || ga_cubin_call_at(g->cubin, r.symbol);
    }
    return is_called;
}

/* Find the addresses in .nv.constant4, if the program calls our functions by them. */
static ga_status find_addresses(graft *g)
{
    ga_cubin_section from;
    ga_cubin_section target;
    size_t step;
    unsigned tables = 0;
    ga_status status = GA_OK;
    for (size_t i = 1; status == GA_OK && i < g->cubin->section_count; i++) {
        if (!ga_cubin_section_at(g->cubin, i, &from) || !ga_cubin_has_relocations(&from)) {
            continue;
        }
        status = ga_cubin_relocates(g->cubin, &from, &target, &step);
        if (status == GA_OK && strcmp(target.name, ".nv.constant4") == 0) {
            tables++;
            g->addresses = target;
            g->address_relocations = from;
        }
    }
    if (tables != 1 || !are_addresses(g, &g->address_relocations, g->addresses.content)) {
        g->addresses = (ga_cubin_section){0};
    }
    return status;
}

/* ---- the variable ---------------------------------------------------------------------------- */

/* The section of constants; `*index` is 0 if there is none. */
static ga_status find_constants(const graft *g, ga_cubin_section *out, uint32_t *index)
{
    for (uint32_t i = 1; i < g->section_count; i++) {
        if (ga_cubin_section_at(g->cubin, i, out) && out->header.sh_type != SHT_NULL &&
            strcmp(out->name, ".nv.constant3") == 0) {
            *index = i;
            return out->header.sh_type == SHT_PROGBITS
                       ? GA_OK
                       : ga_fail(GA_ERR_UNSUPPORTED, "cubin: .nv.constant3 of type %u: expected %d",
                                 out->header.sh_type, SHT_PROGBITS);
        }
    }
    *out = (ga_cubin_section){0};
    *index = 0;
    return GA_OK;
}

/* A copy of the addresses behind the variable, if instructions can reach it. */
static void add_addresses(graft *g, Elf64_Shdr *constants)
{
    static const char *const names[GA_CALLS_COUNT] = GA_CUBIN_SLOTS;
    uint64_t slots[GA_CALLS_COUNT];
    ga_image table = g->addresses.content;
    g->moved = g->variable + VARIABLE_SIZE;
    if (g->moved + table.size > REACH) {
        table.size = g->addresses.content.size = 0;
    }
    append(&g->file, table.bytes, table.size, 8);
    constants->sh_size += table.size;
    for (unsigned i = 0; i < GA_CALLS_COUNT; i++) {
        slots[i] = g->variable + i * sizeof *slots;
    }
    const ga_cubin_section *from = &g->address_relocations;
    for (size_t at = 0; table.size && at < from->content.size; at += step_of(from)) {
        ga_cubin_relocation entry = ga_cubin_relocation_at(from, at);
        unsigned call = ga_cubin_call_at(g->cubin, entry.symbol);
        if (call) {
            slots[__builtin_ctz(call)] = g->moved + entry.offset;
        }
    }
    for (unsigned i = 0; i < GA_CALLS_COUNT; i++) {
        append_object(g, names[i], slots[i], sizeof *slots);
    }
}

static ga_status add_variable(graft *g)
{
    static const ga_cubin_variable zeros;
    ga_cubin_section before;
    uint32_t section;
    ga_status status = find_constants(g, &before, &section);
    if (status != GA_OK) {
        return status;
    }
    size_t at = (before.content.size + 7) / 8 * 8;
    if (at > CONSTANTS_MOST - VARIABLE_SIZE) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "cubin: expected room for %d bytes in %d of constants, got %zu used",
                       VARIABLE_SIZE, CONSTANTS_MOST, before.content.size);
    }
    if (!section) {
        Elf64_Shdr constants = {.sh_name = append_name(&g->names, "", ".nv.constant3"),
                                .sh_type = SHT_PROGBITS,
                                .sh_flags = SHF_ALLOC};
        section = append_section(g, &constants);
    }
    Elf64_Shdr *constants = &g->sections[section];
    uint64_t align = constants->sh_addralign < 8 ? 8 : constants->sh_addralign;
    constants->sh_addralign = align;
    constants->sh_offset = append(&g->file, before.content.bytes, before.content.size, 16);
    constants->sh_size = at + VARIABLE_SIZE;
    append(&g->file, &zeros, sizeof zeros, 8);
    g->variable = (uint32_t)at;
    g->constants = section;
    append_object(g, GA_CUBIN_VARIABLE, at, VARIABLE_SIZE);
    add_addresses(g, constants);
    return GA_OK;
}

/* The relocations of the constants; `*index` is 0 if there are none. */
static ga_status find_relocations(const graft *g, ga_cubin_section *out, uint32_t *index)
{
    ga_cubin_section ignored;
    size_t step;
    *index = 0;
    for (uint32_t i = 1; i < g->cubin->section_count; i++) {
        if (ga_cubin_section_at(g->cubin, i, out) && ga_cubin_has_relocations(out) &&
            out->header.sh_info == g->constants) {
            *index = i;
            return ga_cubin_relocates(g->cubin, out, &ignored, &step);
        }
    }
    *out = (ga_cubin_section){.header = {.sh_type = SHT_RELA,
                                         .sh_flags = SHF_INFO_LINK,
                                         .sh_link = (uint32_t)g->cubin->symbols_index,
                                         .sh_info = g->constants,
                                         .sh_addralign = 8,
                                         .sh_entsize = sizeof(Elf64_Rela)}};
    return GA_OK;
}

/* Each word of the variable gets the address of the function with that symbol. */
static ga_status add_relocations(graft *g, uint32_t symbol)
{
    ga_cubin_section from;
    uint32_t section;
    ga_status status = find_relocations(g, &from, &section);
    if (status != GA_OK) {
        return status;
    }
    if (!section) {
        from.header.sh_name = append_name(&g->names, "", ".rela.nv.constant3");
        section = append_section(g, &from.header);
    }
    size_t at = append(&g->file, from.content.bytes, from.content.size, 8);
    for (uint32_t i = 0; i < VARIABLE_WORDS; i++) {
        Elf64_Rela entry = {.r_offset = g->variable + i * sizeof(uint64_t),
                            .r_info = ELF64_R_INFO((uint64_t)symbol, GA_R_64)};
        append(&g->file, &entry, (size_t)from.header.sh_entsize, 1);
    }
    const ga_cubin_section *moved = &g->address_relocations;
    for (size_t i = 0; g->addresses.content.size && i < moved->content.size; i += step_of(moved)) {
        ga_cubin_relocation r = ga_cubin_relocation_at(moved, i);
        Elf64_Rela entry = {.r_offset = g->moved + r.offset,
                            .r_info = ELF64_R_INFO((uint64_t)r.symbol, GA_R_64)};
        append(&g->file, &entry, (size_t)from.header.sh_entsize, 1);
    }
    g->sections[section].sh_offset = at;
    g->sections[section].sh_size = g->file.size - at;
    return GA_OK;
}

/* ---- stubs ----------------------------------------------------------------------------------- */

/* Append a section with the code of `stub`, for the symbol of that index and name. Before sm_90,
 * the top 8 bits of sh_info are the registers; the rest is the function's symbol. */
static uint32_t append_code(graft *g, const ga_stub *stub, uint32_t symbol, const char *name)
{
    ga_image code = stub->section.content;
    Elf64_Shdr section = stub->section.header;
    section.sh_name = append_name(&g->names, ".text.", name);
    section.sh_offset = append(&g->file, code.bytes, code.size, 128);
    section.sh_link = (uint32_t)g->cubin->symbols_index;
    section.sh_info = (section.sh_info & 0xff000000) | symbol;
    return append_section(g, &section);
}

static ga_status add_code(graft *g, unsigned call, uint32_t symbol, const char *name)
{
    static const char *const names[GA_CALLS_COUNT] = GA_CUBIN_STUBS;
    ga_stub stub;
    ga_status status = ga_stub_find(&stub, g->stubs, names[call]);
    if (status != GA_OK) {
        return status;
    }
    g->code_size[call] = stub.section.content.size;
    g->code[call] = append_code(g, &stub, symbol, name);
    uint64_t at = g->sections[g->code[call]].sh_offset;
    return g->file.has_failed ? GA_OK /* add_all() will say */
                              : ga_stub_finish(g->file.bytes + at, &stub, g->stubs, g->variable);
}

static ga_status add_none(graft *g)
{
    ga_stub none;
    uint32_t index = (uint32_t)(g->symbols.size / sizeof(Elf64_Sym));
    ga_status status = ga_stub_find(&none, g->stubs, GA_CUBIN_NONE);
    if (status != GA_OK) {
        return status;
    }
    Elf64_Sym symbol = {.st_name = append_name(&g->strings, "", GA_CUBIN_NONE),
                        .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                        .st_shndx = (uint16_t)append_code(g, &none, index, GA_CUBIN_NONE),
                        .st_size = none.section.content.size};
    append(&g->symbols, &symbol, sizeof symbol, 1);
    return add_relocations(g, index);
}

static ga_status define(graft *g, uint32_t index, unsigned call)
{
    Elf64_Sym symbol;
    const char *name;
    ga_status status = GA_OK;
    ga_cubin_symbol_at(g->cubin, index, &symbol, &name);
    if (!g->code[call]) {
        status = add_code(g, call, index, name);
    }
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbol.st_shndx = (uint16_t)g->code[call];
    symbol.st_value = 0;
    symbol.st_size = g->code_size[call];
    memcpy(g->symbols.bytes + index * sizeof symbol, &symbol, sizeof symbol);
    return status;
}

static ga_status define_all(graft *g)
{
    ga_status status = GA_OK;
    for (uint32_t i = 0; status == GA_OK && i < g->cubin->symbols.size / sizeof(Elf64_Sym); i++) {
        unsigned call = ga_cubin_call_at(g->cubin, i);
        status = call ? define(g, i, (unsigned)__builtin_ctz(call)) : GA_OK;
    }
    return status;
}

/* ---- instructions ---------------------------------------------------------------------------- */

static bool is_read(const uint64_t words[2])
{
    return (words[0] & 0xfff) == OP_LDC && (words[0] >> BANK_BIT & 0x1f) == 4 &&
           (words[1] >> MODE_BIT & MODE_MASK) == 0;
}

/* LDC R, c[0x4][r + offset] becomes LDC R, c[0x3][r + offset + moved]. Other ways to read the bank
 * find the stub's address there; among them are the modes of LDC in which half of the register is
 * added to the bank's number. */
static void move_reads(graft *g, uint8_t *code, size_t size)
{
    for (size_t at = 0; at + STEP <= size; at += STEP) {
        uint64_t words[2];
        memcpy(words, code + at, sizeof words);
        uint64_t offset = words[0] >> OFFSET_BIT & 0xffff;
        if (is_read(words) && offset + g->moved < REACH) {
            words[0] &= ~(UINT64_C(0x1f) << BANK_BIT | UINT64_C(0xffff) << OFFSET_BIT);
            words[0] |= UINT64_C(3) << BANK_BIT | (offset + g->moved) << OFFSET_BIT;
            memcpy(code + at, words, sizeof words);
        }
    }
}

static void move_all_reads(graft *g)
{
    ga_cubin_section section;
    for (size_t i = 1; i < g->cubin->section_count && g->addresses.content.size; i++) {
        if (ga_cubin_section_at(g->cubin, i, &section) && section.header.sh_type == SHT_PROGBITS &&
            strncmp(section.name, ".text.", 6) == 0) {
            move_reads(g, g->file.bytes + section.header.sh_offset, section.content.size);
        }
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_table(graft *g, size_t index, const buffer *table)
{
    g->sections[index].sh_offset = append(&g->file, table->bytes, table->size, 8);
    g->sections[index].sh_size = table->size;
}

static void finish(graft *g)
{
    Elf64_Ehdr header;
    Elf64_Shdr *symbols = &g->sections[g->cubin->symbols_index];
    size_t before = g->cubin->symbols.size / sizeof(Elf64_Sym);
    size_t count = g->symbols.size / sizeof(Elf64_Sym);
    if (symbols->sh_info == before) { /* as ptxas has it; nvlink: the first symbol that is global */
        symbols->sh_info = (uint32_t)count;
    }
    put_table(g, g->cubin->symbols_index, &g->symbols);
    put_table(g, g->cubin->strings_index, &g->strings);
    put_table(g, g->cubin->names_index, &g->names);
    size_t sections = append(&g->file, g->sections, g->section_count * sizeof *g->sections, 8);
    if (!g->file.has_failed) {
        memcpy(&header, g->file.bytes, sizeof header);
        header.e_shoff = sections;
        header.e_shnum = (uint16_t)g->section_count;
        memcpy(g->file.bytes, &header, sizeof header);
    }
}

/* Copies of the tables that grow, and room for more. */
static ga_status begin(graft *g)
{
    const ga_cubin *c = g->cubin;
    size_t count = c->section_count;
    g->sections = ga_libc.calloc(count + ADDED_MOST, sizeof *g->sections);
    append(&g->file, c->image.bytes, c->image.size, 1);
    append(&g->names, c->names.bytes, c->names.size, 1);
    append(&g->strings, c->strings.bytes, c->strings.size, 1);
    append(&g->symbols, c->symbols.bytes, c->symbols.size, 1);
    if (!g->sections || g->file.has_failed || g->symbols.has_failed) {
        return ga_fail(GA_ERR_MEMORY, "no memory for a copy of %zu bytes of code", c->image.size);
    }
    memcpy(g->sections, c->image.bytes + c->sections, count * sizeof *g->sections);
    g->section_count = count;
    return GA_OK;
}

/* Tables that are three sections. */
static bool has_tables(const ga_cubin *c)
{
    ga_cubin_section strings;
    return c->symbols_index && c->strings_index && c->names_index &&
           c->symbols_index != c->strings_index && c->symbols_index != c->names_index &&
           c->strings_index != c->names_index &&
           ga_cubin_section_at(c, c->strings_index, &strings) &&
           strings.header.sh_type == SHT_STRTAB && c->symbols.size % sizeof(Elf64_Sym) == 0;
}

/* A symbol has 16 bits for its section, and a section with code 24 for its symbol. */
static ga_status check(const ga_cubin *c)
{
    size_t symbols = c->symbols.size / sizeof(Elf64_Sym);
    if (!c->is_final) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "cubin for sm_%u: expected one that is linked, got a relocatable one",
                       c->sm);
    }
    return has_tables(c) && c->section_count < SHN_LORESERVE - ADDED_MOST && symbols < 0xffffff
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "cubin: expected tables of symbols and of names, less than %d sections "
                         "and %d symbols, got %zu and %zu",
                         SHN_LORESERVE - ADDED_MOST, 0xffffff, c->section_count, symbols);
}

static ga_status add_all(graft *g, const ga_cubin_needs *needs)
{
    ga_status status = begin(g);
    if (status == GA_OK) {
        status = ga_cubin_raise_needs(g->cubin, g->file.bytes, needs);
    }
    if (status == GA_OK) { /* which may have raised registers in headers */
        memcpy(g->sections, g->file.bytes + g->cubin->sections,
               g->section_count * sizeof *g->sections);
        status = find_addresses(g);
    }
    if (status == GA_OK) {
        status = add_variable(g);
    }
    if (status == GA_OK) {
        status = add_none(g);
    }
    if (status == GA_OK) {
        status = define_all(g);
    }
    if (status == GA_OK && !g->file.has_failed) {
        move_all_reads(g);
        finish(g);
    }
    bool has_failed =
        g->file.has_failed || g->names.has_failed || g->strings.has_failed || g->symbols.has_failed;
    return status == GA_OK && has_failed ? ga_fail(GA_ERR_MEMORY, "no memory for a copy of code")
                                         : status;
}

ga_status ga_cubin_serve(ga_image *out, void **owned, const ga_cubin *cubin, const ga_cubin *stubs,
                         const ga_cubin_needs *needs)
{
    graft g = {.cubin = cubin, .stubs = stubs};
    ga_status status = check(cubin);
    *owned = NULL;
    if (status == GA_OK && stubs->sm / 10 != cubin->sm / 10) {
        return ga_fail(GA_ERR_UNSUPPORTED, "cubin for sm_%u: expected one for sm_%u", cubin->sm,
                       stubs->sm);
    }
    if (status == GA_OK) {
        status = add_all(&g, needs);
    }
    ga_libc.free(g.sections);
    ga_libc.free(g.names.bytes);
    ga_libc.free(g.strings.bytes);
    ga_libc.free(g.symbols.bytes);
    if (status != GA_OK) {
        ga_libc.free(g.file.bytes);
        return status;
    }
    *out = (ga_image){g.file.bytes, g.file.size};
    *owned = g.file.bytes;
    return GA_OK;
}
