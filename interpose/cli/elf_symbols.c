/* SPDX-License-Identifier: MIT */
#include "elf_symbols.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bounds for damaged files. */
enum {
    BYTES_MAX = 1 << 30 /* of symbols, or of names */
};

/* All bytes of a section, with a NUL behind them, or NULL. */
static void *read_section(const ga_elf *elf, const ElfW(Shdr) * section)
{
    if (section->sh_size == 0 || section->sh_size > BYTES_MAX || section->sh_offset > INT64_MAX) {
        return NULL;
    }
    char *bytes = malloc(section->sh_size + 1);
    size_t done = 0;
    ssize_t got = 1;
    while (bytes && done < section->sh_size && got > 0) {
        got = pread(elf->fd, bytes + done, section->sh_size - done,
                    (off_t)(section->sh_offset + done));
        done += got > 0 ? (size_t)got : 0;
    }
    if (bytes && done < section->sh_size) {
        free(bytes);
        return NULL;
    }
    if (bytes) {
        bytes[done] = '\0';
    }
    return bytes;
}

static bool read_header(const ga_elf *elf, unsigned number, ElfW(Shdr) * out)
{
    uint64_t at = elf->header.e_shoff + (uint64_t)number * sizeof *out;
    return number < elf->header.e_shnum && at <= INT64_MAX &&
           pread(elf->fd, out, sizeof *out, (off_t)at) == (ssize_t)sizeof *out;
}

/* The section of symbols: the symbol table, else the dynamic symbols. */
static bool find_symbols(const ga_elf *elf, ElfW(Shdr) * out)
{
    ElfW(Shdr) section;
    bool found = false;
    if (elf->header.e_shentsize != sizeof section) {
        return false;
    }
    for (unsigned i = 0; read_header(elf, i, &section); i++) {
        bool table = section.sh_type == SHT_SYMTAB;
        if ((table || (section.sh_type == SHT_DYNSYM && !found)) &&
            section.sh_entsize == sizeof(ElfW(Sym))) {
            *out = section;
            found = true;
        }
        if (table && found) {
            return true;
        }
    }
    return found;
}

static int by_start(const void *left, const void *right)
{
    const ga_elf_function *a = left;
    const ga_elf_function *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

static bool is_function(const ElfW(Sym) * symbol)
{
    unsigned type = symbol->st_info & 15;
    return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF &&
           symbol->st_size;
}

static void keep_functions(ga_elf_symbols *out, const ElfW(Sym) * symbols, size_t count,
                           size_t names_size)
{
    out->functions = calloc(count + 1, sizeof *out->functions);
    for (size_t i = 0; out->functions && i < count; i++) {
        if (is_function(&symbols[i]) && symbols[i].st_name < names_size) {
            out->functions[out->count++] = (ga_elf_function){
                symbols[i].st_value, symbols[i].st_size, out->names + symbols[i].st_name};
        }
    }
    if (out->count) {
        qsort(out->functions, out->count, sizeof *out->functions, by_start);
    }
}

void ga_elf_symbols_read(ga_elf_symbols *out, const ga_elf *elf)
{
    ElfW(Shdr) table, names;
    *out = (ga_elf_symbols){0};
    if (!ga_elf_is_of_our_kind(elf) || !find_symbols(elf, &table) ||
        !read_header(elf, table.sh_link, &names) || names.sh_type != SHT_STRTAB) {
        return;
    }
    ElfW(Sym) *symbols = read_section(elf, &table);
    out->names = symbols ? read_section(elf, &names) : NULL;
    if (out->names) {
        keep_functions(out, symbols, table.sh_size / sizeof *symbols, names.sh_size);
    }
    free(symbols);
}

/* Several names of one function are in any order; the last one that begins at or before the
 * address is taken. */
const char *ga_elf_symbols_find(const ga_elf_symbols *symbols, uint64_t address)
{
    size_t low = 0;
    size_t high = symbols->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (symbols->functions[middle].start <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const ga_elf_function *function = low ? &symbols->functions[low - 1] : NULL;
    return function && address - function->start < function->size ? function->name : NULL;
}

void ga_elf_symbols_clear(ga_elf_symbols *symbols)
{
    free(symbols->functions);
    free(symbols->names);
    *symbols = (ga_elf_symbols){0};
}
