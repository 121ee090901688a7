/* SPDX-License-Identifier: MIT
 *
 * The parser: one pass over the text, which copies names and values to the spec's own buffer.
 */
#include "spec.h"

#include <gpualloc/backend.h>

#include <string.h>

typedef struct cursor {
    const char *start, *at;
    char *put; /* the next free byte of the spec's buffer; never further than `at` in the text */
    ga_spec_bare_fn *bare_option;
} cursor;

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static bool is_bare_char(char c)
{
    return (unsigned char)c > ' ' && c != 0x7f && !strchr("/,:\"", c);
}

bool ga_spec_needs_quotes(const char *value)
{
    for (const char *c = value; *c; c++) {
        if (!is_bare_char(*c)) {
            return true;
        }
    }
    return *value == '\0';
}

/* The input at the cursor, for a message. */
static const char *describe_input(const cursor *c, char buffer[16])
{
    unsigned char at = (unsigned char)*c->at;
    if (at == '\0') {
        return "the end";
    }
    static const char digits[] = "0123456789abcdef";
    const char plain[] = {'"', (char)at, '"', '\0'};
    const char escaped[] = {'\\', 'x', digits[at >> 4], digits[at & 15], '\0'};
    const char *text = at > ' ' && at < 0x7f ? plain : at == ' ' ? "a space" : escaped;
    return strcpy(buffer, text);
}

static ga_status unexpected(const cursor *c, const char *expected)
{
    char buffer[16];
    return ga_fail(GA_ERR_SPEC, "spec: column %zu: expected %s, got %s",
                   (size_t)(c->at - c->start) + 1, expected, describe_input(c, buffer));
}

static const char *finish(cursor *c, const char *begun)
{
    *c->put++ = '\0';
    return begun;
}

static ga_status parse_name(cursor *c, const char *expected, const char **out)
{
    char *begun = c->put;
    while (is_name_char(*c->at)) {
        *c->put++ = *c->at++;
    }
    if (c->put == begun) {
        return unexpected(c, expected);
    }
    *out = finish(c, begun);
    return GA_OK;
}

static ga_status parse_quoted(cursor *c, const char **out)
{
    const char *opening = c->at++;
    char *begun = c->put;
    while (*c->at && *c->at != '"') {
        if (c->at[0] == '\\' && (c->at[1] == '"' || c->at[1] == '\\')) {
            c->at++;
        }
        *c->put++ = *c->at++;
    }
    if (*c->at != '"') {
        return ga_fail(GA_ERR_SPEC, "spec: column %zu: expected a closing \" for this one",
                       (size_t)(opening - c->start) + 1);
    }
    c->at++;
    *out = finish(c, begun);
    return GA_OK;
}

static ga_status parse_value(cursor *c, const char **out)
{
    if (*c->at == '"') {
        return parse_quoted(c, out);
    }
    char *begun = c->put;
    while (is_bare_char(*c->at)) {
        *c->put++ = *c->at++;
    }
    if (c->put == begun) {
        return unexpected(c, "a value (in double quotes if it holds / , : or a space)");
    }
    *out = finish(c, begun);
    return GA_OK;
}

static ga_status parse_option(cursor *c, ga_spec_layer *layer)
{
    if (layer->option_count == GA_SPEC_OPTIONS) {
        return ga_fail(GA_ERR_SPEC, "spec: %s: expected at most %d options", layer->name,
                       GA_SPEC_OPTIONS);
    }
    ga_spec_option *option = &layer->options[layer->option_count];
    ga_status status = parse_name(c, "the name of an option", &option->key);
    if (status == GA_OK && *c->at == '=') {
        c->at++;
        status = parse_value(c, &option->value);
    }
    layer->option_count += status == GA_OK;
    return status;
}

static bool begins_with_key(const char *text)
{
    const char *c = text;
    while (is_name_char(*c)) {
        c++;
    }
    return c > text && *c == '=';
}

static void parse_bare_rest(cursor *c, ga_spec_layer *layer, const char *key)
{
    char *begun = c->put;
    while (*c->at) {
        *c->put++ = *c->at++;
    }
    layer->options[layer->option_count++] = (ga_spec_option){key, finish(c, begun)};
}

static ga_status parse_options(cursor *c, ga_spec_layer *layer)
{
    const char *bare = c->bare_option ? c->bare_option(layer->name) : NULL;
    if (bare && *c->at && *c->at != '"' && !begins_with_key(c->at)) {
        parse_bare_rest(c, layer, bare);
        return GA_OK;
    }
    ga_status status = parse_option(c, layer);
    while (status == GA_OK && *c->at == ',') {
        c->at++;
        status = parse_option(c, layer);
    }
    return status;
}

static ga_status parse_layer(cursor *c, ga_spec *spec)
{
    if (spec->layer_count == GA_SPEC_LAYERS) {
        return ga_fail(GA_ERR_SPEC, "spec: expected at most %d layers", GA_SPEC_LAYERS);
    }
    ga_spec_layer *layer = &spec->layers[spec->layer_count++];
    memset(layer, 0, sizeof *layer);
    ga_status status = parse_name(c, "the name of a backend", &layer->name);
    if (status == GA_OK && *c->at == ':') {
        c->at++;
        status = parse_options(c, layer);
    }
    if (status == GA_OK && *c->at && *c->at != '/') {
        status = unexpected(c, layer->option_count ? "\",\", \"/\" or the end"
                                                   : "\":\", \"/\" or the end");
    }
    return status;
}

ga_status ga_spec_parse(ga_spec *out, const char *text, ga_spec_bare_fn *bare_option)
{
    out->layer_count = 0;
    size_t length = strlen(text);
    /* Each name or value ends at a character that is not copied, or at the end of the text. So the
     * copies and their NULs need at most length + 1 bytes. */
    if (length >= GA_SPEC_LENGTH) {
        return ga_fail(GA_ERR_SPEC, "spec: expected at most %d bytes, got %zu", GA_SPEC_LENGTH - 1,
                       length);
    }
    cursor c = {text, text, out->text, bare_option};
    ga_status status = parse_layer(&c, out);
    while (status == GA_OK && *c.at == '/') {
        c.at++;
        status = parse_layer(&c, out);
    }
    return status;
}
