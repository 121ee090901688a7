/* SPDX-License-Identifier: MIT
 *
 * Reports with any bytes in the program's name and the spec. It would catch JSON that cannot be
 * read or says something else, tables with lines that the program's name has made, bytes that
 * control a terminal, texts that are cut although there is room, and writes past a buffer.
 */
#include "fuzz.h"

#include <errno.h>
#include <gpualloc/backend.h>
#include <jansson.h>
#include <platform/text.h>
#include <runtime/heap.h>
#include <string.h>

const char *const fuzz_tokens[] = {
    "\x1b[31m",
    "\x1b]0;x\a",
    "\xc2\x9b",
    "\x9b",
    "\xc2",
    "\xed\xa0\x80",
    "\xf4\x90\x80\x80",
    "\xe0\x80",
    "\xf0\x9f\x92\xa9",
    "\xc3\xa9",
    "\"",
    "\\",
    "\\u0000",
    "\n",
    "\r",
    "\x7f",
    "%s%n",
    "\",\"pid\":1,\"x\":\"",
    "}\n{",
    "\xff\xfe",
    "\xef\xbf\xbd",
    NULL,
};

enum {
    SPEC_BYTES_MAX = 8191 /* bytes of a spec */
};

static const char *const texts[] = {
    "system",
    "trace:file=\"/tmp/a b\",batch=128/jemalloc:decay=10000,background=no",
    "\x1b]0;title\a\n* * * * * root id",
    "\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0",
    "\x80\x9b\xff\xfe\xc0\x80",
    "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xf4\x90\x80\x80",
    "\xed\x9f\xbf\xed\xa0\x80\xee\x80\x80",
    "\"\\/\b\f\n\r\t",
    "{\"abi\":1}\n",
};

size_t fuzz_seed(size_t number, uint8_t room[FUZZ_INPUT_MAX])
{
    size_t count = sizeof texts / sizeof *texts;
    if (number < count) {
        size_t size = strlen(texts[number]);
        memcpy(room, texts[number], size);
        return size;
    }
    if (number < count + 256) { /* each byte, now and then as often as a spec may be long */
        size_t size = number % 32 ? 4 : SPEC_BYTES_MAX;
        memset(room, (int)(number - count), size);
        return size;
    }
    return 0;
}

/* ---- checks ------------------------------------------------------------------------------- */

/* jansson takes a text that is UTF-8, and no other. */
static bool is_utf8(const char *text)
{
    json_t *string = json_string(text);
    json_decref(string);
    return string;
}

static bool is_control(const unsigned char *c)
{
    return *c < ' ' || *c == 0x7f || (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0);
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        FUZZ_NEED(*c == '\n' || !is_control(c));
        lines += *c == '\n';
    }
    FUZZ_NEED(is_utf8(text));
    return lines;
}

typedef size_t writer(const ga_heap *heap, char *buffer, size_t size);

/* In a buffer of exactly the needed size, so that one more byte is an error. */
static char *whole(writer *write, const ga_heap *heap)
{
    size_t length = write(heap, NULL, 0);
    char *text = malloc(length + 1);
    FUZZ_NEED(text && write(heap, text, length + 1) == length && strlen(text) == length);
    return text;
}

static void check_cut(writer *write, const ga_heap *heap, const char *text)
{
    size_t length = strlen(text);
    size_t size = 1 + (length * 7 + (unsigned char)text[length / 2]) % length;
    char *part = malloc(size);
    FUZZ_NEED(part && write(heap, part, size) == length);
    FUZZ_NEED(strlen(part) == size - 1 && memcmp(part, text, size - 1) == 0);
    free(part);
}

static void check_string(const json_t *object, const char *key, const char *expected)
{
    const char *said = json_string_value(json_object_get(object, key));
    FUZZ_NEED(said);
    if (is_utf8(expected)) {
        FUZZ_NEED(strcmp(said, expected) == 0);
    } else {
        FUZZ_NEED(strstr(said, "\xef\xbf\xbd"));
    }
}

static void check_json(const ga_heap *heap)
{
    char *text = whole(ga_heap_stats_json, heap);
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    FUZZ_NEED(object && json_object_size(object) == 17);
    FUZZ_NEED(count_lines(text) == 1 && text[strlen(text) - 1] == '\n');
    check_string(object, "spec", heap->text);
    check_string(object, "program", program_invocation_short_name);
    json_decref(object);
    check_cut(ga_heap_stats_json, heap, text);
    free(text);
}

static void check_table(const ga_heap *heap)
{
    char *text = whole(ga_heap_stats_text, heap);
    FUZZ_NEED(count_lines(text) == 7);
    check_cut(ga_heap_stats_text, heap, text);
    free(text);
}

/* A line of the log or an error sentence: its length is kept, and valid characters stay. */
static void check_printable(const char *text)
{
    char *line = strdup(text);
    FUZZ_NEED(line);
    ga_text_make_printable(line);
    FUZZ_NEED(strlen(line) == strlen(text) && count_lines(line) == 0);
    bool clean = is_utf8(text);
    for (const unsigned char *c = (const unsigned char *)text; clean && *c; c++) {
        clean = !is_control(c);
    }
    FUZZ_NEED(!clean || strcmp(line, text) == 0);
    free(line);
    ga_fail(GA_ERR_SPEC, "an error: %s", text);
    fuzz_check_sentence();
    FUZZ_NEED(is_utf8(ga_error_text()));
}

/* ---- the target ----------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ga_heap *heap;
    size = size < SPEC_BYTES_MAX ? size : SPEC_BYTES_MAX;
    char *text = malloc(size + 1); /* exactly that size, so that the sanitizer sees a read past its
                                    * end */
    FUZZ_NEED(text);
    memcpy(text, data, size);
    text[size] = '\0';
    if (!heap) {
        unsetenv("GPUALLOC_TRACE");
        unsetenv("GPUALLOC_STATS");
        FUZZ_NEED(ga_heap_open(&heap, GA_PLACE_HOST, 0, "null") == GA_OK);
    }
    char *own_text = heap->text;
    char *own_name = program_invocation_short_name;
    heap->text = text;
    program_invocation_short_name = text;
    check_json(heap);
    check_table(heap);
    check_printable(text);
    heap->text = own_text;
    program_invocation_short_name = own_name;
    free(text);
    return 0;
}
