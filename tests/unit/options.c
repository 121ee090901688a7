/* SPDX-License-Identifier: MIT
 *
 * Options by type, and whole layers of them, through the table of a made-up backend.
 */
#include "runtime/options.h"

#include "support/expect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SIZE = 0,
    BOUNDED_SIZE,
    FLAG,
    NUMBER,
    BOUNDED_NUMBER,
    CHOICE,
    TEXT,
    NEEDED,
    ROWS
};

static const char *const colours[] = {"red", "green", NULL};

static ga_option rows[ROWS] = {
    [SIZE] = {"size", GA_OPTION_SIZE, "1", "h", NULL, 0, 0, false},
    [BOUNDED_SIZE] = {"bsize", GA_OPTION_SIZE, "4K", "h", NULL, 4096, 1 << 20, false},
    [FLAG] = {"flag", GA_OPTION_BOOL, "no", "h", NULL, 0, 0, false},
    [NUMBER] = {"number", GA_OPTION_INTEGER, "0", "h", NULL, 0, 0, false},
    [BOUNDED_NUMBER] = {"bnumber", GA_OPTION_INTEGER, "7", "h", NULL, -3, 9, false},
    [CHOICE] = {"choice", GA_OPTION_ENUM, "red", "h", colours, 0, 0, false},
    [TEXT] = {"text", GA_OPTION_STRING, "none", "h", NULL, 0, 0, false},
    [NEEDED] = {"needed", GA_OPTION_STRING, NULL, "what is needed", NULL, 0, 0, false},
};

static ga_backend backend = {.name = "it", .options = rows, .option_count = ROWS};
static ga_value values[ROWS];
static const char *texts[ROWS];

/* Resolve `needed=x` and `key=value`; a NULL value is the bare key. */
static ga_status resolve(const char *key, const char *value)
{
    ga_spec_layer layer = {"it", 2, {{"needed", "x"}, {key, value}}};
    return ga_options_resolve(&backend, &layer, values, texts);
}

static ga_status resolve_size(const char *value)
{
    return resolve("size", value);
}

/* ---- each type ---------------------------------------------------------------------------- */

static void expect_size(const char *text, uint64_t expected)
{
    assert_ok(resolve_size(text));
    cr_assert_eq(values[SIZE].size, expected, "%s: got %" PRIu64, text, values[SIZE].size);
    cr_assert_str_eq(texts[SIZE], text);
}

Test(options, sizes)
{
    expect_size("0", 0);
    expect_size("4096", 4096);
    expect_size("1K", UINT64_C(1) << 10);
    expect_size("3M", UINT64_C(3) << 20);
    expect_size("2G", UINT64_C(2) << 30);
    expect_size("5T", UINT64_C(5) << 40);
    expect_size("007K", 7168);
    expect_size("18446744073709551615", UINT64_MAX);
    expect_size("16777215T", UINT64_C(16777215) << 40);
    expect_size("18014398509481983K", UINT64_C(18014398509481983) << 10);
}

#define NO_SIZE "it: size: expected a size such as 4096, 64K, 2M, 1G or 1T, got "

Test(options, no_sizes)
{
    assert_fails(resolve_size(""), GA_ERR_SPEC, NO_SIZE "\"\"");
    assert_fails(resolve_size("K"), GA_ERR_SPEC, NO_SIZE "\"K\"");
    assert_fails(resolve_size("-1"), GA_ERR_SPEC, NO_SIZE "\"-1\"");
    assert_fails(resolve_size("+1"), GA_ERR_SPEC, NO_SIZE "\"+1\"");
    assert_fails(resolve_size(" 1"), GA_ERR_SPEC, NO_SIZE "\" 1\"");
    assert_fails(resolve_size("1k"), GA_ERR_SPEC, NO_SIZE "\"1k\"");
    assert_fails(resolve_size("1KB"), GA_ERR_SPEC, NO_SIZE "\"1KB\"");
    assert_fails(resolve_size("1P"), GA_ERR_SPEC, NO_SIZE "\"1P\"");
    assert_fails(resolve_size("0x10"), GA_ERR_SPEC, NO_SIZE "\"0x10\"");
    assert_fails(resolve_size("1.5M"), GA_ERR_SPEC, NO_SIZE "\"1.5M\"");
}

Test(options, sizes_that_overflow)
{
    assert_fails(resolve_size("18446744073709551616"), GA_ERR_SPEC,
                 NO_SIZE "\"18446744073709551616\"");
    assert_fails(resolve_size("16777216T"), GA_ERR_SPEC, NO_SIZE "\"16777216T\"");
    assert_fails(resolve_size("18014398509481984K"), GA_ERR_SPEC, NO_SIZE "\"18014398509481984K\"");
    assert_fails(resolve_size("99999999999999999999999T"), GA_ERR_SPEC,
                 NO_SIZE "\"99999999999999999999999T\"");
}

