/* SPDX-License-Identifier: MIT
 *
 * PTX that allocates, loaded once under the preload.
 *
 *   ptx TEXT [OPTION=VALUE...]     numbers of CU_JIT_*
 *   ptx TEXT limited               files of at most 4 KiB; other PTX, loaded before, opens the heap
 *   ptx TEXT in OPTIONS            the PTX is in a fat binary, with OPTIONS of the compiler
 *
 * TEXT becomes a part of the PTX. Prints how often the driver's linker ran, and which numbers it
 * got as options. The module is served in any case.
 */
#include "../support/cubin_scene.h"

#include "cu.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    OPTIONS = 8,
    JIT_LAST = 40
};

typedef CUresult load_function(CUmodule *out, const void *code, unsigned count, int *options,
                               void **values);

static void *driver;
static cubin_scene scene;

static void *function_of_driver(const char *name)
{
    return dlsym(driver, name);
}

/* What the linker makes of any PTX. */
static void place_cubin(void)
{
    static char name[64];
    scene = (cubin_scene){
        .sm = 90, .calls_cuda = true, .has_addends = true, .call_type = GA_R_ABS55_16_34};
    cubin_scene_build(&scene);
    int fd = memfd_create("cubin", 0);
    CHECK(fd >= 0 && write(fd, scene.bytes, scene.size) == (ssize_t)scene.size, "%d", fd);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    setenv("STAND_IN_CUBIN", name, 1);
    setenv("STAND_IN_MODULE", name, 0); /* unless it is set: it has constants */
}

/* The number of options. */
static unsigned read_options(char **words, int *options, void **values)
{
    unsigned count = 0;
    for (; count < OPTIONS && words[count]; count++) {
        char *value;
        options[count] = (int)strtol(words[count], &value, 10);
        values[count] = (void *)(uintptr_t)strtoul(value + 1, NULL, 10);
    }
    return count;
}

/* The stubs lead to the preload's module. */
static void expect_served(CUmodule code)
{
    const uint64_t *(*calls_of)(CUmodule code);
    uint64_t (*functions)(void);
    *(void **)&calls_of = function_of_driver("stand_in_calls_of");
    *(void **)&functions = function_of_driver("stand_in_functions");
    const uint64_t *calls = calls_of(code);
    CHECK(calls && functions() && calls[0] == functions(), "%#llx",
          calls ? (unsigned long long)calls[0] : 1);
}

static void say_options(void)
{
    bool (*link_option)(int option, uint32_t *value);
    uint32_t value;
    *(void **)&link_option = function_of_driver("stand_in_link_option");
    for (int option = 0; option < JIT_LAST; option++) {
        if ((option < 3 || option > 6) && link_option(option, &value)) {
            printf("option %d=%u\n", option, value);
        }
    }
}

static const char *make_ptx(const char *text)
{
    static char ptx[8192];
    snprintf(ptx, sizeof ptx, "// %s\n.version 9.0\n.target sm_75\n.extern .func free\n(\n)\n;\n",
             text);
    return ptx;
}

static void load_code(load_function *load, const void *code, unsigned count, int *options,
                      void **values)
{
    CUmodule module;
    CHECK_SAME(0, load(&module, code, count, options, values));
    expect_served(module);
}

/* The linker gets the entry for the device as it is, and no other. */
static void load_fatbin(load_function *load, const char *text, const char *options)
{
    static uint64_t room[2048];
    uint8_t *fatbin = (uint8_t *)room;
    const ga_fatbin_record other = {.kind = GA_FATBIN_PTX, .sm = 50};
    const ga_fatbin_record record = {.kind = GA_FATBIN_PTX, .sm = 75};
    const char *ptx = make_ptx(text);
    const void *(*link_input)(size_t * size);
    size_t size = 0;
    size_t input_size;
    fatbin_scene_add_with(fatbin, &size, other, "-O0", "//", 3);
    size_t begin = size;
    fatbin_scene_add_with(fatbin, &size, record, options, ptx, strlen(ptx) + 1);
    load_code(load, fatbin, 0, NULL, NULL);
    *(void **)&link_input = function_of_driver("stand_in_link_input");
    const uint8_t *input = link_input(&input_size);
    if (input_size) { /* it is not from the cache */
        CHECK_SAME(sizeof(ga_fatbin_header) + size - begin, input_size);
        CHECK_SAME(0, memcmp(input + sizeof(ga_fatbin_header), fatbin + begin, size - begin));
    }
}

int main(int argc, char **argv)
{
    const struct rlimit limit = {4096, 4096};
    const char *text = argc > 1 ? argv[1] : "";
    int options[OPTIONS];
    void *values[OPTIONS];
    unsigned count = 0;
    cu_get *get;
    load_function *load;
    uint64_t (*links)(void);
    cu_open(0);
    driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    *(void **)&load = cu_find(get, "cuModuleLoadDataEx", 0);
    *(void **)&links = function_of_driver("stand_in_links");
    place_cubin();
    bool is_in_fatbin = argc > 3 && strcmp(argv[2], "in") == 0;
    if (argc > 2 && strcmp(argv[2], "limited") == 0) {
        load_code(load, make_ptx("other"), 0, NULL, NULL);
        CHECK_SAME(0, setrlimit(RLIMIT_FSIZE, &limit));
    } else if (argc > 2 && !is_in_fatbin) {
        count = read_options(argv + 2, options, values);
    }
    if (is_in_fatbin) {
        load_fatbin(load, text, argv[3]);
    } else {
        load_code(load, make_ptx(text), count, options, values);
    }
    printf("links %llu\n", (unsigned long long)links());
    say_options();
    return not_so != 0;
}
