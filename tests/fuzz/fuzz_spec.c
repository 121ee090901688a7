/* SPDX-License-Identifier: MIT
 *
 * The spec parser, and heaps opened from accepted specs. It would catch reads and writes past a
 * buffer, a spec that changes when it is written and read again, a heap whose own spec opens
 * another heap or none, and messages that are empty or cannot be printed.
 *
 * Only backends that open without side effects are opened: no library is loaded, no file written,
 * no thread started.
 */
#include "fuzz.h"

#include "support/probe.h"

#include <runtime/registry.h>
#include <runtime/spec.h>
#include <string.h>

const char *const fuzz_tokens[] = {
    "system", "jemalloc", "fail",   "null",    "probe",   "dl",     "trace",
    "cuda",   "nth=",     "every",  "decay=",  "-1",      "tag=",   "size=",
    "64K",    "flag",     "yes",    "number=", "choice",  "=green", "fail=",
    "path",   "\"\\\"",   "\\\\\"", "\"/,:",   "/",       ":",      ",",
    "=",      "\"",       " ",      "\n",      "\x7f",    "\xc3",   "9223372036854775808",
    "16E",    "0",        "file=",  "%s%n",    "red,tag", ":,",     "system/",
    NULL,
};

/* ---- seeds -------------------------------------------------------------------------------- */

static const char *const texts[] = {
    "system",
    "jemalloc:decay=-1",
    "jemalloc:decay=\"a line\n\x1b[31m\"",
    "fail:nth=3,every/system",
    "fail/fail:nth=0,every=off/jemalloc:decay=0",
    "fail:every=\"yes\",nth=\"7\"/null",
    "probe:tag=\"a b/c,d:e\\\"f\\\\g\",size=64K,flag,number=9,choice=blue/system",
    "probe:fail,tag=plain/probe:fail=no",
    "probe:size=18446744073709551615/probe:size=16777216T",
    "dl:/usr/lib/x y/lib:a,b.so",
    "dl:path=\"/usr/lib/libx.so\"",
    "trace:file=\"t.%p\"/system",
    "system/jemalloc",
    "nowhere:a=b",
    "probe:choice=pink",
    "probe:tag=\"never closed",
    ":",
    "system:",
    "system/",
};

/* A start, something over and over, an end. */
static const struct {
    const char *start, *repeated, *end;
    size_t times;
} longs[] = {
    {"", "/", "", 10000},
    {"system", "/", "", 10000},
    {"probe:tag=\"", "x", "\"", 8000},
    {"probe:tag=\"", "\\", "\"", 8000},
    {"probe:tag=\"", "\"", "\"", 8000},
    {"probe:tag=", "y", "", GA_SPEC_LENGTH - 11},
    {"probe:tag=", "y", "", GA_SPEC_LENGTH - 10},
    {"dl:", "/", "", GA_SPEC_LENGTH - 4},
    {"dl:", "/", "", GA_SPEC_LENGTH - 3},
    {"jemalloc:decay=", "1", "", 400},
    {"", "a", "", 9000},
    {"probe:", ",", "", 100},
    {"probe:flag", ",flag", "", GA_SPEC_OPTIONS - 1},
    {"probe:flag", ",flag", "", GA_SPEC_OPTIONS},
    {"", "fail:nth=0/", "system", GA_SPEC_LAYERS - 2},
    {"", "fail:nth=0/", "system", GA_SPEC_LAYERS - 1},
    {"", "fail:nth=0/", "system", GA_SPEC_LAYERS},
};

/* A NUL ends a text at any position; as bytes, because texts cannot contain it. */
static const char nuls[] = "\0\0\0\0system\0/\0jemalloc";

enum {
    TEXTS = sizeof texts / sizeof *texts,
    LONGS = sizeof longs / sizeof *longs
};

static size_t repeat(uint8_t *room, const char *text, size_t times)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < times; i++) {
        memcpy(room + i * length, text, length);
    }
    return times * length;
}

