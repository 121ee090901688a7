/* SPDX-License-Identifier: MIT
 *
 * Parses options: one function for each type, and the messages for values that do not fit.
 */
#include "options.h"

#include "../platform/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ga_option_type_text(ga_option_type type)
{
    static const char *const texts[GA_OPTION_TYPE_COUNT] = {"size", "bool", "integer", "enum",
                                                            "string"};
    unsigned index = (unsigned)type;
    return index < GA_OPTION_TYPE_COUNT ? texts[index] : "?";
}

static ga_status mismatch(const ga_backend *backend, const ga_option *option, const char *text,
                          const char *expected)
{
    return ga_fail(GA_ERR_SPEC, "%s: %s: expected %s, got \"%.80s\"", backend->name, option->name,
                   expected, text);
}

static bool bounded(const ga_option *option)
{
    return option->min != 0 || option->max != 0;
}

/* ---- one function for each type: true where `text` is a value ---------------------------- */

static bool read_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"yes", "true", "on", "1"};
    static const char *const no[] = {"no", "false", "off", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *out = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool read_integer(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9') {
        return false;
    }
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !errno && *end == '\0';
}

static bool read_choice(const ga_option *option, const char *text, int *out)
{
    for (int i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* ---- with their sentences ----------------------------------------------------------------- */

/* Append the choices to the text in `buffer`, with `before` in front of the first. */
static void list_choices(const ga_option *option, const char *before, char *buffer, size_t size)
{
    for (int i = 0; option->choices && option->choices[i]; i++) {
        size_t length = strlen(buffer);
        snprintf(buffer + length, size - length, "%s%s", i ? ", " : before, option->choices[i]);
    }
}

static ga_status parse_size(const ga_backend *backend, const ga_option *option, const char *text,
                            ga_value *out)
{
    char expected[200] = "a size such as 4096, 64K, 2M, 1G or 1T";
    int word;
    if (option->choices && read_choice(option, text, &word)) {
        out->size = UINT64_MAX - (uint64_t)word;
        return GA_OK;
    }
    bool is_size = ga_size_parse(text, &out->size);
    if (is_size && (!bounded(option) ||
                    (out->size >= (uint64_t)option->min && out->size <= (uint64_t)option->max))) {
        return GA_OK;
    }
    if (is_size) {
        snprintf(expected, sizeof expected, "a size from %" PRId64 " to %" PRId64 " bytes",
                 option->min, option->max);
    }
    list_choices(option, " or one of ", expected, sizeof expected);
    return mismatch(backend, option, text, expected);
}

static ga_status parse_integer(const ga_backend *backend, const ga_option *option, const char *text,
                               ga_value *out)
{
    char expected[120] = "an integer";
    if (bounded(option)) {
        snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, option->min,
                 option->max);
    }
    bool fits = read_integer(text, &out->integer) &&
                (!bounded(option) || (out->integer >= option->min && out->integer <= option->max));
    return fits ? GA_OK : mismatch(backend, option, text, expected);
}

static ga_status parse_choice(const ga_backend *backend, const ga_option *option, const char *text,
                              ga_value *out)
{
    char expected[200] = "one of";
    if (read_choice(option, text, &out->choice)) {
        return GA_OK;
    }
    list_choices(option, " ", expected, sizeof expected);
    return mismatch(backend, option, text, expected);
}

static ga_status parse_text(const ga_backend *backend, const ga_option *option, const char *text,
                            ga_value *out)
{
    switch (option->type) {
    case GA_OPTION_SIZE:
        return parse_size(backend, option, text, out);
    case GA_OPTION_BOOL:
        return read_bool(text, &out->flag)
                   ? GA_OK
                   : mismatch(backend, option, text, "yes, no, true, false, on, off, 1 or 0");
    case GA_OPTION_INTEGER:
        return parse_integer(backend, option, text, out);
    case GA_OPTION_ENUM:
        return parse_choice(backend, option, text, out);
    case GA_OPTION_STRING:
        out->text = text;
        return GA_OK;
    default:
        return ga_fail(GA_ERR_ARGUMENT, "%s: %s: no such option type", backend->name, option->name);
    }
}

/* ---- a whole layer ------------------------------------------------------------------------ */

static size_t find_option(const ga_backend *backend, const char *key)
{
    size_t i = 0;
    while (i < backend->option_count && strcmp(backend->options[i].name, key) != 0) {
        i++;
    }
    return i;
}

static ga_status unknown_option(const ga_backend *backend, const char *key)
{
    char known[300] = "";
    for (size_t i = 0; i < backend->option_count; i++) {
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "",
                 backend->options[i].name);
    }
    return ga_fail(GA_ERR_SPEC, "%s: unknown option \"%.80s\"; %s%s", backend->name, key,
                   *known ? "expected one of: " : "it has none", known);
}

