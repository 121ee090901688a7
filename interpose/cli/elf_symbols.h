/* SPDX-License-Identifier: MIT
 *
 * The functions of an ELF file by their addresses: from its symbol table, or else its dynamic
 * symbols. For machines without a program that reads debug information.
 */
#ifndef INTERPOSE_CLI_ELF_SYMBOLS_H
#define INTERPOSE_CLI_ELF_SYMBOLS_H

#include "elf_file.h"

#include <stddef.h>

typedef struct ga_elf_function {
    uint64_t start, size;
    const char *name;
} ga_elf_function;

typedef struct ga_elf_symbols {
    ga_elf_function *functions; /* by start */
    size_t count;
    char *names;
} ga_elf_symbols;

/* Read them. A file of another kind, or a damaged one, has none. */
void ga_elf_symbols_read(ga_elf_symbols *out, const ga_elf *elf);

/* The name of the function with that address in the file, or NULL. */
const char *ga_elf_symbols_find(const ga_elf_symbols *symbols, uint64_t address);

void ga_elf_symbols_clear(ga_elf_symbols *symbols);

#endif