static size_t put_long(uint8_t *room, size_t i)
{
    size_t size = repeat(room, longs[i].start, 1);
    size += repeat(room + size, longs[i].repeated, longs[i].times);
    return size + repeat(room + size, longs[i].end, 1);
}

size_t fuzz_seed(size_t number, uint8_t room[FUZZ_INPUT_MAX])
{
    if (number < TEXTS) {
        return repeat(room, texts[number], 1);
    }
    if (number < TEXTS + LONGS) {
        return put_long(room, number - TEXTS);
    }
    size_t start = (number - TEXTS - LONGS) * 4; /* all of them, then fewer before the name */
    if (start > 4) {
        return 0;
    }
    memcpy(room, nuls + start, sizeof nuls - start);
    return sizeof nuls - start;
}

/* ---- a spec, written and read again -------------------------------------------------------- */

static const char *bare_option(const char *name)
{
    const ga_backend *backend = ga_registry_find(name);
    return backend ? backend->bare_option : NULL;
}

static void check_within(const ga_spec *spec, const char *text)
{
    FUZZ_NEED(text >= spec->text && text < spec->text + sizeof spec->text);
    FUZZ_NEED(memchr(text, '\0', (size_t)(spec->text + sizeof spec->text - text)));
}

static void check_layer(const ga_spec *spec, const ga_spec_layer *layer)
{
    check_within(spec, layer->name);
    FUZZ_NEED(*layer->name && layer->option_count <= GA_SPEC_OPTIONS);
    for (size_t i = 0; i < layer->option_count; i++) {
        FUZZ_NEED(*layer->options[i].key);
        if (layer->options[i].value) {
            check_within(spec, layer->options[i].value);
        }
    }
}

static char *write_value(char *put, const char *value)
{
    bool quotes = ga_spec_needs_quotes(value);
    *put = '"';
    put += quotes;
    for (; *value; value++) {
        if (quotes && (*value == '"' || *value == '\\')) {
            *put++ = '\\';
        }
        *put++ = *value;
    }
    *put = '"';
    return put + quotes;
}

/* The text of a spec, at most twice as long as its source and a few bytes. */
static char *written(const ga_spec *spec)
{
    char *text = malloc((size_t)4 * GA_SPEC_LENGTH);
    char *put = text;
    FUZZ_NEED(text);
    for (size_t i = 0; i < spec->layer_count; i++) {
        const ga_spec_layer *layer = &spec->layers[i];
        put += sprintf(put, "%s%s", i ? "/" : "", layer->name);
        for (size_t j = 0; j < layer->option_count; j++) {
            const ga_spec_option *option = &layer->options[j];
            put += sprintf(put, "%c%s%s", j ? ',' : ':', option->key, option->value ? "=" : "");
            put = option->value ? write_value(put, option->value) : put;
        }
    }
    *put = '\0';
    return text;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void check_same(const ga_spec *a, const ga_spec *b)
{
    FUZZ_NEED(a->layer_count == b->layer_count);
    for (size_t i = 0; i < a->layer_count; i++) {
        const ga_spec_layer *one = &a->layers[i];
        const ga_spec_layer *other = &b->layers[i];
        FUZZ_NEED(same_text(one->name, other->name));
        FUZZ_NEED(one->option_count == other->option_count);
        for (size_t j = 0; j < one->option_count; j++) {
            FUZZ_NEED(same_text(one->options[j].key, other->options[j].key));
            FUZZ_NEED(same_text(one->options[j].value, other->options[j].value));
        }
    }
}

static void check_spec(const ga_spec *spec)
{
    static ga_spec again;
    FUZZ_NEED(spec->layer_count >= 1 && spec->layer_count <= GA_SPEC_LAYERS);
    for (size_t i = 0; i < spec->layer_count; i++) {
        check_layer(spec, &spec->layers[i]);
    }
    char *text = written(spec);
    ga_status status = ga_spec_parse(&again, text, bare_option);
    if (strlen(text) < GA_SPEC_LENGTH) { /* quotes and escapes can make it longer than it was */
        FUZZ_NEED(status == GA_OK);
        check_same(spec, &again);
    }
    free(text);
}

/* ---- a heap of it -------------------------------------------------------------------------- */

static bool is_harmless(const ga_spec_layer *layer)
{
    static const char *const names[] = {"system", "null", "fail", "probe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(layer->name, names[i]) == 0) {
            return true;
        }
    }
    if (strcmp(layer->name, "jemalloc") != 0) {
        return !ga_registry_find(layer->name);
    }
    bool harmless = true;
    for (size_t i = 0; i < layer->option_count; i++) { /* it would start a thread */
        harmless &= strcmp(layer->options[i].key, "background") != 0;
    }
    return harmless;
}

