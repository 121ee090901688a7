/* SPDX-License-Identifier: MIT
 *
 * Every path to a driver function, for every row of the hook table: linked, dlsym() with each kind
 * of handle, dlvsym(), dlsym() found by dlsym(), both cuGetProcAddress(), found by each path
 * themselves. The function that is found lies in the library that the argument names, and passes
 * six arguments on.
 *
 *   paths NAME-OF-THE-LIBRARY
 */
#include "../../interpose/cuda/next.h"
#include "check.h"

#include <dlfcn.h>
#include <string.h>

#define ROW(kind, name, since, symbol, streams, what)                                              \
    extern ga_cuda_any linked_##symbol __asm__(#symbol);
GA_CUDA_HOOKS(ROW)

#define LINKED(kind, name, since, symbol, streams, what) linked_##symbol,
static ga_cuda_any *const linked[] = {GA_CUDA_HOOKS(LINKED)};

static const ga_cuda_hook hooks[] = {GA_CUDA_HOOKS(GA_CUDA_HOOK_ROW)};

typedef CUresult get_v1(const char *name, void **function, int version, uint64_t flags);
typedef CUresult get_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status);
typedef void *dlsym_fn(void *handle, const char *symbol);

static void *driver;
static const char *library; /* the library in which functions must be found */
static void (*echo)(bool on);

static const char *owner_of(void *function)
{
    Dl_info info = {0};
    return function && dladdr(function, &info) && info.dli_fname ? info.dli_fname : "nowhere";
}

static bool passes(int row)
{
    return hooks[row].kind == GA_CUDA_PASSES || hooks[row].kind == GA_CUDA_RETRIES;
}

static void check_found(int row, void *function, const char *way)
{
    CHECK(strstr(owner_of(function), library), "%s by %s is in %s, expected %s", hooks[row].symbol,
          way, owner_of(function), library);
    if (function && passes(row)) {
        echo(true);
        ga_cuda_any *call = (ga_cuda_any *)(uintptr_t)function;
        CUresult result = call(11, 22, 33, 44, 55, 66);
        echo(false); /* which cuGetProcAddress() would do, too */
        CHECK(result == 5000 + row, "%s by %s answers %d", hooks[row].symbol, way, result);
    }
}

static void check_lookups(int row)
{
    const char *symbol = hooks[row].symbol;
    dlsym_fn *by_libc =
        (dlsym_fn *)(uintptr_t)dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "dlsym");
    check_found(row, (void *)(uintptr_t)linked[row], "the linker");
    check_found(row, dlsym(driver, symbol), "dlsym in the driver");
    check_found(row, dlsym(RTLD_DEFAULT, symbol), "dlsym in all");
    check_found(row, dlsym(dlopen(NULL, RTLD_LAZY), symbol), "dlsym in the program");
    check_found(row, by_libc(driver, symbol), "dlsym found by dlsym");
    if (dlvsym(driver, symbol, "libcuda.so.1")) {
        check_found(row, dlvsym(driver, symbol, "libcuda.so.1"), "dlvsym");
    }
}

/* The flags that say which default stream is meant; either for rows that have none. */
static uint64_t flags_of(int row)
{
    return (uint64_t)hooks[row].streams;
}

static void check_v1(int row, get_v1 *get, const char *way)
{
    void *function = NULL;
    CHECK_SAME(0, get(hooks[row].name, &function, hooks[row].since, flags_of(row)));
    check_found(row, function, way);
}

static void check_v2(int row, get_v2 *get, const char *way)
{
    void *function = NULL;
    int status = 77;
    CHECK_SAME(0, get(hooks[row].name, &function, hooks[row].since, flags_of(row), &status));
    CHECK_SAME(0, status);
    check_found(row, function, way);
    CHECK_SAME(0, get(hooks[row].name, &function, hooks[row].since, flags_of(row), NULL));
}

/* The arguments are kept: the version, the flags, and the status of a function that is not
 * found. */
static void check_refusals(get_v1 *one, get_v2 *two)
{
    void *function = &function;
    int status = 77;
    CHECK_SAME(500, two("cuNoSuchFunction", &function, 13000, 0, &status));
    CHECK(status == 1 && !function, "status %d", status);
    CHECK_SAME(500, two("cuMemAllocAsync", &function, 11010, 0, &status));
    CHECK(status == 2 && !function, "status %d", status);
    CHECK_SAME(500, one("cuMemAllocAsync", &function, 11010, 0));
    CHECK(!function, "found");
    /* Not in the table: the driver's own. */
    CHECK_SAME(0, two("cuMemcpyHtoDAsync", &function, 13000, 0, &status));
    CHECK(strstr(owner_of(function), "libcuda.so.1"), "in %s", owner_of(function));
}

/* A later version of a name is the function of another one. */
static void check_renamed(get_v2 *get)
{
    void *function = NULL;
    CHECK_SAME(0, get("cuGraphInstantiate", &function, 12000, 0, NULL));
    CHECK(function == dlsym(driver, "cuGraphInstantiateWithFlags"), "in %s", owner_of(function));
}

/* cuGetProcAddress() from the driver's library, and from itself: for 11.3 the first form. */
static void check_by_name(void)
{
    get_v1 *one = (get_v1 *)(uintptr_t)dlsym(driver, "cuGetProcAddress");
    get_v2 *two = (get_v2 *)(uintptr_t)dlsym(driver, "cuGetProcAddress_v2");
    void *nested_one = NULL;
    void *nested_two = NULL;
    CHECK_SAME(0, two("cuGetProcAddress", &nested_one, 11030, 0, NULL));
    CHECK_SAME(0, one("cuGetProcAddress", &nested_two, 13000, 0));
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        check_v1(i, one, "cuGetProcAddress");
        check_v2(i, two, "cuGetProcAddress_v2");
        check_v1(i, (get_v1 *)(uintptr_t)nested_one, "cuGetProcAddress from itself");
        check_v2(i, (get_v2 *)(uintptr_t)nested_two, "cuGetProcAddress_v2 from itself");
    }
    check_refusals(one, two);
    check_renamed(two);
}

int main(int argc, char **argv)
{
    library = argc > 1 ? argv[1] : "";
    driver = dlopen("libcuda.so.1", RTLD_LAZY);
    echo = (void (*)(bool))(uintptr_t)dlsym(driver, "stand_in_echo");
    CHECK(strstr(owner_of((void *)(uintptr_t)echo), "libcuda.so.1"), "no stand-in");
    check_by_name();
    for (int i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        check_lookups(i);
    }
    printf("paths: %d rows, %d not so\n", GA_CUDA_HOOK_COUNT, not_so);
    return not_so != 0;
}
