/* SPDX-License-Identifier: MIT
 *
 * The parser of sizes in specs, settings and arguments.
 */
#include "size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool ga_size_parse(const char *text, uint64_t *out)
{
    if (*text < '0' || *text > '9') {
        return false;
    }
    char *end;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10u * (unsigned)(unit - units + 1) : 0;
    bool whole = unit ? end[1] == '\0' : *end == '\0';
    if (errno || !whole || (shift && number >> (64 - shift))) {
        return false;
    }
    *out = number << shift;
    return true;
}
