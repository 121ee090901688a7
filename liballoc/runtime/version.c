/* SPDX-License-Identifier: MIT
 *
 * The version of the library that runs.
 */
#include <gpualloc/gpualloc.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

const char *ga_version_text(void)
{
    return TEXT(GA_VERSION_MAJOR) "." TEXT(GA_VERSION_MINOR) "." TEXT(GA_VERSION_PATCH);
}
