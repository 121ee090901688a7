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

static void add_bytes(ga_text *text, const unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++, text->length++) {
        if (text->length + 1 < text->size) {
            text->buffer[text->length] = (char)bytes[i];
            text->buffer[text->length + 1] = '\0';
        }
    }
}

/* The length of a UTF-8 character by its first byte; 0 where none begins like this. */
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

/* The bytes of the UTF-8 character at `c`; 0 where there is none. */
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

/* The code of the control character at `c`, a whole UTF-8 character of `length` bytes; -1 if it is
 * none. Terminals obey C1 (U+0080 to U+009F) as they obey escape sequences. */
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
            ga_text_add(text, "\\x%02x", (unsigned)control);
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
            ga_text_add(text, "\\u%04x", (unsigned)control);
        } else if (*c == '"' || *c == '\\') {
            ga_text_add(text, "\\%c", *c);
        } else {
            add_bytes(text, c, length);
        }
        c += length ? length : 1;
    }
}

void ga_text_make_printable(char *line)
{
    for (unsigned char *c = (unsigned char *)line; *c; c++) {
        if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) {
            *c++ = '?';
            *c = '?';
        } else if (*c < ' ' || *c == 0x7f) {
            *c = '?';
        }
    }
}
