/* SPDX-License-Identifier: MIT
 *
 * Builds text in a buffer of any size, and makes foreign text safe to show. Never allocates,
 * because it is used inside malloc. Not thread safe for one ga_text.
 */
#ifndef GPUALLOC_PLATFORM_TEXT_H
#define GPUALLOC_PLATFORM_TEXT_H

#include <stddef.h>

/* Initialise as {buffer, size}. Text that does not fit is counted and not written; a buffer of at
 * least one byte always ends with a NUL. */
typedef struct ga_text {
    char *buffer;  /* NULL if size is 0 */
    size_t size;   /* bytes of the buffer, with the NUL */
    size_t length; /* bytes of the whole text, as snprintf() counts */
} ga_text;

void ga_text_add(ga_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Add `foreign` as one line that is safe for a terminal: control characters (C0, DEL, C1) and bytes
 * that are not UTF-8 become \xNN. A backslash stays as it is, so that a spec can be copied. */
void ga_text_add_printable(ga_text *text, const char *foreign);

/* Add `foreign` as the contents of a JSON string. Control characters become \u00NN, and each byte
 * that is not UTF-8 becomes U+FFFD. */
void ga_text_add_json(ga_text *text, const char *foreign);

/* Replace control characters (C0, DEL, C1) and bytes that are not UTF-8 by question marks, in
 * place. */
void ga_text_make_printable(char *line);

#endif