Test(options, size_bounds)
{
    assert_ok(resolve("bsize", "4K"));
    assert_ok(resolve("bsize", "1M"));
    assert_fails(resolve("bsize", "4095"), GA_ERR_SPEC,
                 "it: bsize: expected a size from 4096 to 1048576 bytes, got \"4095\"");
    assert_fails(resolve("bsize", "1048577"), GA_ERR_SPEC,
                 "it: bsize: expected a size from 4096 to 1048576 bytes, got \"1048577\"");
    assert_fails(resolve("bsize", "18446744073709551615"), GA_ERR_SPEC,
                 "it: bsize: expected a size from 4096 to 1048576 bytes, got "
                 "\"18446744073709551615\"");
}

Test(options, flags)
{
    static const char *const yes[] = {"yes", "true", "on", "1", NULL};
    static const char *const no[] = {"no", "false", "off", "0", NULL};
    for (int i = 0; yes[i]; i++) {
        values[FLAG].flag = false;
        assert_ok(resolve("flag", yes[i]));
        cr_assert(values[FLAG].flag, "%s", yes[i]);
        values[FLAG].flag = true;
        assert_ok(resolve("flag", no[i]));
        cr_assert_not(values[FLAG].flag, "%s", no[i]);
    }
    assert_fails(resolve("flag", "Yes"), GA_ERR_SPEC,
                 "it: flag: expected yes, no, true, false, on, off, 1 or 0, got \"Yes\"");
    assert_fails(resolve("flag", ""), GA_ERR_SPEC,
                 "it: flag: expected yes, no, true, false, on, off, 1 or 0, got \"\"");
}

Test(options, bare_flag_means_yes)
{
    assert_ok(resolve("flag", NULL));
    cr_assert(values[FLAG].flag);
    cr_assert_str_eq(texts[FLAG], "yes");
}

static void expect_number(const char *key, int row, const char *text, int64_t expected)
{
    assert_ok(resolve(key, text));
    cr_assert_eq(values[row].integer, expected, "%s: got %" PRId64, text, values[row].integer);
}

Test(options, integers)
{
    expect_number("number", NUMBER, "0", 0);
    expect_number("number", NUMBER, "-12", -12);
    expect_number("number", NUMBER, "9223372036854775807", INT64_MAX);
    expect_number("number", NUMBER, "-9223372036854775808", INT64_MIN);
    expect_number("bnumber", BOUNDED_NUMBER, "-3", -3);
    expect_number("bnumber", BOUNDED_NUMBER, "9", 9);
}

Test(options, no_integers)
{
    assert_fails(resolve("number", "9223372036854775808"), GA_ERR_SPEC,
                 "it: number: expected an integer, got \"9223372036854775808\"");
    assert_fails(resolve("number", "-"), GA_ERR_SPEC, "it: number: expected an integer, got \"-\"");
    assert_fails(resolve("number", "+1"), GA_ERR_SPEC,
                 "it: number: expected an integer, got \"+1\"");
    assert_fails(resolve("number", "1K"), GA_ERR_SPEC,
                 "it: number: expected an integer, got \"1K\"");
    assert_fails(resolve("number", " 1"), GA_ERR_SPEC,
                 "it: number: expected an integer, got \" 1\"");
    assert_fails(resolve("bnumber", "-4"), GA_ERR_SPEC,
                 "it: bnumber: expected an integer from -3 to 9, got \"-4\"");
    assert_fails(resolve("bnumber", "10"), GA_ERR_SPEC,
                 "it: bnumber: expected an integer from -3 to 9, got \"10\"");
    assert_fails(resolve("bnumber", "ten"), GA_ERR_SPEC,
                 "it: bnumber: expected an integer from -3 to 9, got \"ten\"");
}

Test(options, choices)
{
    assert_ok(resolve("choice", "green"));
    cr_assert_eq(values[CHOICE].choice, 1);
    assert_fails(resolve("choice", "blue"), GA_ERR_SPEC,
                 "it: choice: expected one of red, green, got \"blue\"");
    assert_fails(resolve("choice", ""), GA_ERR_SPEC,
                 "it: choice: expected one of red, green, got \"\"");
}

