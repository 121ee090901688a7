/* SPDX-License-Identifier: MIT
 *
 * The grammar of specs: the result of each valid text, and the sentence for each invalid one.
 */
#include "runtime/spec.h"

#include "support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ga_spec spec;

/* `dl` takes bare text, `odd` too under another name; every other backend takes none. */
static const char *bare_option(const char *backend)
{
    return strcmp(backend, "dl") == 0 ? "path" : strcmp(backend, "odd") == 0 ? "it" : NULL;
}

static ga_status parse(const char *text)
{
    return ga_spec_parse(&spec, text, bare_option);
}

/* The parsed spec in a notation of this test's own: `name(key=[value] key)name`. */
static const char *shape(void)
{
    static char room[GA_SPEC_LENGTH * 2];
    size_t length = 0;
    room[0] = '\0';
    for (size_t i = 0; i < spec.layer_count; i++) {
        const ga_spec_layer *layer = &spec.layers[i];
        length += (size_t)snprintf(room + length, sizeof room - length, "%s(", layer->name);
        for (size_t j = 0; j < layer->option_count; j++) {
            const ga_spec_option *option = &layer->options[j];
            const char *form = option->value ? "%s%s=[%s]" : "%s%s";
            length += (size_t)snprintf(room + length, sizeof room - length, form, j ? " " : "",
                                       option->key, option->value);
        }
        length += (size_t)snprintf(room + length, sizeof room - length, ")");
    }
    return room;
}

static void expect_shape(const char *text, const char *expected)
{
    assert_ok(parse(text));
    cr_assert_str_eq(shape(), expected, "%s: got %s, expected %s", text, shape(), expected);
}

Test(spec, layers)
{
    expect_shape("system", "system()");
    expect_shape("a/b/c", "a()b()c()");
    expect_shape("A-1_z/9", "A-1_z()9()");
}

Test(spec, options)
{
    expect_shape("a:k=v", "a(k=[v])");
    expect_shape("a:k", "a(k)");
    expect_shape("a:k,l=1,m", "a(k l=[1] m)");
    expect_shape("a:k=v/b:l=w", "a(k=[v])b(l=[w])");
    expect_shape("a:k=x=y", "a(k=[x=y])");
    expect_shape("a:k=-1", "a(k=[-1])");
    expect_shape("a:k=\\", "a(k=[\\])");
    expect_shape("a:k=\xc3\xa9", "a(k=[\xc3\xa9])");
}

Test(spec, quotes)
{
    expect_shape("a:k=\"v\"", "a(k=[v])");
    expect_shape("a:k=\"\"", "a(k=[])");
    expect_shape("a:k=\"/,: x\"/b", "a(k=[/,: x])b()");
    expect_shape("a:k=\"\\\"\"", "a(k=[\"])");
    expect_shape("a:k=\"\\\\\",l", "a(k=[\\] l)");
    expect_shape("a:k=\"\\n\"", "a(k=[\\n])");
    expect_shape("a:k=\"\n\"", "a(k=[\n])");
}

Test(spec, bare_text)
{
    expect_shape("dl:/usr/lib/libx.so", "dl(path=[/usr/lib/libx.so])");
    expect_shape("dl:libx.so", "dl(path=[libx.so])");
    expect_shape("dl:a b,c:d/e\"f", "dl(path=[a b,c:d/e\"f])");
    expect_shape("dl:path=x", "dl(path=[x])");
    expect_shape("dl:path=\"/x/y\"", "dl(path=[/x/y])");
    expect_shape("dl:/x=y", "dl(path=[/x=y])");
    expect_shape("a/dl:/x/y", "a()dl(path=[/x/y])");
    expect_shape("dl:path=\"/x\"/b", "dl(path=[/x])b()");
    expect_shape("dl/b", "dl()b()");
    expect_shape("odd:x", "odd(it=[x])");
}

/* Without a callback for it, no backend takes bare text. */
Test(spec, no_bare_text)
{
    assert_fails(ga_spec_parse(&spec, "dl:/x", NULL), GA_ERR_SPEC,
                 "spec: column 4: expected the name of an option, got \"/\"");
}

#define BACKEND "expected the name of a backend, got "
#define OPTION  "expected the name of an option, got "
#define VALUE   "expected a value (in double quotes if it holds / , : or a space), got "

