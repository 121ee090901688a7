/* SPDX-License-Identifier: MIT
 *
 * Images of device code: kinds, sizes, PTX and fat binaries, on images that are made here.
 * images_stubs.c has cubins; images_nvcc.c has the images of nvcc.
 */
#include "../../interpose/images/cubin.h"
#include "../../interpose/images/fatbin.h"
#include "../../interpose/images/ptx.h"

#include "support/cubin_scene.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static ga_image text(const char *ptx)
{
    return (ga_image){(const uint8_t *)ptx, strlen(ptx)};
}

static void expect_sentence(const char *part)
{
    cr_assert(strstr(ga_error_text(), part), "expected \"%s\" in \"%s\"", part, ga_error_text());
}

/* ---- kinds and sizes ----------------------------------------------------------------------- */

static cubin_scene built(unsigned sm)
{
    cubin_scene scene = {.sm = sm,
                         .calls_cuda = true,
                         .has_addends = sm >= 90,
                         .call_type = sm >= 90 ? GA_R_ABS55_16_34 : GA_R_ABS47_34};
    cubin_scene_build(&scene);
    return scene;
}

Test(images, kinds_by_their_first_bytes)
{
    static const struct {
        const char *bytes;
        size_t size;
        ga_image_kind kind;
    } cases[] = {
        {"", 0, GA_IMAGE_UNKNOWN},
        {"\x7f"
         "ELF",
         4, GA_IMAGE_CUBIN},
        {"\x7f"
         "EL",
         3, GA_IMAGE_UNKNOWN},
        {"\x50\xed\x55\xba", 4, GA_IMAGE_FATBIN},
        {"\xb1\x43\x62\x46", 4, GA_IMAGE_WRAPPER},
        {"\n\n//\n", 5, GA_IMAGE_PTX},
        {".version 9.0", 12, GA_IMAGE_PTX},
        {"\0.version", 9, GA_IMAGE_UNKNOWN},
        {"BC\xc0\xde", 4, GA_IMAGE_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ga_image image = {(const uint8_t *)cases[i].bytes, cases[i].size};
        cr_assert_eq(ga_image_kind_of(image), cases[i].kind, "case %zu", i);
    }
}

Test(images, size_of_elf_is_the_end_of_its_last_part)
{
    cubin_scene scene = built(90);
    ga_image image;
    cr_assert_eq(ga_image_measure(&image, scene.bytes, SIZE_MAX), GA_OK, "%s", ga_error_text());
    cr_assert(image.bytes == scene.bytes && image.size == scene.size);
}

Test(images, size_of_fat_binary_and_wrapper)
{
    uint64_t room[64]; /* aligned as nvcc aligns */
    size_t size = 0;
    ga_image image;
    fatbin_scene_add((uint8_t *)room, &size, (ga_fatbin_record){.kind = GA_FATBIN_PTX, .sm = 75},
                     "//", 3);
    struct {
        ga_wrapper wrapper;
        uint8_t behind[64];
    } wrapped = {{GA_WRAPPER_MAGIC, 1, (uintptr_t)room, 0}, {0}};
    cr_assert_eq(ga_image_measure(&image, room, SIZE_MAX), GA_OK, "%s", ga_error_text());
    cr_assert(image.bytes == (uint8_t *)room && image.size == size);
    cr_assert_eq(ga_image_measure(&image, &wrapped, SIZE_MAX), GA_OK, "%s", ga_error_text());
    cr_assert(image.bytes == (uint8_t *)room && image.size == size);
    wrapped.wrapper.fatbin = (uintptr_t)&wrapped;
    cr_assert_eq(ga_image_measure(&image, &wrapped, SIZE_MAX), GA_ERR_UNSUPPORTED);
    wrapped.wrapper.fatbin = 0;
    cr_assert_eq(ga_image_measure(&image, &wrapped, SIZE_MAX), GA_ERR_UNSUPPORTED);
}

Test(images, unreadable_memory_is_not_read)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(pages != MAP_FAILED && munmap(pages + page, page) == 0);
    ga_image image;
    char *end = pages + page;
    memcpy(end - 4, ".ve", 4);
    cr_assert_eq(ga_image_measure(&image, end - 4, SIZE_MAX), GA_OK, "%s", ga_error_text());
    cr_assert_eq(image.size, 4);
    memcpy(end - 4, ".ver", 4); /* no NUL before the end */
    cr_assert_eq(ga_image_measure(&image, end - 4, SIZE_MAX), GA_ERR_UNSUPPORTED);
    memcpy(end - 4,
           "\x7f"
           "ELF",
           4);
    cr_assert_eq(ga_image_measure(&image, end - 4, SIZE_MAX), GA_ERR_UNSUPPORTED);
    cr_assert_eq(ga_image_measure(&image, end, SIZE_MAX), GA_ERR_UNSUPPORTED);
    cr_assert_eq(ga_image_measure(&image, NULL, SIZE_MAX), GA_ERR_UNSUPPORTED);
    cubin_scene scene = built(90);
    char *at = end - (scene.size - 8) / 8 * 8; /* the last section header is cut off */
    memcpy(at, scene.bytes, (size_t)(end - at));
    cr_assert_eq(ga_image_measure(&image, at, SIZE_MAX), GA_ERR_UNSUPPORTED);
    cr_assert(mprotect(pages, page, PROT_NONE) == 0);
    cr_assert_eq(ga_image_measure(&image, pages, SIZE_MAX), GA_ERR_UNSUPPORTED);
    munmap(pages, page);
}

