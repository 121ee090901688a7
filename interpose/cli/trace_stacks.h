/* SPDX-License-Identifier: MIT
 *
 * The call stacks of a trace and the modules that their frames are in, put together from the parts
 * of the file, and figures of each stack.
 */
#ifndef INTERPOSE_CLI_TRACE_STACKS_H
#define INTERPOSE_CLI_TRACE_STACKS_H

#include "../../liballoc/backends/trace/format.h"

#include <stdbool.h>

typedef struct ga_figures {
    uint64_t bytes, blocks;
} ga_figures;

typedef enum ga_figure {
    GA_FIGURE_REQUESTED, /* all allocations */
    GA_FIGURE_PEAK,      /* live at the peak */
    GA_FIGURE_LEFT,      /* never freed */
    GA_FIGURE_COUNT
} ga_figure;

typedef struct ga_definition ga_definition;

typedef struct ga_stack_entry {
    uint32_t id;                 /* 0: requests without a stack */
    const ga_trace_stack *stack; /* NULL: none, or not completely in the file */
    ga_figures figures[GA_FIGURE_COUNT];
    ga_definition *definition;
} ga_stack_entry;

typedef struct ga_module_entry {
    uint32_t id;
    const ga_trace_module *module; /* NULL: not completely in the file */
    uint32_t end_epoch;            /* UINT32_MAX: not unloaded */
    const char *path;
    ga_definition *definition;
} ga_module_entry;

/* Initialise with zeros. */
typedef struct ga_trace_stacks {
    ga_stack_entry *stacks;
    ga_module_entry *modules;
    uint32_t *slots; /* of `stacks`, by a hash of the id */
    size_t stack_count, stack_room, module_count, module_room;
    uint64_t damaged; /* definitions that are used and not complete, or make no sense */
} ga_trace_stacks;

/* Add a part. False: out of memory. */
bool ga_trace_stacks_add(ga_trace_stacks *stacks, const ga_trace_part *part);

/* Count a block for the stack. False: out of memory. */
bool ga_trace_stacks_count(ga_trace_stacks *stacks, uint32_t id, ga_figure figure, uint64_t bytes);

/* Once, after all parts: sets the entries' stacks and modules, and counts the damaged ones. */
void ga_trace_stacks_finish(ga_trace_stacks *stacks);

/* The module of an address in the stack's epoch, or NULL. */
const ga_module_entry *ga_trace_stacks_module(const ga_trace_stacks *stacks,
                                              const ga_trace_stack *stack, uint64_t address);

void ga_trace_stacks_clear(ga_trace_stacks *stacks);

#endif