static ga_status set_written(const ga_backend *backend, const ga_spec_option *written,
                             const char **texts)
{
    size_t i = find_option(backend, written->key);
    if (i == backend->option_count) {
        return unknown_option(backend, written->key);
    }
    const ga_option *option = &backend->options[i];
    if (texts[i]) {
        return ga_fail(GA_ERR_SPEC, "%s: %s: expected once, got it twice", backend->name,
                       option->name);
    }
    if (!written->value && option->type != GA_OPTION_BOOL && option->type != GA_OPTION_STRING) {
        ga_value none; /* no text of these types is empty, and the sentence says what is expected */
        return parse_text(backend, option, "", &none);
    }
    if (!written->value && option->type == GA_OPTION_STRING) {
        return ga_fail(GA_ERR_SPEC, "%s: %s: expected \"%s=\" and a value of type %s",
                       backend->name, option->name, option->name,
                       ga_option_type_text(option->type));
    }
    texts[i] = written->value ? written->value : "yes";
    return GA_OK;
}

static ga_status resolve_row(const ga_backend *backend, size_t i, ga_value *values,
                             const char **texts)
{
    const ga_option *option = &backend->options[i];
    if (!texts[i]) {
        texts[i] = option->fallback;
    }
    if (!texts[i]) {
        return ga_fail(GA_ERR_SPEC, "%s: %s: expected a value: %s", backend->name, option->name,
                       option->help);
    }
    return parse_text(backend, option, texts[i], &values[i]);
}

ga_status ga_options_resolve(const ga_backend *backend, const ga_spec_layer *layer,
                             ga_value *values, const char **texts)
{
    ga_status status = GA_OK;
    for (size_t i = 0; i < backend->option_count; i++) {
        texts[i] = NULL;
    }
    for (size_t i = 0; status == GA_OK && i < layer->option_count; i++) {
        status = set_written(backend, &layer->options[i], texts);
    }
    for (size_t i = 0; status == GA_OK && i < backend->option_count; i++) {
        status = resolve_row(backend, i, values, texts);
    }
    return status;
}

/* Whether a spec can contain the key. */
static bool is_key(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    return name && *name && name[strspn(name, letters)] == '\0';
}

static ga_status check_row(const ga_backend *backend, const ga_option *option)
{
    ga_value value;
    if (!is_key(option->name) || !option->help || option->type >= GA_OPTION_TYPE_COUNT ||
        (option->type == GA_OPTION_ENUM && !option->choices) || option->min > option->max) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "%s: option \"%.40s\": expected a name, a help line, a type"
                       " with its choices, and min up to max",
                       backend->name, option->name ? option->name : "");
    }
    if (&backend->options[find_option(backend, option->name)] != option) {
        return ga_fail(GA_ERR_ARGUMENT, "%s: option \"%.40s\" is in its table twice", backend->name,
                       option->name);
    }
    if (option->fallback && parse_text(backend, option, option->fallback, &value) != GA_OK) {
        return ga_fail(GA_ERR_ARGUMENT, "%s", ga_error_text());
    }
    return GA_OK;
}

ga_status ga_options_check(const ga_backend *backend)
{
    if (backend->option_count > GA_SPEC_OPTIONS || (backend->option_count && !backend->options)) {
        return ga_fail(GA_ERR_ARGUMENT, "%s: expected an option table of at most %d rows",
                       backend->name, GA_SPEC_OPTIONS);
    }
    ga_status status = GA_OK;
    for (size_t i = 0; status == GA_OK && i < backend->option_count; i++) {
        status = check_row(backend, &backend->options[i]);
    }
    if (status == GA_OK && backend->bare_option &&
        find_option(backend, backend->bare_option) == backend->option_count) {
        status = ga_fail(GA_ERR_ARGUMENT, "%s: bare_option \"%.40s\" is not in its option table",
                         backend->name, backend->bare_option);
    }
    return status;
}
