/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void ga_text_add(ga_text *text, const char *format, ...)
{
    bool fits = text->length < text->size;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(fits ? text->buffer + text->length : NULL,
                           fits ? text->size - text->length : 0, format, args);
    va_end(args);
    text->length += length < 0 ? 0 : (size_t)length;
}

static void add_bytes(ga_text *text, const void *bytes, size_t length)
{
    if (text->length + 1 < text->size) {
        size_t capacity = text->size - 1 - text->length;
        size_t max = length < capacity ? length : capacity;
        memcpy(text->buffer + text->length, bytes, max);
        text->buffer[text->length + max] = '\0';
    }
    text->length += length;
}

/* Add `begin` and the code in `digits` hexadecimal digits. */
static void add_escape(ga_text *text, const char *begin, unsigned code, unsigned digits)
{
    char escape[8];
    size_t length = strlen(begin);
    memcpy(escape, begin, length);
    for (unsigned digit = digits; digit-- > 0;) {
        escape[length++] = "0123456789abcdef"[code >> 4 * digit & 15];
    }
    add_bytes(text, escape, length);
}

/* The length in bytes of a UTF-8 character by its first byte; 0 for an invalid first byte. */
static size_t utf8_announced(unsigned char first)
{
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The length in bytes of the UTF-8 character at `c`; 0 if it is invalid. */
static size_t utf8_length(const unsigned char *c)
{
    size_t length = utf8_announced(*c);
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (*c == 0xe0 && c[1] < 0xa0) || (*c == 0xf0 && c[1] < 0x90);
    bool no_character = (*c == 0xed && c[1] > 0x9f) || (*c == 0xf4 && c[1] > 0x8f);
    return overlong || no_character ? 0 : length;
}

/* The code of the control character at `c`, a valid UTF-8 character of `length` bytes; -1 for
 * another character. Terminals obey C1 (U+0080 to U+009F) as they obey escape sequences. */
static int control_code(const unsigned char *c, size_t length)
{
    if (length == 1) {
        return *c < ' ' || *c == 0x7f ? *c : -1;
    }
    return length == 2 && c[0] == 0xc2 && c[1] < 0xa0 ? c[1] : -1;
}

void ga_text_add_printable(ga_text *text, const char *foreign)
{
    for (const unsigned char *c = (const unsigned char *)foreign; *c;) {
        size_t length = utf8_length(c);
        int control = length ? control_code(c, length) : *c;
        if (control >= 0) {
            add_escape(text, "\\x", (unsigned)control, 2);
        } else {
            add_bytes(text, c, length);
        }
        c += length ? length : 1;
    }
}

void ga_text_add_json(ga_text *text, const char *foreign)
{
    for (const unsigned char *c = (const unsigned char *)foreign; *c;) {
        size_t length = utf8_length(c);
        int control = length ? control_code(c, length) : 0xfffd;
        if (control >= 0) {
            add_escape(text, "\\u", (unsigned)control, 4);
        } else if (*c == '"' || *c == '\\') {
            add_bytes(text, (const char[]){'\\', (char)*c}, 2);
        } else {
            add_bytes(text, c, length);
        }
        c += length ? length : 1;
    }
}

void ga_text_make_printable(char *line)
{
    for (unsigned char *c = (unsigned char *)line; *c;) {
        size_t length = utf8_length(c);
        if (!length || control_code(c, length) >= 0) {
            length = length ? length : 1;
            memset(c, '?', length);
        }
        c += length;
    }
}
