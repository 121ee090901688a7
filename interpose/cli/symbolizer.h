/* SPDX-License-Identifier: MIT
 *
 * Runs addr2line(1), or llvm-symbolizer(1) in its form, on the addresses of a file.
 */
#ifndef INTERPOSE_CLI_SYMBOLIZER_H
#define INTERPOSE_CLI_SYMBOLIZER_H

#include "symbols.h"

/* Set the calls of `count` symbols, which are addresses in the file less `bias`. Those that the
 * program does not know get none. GA_ERR_IO: the program cannot be run. */
ga_status ga_symbolizer_run(const char *program, const char *file, uint64_t bias,
                            ga_symbol *symbols, size_t count);

/* Append a call to a symbol; the texts are copied, NULL is unknown. False: out of memory. */
bool ga_symbol_add_call(ga_symbol *symbol, const char *function, const char *file, unsigned line);

#endif