/* Keywords among numbers: from the top of the range down. */
Test(options, sizes_with_words)
{
    static ga_option row = {"room", GA_OPTION_SIZE, "auto", "h", colours, 16, 4096, false};
    static const ga_backend it = {.name = "it", .options = &row, .option_count = 1};
    ga_spec_layer layer = {"it", 1, {{"room", "red"}}};
    assert_fails(ga_options_check(&it), GA_ERR_ARGUMENT,
                 "it: room: expected a size such as 4096, 64K, 2M, 1G or 1T or one of red, green, "
                 "got \"auto\"");
    row.fallback = "green";
    assert_ok(ga_options_check(&it));
    assert_ok(ga_options_resolve(&it, &layer, values, texts));
    cr_assert_eq(values[0].size, UINT64_MAX, "red: got %" PRIu64, values[0].size);
    layer.option_count = 0;
    assert_ok(ga_options_resolve(&it, &layer, values, texts));
    cr_assert_eq(values[0].size, UINT64_MAX - 1, "green: got %" PRIu64, values[0].size);
    layer = (ga_spec_layer){"it", 1, {{"room", "2K"}}};
    assert_ok(ga_options_resolve(&it, &layer, values, texts));
    cr_assert_eq(values[0].size, 2048, "2K: got %" PRIu64, values[0].size);
    layer.options[0].value = "8K";
    assert_fails(
        ga_options_resolve(&it, &layer, values, texts), GA_ERR_SPEC,
        "it: room: expected a size from 16 to 4096 bytes or one of red, green, got \"8K\"");
}

Test(options, strings)
{
    assert_ok(resolve("text", ""));
    cr_assert_str_eq(values[TEXT].text, "");
    assert_ok(resolve("text", "a b/c"));
    cr_assert_str_eq(values[TEXT].text, "a b/c");
}

/* ---- a whole layer ------------------------------------------------------------------------ */

Test(options, defaults)
{
    assert_ok(resolve("flag", "yes"));
    cr_assert_eq(values[SIZE].size, 1);
    cr_assert_eq(values[BOUNDED_SIZE].size, 4096);
    cr_assert_eq(values[BOUNDED_NUMBER].integer, 7);
    cr_assert_eq(values[CHOICE].choice, 0);
    cr_assert_str_eq(values[TEXT].text, "none");
    cr_assert_str_eq(texts[BOUNDED_SIZE], "4K");
}

Test(options, duplicates)
{
    assert_fails(resolve("needed", "y"), GA_ERR_SPEC, "it: needed: expected once, got it twice");
}

Test(options, unknown)
{
    assert_fails(resolve("colour", "red"), GA_ERR_SPEC,
                 "it: unknown option \"colour\"; expected one of: size, bsize, flag, number, "
                 "bnumber, choice, text, needed");
    assert_fails_with(resolve("Size", "1"), GA_ERR_SPEC, "it: unknown option \"Size\"");
}

Test(options, unknown_where_there_are_none)
{
    ga_backend none = {.name = "none"};
    ga_spec_layer layer = {"none", 1, {{"k", "v"}}};
    assert_fails(ga_options_resolve(&none, &layer, values, texts), GA_ERR_SPEC,
                 "none: unknown option \"k\"; it has none");
}

Test(options, missing)
{
    ga_spec_layer layer = {.name = "it"};
    assert_fails(ga_options_resolve(&backend, &layer, values, texts), GA_ERR_SPEC,
                 "it: needed: expected a value: what is needed");
}

Test(options, only_flags_may_stand_bare)
{
    assert_fails(resolve("size", NULL), GA_ERR_SPEC,
                 "it: size: expected a size such as 4096, 64K, 2M, 1G or 1T, got \"\"");
    assert_fails(resolve("number", NULL), GA_ERR_SPEC, "it: number: expected an integer, got \"\"");
    assert_fails(resolve("choice", NULL), GA_ERR_SPEC,
                 "it: choice: expected one of red, green, got \"\"");
    assert_fails(resolve("text", NULL), GA_ERR_SPEC,
                 "it: text: expected \"text=\" and a value of type string");
}

/* A long value is quoted in part: the sentence keeps its end, which says how to mend it. */
Test(options, long_values_are_cut_in_sentences)
{
    char value[1000];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    assert_fails_with(resolve("number", value), GA_ERR_SPEC, "it: number: expected an integer");
    cr_assert_lt(strlen(ga_error_text()), 200);
}

/* ---- tables ------------------------------------------------------------------------------- */

/* Check a table that has only this row. */
static ga_status check(ga_option row)
{
    static ga_option one;
    one = row;
    ga_backend b = {.name = "it", .options = &one, .option_count = 1};
    return ga_options_check(&b);
}

#define BAD_ROW(name)                                                                              \
    "it: option \"" name "\": expected a name, a help line, a type with its choices, and min up "  \
    "to max"

