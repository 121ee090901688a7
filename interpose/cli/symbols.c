/* SPDX-License-Identifier: MIT */
#include "symbols.h"

#include "elf_symbols.h"
#include "paths.h"
#include "symbolizer.h"

#include <gpualloc/backend.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- adding and finding ---------------------------------------------------------------------- */

bool ga_symbols_add(ga_symbols *s, const ga_module_entry *module, uint64_t address)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 1024;
        ga_symbol *symbols = realloc(s->symbols, room * sizeof *symbols);
        if (!symbols) {
            return false;
        }
        s->symbols = symbols;
        s->room = room;
    }
    s->symbols[s->count++] = (ga_symbol){.module = module, .address = address};
    return true;
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_place(const void *left, const void *right)
{
    const ga_symbol *a = left;
    const ga_symbol *b = right;
    int order = compare(a->module->id, b->module->id);
    return order ? order : compare(a->address, b->address);
}

static void sort(ga_symbols *s)
{
    size_t kept = 0;
    if (s->count) {
        qsort(s->symbols, s->count, sizeof *s->symbols, by_place);
    }
    for (size_t i = 0; i < s->count; i++) {
        if (kept == 0 || by_place(&s->symbols[i], &s->symbols[kept - 1]) != 0) {
            s->symbols[kept++] = s->symbols[i];
        }
    }
    s->count = kept;
}

const ga_symbol *ga_symbols_find(const ga_symbols *s, const ga_module_entry *module,
                                 uint64_t address)
{
    const ga_symbol key = {.module = module, .address = address};
    return s->count ? bsearch(&key, s->symbols, s->count, sizeof key, by_place) : NULL;
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool has_build_id(const char *path, const ga_trace_module *module)
{
    unsigned char id[GA_ELF_BUILD_ID_MAX];
    ga_elf elf;
    if (*path != '/' || !ga_elf_open(&elf, path)) {
        return false;
    }
    unsigned length = ga_elf_is_of_our_kind(&elf) ? ga_elf_build_id(&elf, id) : 0;
    ga_elf_close(&elf);
    return length == module->id_bytes && memcmp(id, module->text, length) == 0;
}

/* Where distributions put debug information; used where the file itself is gone. */
static void debug_path(ga_path *out, const ga_trace_module *module)
{
    const unsigned char *id = (const unsigned char *)module->text;
    int length = snprintf(out->text, sizeof out->text, "/usr/lib/debug/.build-id/");
    for (unsigned i = 0; i < module->id_bytes; i++) {
        length += snprintf(out->text + length, sizeof out->text - (size_t)length,
                           i == 0 ? "%02x/" : "%02x", id[i]);
    }
    snprintf(out->text + length, sizeof out->text - (size_t)length, ".debug");
}

/* The file to read, or NULL. */
static const char *file_of(const ga_module_entry *entry, ga_path *room)
{
    ga_elf elf;
    if (has_build_id(entry->path, entry->module)) {
        return entry->path;
    }
    debug_path(room, entry->module);
    if (entry->module->id_bytes && has_build_id(room->text, entry->module)) {
        return room->text;
    }
    if (*entry->path == '/' && ga_elf_open(&elf, entry->path)) {
        ga_elf_close(&elf);
        ga_fail(GA_ERR_IO, "\"%.300s\" has changed since the trace; its functions have no names",
                entry->path);
        fprintf(stderr, "gpualloc trace: %s\n", ga_error_text());
    }
    return NULL;
}

/* ---- without a program ----------------------------------------------------------------------- */

/* The demangler of the C++ library, if there is one. */
typedef char *demangler(const char *name, char *room, size_t *size, int *status);

static demangler *find_demangler(void)
{
    static demangler *found;
    static bool sought;
    if (!sought) {
        sought = true;
        void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
        if (library) {
            *(void **)&found = dlsym(library, "__cxa_demangle");
        }
    }
    return found;
}

static bool add_name(ga_symbol *symbol, const char *name)
{
    int status = -1;
    demangler *demangle = strncmp(name, "_Z", 2) == 0 ? find_demangler() : NULL;
    char *plain = demangle ? demangle(name, NULL, NULL, &status) : NULL;
    bool added = ga_symbol_add_call(symbol, plain ? plain : name, NULL, 0);
    free(plain);
    return added;
}

static ga_status read_tables(const char *file, uint64_t bias, ga_symbol *symbols, size_t count)
{
    ga_elf elf;
    ga_elf_symbols table = {0};
    bool added = true;
    if (ga_elf_open(&elf, file)) {
        ga_elf_symbols_read(&table, &elf);
        ga_elf_close(&elf);
    }
    for (size_t i = 0; added && i < count; i++) {
        const char *name = ga_elf_symbols_find(&table, symbols[i].address - bias);
        added = !name || add_name(&symbols[i], name);
    }
    ga_elf_symbols_clear(&table);
    return added ? GA_OK : ga_fail(GA_ERR_MEMORY, "no memory for the names of functions");
}

/* ---- the interface --------------------------------------------------------------------------- */

/* "" for none. */
static ga_status find_program(ga_path *out, const char *wanted)
{
    static const char *const programs[] = {"llvm-symbolizer", "addr2line"};
    *out->text = '\0';
    if (wanted && strcmp(wanted, "none") == 0) {
        return GA_OK;
    }
    int error = wanted ? ga_program_find(out, wanted) : 0;
    if (error) {
        return ga_fail(GA_ERR_IO,
                       "--symbolizer: expected none, or a program like addr2line, got \"%.300s\": "
                       "%s",
                       wanted, strerror(error));
    }
    for (size_t i = 0; !wanted && i < sizeof programs / sizeof *programs; i++) {
        if (ga_program_find(out, programs[i]) == 0) {
            return GA_OK;
        }
        *out->text = '\0';
    }
    return GA_OK;
}

/* The symbols are of one module. */
static ga_status resolve(const char *program, ga_symbol *symbols, size_t count)
{
    ga_path room;
    const ga_module_entry *entry = symbols->module;
    const char *file = file_of(entry, &room);
    if (!file) {
        return GA_OK;
    }
    return *program ? ga_symbolizer_run(program, file, entry->module->bias, symbols, count)
                    : read_tables(file, entry->module->bias, symbols, count);
}

ga_status ga_symbols_resolve(ga_symbols *s)
{
    ga_path program;
    ga_status status = find_program(&program, s->program);
    sort(s);
    for (size_t first = 0, end; status == GA_OK && first < s->count; first = end) {
        for (end = first; end < s->count && s->symbols[end].module == s->symbols[first].module;) {
            end++;
        }
        status = resolve(program.text, s->symbols + first, end - first);
    }
    return status;
}

void ga_symbols_clear(ga_symbols *s)
{
    for (size_t i = 0; i < s->count; i++) {
        for (unsigned k = 0; k < s->symbols[i].count; k++) {
            free(s->symbols[i].calls[k].function);
            free(s->symbols[i].calls[k].file);
        }
        free(s->symbols[i].calls);
    }
    free(s->symbols);
    *s = (ga_symbols){0};
}
