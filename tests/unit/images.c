/* SPDX-License-Identifier: MIT
 *
 * Images of device code: kinds, sizes, PTX, fat binaries and the patch of cubins, on images that
 * are made here. images_nvcc.c has the images of nvcc.
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
    cr_assert_eq(ga_image_measure(&image, scene.bytes), GA_OK, "%s", ga_error_text());
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
    cr_assert_eq(ga_image_measure(&image, room), GA_OK, "%s", ga_error_text());
    cr_assert(image.bytes == (uint8_t *)room && image.size == size);
    cr_assert_eq(ga_image_measure(&image, &wrapped), GA_OK, "%s", ga_error_text());
    cr_assert(image.bytes == (uint8_t *)room && image.size == size);
    wrapped.wrapper.fatbin = (uintptr_t)&wrapped;
    cr_assert_eq(ga_image_measure(&image, &wrapped), GA_ERR_UNSUPPORTED);
    wrapped.wrapper.fatbin = 0;
    cr_assert_eq(ga_image_measure(&image, &wrapped), GA_ERR_UNSUPPORTED);
}

Test(images, unreadable_memory_is_not_read)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(pages != MAP_FAILED && munmap(pages + page, page) == 0);
    ga_image image;
    char *end = pages + page;
    memcpy(end - 4, ".ve", 4);
    cr_assert_eq(ga_image_measure(&image, end - 4), GA_OK, "%s", ga_error_text());
    cr_assert_eq(image.size, 4);
    memcpy(end - 4, ".ver", 4); /* no NUL before the end */
    cr_assert_eq(ga_image_measure(&image, end - 4), GA_ERR_UNSUPPORTED);
    memcpy(end - 4,
           "\x7f"
           "ELF",
           4);
    cr_assert_eq(ga_image_measure(&image, end - 4), GA_ERR_UNSUPPORTED);
    cr_assert_eq(ga_image_measure(&image, end), GA_ERR_UNSUPPORTED);
    cr_assert_eq(ga_image_measure(&image, NULL), GA_ERR_UNSUPPORTED);
    cubin_scene scene = built(90);
    char *at = end - (scene.size - 8) / 8 * 8; /* the last section header is cut off */
    memcpy(at, scene.bytes, (size_t)(end - at));
    cr_assert_eq(ga_image_measure(&image, at), GA_ERR_UNSUPPORTED);
    cr_assert(mprotect(pages, page, PROT_NONE) == 0);
    cr_assert_eq(ga_image_measure(&image, pages), GA_ERR_UNSUPPORTED);
    munmap(pages, page);
}

Test(images, unknown_bytes_are_named)
{
    char noise[64] = "noise";
    ga_image image;
    cr_assert_eq(ga_image_measure(&image, noise), GA_ERR_UNSUPPORTED);
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
    return (ga_image){room, size};
}

