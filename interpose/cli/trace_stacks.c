/* SPDX-License-Identifier: MIT */
#include "trace_stacks.h"

#include <stdlib.h>
#include <string.h>

enum {
    PARTS_MAX = (GA_TRACE_DEFINITION_MAX + GA_TRACE_PART_BYTES - 1) / GA_TRACE_PART_BYTES,
    MODULES_MAX = 16384,
    WORD_BITS = 64
};

/* A definition, as far as its parts have come. */
struct ga_definition {
    unsigned room; /* parts that `bytes` has room for */
    uint64_t seen[(PARTS_MAX + WORD_BITS - 1) / WORD_BITS];
    unsigned char *bytes;
};

/* ---- definitions ----------------------------------------------------------------------------- */

static bool make_room(ga_definition *d, unsigned parts)
{
    if (parts <= d->room) {
        return true;
    }
    unsigned room = 2 * d->room > parts ? 2 * d->room : parts;
    unsigned char *bytes = realloc(d->bytes, (size_t)room * GA_TRACE_PART_BYTES);
    if (!bytes) {
        return false;
    }
    memset(bytes + (size_t)d->room * GA_TRACE_PART_BYTES, 0,
           (size_t)(room - d->room) * GA_TRACE_PART_BYTES);
    d->bytes = bytes;
    d->room = room;
    return true;
}

static bool add_part(ga_definition **definition, const ga_trace_part *part)
{
    if (!*definition && !(*definition = calloc(1, sizeof **definition))) {
        return false;
    }
    ga_definition *d = *definition;
    if (part->part >= PARTS_MAX) {
        return true; /* the definition stays incomplete */
    }
    if (!make_room(d, part->part + 1)) {
        return false;
    }
    memcpy(d->bytes + (size_t)part->part * GA_TRACE_PART_BYTES, part->bytes, sizeof part->bytes);
    d->seen[part->part / WORD_BITS] |= (uint64_t)1 << part->part % WORD_BITS;
    return true;
}

/* The bytes of the definition if all have come and are at least `least`; else NULL. */
static const void *whole(const ga_definition *d, size_t least)
{
    uint32_t bytes;
    if (!d || !(d->seen[0] & 1)) {
        return NULL;
    }
    memcpy(&bytes, d->bytes, sizeof bytes);
    if (bytes < least || bytes > GA_TRACE_DEFINITION_MAX) {
        return NULL;
    }
    for (unsigned i = 0; i < (bytes - 1) / GA_TRACE_PART_BYTES + 1; i++) {
        if (!(d->seen[i / WORD_BITS] & (uint64_t)1 << i % WORD_BITS)) {
            return NULL;
        }
    }
    return d->bytes;
}

static void delete (ga_definition *d)
{
    if (d) {
        free(d->bytes);
        free(d);
    }
}

static const ga_trace_stack *whole_stack(const ga_definition *d)
{
    const ga_trace_stack *stack = whole(d, sizeof *stack);
    return stack && stack->frames <= GA_TRACE_FRAMES_MAX &&
                   !(stack->flags & ~(GA_TRACE_STACK_DEEPER | GA_TRACE_STACK_OWN)) &&
                   stack->bytes == sizeof *stack + stack->frames * sizeof *stack->frame
               ? stack
               : NULL;
}

static const ga_trace_module *whole_module(const ga_definition *d)
{
    const size_t head = offsetof(ga_trace_module, text);
    const ga_trace_module *module = whole(d, head + 1);
    return module && module->id_bytes <= GA_TRACE_BUILD_ID_MAX &&
                   head + module->id_bytes < module->bytes && module->start < module->end &&
                   ((const char *)module)[module->bytes - 1] == '\0'
               ? module
               : NULL;
}

/* ---- stacks by id ---------------------------------------------------------------------------- */

static uint32_t *slot_of(const ga_trace_stacks *s, uint32_t id)
{
    for (size_t at = id * 0x9e3779b1u;; at++) {
        uint32_t *slot = &s->slots[at & (2 * s->stack_room - 1)];
        if (!*slot || s->stacks[*slot - 1].id == id) {
            return slot;
        }
    }
}

static bool grow(ga_trace_stacks *s)
{
    size_t room = s->stack_room ? 2 * s->stack_room : 256;
    ga_stack_entry *stacks =
        room < UINT32_MAX / 2 ? realloc(s->stacks, room * sizeof *stacks) : NULL;
    s->stacks = stacks ? stacks : s->stacks;
    uint32_t *slots = stacks ? calloc(2 * room, sizeof *slots) : NULL;
    if (!slots) {
        return false;
    }
    free(s->slots);
    s->slots = slots;
    s->stack_room = room;
    for (size_t i = 0; i < s->stack_count; i++) {
        *slot_of(s, s->stacks[i].id) = (uint32_t)i + 1;
    }
    return true;
}

/* The entry of a stack, which is added if it is new; NULL: out of memory. */
static ga_stack_entry *entry_of(ga_trace_stacks *s, uint32_t id)
{
    if (s->stack_count == s->stack_room && !grow(s)) {
        return NULL;
    }
    uint32_t *slot = slot_of(s, id);
    if (!*slot) {
        s->stacks[s->stack_count++] = (ga_stack_entry){.id = id};
        *slot = (uint32_t)s->stack_count;
    }
    return &s->stacks[*slot - 1];
}