static bool all_harmless(const ga_spec *spec)
{
    for (size_t i = 0; i < spec->layer_count; i++) {
        if (!is_harmless(&spec->layers[i])) {
            return false;
        }
    }
    return true;
}

/* Opened from its own text, a heap has the same layers; a default parent is one layer more. */
static void check_reopens(const ga_heap *heap, const ga_spec *spec)
{
    const char *text = ga_heap_spec(heap);
    ga_heap *again;
    if (strlen(text) >= GA_SPEC_LENGTH || spec->layer_count == GA_SPEC_LAYERS) {
        return;
    }
    FUZZ_NEED(ga_heap_open(&again, GA_PLACE_HOST, 0, text) == GA_OK);
    FUZZ_NEED(strcmp(ga_heap_spec(again), text) == 0);
    FUZZ_NEED(ga_heap_close(again) == GA_OK);
}

/* The probe, and how many of it are open: none may be left over. */
static ga_backend counted;
static int live;

static ga_status open_counted(const ga_open_args *args, void **state)
{
    ga_status status = probe_backend.open(args, state);
    live += status == GA_OK;
    return status;
}

static void close_counted(void *state)
{
    live--;
    probe_backend.close(state);
}

static void check_heap(const char *text, const ga_spec *spec)
{
    ga_heap *heap;
    ga_status status = ga_heap_open(&heap, GA_PLACE_HOST, 0, text);
    probe_story[0] = '\0'; /* it would fill up */
    if (status != GA_OK) {
        FUZZ_NEED(!heap && (status == GA_ERR_SPEC || status == GA_ERR_MEMORY));
        fuzz_check_sentence();
    } else {
        check_reopens(heap, spec);
        FUZZ_NEED(ga_heap_close(heap) == GA_OK);
    }
    FUZZ_NEED(live == 0);
}

/* ---- the target ---------------------------------------------------------------------------- */

static void begin(void)
{
    static bool begun;
    if (!begun) {
        begun = true;
        unsetenv("GPUALLOC_TRACE");
        unsetenv("GPUALLOC_STATS");
        counted = probe_backend;
        counted.open = open_counted;
        counted.close = close_counted;
        FUZZ_NEED(ga_backend_register(&counted) == GA_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ga_spec spec;
    char *text = malloc(size + 1); /* exactly that size, so that the sanitizer sees a read past its
                                    * end */
    FUZZ_NEED(text);
    memcpy(text, data, size);
    text[size] = '\0';
    begin();
    ga_status status = ga_spec_parse(&spec, text, bare_option);
    if (status == GA_OK) {
        check_spec(&spec);
        if (all_harmless(&spec)) {
            check_heap(text, &spec);
        }
    } else {
        ga_heap *heap;
        FUZZ_NEED(status == GA_ERR_SPEC && strncmp(ga_error_text(), "spec: ", 6) == 0);
        fuzz_check_sentence();
        FUZZ_NEED(ga_heap_open(&heap, GA_PLACE_HOST, 0, text) == GA_ERR_SPEC && !heap);
    }
    free(text);
    return 0;
}