Test(images, the_entry_that_the_driver_takes)
{
    static const struct {
        unsigned sm;
        uint64_t number;
    } cases[] = {{75, 0},  {80, 1},  {86, 2},  {89, 2},  {90, 4},  {100, 6},
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

/* ---- the patch ----------------------------------------------------------------------------- */

static const ga_cubin_callee callee = {
    {UINT64_C(0x7f8123456780), UINT64_C(0x7f8123457780), 0}, 32, 200, 1224, CUBIN_PARAMETERS};

static ga_status patch(cubin_scene *scene)
{
    ga_cubin cubin;
    cr_assert_eq(ga_cubin_open(&cubin, (ga_image){scene->bytes, scene->size}), GA_OK, "%s",
                 ga_error_text());
    return ga_cubin_patch(&cubin, scene->bytes, &callee);
}

static uint64_t word_at(const cubin_scene *scene, unsigned section, size_t offset)
{
    uint64_t word;
    memcpy(&word, scene->bytes + scene->offsets[section] + offset, sizeof word);
    return word;
}

static Elf64_Shdr header_at(const cubin_scene *scene, unsigned section)
{
    Elf64_Ehdr header;
    Elf64_Shdr found;
    memcpy(&header, scene->bytes, sizeof header);
    memcpy(&found, scene->bytes + header.e_shoff + section * sizeof found, sizeof found);
    return found;
}

Test(images, cubins_tell_what_they_call)
{
    cubin_scene scene = built(90);
    ga_cubin cubin;
    cr_assert_eq(ga_cubin_open(&cubin, (ga_image){scene.bytes, scene.size}), GA_OK);
    cr_assert_eq(ga_cubin_calls(&cubin), GA_CALLS_MALLOC | GA_CALLS_FREE);
    cr_assert(cubin.is_final && cubin.sm == 90);
    scene.calls_cuda = false;
    scene.is_old = true;
    cubin_scene_build(&scene);
    cr_assert_eq(ga_cubin_open(&cubin, (ga_image){scene.bytes, scene.size}), GA_OK);
    cr_assert_eq(ga_cubin_calls(&cubin), 0);
    cr_assert_eq(cubin.sm, 90);
}

Test(images, addresses_go_where_relocations_name_them)
{
    static const unsigned architectures[] = {75, 80, 86, 89, 90, 100, 103, 110, 120, 121};
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        bool split = architectures[i] >= 90;
        cubin_scene scene = built(architectures[i]);
        cr_assert_eq(patch(&scene), GA_OK, "%s", ga_error_text());
        cr_assert_eq(word_at(&scene, CUBIN_CONSTANT, 0), callee.addresses[0]);
        cr_assert_eq(word_at(&scene, CUBIN_CONSTANT, 8), 0); /* vprintf's */
        cr_assert_eq(word_at(&scene, CUBIN_CONSTANT, 16), callee.addresses[1]);
        /* nvdisasm 13.0 prints these as CALL.ABS.NOINC 0x7f8123456780. */
        cr_assert_eq(word_at(&scene, CUBIN_TEXT, 16),
                     split ? UINT64_C(0x8123456400e07943) : UINT64_C(0x2345678000007943));
        cr_assert_eq(word_at(&scene, CUBIN_TEXT, 24),
                     split ? UINT64_C(0x000fea0003c0007f) : UINT64_C(0x000fea0003c07f81));
        cr_assert_eq(word_at(&scene, CUBIN_TEXT, 32), UINT64_C(0x7943));
    }
}

Test(images, only_relocations_of_malloc_and_free_go)
{
    static const unsigned sections[] = {CUBIN_CONSTANT_RELOCATIONS, CUBIN_TEXT_RELOCATIONS};
    for (unsigned sm = 80; sm <= 90; sm += 10) {
        cubin_scene scene = built(sm);
        cr_assert_eq(patch(&scene), GA_OK, "%s", ga_error_text());
        for (int i = 0; i < 2; i++) {
            Elf64_Shdr left = header_at(&scene, sections[i]);
            cr_assert_eq(left.sh_size, left.sh_entsize);
            cr_assert_eq(ELF64_R_SYM(word_at(&scene, sections[i], 8)), CUBIN_VPRINTF);
            cr_assert_eq(word_at(&scene, sections[i], 0), i ? CUBIN_CALL_OFFSET + 16 : 8);
        }
    }
}

static uint32_t info_number(const cubin_scene *scene, unsigned index)
{
    uint32_t number;
    memcpy(&number, scene->bytes + scene->offsets[CUBIN_INFO] + index * 12 + 8, sizeof number);
    return number;
}

Test(images, registers_and_stack_are_raised)
{
    for (unsigned sm = 80; sm <= 90; sm += 10) {
        cubin_scene scene = built(sm);
        cr_assert_eq(patch(&scene), GA_OK, "%s", ga_error_text());
        cr_assert_eq(info_number(&scene, 0), 32);
        cr_assert_eq(info_number(&scene, 1), CUBIN_STACK); /* the kernel's own frame */
        cr_assert_eq(info_number(&scene, 2), CUBIN_STACK + 200);
        cr_assert_eq(header_at(&scene, CUBIN_TEXT).sh_info,
                     sm < 90 ? 32u << 24 | CUBIN_KERNEL : CUBIN_KERNEL);
    }
    cubin_scene recursive = {.sm = 90, .calls_cuda = true, .stack = GA_STACK_SIZE_UNKNOWN};
    cubin_scene_build(&recursive);
    cr_assert_eq(patch(&recursive), GA_OK, "%s", ga_error_text());
    cr_assert_eq(info_number(&recursive, 2), callee.recursion);
}

Test(images, needs_of_a_kernel)
{
    cubin_scene scene = built(90);
    ga_cubin cubin;
    ga_cubin_callee needs;
    cr_assert_eq(ga_cubin_open(&cubin, (ga_image){scene.bytes, scene.size}), GA_OK);
    cr_assert_eq(ga_cubin_needs(&cubin, "kernel", &needs), GA_OK, "%s", ga_error_text());
    cr_assert(needs.registers == CUBIN_REGISTERS && needs.stack == CUBIN_STACK &&
              needs.parameters == CUBIN_PARAMETERS);
    cr_assert_eq(ga_cubin_needs(&cubin, "malloc", &needs), GA_ERR_UNSUPPORTED);
    expect_sentence("\"malloc\"");
}

Test(images, numbers_go_into_instructions)
{
    static const char *const names[] = {"malloc", "free"};
    static const uint64_t values[] = {UINT64_C(0x1234567890abcdef), 0};
    static const ga_cubin_words words = {names, values, 2};
    static const uint32_t types[] = {GA_R_ABS32_LO_32, GA_R_ABS32_HI_32};
    for (int i = 0; i < 2; i++) {
        cubin_scene scene = {.sm = 90, .calls_cuda = true, .call_type = types[i]};
        ga_cubin cubin;
        cubin_scene_build(&scene);
        Elf64_Shdr none = header_at(&scene, CUBIN_CONSTANT_RELOCATIONS);
        cr_assert_eq(ga_cubin_open(&cubin, (ga_image){scene.bytes, scene.size}), GA_OK);
        /* of .nv.constant4: an address that is no half */
        cr_assert_eq(ga_cubin_write_words(&cubin, scene.bytes, &words), GA_ERR_UNSUPPORTED);
        none.sh_size = 0;
        memcpy(scene.bytes + cubin.sections + CUBIN_CONSTANT_RELOCATIONS * sizeof none, &none,
               sizeof none);
        cr_assert_eq(ga_cubin_write_words(&cubin, scene.bytes, &words), GA_OK, "%s",
                     ga_error_text());
        cr_assert_eq(word_at(&scene, CUBIN_TEXT, 16),
                     i ? UINT64_C(0x1234567800007943) : UINT64_C(0x90abcdef00007943));
        cr_assert_eq(word_at(&scene, CUBIN_TEXT, 48), UINT64_C(0x7943)); /* 0 */
        cr_assert_eq(header_at(&scene, CUBIN_TEXT_RELOCATIONS).sh_size, sizeof(Elf64_Rel));
    }
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void expect_refused(cubin_scene *scene, const char *part)
{
    cr_assert_eq(patch(scene), GA_ERR_UNSUPPORTED, "expected \"%s\"", part);
    expect_sentence(part);
}

Test(images, forms_that_are_not_understood_are_refused)
{
    cubin_scene scene = built(90);
    scene.is_relocatable = true;
    cubin_scene_build(&scene);
    expect_refused(&scene, "relocatable");
    scene.is_relocatable = false;
    scene.call_type = GA_R_64; /* in code */
    cubin_scene_build(&scene);
    expect_refused(&scene, "type 2");
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_TEXT] + CUBIN_CALL_OFFSET] ^= 1; /* another instruction */
    expect_refused(&scene, ".text.kernel");
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_TEXT] + CUBIN_CALL_OFFSET + 8] = 1; /* has a target */
    expect_refused(&scene, ".text.kernel");
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_CONSTANT] + 16] = 1;
    expect_refused(&scene, ".nv.constant4");
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_CONSTANT_RELOCATIONS] + 16] = 1; /* an addend */
    expect_refused(&scene, ".nv.constant4");
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_TEXT_RELOCATIONS] + 1] = 0xff; /* an offset behind the code */
    expect_refused(&scene, "byte 65296");
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_INFO] + 12] = 9; /* an unknown format */
    expect_refused(&scene, ".nv.info");
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_LOCAL_INFO] + 8] ^= 0x20; /* another layout of bank 0 */
    expect_refused(&scene, ".nv.info.kernel: expected parameters at byte 528");
}

Test(images, elf_that_is_no_cubin_is_refused)
{
    ga_cubin cubin;
    cubin_scene scene = built(90);
    ga_image image = {scene.bytes, scene.size};
    scene.bytes[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
    cr_assert_eq(ga_cubin_open(&cubin, image), GA_ERR_UNSUPPORTED);
    expect_sentence("machine 62");
    scene = built(90);
    scene.bytes[EI_OSABI] = 1;
    cr_assert_eq(ga_cubin_open(&cubin, image), GA_ERR_UNSUPPORTED);
    expect_sentence("ABI 0x1");
}

Test(images, cut_off_cubins_are_refused)
{
    cubin_scene scene = built(90);
    ga_cubin cubin;
    for (size_t size = 0; size < scene.size; size++) {
        uint8_t *copy = malloc(size + 1);
        memcpy(copy, scene.bytes, size);
        cr_assert_eq(ga_cubin_open(&cubin, (ga_image){copy, size}), GA_ERR_UNSUPPORTED);
        free(copy);
    }
}
