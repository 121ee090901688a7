/* SPDX-License-Identifier: MIT
 *
 * A frame stands for one function, or for several that were inlined into each other.
 */
#include "stack_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    const ga_module_entry *module; /* NULL: the address is in none */
    uint64_t address;
    const ga_call *call; /* NULL: its function is not known */
} place;

typedef struct places {
    place *items;
    size_t count, room;
} places;

bool ga_stack_text_add_symbols(ga_symbols *symbols, const ga_trace_stacks *stacks,
                               const ga_trace_stack *stack)
{
    for (uint32_t i = 0; stack && i < stack->frames; i++) {
        const ga_module_entry *module = ga_trace_stacks_module(stacks, stack, stack->frame[i]);
        if (module && !ga_symbols_add(symbols, module, stack->frame[i])) {
            return false;
        }
    }
    return true;
}

/* ---- the functions of a stack ---------------------------------------------------------------- */

static bool add_place(places *all, place next)
{
    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 64;
        place *items = realloc(all->items, room * sizeof *items);
        if (!items) {
            return false;
        }
        all->items = items;
        all->room = room;
    }
    all->items[all->count++] = next;
    return true;
}

static bool add_frame(places *all, const ga_symbols *symbols, const ga_module_entry *module,
                      uint64_t address)
{
    const ga_symbol *symbol = module ? ga_symbols_find(symbols, module, address) : NULL;
    bool added = true;
    if (!symbol || !symbol->count) {
        return add_place(all, (place){module, address, NULL});
    }
    for (unsigned i = 0; added && i < symbol->count; i++) {
        added = add_place(all, (place){module, address, &symbol->calls[i]});
    }
    return added;
}

/* gpualloc's functions, and the malloc family, which it has in such a program. */
static bool is_own(const place *p)
{
    static const char *const prefixes[] = {"ga_", "trace_", "heap_", "first_"};
    static const char *const names[] = {
        "write_record", "record_result", "malloc",         "calloc", "realloc", "memalign",
        "reallocarray", "aligned_alloc", "posix_memalign", "valloc", "pvalloc",
    };
    const char *function = p->call ? p->call->function : NULL;
    bool own = false;
    for (size_t i = 0; function && i < sizeof prefixes / sizeof *prefixes; i++) {
        own = own || strncmp(function, prefixes[i], strlen(prefixes[i])) == 0;
    }
    for (size_t i = 0; function && i < sizeof names / sizeof *names; i++) {
        own = own || strcmp(function, names[i]) == 0;
    }
    return own;
}

/* In a program that is linked with gpualloc statically a stack begins with gpualloc's functions.
 * Returns the number of those. */
static size_t own_functions(const places *all, uint32_t flags)
{
    size_t count = 0;
    while (flags & GA_TRACE_STACK_OWN && count < all->count && is_own(&all->items[count])) {
        count++;
    }
    return count < all->count ? count : 0;
}

static bool list_places(places *all, const ga_symbols *symbols, const ga_trace_stacks *stacks,
                        const ga_trace_stack *stack)
{
    bool added = true;
    for (uint32_t i = 0; added && i < stack->frames; i++) {
        const ga_module_entry *module = ga_trace_stacks_module(stacks, stack, stack->frame[i]);
        added = add_frame(all, symbols, module, stack->frame[i]);
    }
    return added;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_offset(FILE *out, const place *p)
{
    const char *slash = p->module ? strrchr(p->module->path, '/') : NULL;
    if (p->module) {
        fprintf(out, "%s+0x%" PRIx64, slash ? slash + 1 : p->module->path,
                p->address - p->module->module->bias);
    } else {
        fprintf(out, "0x%" PRIx64, p->address);
    }
}

/* "function at file:line", or as much as is known. */
static void write_place(FILE *out, const place *p)
{
    const ga_call *call = p->call;
    if (!call || !call->function) {
        write_offset(out, p);
    } else {
        fputs(call->function, out);
    }
    if (call && call->file) {
        fprintf(out, " at %s:%u", call->file, call->line);
    } else if (call && call->function) {
        fputs(" in ", out);
        write_offset(out, p);
    }
}

/* A semicolon would begin another function. */
static void write_folded_name(FILE *out, const place *p)
{
    const char *name = p->call ? p->call->function : NULL;
    if (!name) {
        write_offset(out, p);
        return;
    }
    for (; *name; name++) {
        fputc(*name == ';' || *name == '\n' ? ':' : *name, out);
    }
}

static void write_lines(FILE *out, const places *all, size_t first, bool deeper)
{
    for (size_t i = first; i < all->count; i++) {
        fputs("    ", out);
        write_place(out, &all->items[i]);
        fputc('\n', out);
    }
    if (deeper) {
        fputs("    [further functions]\n", out);
    }
}

static void write_folded(FILE *out, const places *all, size_t first, bool deeper)
{
    if (deeper) {
        fputs("[further functions];", out);
    }
    for (size_t i = all->count; i-- > first;) {
        write_folded_name(out, &all->items[i]);
        if (i > first) {
            fputc(';', out);
        }
    }
}

static void write_stack(FILE *out, const places *all, uint32_t flags, ga_stack_form form)
{
    size_t first = own_functions(all, flags);
    bool deeper = flags & GA_TRACE_STACK_DEEPER;
    if (form == GA_STACK_LEAKS) {
        write_lines(out, all, first, deeper);
    } else if (form == GA_STACK_FOLDED) {
        write_folded(out, all, first, deeper);
    } else {
        write_place(out, &all->items[first]);
    }
}

static char *no_stack(const ga_stack_entry *entry, ga_stack_form form)
{
    const char *why = entry->id ? "[call stack not in the trace]" : "[no call stack]";
    char *text = NULL;
    bool line = form == GA_STACK_LEAKS;
    return asprintf(&text, "%s%s%s", line ? "    " : "", why, line ? "\n" : "") < 0 ? NULL : text;
}

char *ga_stack_text(const ga_symbols *symbols, const ga_trace_stacks *stacks,
                    const ga_stack_entry *entry, ga_stack_form form)
{
    char *text = NULL;
    size_t size;
    places all = {0};
    if (!entry->stack || !entry->stack->frames) {
        return no_stack(entry, form);
    }
    FILE *out = open_memstream(&text, &size);
    bool listed = out && list_places(&all, symbols, stacks, entry->stack);
    if (listed) {
        write_stack(out, &all, entry->stack->flags, form);
    }
    bool written = out && fclose(out) == 0 && listed;
    free(all.items);
    if (!written) {
        free(text);
    }
    return written ? text : NULL;
}
