/* SPDX-License-Identifier: MIT */
#include "environment.h"

#include "libc.h"

#include <stdlib.h>
#include <string.h>

const char *ga_environment(const char *name)
{
    return secure_getenv(name);
}

char *ga_environment_copy(const char *name)
{
    const char *value = ga_environment(name);
    size_t size = value && *value ? strlen(value) + 1 : 0;
    char *copy = size ? ga_libc.malloc(size) : NULL;
    return copy ? memcpy(copy, value, size) : NULL;
}