Test(options, good_tables)
{
    assert_ok(ga_options_check(&backend));
    assert_ok(ga_options_check(&(ga_backend){.name = "it"}));
}

Test(options, bad_rows)
{
    ga_option good = {"o", GA_OPTION_INTEGER, "1", "h", NULL, 0, 0, false};
    ga_option row = good;
    assert_ok(check(row));
    row.name = NULL;
    assert_fails(check(row), GA_ERR_ARGUMENT, BAD_ROW(""));
    row.name = "";
    assert_fails(check(row), GA_ERR_ARGUMENT, BAD_ROW(""));
    row = good;
    row.help = NULL;
    assert_fails(check(row), GA_ERR_ARGUMENT, BAD_ROW("o"));
    row = good;
    row.type = GA_OPTION_TYPE_COUNT;
    assert_fails(check(row), GA_ERR_ARGUMENT, BAD_ROW("o"));
    row = good;
    row.type = GA_OPTION_ENUM;
    assert_fails(check(row), GA_ERR_ARGUMENT, BAD_ROW("o"));
    row = good;
    row.min = 2;
    row.max = 1;
    assert_fails(check(row), GA_ERR_ARGUMENT, BAD_ROW("o"));
}

Test(options, defaults_must_parse)
{
    assert_fails(check((ga_option){"o", GA_OPTION_INTEGER, "one", "h", NULL, 0, 0, false}),
                 GA_ERR_ARGUMENT, "it: o: expected an integer, got \"one\"");
    assert_fails(check((ga_option){"o", GA_OPTION_INTEGER, "5", "h", NULL, 1, 4, false}),
                 GA_ERR_ARGUMENT, "it: o: expected an integer from 1 to 4, got \"5\"");
    assert_fails(check((ga_option){"o", GA_OPTION_SIZE, "1 K", "h", NULL, 0, 0, false}),
                 GA_ERR_ARGUMENT,
                 "it: o: expected a size such as 4096, 64K, 2M, 1G or 1T, got \"1 K\"");
}

/* Names that no spec can write. */
Test(options, names_must_be_names)
{
    static const char *const bad[] = {"a b", "a=b", "a/b", "a,b", "a:b", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ga_status status = check((ga_option){bad[i], GA_OPTION_BOOL, "no", "h", NULL, 0, 0, false});
        cr_assert_eq(status, GA_ERR_ARGUMENT, "%s: got %d", bad[i], (int)status);
    }
}

Test(options, names_must_differ)
{
    static const ga_option twice[] = {{"o", GA_OPTION_BOOL, "no", "h", NULL, 0, 0, false},
                                      {"o", GA_OPTION_SIZE, "1", "h", NULL, 0, 0, false}};
    ga_backend b = {.name = "it", .options = twice, .option_count = 2};
    cr_assert_eq(ga_options_check(&b), GA_ERR_ARGUMENT);
}

Test(options, table_sizes)
{
    static ga_option many[GA_SPEC_OPTIONS + 1];
    static char names[GA_SPEC_OPTIONS + 1][sizeof "o-2147483648"];
    for (int i = 0; i <= GA_SPEC_OPTIONS; i++) {
        snprintf(names[i], sizeof names[i], "o%d", i);
        many[i] = (ga_option){names[i], GA_OPTION_BOOL, "no", "h", NULL, 0, 0, false};
    }
    ga_backend b = {.name = "it", .options = many, .option_count = GA_SPEC_OPTIONS};
    assert_ok(ga_options_check(&b));
    b.option_count++;
    assert_fails(ga_options_check(&b), GA_ERR_ARGUMENT,
                 "it: expected an option table of at most 32 rows");
    b = (ga_backend){.name = "it", .option_count = 1};
    assert_fails(ga_options_check(&b), GA_ERR_ARGUMENT,
                 "it: expected an option table of at most 32 rows");
}

Test(options, bare_option_must_be_in_the_table)
{
    ga_backend b = backend;
    b.bare_option = "text";
    assert_ok(ga_options_check(&b));
    b.bare_option = "path";
    assert_fails(ga_options_check(&b), GA_ERR_ARGUMENT,
                 "it: bare_option \"path\" is not in its option table");
}

Test(options, type_names)
{
    static const char *const names[] = {"size", "bool", "integer", "enum", "string"};
    for (int i = 0; i < GA_OPTION_TYPE_COUNT; i++) {
        cr_assert_str_eq(ga_option_type_text((ga_option_type)i), names[i]);
    }
    cr_assert_str_eq(ga_option_type_text(GA_OPTION_TYPE_COUNT), "?");
}