static const struct {
    const char *text, *sentence;
} malformed[] = {
    {"", "spec: column 1: " BACKEND "the end"},
    {"/", "spec: column 1: " BACKEND "\"/\""},
    {"a/", "spec: column 3: " BACKEND "the end"},
    {"a//b", "spec: column 3: " BACKEND "\"/\""},
    {" a", "spec: column 1: " BACKEND "a space"},
    {":k", "spec: column 1: " BACKEND "\":\""},
    {"\"a\"", "spec: column 1: " BACKEND "\"\"\""},
    {"\xc3\xa9", "spec: column 1: " BACKEND "\\xc3"},
    {"\n", "spec: column 1: " BACKEND "\\x0a"},
    {"\x7f", "spec: column 1: " BACKEND "\\x7f"},
    {"a ", "spec: column 2: expected \":\", \"/\" or the end, got a space"},
    {"a=1", "spec: column 2: expected \":\", \"/\" or the end, got \"=\""},
    {"a,b", "spec: column 2: expected \":\", \"/\" or the end, got \",\""},
    {"a:", "spec: column 3: " OPTION "the end"},
    {"dl:", "spec: column 4: " OPTION "the end"},
    {"dl:\"x\"", "spec: column 4: " OPTION "\"\"\""},
    {"a:/b", "spec: column 3: " OPTION "\"/\""},
    {"a:k,", "spec: column 5: " OPTION "the end"},
    {"a:k,,l", "spec: column 5: " OPTION "\",\""},
    {"a:=v", "spec: column 3: " OPTION "\"=\""},
    {"a:k v", "spec: column 4: expected \",\", \"/\" or the end, got a space"},
    {"a:k:l", "spec: column 4: expected \",\", \"/\" or the end, got \":\""},
    {"a:k=", "spec: column 5: " VALUE "the end"},
    {"a:k=,l", "spec: column 5: " VALUE "\",\""},
    {"a:k= v", "spec: column 5: " VALUE "a space"},
    {"a:k=\x01", "spec: column 5: " VALUE "\\x01"},
    {"a:k=\"v", "spec: column 5: expected a closing \" for this one"},
    {"a:k=\"v\\\"", "spec: column 5: expected a closing \" for this one"},
    {"a:k=\"v\"w", "spec: column 8: expected \",\", \"/\" or the end, got \"w\""},
    {"a:k=v\"w\"", "spec: column 6: expected \",\", \"/\" or the end, got \"\"\""},
};

Test(spec, malformed_text_is_refused_with_its_column)
{
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        assert_fails(parse(malformed[i].text), GA_ERR_SPEC, malformed[i].sentence);
    }
}

/* ---- limits ------------------------------------------------------------------------------- */

static char long_text[3 * GA_SPEC_LENGTH];

/* `count` times `part`, appended to the text. */
static const char *repeat(const char *part, size_t count)
{
    size_t length = strlen(long_text);
    for (size_t i = 0; i < count; i++, length += strlen(part)) {
        strcpy(long_text + length, part);
    }
    return long_text;
}

Test(spec, ten_thousand_slashes)
{
    assert_fails(parse(repeat("/", 10000)), GA_ERR_SPEC,
                 "spec: expected at most 8191 bytes, got 10000");
}

Test(spec, ten_thousand_layers)
{
    assert_fails(parse(repeat("a/", 10000)), GA_ERR_SPEC,
                 "spec: expected at most 8191 bytes, got 20000");
}

Test(spec, as_many_slashes_as_fit)
{
    assert_fails(parse(repeat("/", GA_SPEC_LENGTH - 1)), GA_ERR_SPEC,
                 "spec: column 1: " BACKEND "\"/\"");
}

Test(spec, layers_up_to_the_limit)
{
    repeat("a/", GA_SPEC_LAYERS - 1);
    assert_ok(parse(repeat("b", 1)));
    cr_assert_eq(spec.layer_count, GA_SPEC_LAYERS);
    cr_assert_str_eq(spec.layers[GA_SPEC_LAYERS - 1].name, "b");
    assert_fails(parse(repeat("/c", 1)), GA_ERR_SPEC, "spec: expected at most 16 layers");
}

Test(spec, options_up_to_the_limit)
{
    repeat("a:k", 1);
    assert_ok(parse(repeat(",l=1", GA_SPEC_OPTIONS - 1)));
    cr_assert_eq(spec.layers[0].option_count, GA_SPEC_OPTIONS);
    assert_fails(parse(repeat(",m", 1)), GA_ERR_SPEC, "spec: a: expected at most 32 options");
}

Test(spec, text_up_to_the_limit)
{
    repeat("a:k=", 1);
    assert_ok(parse(repeat("v", GA_SPEC_LENGTH - 5)));
    cr_assert_eq(strlen(spec.layers[0].options[0].value), GA_SPEC_LENGTH - 5);
    assert_fails(parse(repeat("v", 1)), GA_ERR_SPEC, "spec: expected at most 8191 bytes, got 8192");
}

/* The copies end one byte before the room does: every character of this text is copied. */
Test(spec, longest_name)
{
    assert_ok(parse(repeat("n", GA_SPEC_LENGTH - 1)));
    cr_assert_eq(strlen(spec.layers[0].name), GA_SPEC_LENGTH - 1);
}

/* A spec ends at its NUL; bytes behind it are not read. */
Test(spec, nothing_behind_the_nul_is_read)
{
    static const char text[] = "a:k=v\0/b:l=\"";
    expect_shape(text, "a(k=[v])");
}

/* A failed parse leaves no part of an earlier result. */
Test(spec, can_be_used_again)
{
    assert_ok(parse("a:k/b:l/c:m"));
    expect_shape("d", "d()");
}

Test(spec, which_values_need_quotes)
{
    static const char *const bare[] = {"a", "a=b", "\\", "é", "a-b_c.d", "%p", "(", "'"};
    static const char *const quoted[] = {"", "a b", "a/b", "a,b", "a:b", "\"", "\t", "\x7f", "a\n"};
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++) {
        cr_assert_not(ga_spec_needs_quotes(bare[i]), "%s", bare[i]);
    }
    for (size_t i = 0; i < sizeof quoted / sizeof *quoted; i++) {
        cr_assert(ga_spec_needs_quotes(quoted[i]), "%s", quoted[i]);
    }
}
