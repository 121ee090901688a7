/* SPDX-License-Identifier: MIT
 *
 * Names of addresses: functions, with the source lines where debug information has them. Found by a
 * program, as perf(1) does: llvm-symbolizer(1) or addr2line(1), whichever is there; without one, in
 * the symbol tables of the files.
 */
#ifndef INTERPOSE_CLI_SYMBOLS_H
#define INTERPOSE_CLI_SYMBOLS_H

#include "trace_stacks.h"

#include <gpualloc/gpualloc.h>

/* A function, and where it calls the next one inside. NULL and 0: unknown. */
typedef struct ga_call {
    char *function, *file;
    unsigned line;
} ga_call;

typedef struct ga_symbol {
    const ga_module_entry *module;
    uint64_t address; /* in memory */
    ga_call *calls;   /* the innermost of functions that were inlined into each other first */
    unsigned count;
} ga_symbol;

/* Initialise with zeros. */
typedef struct ga_symbols {
    ga_symbol *symbols;
    size_t count, room;
    const char *program; /* "none": only symbol tables; NULL: the first program that is there */
} ga_symbols;

/* Add an address of the module. False: out of memory. */
bool ga_symbols_add(ga_symbols *symbols, const ga_module_entry *module, uint64_t address);

/* Find the names of all that were added. Files that are not there, or not as they were when the
 * trace was made, give none; a line on standard error names each that has changed. GA_ERR_IO: the
 * program is not found or cannot be run. */
ga_status ga_symbols_resolve(ga_symbols *symbols);

/* An address that was added, or NULL. */
const ga_symbol *ga_symbols_find(const ga_symbols *symbols, const ga_module_entry *module,
                                 uint64_t address);

void ga_symbols_clear(ga_symbols *symbols);

#endif
