/* SPDX-License-Identifier: MIT
 *
 * A heap's statistics, as numbers, as text and as JSON.
 */
#include <gpualloc/backend.h>

#include "runtime/registry.h"
#include "support/expect.h"
#include "support/probe.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static ga_heap *heap;
static ga_stats stats;

static void open_probe(const char *spec)
{
    assert_ok(ga_backend_register(&probe_backend));
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
}

static void read_stats(void)
{
    memset(&stats, 0xff, sizeof stats);
    assert_ok(ga_heap_stats(heap, &stats));
}

/* ---- counted events ----------------------------------------------------------------------- */

Test(stats, every_call_has_its_count)
{
    void *a;
    void *b;
    void *batch[3];
    open_probe("probe");
    assert_ok(ga_alloc(heap, 100, 0, &a));
    assert_ok(ga_alloc_zeroed(heap, 10, 0, &b));
    assert_ok(ga_alloc_batch(heap, 3, (size_t[]){1, 2, 3}, batch));
    assert_ok(ga_realloc(heap, a, 200, 0, &a));
    assert_ok(ga_grow(heap, a, 250));
    assert_ok(ga_free(heap, b));
    read_stats();
    cr_assert_eq(stats.allocs, 5);
    cr_assert_eq(stats.frees, 1);
    cr_assert_eq(stats.reallocs, 2);
    cr_assert_eq(stats.failures, 0);
    cr_assert_eq(stats.live_blocks, 4);
    cr_assert_eq(stats.live_bytes, 256);
    cr_assert_eq(stats.requested_bytes, 100 + 10 + 6 + 200 + 250);
    cr_assert_eq(stats.granted_bytes, stats.requested_bytes);
    cr_assert_eq(stats.live_blocks, (uint64_t)probe.live_blocks);
    cr_assert_eq(stats.live_bytes, (uint64_t)probe.live_bytes);
    cr_assert_geq(stats.peak_bytes, 256);
    cr_assert_leq(stats.peak_bytes, 366);
    assert_ok(ga_free(heap, a));
    for (int i = 0; i < 3; i++) {
        assert_ok(ga_free_on(heap, batch[i], NULL));
    }
    read_stats();
    cr_assert_eq(stats.frees, 5);
    cr_assert_eq(stats.live_blocks + stats.live_bytes, 0);
    assert_ok(ga_heap_close(heap));
}

Test(stats, requests_answered_with_an_error_are_failures)
{
    void *out;
    open_probe("probe");
    ga_alloc(heap, SIZE_MAX, 0, &out);
    ga_alloc(heap, PTRDIFF_MAX, 0, &out);
    ga_alloc(heap, 8, 3, &out);
    ga_alloc_zeroed(heap, PTRDIFF_MAX, 0, &out);
    ga_alloc_batch(heap, 2, (size_t[]){1, PTRDIFF_MAX}, (void *[2]){NULL, NULL});
    read_stats();
    cr_assert_eq(stats.failures, 5, "%" PRIu64, stats.failures);
    assert_ok(ga_alloc(heap, 8, 0, &out));
    ga_realloc(heap, out, PTRDIFF_MAX, 0, &(void *){NULL});
    cr_assert_eq(ga_grow(heap, out, 1 << 20), GA_ERR_CANNOT_GROW);
    read_stats();
    cr_assert_eq(stats.failures, 7, "%" PRIu64, stats.failures);
    cr_assert_eq(stats.allocs, 1);
    cr_assert_eq(stats.reallocs, 0);
    assert_ok(ga_free(heap, out));
    assert_ok(ga_heap_close(heap));
}

/* A layer that passes every call on counts nothing itself, with any layer below. */
Test(stats, a_layer_that_passes_through_shows_its_parent_s)
{
    static ga_backend through;
    void *block;
    through = probe_backend;
    through.name = "through";
    through.passes_through = true;
    assert_ok(ga_backend_register(&through));
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "through/through/fail:nth=0/system"));
    assert_ok(ga_alloc(heap, 100, 0, &block)); /* the probe keeps it to itself */
    read_stats();
    cr_assert_eq(stats.allocs + stats.live_bytes, 0);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "through"));
    assert_ok(ga_alloc(heap, 100, 0, &block));
    read_stats();
    cr_assert_eq(stats.allocs, 1, "with no parent it has to");
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
}

Test(stats, the_backend_s_own_figures)
{
    open_probe("probe");
    read_stats();
    cr_assert_eq(stats.held_bytes, 22);
    cr_assert_eq(stats.growths, 33);
    assert_ok(ga_heap_close(heap));
}

