/* SPDX-License-Identifier: MIT
 *
 * The text of a call stack.
 */
#ifndef INTERPOSE_CLI_STACK_TEXT_H
#define INTERPOSE_CLI_STACK_TEXT_H

#include "stack_report.h"
#include "symbols.h"

/* Add the addresses of a stack's frames, to be resolved; NULL has none. False: out of memory. */
bool ga_stack_text_add_symbols(ga_symbols *symbols, const ga_trace_stacks *stacks,
                               const ga_trace_stack *stack);

/* For leaks a line for each function, the innermost first; folded, the functions from the outermost
 * on between semicolons; for the top, the innermost. The caller frees it; NULL: out of memory. */
char *ga_stack_text(const ga_symbols *symbols, const ga_trace_stacks *stacks,
                    const ga_stack_entry *entry, ga_stack_form form);

#endif
