/* SPDX-License-Identifier: MIT
 *
 * A program without CUDA: its lookups give the results without the preload, no driver is loaded for
 * them, and a third-party library whose functions have the driver's names keeps them.
 *
 *   bystander NAMESAKE
 */
#include "check.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool is_mapped(const char *name)
{
    char line[4096];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        found = found || strstr(line, name);
    }
    if (maps) {
        fclose(maps);
    }
    return found;
}

static void check_errors(void)
{
    dlerror();
    CHECK(!dlsym(RTLD_DEFAULT, "no_such_symbol"), "found");
    const char *why = dlerror();
    CHECK(why && strstr(why, "no_such_symbol"), "%s", why ? why : "nothing said");
    CHECK(!dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "found without a driver");
    why = dlerror();
    CHECK(why && strstr(why, "cuMemAlloc_v2"), "%s", why ? why : "nothing said");
    CHECK(!dlsym(dlopen(NULL, RTLD_LAZY), "cuMemAlloc_v2"), "found without a driver");
    why = dlerror();
    CHECK(why && strstr(why, "cuMemAlloc_v2"), "%s", why ? why : "nothing said");
    CHECK(!dlsym(RTLD_DEFAULT, "ncclMemAlloc"), "found without NCCL");
    why = dlerror();
    CHECK(why && strstr(why, "ncclMemAlloc"), "%s", why ? why : "nothing said");
    CHECK(!dlvsym(RTLD_DEFAULT, "free", "NO_SUCH_VERSION"), "found");
}

int main(int argc, char **argv)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    CHECK(dlsym(RTLD_DEFAULT, "strtol") == dlsym(libc, "strtol"), "two of them");
    CHECK(dlsym(RTLD_NEXT, "strtol") == dlsym(libc, "strtol"), "two of them");
    CHECK(dlvsym(libc, "strtol", "GLIBC_2.2.5") || dlvsym(libc, "strtol", "GLIBC_2.17"), "none");
    check_errors();
    void *namesake = argc > 1 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
    CHECK(namesake != NULL, "%s", dlerror());
    int (*other)(void) = (int (*)(void))(uintptr_t)dlsym(namesake, "cuMemAlloc_v2");
    CHECK(other && other() == 42, "not the other's");
    dlerror();
    other = (int (*)(void))(uintptr_t)dlsym(namesake, "ncclMemAlloc");
    CHECK(!dlerror(), "an error of a look-up that found a function");
    CHECK(other && other() == 43, "not the other's");
    CHECK(!is_mapped("libcuda.so"), "somebody loaded the driver");
    printf("bystander: %d not so\n", not_so);
    return not_so != 0;
}