/* "Counts since the heap was opened": blocks of others in the same allocator do not count. */
Test(stats, a_fresh_heap_has_nothing)
{
    static const char *const specs[] = {"system", "null", "fail", "jemalloc"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        if (ga_heap_open(&heap, GA_PLACE_HOST, 0, specs[i]) != GA_OK) {
            continue; /* built without it */
        }
        read_stats();
        cr_assert_eq(stats.allocs + stats.frees + stats.reallocs + stats.failures, 0);
        cr_assert_eq(stats.live_blocks + stats.live_bytes + stats.peak_bytes, 0,
                     "%s: %" PRIu64 " bytes live", specs[i], stats.live_bytes);
        assert_ok(ga_heap_close(heap));
    }
}

Test(stats, arguments)
{
    assert_fails(ga_heap_stats(NULL, &stats), GA_ERR_ARGUMENT,
                 "ga_heap_stats: expected a heap and room, got NULL");
    open_probe("probe");
    assert_fails(ga_heap_stats(heap, NULL), GA_ERR_ARGUMENT,
                 "ga_heap_stats: expected a heap and room, got NULL");
    assert_ok(ga_heap_close(heap));
}

/* ---- as JSON ------------------------------------------------------------------------------ */

static const char *const texts[] = {"program", "place", "spec"};
static const char *const numbers[] = {
    "abi",        "pid",         "device",     "allocs",     "frees",           "reallocs",
    "failures",   "live_blocks", "live_bytes", "peak_bytes", "requested_bytes", "granted_bytes",
    "held_bytes", "growths"};

enum {
    TEXTS = sizeof texts / sizeof *texts,
    NUMBERS = sizeof numbers / sizeof *numbers
};

static char line[65536];

static json_t *parse_stats(void)
{
    json_error_t error;
    size_t length = ga_heap_stats_json(heap, line, sizeof line);
    cr_assert_eq(length, strlen(line));
    cr_assert_eq(strchr(line, '\n'), line + length - 1, "one line");
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(object, "%s: %s", error.text, line);
    return object;
}

static uint64_t number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

Test(stats, json_has_the_documented_keys_and_no_others)
{
    open_probe("probe");
    json_t *object = parse_stats();
    for (int i = 0; i < TEXTS; i++) {
        cr_assert(json_is_string(json_object_get(object, texts[i])), "%s", texts[i]);
    }
    for (int i = 0; i < NUMBERS; i++) {
        cr_assert(json_is_integer(json_object_get(object, numbers[i])), "%s", numbers[i]);
    }
    cr_assert_eq(json_object_size(object), TEXTS + NUMBERS);
    json_decref(object);
    assert_ok(ga_heap_close(heap));
}

Test(stats, json_says_what_the_numbers_say)
{
    void *block;
    open_probe("probe:tag=\"a\\\"b\\\\\"");
    assert_ok(ga_alloc(heap, 1000, 0, &block));
    ga_alloc(heap, SIZE_MAX, 0, &(void *){NULL});
    json_t *object = parse_stats();
    read_stats();
    cr_assert_str_eq(json_string_value(json_object_get(object, "spec")), ga_heap_spec(heap));
    cr_assert_str_eq(json_string_value(json_object_get(object, "place")), "host");
    cr_assert_eq(number(object, "abi"), 1);
    cr_assert_eq(number(object, "pid"), (uint64_t)getpid());
    cr_assert_eq(number(object, "allocs"), stats.allocs);
    cr_assert_eq(number(object, "failures"), stats.failures);
    cr_assert_eq(number(object, "live_blocks"), 1);
    cr_assert_eq(number(object, "live_bytes"), stats.live_bytes);
    cr_assert_eq(number(object, "peak_bytes"), stats.peak_bytes);
    cr_assert_eq(number(object, "requested_bytes"), 1000);
    cr_assert_eq(number(object, "granted_bytes"), stats.granted_bytes);
    cr_assert_eq(number(object, "held_bytes"), 22);
    cr_assert_eq(number(object, "growths"), 33);
    json_decref(object);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
}

/* The line is readable with any bytes in a spec: JSON is UTF-8, a path need not be. */
Test(stats, json_of_any_bytes)
{
    static const char *const tags[] = {"\x01\x1f", "\xff",         "\xc3",
                                       "\xc3\xa9", "\xed\xa0\x80", "\x7f"};
    assert_ok(ga_backend_register(&probe_backend));
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        char spec[64];
        snprintf(spec, sizeof spec, "probe:tag=\"%s\"", tags[i]);
        assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
        json_decref(parse_stats());
        assert_ok(ga_heap_close(heap));
    }
}

