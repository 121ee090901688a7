/* SPDX-License-Identifier: MIT
 *
 * The calling thread's error: its sentence and status, and the texts of the statuses.
 */
#include "error.h"

#include "text.h"

#include <gpualloc/backend.h>

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char error_text[512];
static _Thread_local ga_status error_status;
static _Thread_local unsigned error_count;

ga_status ga_fail(ga_status status, const char *format, ...)
{
    /* Through a second buffer: a backend may quote ga_error_text() in its own sentence. */
    char text[sizeof error_text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ga_text_make_printable(text); /* the text may quote values from users and programs */
    __builtin_memcpy(error_text, text, sizeof text);
    error_status = status;
    error_count++;
    return status;
}

unsigned ga_error_count(void)
{
    return error_count;
}

const char *ga_error_text(void)
{
    return error_text;
}

ga_status ga_error_status(void)
{
    return error_status;
}

const char *ga_status_text(ga_status status)
{
    static const char *const texts[GA_STATUS_COUNT] = {
        [GA_OK] = "ok",
        [GA_ERR_SPEC] = "the spec or a setting does not parse",
        [GA_ERR_PLACE] = "the backend does not serve this place",
        [GA_ERR_DEVICE] = "no such device, or the driver refused",
        [GA_ERR_MEMORY] = "out of memory",
        [GA_ERR_SIZE] = "a size that cannot be served",
        [GA_ERR_ALIGN] = "an alignment that cannot be served",
        [GA_ERR_POINTER] = "not a block of this heap",
        [GA_ERR_CANNOT_GROW] = "cannot grow in place",
        [GA_ERR_UNSUPPORTED] = "the backend has no such operation",
        [GA_ERR_ARGUMENT] = "an argument out of range",
        [GA_ERR_LIBRARY] = "a library that cannot be used",
        [GA_ERR_ABI] = "made for another ABI version",
        [GA_ERR_IO] = "a file that cannot be used",
    };
    unsigned index = (unsigned)status;
    return index < GA_STATUS_COUNT ? texts[index] : "an unknown status";
}

const char *ga_place_text(ga_place place)
{
    static const char *const texts[GA_PLACE_COUNT] = {"host", "device", "kernel"};
    unsigned index = (unsigned)place;
    return index < GA_PLACE_COUNT ? texts[index] : "?";
}