Test(images, no_more_than_the_limit_is_read)
{
    cubin_scene scene = built(90);
    ga_image image;
    cr_assert_eq(ga_image_measure(&image, scene.bytes, scene.size), GA_OK, "%s", ga_error_text());
    for (size_t limit = 0; limit < scene.size; limit++) {
        cr_assert_eq(ga_image_measure(&image, scene.bytes, limit), GA_ERR_UNSUPPORTED, "%zu",
                     limit);
    }
    static const char ptx[] = ".version 9.0\n.target sm_90\n";
    cr_assert_eq(ga_image_measure(&image, ptx, sizeof ptx), GA_OK, "%s", ga_error_text());
    cr_assert_eq(image.size, sizeof ptx);
    cr_assert_eq(ga_image_measure(&image, ptx, sizeof ptx - 1), GA_ERR_UNSUPPORTED);
    ga_wrapper wrapper[3] = {{GA_WRAPPER_MAGIC, 1, (uintptr_t)ptx, 0}};
    cr_assert_eq(ga_image_measure(&image, wrapper, sizeof wrapper), GA_ERR_UNSUPPORTED);
}

Test(images, unknown_bytes_are_named)
{
    char noise[64] = "noise";
    ga_image image;
    cr_assert_eq(ga_image_measure(&image, noise, SIZE_MAX), GA_ERR_UNSUPPORTED);
    expect_sentence("6e 6f 69 73");
}

/* ---- PTX ----------------------------------------------------------------------------------- */