bool ga_trace_stacks_count(ga_trace_stacks *s, uint32_t id, ga_figure figure, uint64_t bytes)
{
    ga_stack_entry *entry = entry_of(s, id);
    if (entry) {
        entry->figures[figure].bytes += bytes;
        entry->figures[figure].blocks++;
    }
    return entry != NULL;
}

/* ---- modules --------------------------------------------------------------------------------- */

/* There are few, and most of the calls are for the newest. One above MODULES_MAX is damaged: the
 * entry that it gets is the last one's. */
static ga_module_entry *module_of(ga_trace_stacks *s, uint32_t id)
{
    for (size_t i = s->module_count; i-- > 0;) {
        if (s->modules[i].id == id) {
            return &s->modules[i];
        }
    }
    if (s->module_count == MODULES_MAX) {
        s->damaged++;
        return &s->modules[MODULES_MAX - 1];
    }
    if (s->module_count == s->module_room) {
        size_t room = s->module_room ? 2 * s->module_room : 64;
        ga_module_entry *modules = realloc(s->modules, room * sizeof *modules);
        if (!modules) {
            return NULL;
        }
        s->modules = modules;
        s->module_room = room;
    }
    s->modules[s->module_count] = (ga_module_entry){.id = id, .end_epoch = UINT32_MAX};
    return &s->modules[s->module_count++];
}

static bool add_unload(ga_trace_stacks *s, const ga_trace_part *part)
{
    ga_trace_unload unload;
    ga_module_entry *module = module_of(s, part->id);
    memcpy(&unload, part->bytes, sizeof unload);
    if (module && unload.bytes == sizeof unload && part->part == 0) {
        module->end_epoch = unload.epoch;
    } else if (module) {
        s->damaged++;
    }
    return module != NULL;
}

/* ---- the interface --------------------------------------------------------------------------- */

bool ga_trace_stacks_add(ga_trace_stacks *s, const ga_trace_part *part)
{
    if (part->kind == GA_TRACE_STACK) {
        ga_stack_entry *entry = entry_of(s, part->id);
        return entry && add_part(&entry->definition, part);
    }
    if (part->kind == GA_TRACE_MODULE) {
        ga_module_entry *module = module_of(s, part->id);
        return module && add_part(&module->definition, part);
    }
    return add_unload(s, part);
}

static bool is_used(const ga_stack_entry *entry)
{
    return entry->id &&
           (entry->figures[GA_FIGURE_REQUESTED].blocks || entry->figures[GA_FIGURE_PEAK].blocks ||
            entry->figures[GA_FIGURE_LEFT].blocks);
}

/* True if a frame of a stack that is used is where the module was, of which parts are missing. The
 * first part has the addresses. */
static bool is_missed(const ga_trace_stacks *s, const ga_module_entry *entry)
{
    ga_trace_module module = {0};
    const ga_definition *d = entry->definition;
    if (!d || !(d->seen[0] & 1)) {
        return true;
    }
    memcpy(&module, d->bytes, GA_TRACE_PART_BYTES);
    for (size_t i = 0; i < s->stack_count; i++) {
        const ga_trace_stack *stack = is_used(&s->stacks[i]) ? s->stacks[i].stack : NULL;
        for (uint32_t k = 0; stack && k < stack->frames; k++) {
            if (stack->frame[k] >= module.start && stack->frame[k] < module.end) {
                return true;
            }
        }
    }
    return false;
}

/* A process that is killed leaves parts of definitions that it had no time to use. */
void ga_trace_stacks_finish(ga_trace_stacks *s)
{
    for (size_t i = 0; i < s->stack_count; i++) {
        s->stacks[i].stack = whole_stack(s->stacks[i].definition);
        s->damaged += is_used(&s->stacks[i]) && !s->stacks[i].stack;
    }
    for (size_t i = 0; i < s->module_count; i++) {
        ga_module_entry *entry = &s->modules[i];
        entry->module = whole_module(entry->definition);
        entry->path = entry->module ? entry->module->text + entry->module->id_bytes : "";
        s->damaged += !entry->module && (whole(entry->definition, 1) || is_missed(s, entry));
    }
}

const ga_module_entry *ga_trace_stacks_module(const ga_trace_stacks *s, const ga_trace_stack *stack,
                                              uint64_t address)
{
    for (size_t i = 0; i < s->module_count; i++) {
        const ga_trace_module *module = s->modules[i].module;
        if (module && address >= module->start && address < module->end &&
            stack->epoch >= module->epoch && stack->epoch < s->modules[i].end_epoch) {
            return &s->modules[i];
        }
    }
    return NULL;
}

void ga_trace_stacks_clear(ga_trace_stacks *s)
{
    for (size_t i = 0; i < s->stack_count; i++) {
        delete (s->stacks[i].definition);
    }
    for (size_t i = 0; i < s->module_count; i++) {
        delete (s->modules[i].definition);
    }
    free(s->stacks);
    free(s->modules);
    free(s->slots);
    *s = (ga_trace_stacks){0};
}