static void expect_figures_behind_the_spec(void)
{
    static const char last[] = "growths                      33\n";
    size_t length = ga_heap_stats_text(heap, line, sizeof line);
    cr_assert_gt(length, 6000);
    cr_assert_str_eq(line + length - strlen(last), last);
}

/* A spec of any length is in the line whole, and takes no room from the figures. */
Test(stats, a_long_spec)
{
    static char spec[8000];
    for (int shift = 0; shift < 2; shift++) {
        strcpy(spec, shift ? "probe:tag=\"x" : "probe:tag=\"");
        while (strlen(spec) < 6000) {
            strcat(spec, "\xc3\xa9\\\"");
        }
        strcat(spec, "\"");
        if (!shift) {
            assert_ok(ga_backend_register(&probe_backend));
        }
        assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
        json_t *object = parse_stats();
        cr_assert_str_eq(json_string_value(json_object_get(object, "spec")), ga_heap_spec(heap));
        json_decref(object);
        expect_figures_behind_the_spec();
        assert_ok(ga_heap_close(heap));
    }
}

/* ---- in too little room -------------------------------------------------------------------- */

static void expect_cut(size_t (*write)(const ga_heap *, char *, size_t))
{
    char whole[4096];
    char part[4096];
    size_t length = write(heap, whole, sizeof whole);
    cr_assert_eq(length, strlen(whole));
    cr_assert_eq(write(heap, NULL, 0), length);
    for (size_t size = 1; size <= length + 1; size += 7) {
        memset(part, 'x', sizeof part);
        cr_assert_eq(write(heap, part, size), length);
        cr_assert_eq(strlen(part), size - 1);
        cr_assert_eq(strncmp(part, whole, size - 1), 0);
        cr_assert_eq(part[size], 'x', "nothing behind the room is touched");
    }
}

Test(stats, text_is_cut_to_the_room)
{
    open_probe("probe");
    expect_cut(ga_heap_stats_text);
    expect_cut(ga_heap_stats_json);
    assert_ok(ga_heap_close(heap));
}

/* ---- as text ------------------------------------------------------------------------------ */

Test(stats, text)
{
    void *block;
    open_probe("probe:tag=t");
    assert_ok(ga_alloc(heap, 3 << 20, 0, &block));
    ga_heap_stats_text(heap, line, sizeof line);
    cr_assert_eq(strncmp(line, "heap       probe:tag=t,", 23), 0, "%s", line);
    cr_assert_not_null(strstr(line, "allocs                        1   frees"), "%s", line);
    cr_assert_not_null(strstr(line, "live                   3.00 MiB"), "%s", line);
    cr_assert_not_null(strstr(line, "(+0.0 %)"), "%s", line);
    cr_assert_not_null(strstr(line, "growths                      33\n"), "%s", line);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
}

static bool holds_control(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if ((*c < ' ' && *c != '\n') || *c == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0) || *c == 0x9b) {
            return true;
        }
    }
    return false;
}

/* A terminal obeys escape sequences, also those that begin with one C1 character. */
Test(stats, nothing_in_a_report_controls_a_terminal)
{
    static const char *const tags[] = {"\x1b]0;x\a", "\x7f\b", "\xc2\x9b[31m", "\x9b[31m",
                                       "a\nb\rc"};
    assert_ok(ga_backend_register(&probe_backend));
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        char spec[64];
        snprintf(spec, sizeof spec, "probe:tag=\"%s\"", tags[i]);
        assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
        json_decref(parse_stats());
        cr_assert(!holds_control(line), "%zu as JSON: %s", i, line);
        ga_heap_stats_text(heap, line, sizeof line);
        cr_assert(!holds_control(line), "%zu as text: %s", i, line);
        cr_assert_eq(strspn(strchr(line, '\n') + 1, "als"), 3, "one line for the spec: %s", line);
        assert_ok(ga_heap_close(heap));
    }
}

Test(stats, text_of_no_heap)
{
    cr_assert_gt(ga_heap_stats_text(NULL, line, sizeof line), 0);
    cr_assert_gt(ga_heap_stats_json(NULL, line, sizeof line), 0);
    json_t *object = json_loads(line, 0, NULL);
    cr_assert_not_null(object);
    json_decref(object);
}