Test(images, ptx_declares_the_functions_that_it_calls)
{
    static const struct {
        const char *ptx;
        unsigned calls;
    } cases[] = {
        {"", 0},
        {".version 9.0\n.target sm_90\n", 0},
        {".extern .func  (.param .b64 func_retval0) malloc\n(\n", GA_CALLS_MALLOC},
        {".extern .func free\n(\n", GA_CALLS_FREE},
        {".extern .func(.param .b64 r)malloc(.param .b64 n);.extern .func free(.param .b64 p);",
         GA_CALLS_MALLOC | GA_CALLS_FREE},
        {".extern .func (.param .b64 r) __cuda_syscall_aligned_malloc(", GA_CALLS_ALIGNED},
        {".extern .func  (.param .b32 func_retval0) vprintf\n", 0},
        {".extern .func  (.param .b64 r) malloc_small\n", 0},
        {".extern .func  (.param .b64 r) mallo", 0},
        {".extern .func  (.param .b64 r", 0},
        {".extern .shared .align 4 .b8 malloc[];", 0},
        {".visible .func  (.param .b64 r) malloc\n", 0},
        {".extern", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(ga_ptx_calls(text(cases[i].ptx)), cases[i].calls, "%s", cases[i].ptx);
    }
}

/* ---- fat binaries -------------------------------------------------------------------------- */

/* An entry whose payload is its number. */
static void add_entry(uint8_t *room, size_t *size, unsigned kind, unsigned sm, uint64_t flags,
                      uint64_t number)
{
    fatbin_scene_add(room, size,
                     (ga_fatbin_record){.kind = (uint16_t)kind, .sm = sm, .flags = flags}, &number,
                     sizeof number);
}

static ga_image choices(uint8_t *room)
{
    size_t size = 0;
    add_entry(room, &size, GA_FATBIN_PTX, 75, 0, 0);
    add_entry(room, &size, GA_FATBIN_ELF, 80, 0, 1);
    add_entry(room, &size, GA_FATBIN_ELF, 86, 0, 2);
    add_entry(room, &size, GA_FATBIN_IR, 90, 0, 3);
    add_entry(room, &size, GA_FATBIN_ELF, 90, GA_FATBIN_EXACT, 4);
    add_entry(room, &size, GA_FATBIN_ELF, 90, 0, 5);
    add_entry(room, &size, GA_FATBIN_ELF, 100, GA_FATBIN_FAMILY, 6);
    add_entry(room, &size, GA_FATBIN_ELF, 121, GA_FATBIN_EXACT, 7);
    add_entry(room, &size, GA_FATBIN_PTX, 110, 0, 8);
    add_entry(room, &size, GA_FATBIN_PTX, 111, GA_FATBIN_EXACT, 9);
    add_entry(room, &size, GA_FATBIN_ELF, 72, 0, 10); /* Tegra's, of which the next is, too */
    add_entry(room, &size, GA_FATBIN_ELF, 87, 0, 11);
    return (ga_image){room, size};
}

Test(images, the_entry_that_the_driver_takes)
{
    static const struct {
        unsigned sm;
        uint64_t number;
    } cases[] = {{75, 0},  {80, 1},  {86, 2},  {87, 11}, {89, 2},  {90, 4}, {100, 6},
                 {103, 6}, {110, 8}, {111, 9}, {120, 8}, {121, 7}, {122, 8}};
    uint8_t room[1024];
    ga_image fatbin = choices(room);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ga_fatbin_entry entry;
        uint64_t number;
        cr_assert_eq(ga_fatbin_choose(&entry, fatbin, cases[i].sm), GA_OK, "%s", ga_error_text());
        memcpy(&number, entry.payload.bytes, sizeof number);
        cr_assert_eq(number, cases[i].number, "sm_%u", cases[i].sm);
    }
    ga_fatbin_entry entry;
    cr_assert_eq(ga_fatbin_choose(&entry, fatbin, 70), GA_ERR_UNSUPPORTED);
    expect_sentence("sm_70");
}

Test(images, damaged_fat_binaries_are_refused)
{
    uint8_t room[1024];
    ga_image fatbin = choices(room);
    ga_fatbin_entry entry;
    for (size_t size = 0; size < fatbin.size; size++) {
        ga_image cut = {room, size};
        bool is_whole_entry = ga_fatbin_choose(&entry, cut, 75) == GA_OK;
        cr_assert(!is_whole_entry || (size - 16) % 72 == 0, "%zu bytes", size);
    }
    uint32_t header_size = UINT32_MAX;
    memcpy(room + 16 + 4, &header_size, sizeof header_size);
    cr_assert_eq(ga_fatbin_choose(&entry, fatbin, 75), GA_ERR_UNSUPPORTED);
    expect_sentence("damaged");
}

Test(images, unpacking_refuses_what_it_cannot_read)
{
    uint8_t room[1024];
    size_t size = 0;
    void *owned = room;
    ga_image image;
    ga_fatbin_entry entry;
    size_t at = 0;
    fatbin_scene_add(room, &size, (ga_fatbin_record){.kind = GA_FATBIN_IR}, "12345678", 8);
    fatbin_scene_add(room, &size,
                     (ga_fatbin_record){.kind = GA_FATBIN_PTX, .compressed_size = 8, .size = 100},
                     "12345678", 8);
    fatbin_scene_add(room, &size,
                     (ga_fatbin_record){.kind = GA_FATBIN_PTX,
                                        .compressed_size = 8,
                                        .size = UINT64_MAX,
                                        .flags = GA_FATBIN_ZSTD},
                     "12345678", 8);
    fatbin_scene_add(
        room, &size,
        (ga_fatbin_record){
            .kind = GA_FATBIN_PTX, .compressed_size = 8, .size = 100, .flags = GA_FATBIN_LZ4},
        "12345678", 8);
    for (int i = 0; i < 4; i++) {
        cr_assert(ga_fatbin_next(&entry, (ga_image){room, size}, &at));
        cr_assert_eq(ga_fatbin_unpack(&image, &owned, &entry), GA_ERR_UNSUPPORTED, "entry %d", i);
        cr_assert_null(owned);
    }
    cr_assert(!ga_fatbin_next(&entry, (ga_image){room, size}, &at) && at == size);
}
