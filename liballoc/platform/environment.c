/* SPDX-License-Identifier: MIT */
#include "environment.h"

#include <stdlib.h>

const char *ga_environment(const char *name)
{
    return secure_getenv(name);
}
