/* SPDX-License-Identifier: MIT
 *
 * A search for declarations, without a parser: PTX cannot call a function that it does not declare.
 */
#include "ptx.h"

#include <stdbool.h>
#include <string.h>

typedef struct text {
    const char *at, *end;
} text;

static void skip_spaces(text *t)
{
    while (t->at < t->end && *t->at && strchr(" \t\r\n", *t->at)) {
        t->at++;
    }
}

static bool is_in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$';
}

static size_t name_length(const text *t)
{
    size_t length = 0;
    while (t->at + length < t->end && is_in_name(t->at[length])) {
        length++;
    }
    return length;
}

static bool accept(text *t, const char *word)
{
    size_t length = strlen(word);
    bool same = (size_t)(t->end - t->at) >= length && memcmp(t->at, word, length) == 0;
    t->at += same ? length : 0;
    return same;
}

/* The result in parentheses, if there is one. */
static void skip_result(text *t)
{
    if (t->at < t->end && *t->at == '(') {
        const char *close = memchr(t->at, ')', (size_t)(t->end - t->at));
        t->at = close ? close + 1 : t->end;
    }
}

/* Behind `.extern`. */
static unsigned declared(text t)
{
    skip_spaces(&t);
    if (!accept(&t, ".func")) {
        return 0;
    }
    skip_spaces(&t);
    skip_result(&t);
    skip_spaces(&t);
    return ga_image_call_of(t.at, name_length(&t));
}

unsigned ga_ptx_calls(ga_image ptx)
{
    static const char word[] = ".extern";
    unsigned calls = 0;
    text t = {(const char *)ptx.bytes, (const char *)ptx.bytes + ptx.size};
    if (!ptx.size) {
        return 0;
    }
    while ((t.at = memmem(t.at, (size_t)(t.end - t.at), word, sizeof word - 1))) {
        t.at += sizeof word - 1;
        calls |= declared(t);
    }
    return calls;
}
