/* SPDX-License-Identifier: MIT
 *
 * Cubins: copies with stubs, on cubins that are made here.
 */
#include "../../interpose/images/cubin.h"
#include "../../interpose/images/info.h"
#include "../../liballoc/platform/libc.h"

#include "support/cubin_checks.h"
#include "support/stubs_scene.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* ---- stubs ----------------------------------------------------------------------------------- */

static const ga_cubin_needs needs = {32, 200, 1224, CUBIN_PARAMETERS};

/* A copy of `scene` with stubs, opened. */
typedef struct served {
    ga_cubin cubin, stubs;
    stubs_scene from;
    ga_image image;
    void *owned;
} served;

static ga_status serve(served *out, const cubin_scene *scene, stubs_scene from)
{
    ga_cubin cubin;
    out->from = from;
    out->from.sm = scene->sm;
    stubs_scene_build(&out->from);
    cr_assert_eq(
        ga_cubin_open(&out->stubs, (ga_image){out->from.cubin.bytes, out->from.cubin.size}), GA_OK,
        "%s", ga_error_text());
    cr_assert_eq(ga_cubin_open(&cubin, (ga_image){scene->bytes, scene->size}), GA_OK, "%s",
                 ga_error_text());
    ga_status status = ga_cubin_serve(&out->image, &out->owned, &cubin, &out->stubs, &needs);
    if (status != GA_OK) {
        cr_assert_null(out->owned);
        return status;
    }
    cr_assert_eq(ga_cubin_open(&out->cubin, out->image), GA_OK, "%s", ga_error_text());
    return GA_OK;
}

static void drop(served *it)
{
    ga_libc.free(it->owned);
}

static uint32_t symbol_called(const ga_cubin *cubin, const char *wanted, Elf64_Sym *out)
{
    for (uint32_t i = 1; i < cubin->symbols.size / sizeof *out; i++) {
        memcpy(out, cubin->symbols.bytes + i * sizeof *out, sizeof *out);
        if (strcmp((const char *)cubin->strings.bytes + out->st_name, wanted) == 0) {
            return i;
        }
    }
    cr_assert(false, "no symbol %s", wanted);
    return 0;
}

/* No section relocates `index`: the stub is complete. */
static void expect_no_relocations(const ga_cubin *cubin, uint32_t index)
{
    ga_cubin_section section;
    for (size_t i = 1; i < cubin->section_count; i++) {
        cr_assert(ga_cubin_section_at(cubin, i, &section));
        uint32_t type = section.header.sh_type;
        cr_assert(!(type == SHT_REL || type == SHT_RELA) || section.header.sh_info != index, "%s",
                  section.name);
    }
}

static void expect_code(const ga_cubin_section *code, unsigned stub, uint64_t offset)
{
    uint64_t expected[STUBS_INSTRUCTIONS][2];
    memcpy(expected, stubs_scene_jump, sizeof expected);
    expected[STUBS_OFFSET_MOVE][0] |= offset << 32;
    cr_assert_eq(code->content.size, stubs_scene_size(stub));
    for (size_t i = 0; i < STUBS_INSTRUCTIONS; i++) {
        uint64_t got[2];
        memcpy(got, code->content.bytes + i * sizeof got, sizeof got);
        cr_assert(got[0] == expected[i][0] && got[1] == expected[i][1],
                  "instruction %zu: %#llx %#llx", i, (unsigned long long)got[0],
                  (unsigned long long)got[1]);
    }
    cr_assert_eq(code->content.bytes[(STUBS_INSTRUCTIONS + stub) * 16], stub + 1);
}

static void expect_stub(const served *it, unsigned stub, const char *name, uint64_t offset)
{
    Elf64_Sym symbol;
    ga_cubin_section code;
    char section[64];
    uint32_t index = symbol_called(&it->cubin, name, &symbol);
    snprintf(section, sizeof section, ".text.%s", name);
    cr_assert(ga_cubin_section_at(&it->cubin, symbol.st_shndx, &code));
    cr_assert_str_eq(code.name, section);
    cr_assert_eq(symbol.st_info, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC));
    cr_assert(symbol.st_value == 0 && symbol.st_size == stubs_scene_size(stub));
    expect_code(&code, stub, offset);
    cr_assert_eq(code.header.sh_offset % 128, 0);
    cr_assert_eq(code.header.sh_link, CUBIN_SYMBOLS);
    cr_assert_eq(code.header.sh_info,
                 it->cubin.sm < 90 ? (uint32_t)STUBS_REGISTERS << 24 | index : index);
    expect_no_relocations(&it->cubin, symbol.st_shndx);
}

/* Sections that were there are as they were, but for the tables and what needs raise. */
static void expect_kept(const served *it, const cubin_scene *scene)
{
    static const unsigned kept[] = {CUBIN_CONSTANT_RELOCATIONS, CUBIN_CONSTANT,
                                    CUBIN_TEXT_RELOCATIONS, CUBIN_TEXT, CUBIN_LOCAL_INFO};
    cubin_scene expected = *scene; /* but for the read, of which expect_addresses() tells */
    memcpy(expected.bytes + scene->offsets[CUBIN_TEXT] + CUBIN_READ_OFFSET,
           it->image.bytes + scene->offsets[CUBIN_TEXT] + CUBIN_READ_OFFSET, 8);
    ga_cubin_section section;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        Elf64_Shdr before = header_at(scene, kept[i]);
        cr_assert(ga_cubin_section_at(&it->cubin, kept[i], &section));
        cr_assert(section.header.sh_offset == before.sh_offset &&
                  section.content.size == before.sh_size);
        cr_assert_eq(
            memcmp(section.content.bytes, expected.bytes + before.sh_offset, before.sh_size), 0);
    }
}

Test(images_stubs, stubs_take_the_place_of_functions)
{
    static const unsigned architectures[] = {75, 80, 86, 89, 90, 100, 103, 110, 120, 121};
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        cubin_scene scene = built(architectures[i]);
        Elf64_Sym symbol;
        served it;
        cr_assert_eq(serve(&it, &scene, (stubs_scene){0}), GA_OK, "%s", ga_error_text());
        cr_assert_eq(ga_cubin_calls(&it.cubin), 0);
        expect_stub(&it, 0, "malloc", 0);
        expect_stub(&it, 1, "free", 0);
        symbol_called(&it.cubin, "vprintf", &symbol);
        cr_assert_eq(symbol.st_shndx, SHN_UNDEF);
        expect_kept(&it, &scene);
        drop(&it);
    }
}

/* The copy of the addresses is at `at` of the constants: the read leads there, and so do the slots
 * of malloc and free; that of the third function is in the variable. */
static void expect_addresses(const served *it, const cubin_scene *scene, uint64_t at)
{
    static const char *const names[] = GA_CUBIN_SLOTS;
    const uint64_t slots[] = {at, at + 16, at - 16};
    Elf64_Sym symbol;
    Elf64_Sym variable;
    uint64_t word;
    memcpy(&word, it->image.bytes + scene->offsets[CUBIN_TEXT] + CUBIN_READ_OFFSET, sizeof word);
    cr_assert_eq(word, UINT64_C(0x00c0000002027b82) | (at + 8) << 38); /* c[0x3][R2+8+at] */
    symbol_called(&it->cubin, GA_CUBIN_VARIABLE, &variable);
    for (int i = 0; i < GA_CALLS_COUNT; i++) {
        symbol_called(&it->cubin, names[i], &symbol);
        cr_assert(symbol.st_shndx == variable.st_shndx && symbol.st_size == 8);
        cr_assert_eq(symbol.st_value, slots[i]);
    }
}

/* The driver writes addresses: `before` words of the program, that of GA_CUBIN_NONE into each word
 * of the variable at `offset` of a section, and behind it the copy of those in .nv.constant4. */
static void expect_relocations(const served *it, uint32_t section, uint64_t offset, unsigned before)
{
    enum {
        WORDS = sizeof(ga_cubin_variable) / 8
    };
    Elf64_Sym none;
    ga_cubin_section code;
    ga_cubin_section from;
    ga_cubin_section target;
    uint32_t index = symbol_called(&it->cubin, GA_CUBIN_NONE, &none);
    unsigned tables = 0;
    cr_assert(ga_cubin_section_at(&it->cubin, none.st_shndx, &code));
    cr_assert_str_eq(code.name, ".text." GA_CUBIN_NONE);
    cr_assert_eq(code.header.sh_info, index);
    cr_assert(code.content.size == sizeof stubs_scene_none &&
              memcmp(code.content.bytes, stubs_scene_none, sizeof stubs_scene_none) == 0);
    for (size_t i = 1; i < it->cubin.section_count; i++) {
        size_t step;
        cr_assert(ga_cubin_section_at(&it->cubin, i, &from));
        bool is_its = ga_cubin_has_relocations(&from) && from.header.sh_info == section;
        if (!is_its) {
            continue;
        }
        tables++;
        cr_assert_eq(ga_cubin_relocates(&it->cubin, &from, &target, &step), GA_OK);
        cr_assert_eq(from.content.size, (before + WORDS + CUBIN_CONSTANTS) * step);
        cr_assert_eq(from.header.sh_link, CUBIN_SYMBOLS);
        for (unsigned w = 0; w < before + WORDS + CUBIN_CONSTANTS; w++) {
            ga_cubin_relocation r = ga_cubin_relocation_at(&from, w * step);
            static const uint32_t moved[CUBIN_CONSTANTS] = {CUBIN_MALLOC, CUBIN_VPRINTF,
                                                            CUBIN_FREE};
            cr_assert_eq(r.offset, w < before ? w * 8 : offset + (w - before) * 8);
            cr_assert_eq(r.symbol, w < before           ? (uint32_t)CUBIN_KERNEL
                                   : w < before + WORDS ? index
                                                        : moved[w - before - WORDS]);
            cr_assert(r.type == GA_R_64 && r.addend == 0);
        }
    }
    cr_assert_eq(tables, 1);
}

static void expect_variable(uint32_t before, uint64_t offset)
{
    static const uint8_t zeros[sizeof(ga_cubin_variable) + 8 * CUBIN_CONSTANTS];
    cubin_scene scene = {.sm = 90, .calls_cuda = true, .constants = before};
    Elf64_Sym symbol;
    ga_cubin_section constants;
    served it;
    cubin_scene_build(&scene);
    cr_assert_eq(serve(&it, &scene, (stubs_scene){0}), GA_OK, "%s", ga_error_text());
    symbol_called(&it.cubin, GA_CUBIN_VARIABLE, &symbol);
    cr_assert(symbol.st_value == offset && symbol.st_size == sizeof(ga_cubin_variable));
    cr_assert_eq(symbol.st_info, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT));
    cr_assert(ga_cubin_section_at(&it.cubin, symbol.st_shndx, &constants));
    cr_assert_str_eq(constants.name, ".nv.constant3");
    cr_assert(!before || symbol.st_shndx == CUBIN_CONSTANTS_OF_PROGRAM);
    cr_assert_eq(constants.header.sh_type, SHT_PROGBITS);
    cr_assert_eq(constants.header.sh_addralign, 8);
    cr_assert_eq(constants.content.size, offset + sizeof zeros);
    for (uint32_t i = 0; i < before; i++) {
        cr_assert_eq(constants.content.bytes[i], 0x5a);
    }
    cr_assert_eq(memcmp(constants.content.bytes + offset, zeros, sizeof zeros), 0);
    expect_stub(&it, 0, "malloc", offset);
    expect_stub(&it, 1, "free", offset);
    expect_relocations(&it, symbol.st_shndx, offset, 0);
    expect_addresses(&it, &scene, offset + sizeof(ga_cubin_variable));
    drop(&it);
}

/* A second address of malloc stays that of the stub. */
Test(images_stubs, two_addresses_of_a_function)
{
    cubin_scene scene = built(90);
    ga_cubin_section from;
    Elf64_Sym slot;
    served it;
    scene.bytes[scene.offsets[CUBIN_CONSTANT_RELOCATIONS] + sizeof(Elf64_Rela) + 12] = CUBIN_MALLOC;
    cr_assert_eq(serve(&it, &scene, (stubs_scene){0}), GA_OK, "%s", ga_error_text());
    symbol_called(&it.cubin, "gpualloc_malloc_slot", &slot);
    cr_assert_eq(slot.st_value, sizeof(ga_cubin_variable) + 8);           /* the last one */
    cr_assert(ga_cubin_section_at(&it.cubin, CUBIN_SECTIONS + 2, &from)); /* behind the code */
    cr_assert_str_eq(from.name, ".rela.nv.constant3");
    ga_cubin_relocation r = ga_cubin_relocation_at(&from, 4 * sizeof(Elf64_Rela));
    cr_assert(r.symbol == CUBIN_MALLOC && r.offset == sizeof(ga_cubin_variable));
    drop(&it);
}

/* Nothing is copied if no function of ours is called there, by a relocation of another type or with
 * an addend, or if instructions cannot reach the copy. */
static void expect_no_addresses(const cubin_scene *scene, ga_image image)
{
    static const char *const names[] = GA_CUBIN_SLOTS;
    stubs_scene from = {.sm = 90};
    ga_cubin cubin;
    ga_cubin stubs;
    Elf64_Sym variable;
    Elf64_Sym slot;
    void *owned;
    stubs_scene_build(&from);
    cr_assert_eq(ga_cubin_open(&cubin, image), GA_OK);
    cr_assert_eq(ga_cubin_open(&stubs, (ga_image){from.cubin.bytes, from.cubin.size}), GA_OK);
    cr_assert_eq(ga_cubin_serve(&image, &owned, &cubin, &stubs, &needs), GA_OK, "%s",
                 ga_error_text());
    cr_assert_eq(ga_cubin_open(&cubin, image), GA_OK);
    cr_assert_eq(memcmp(image.bytes + scene->offsets[CUBIN_TEXT],
                        scene->bytes + scene->offsets[CUBIN_TEXT], CUBIN_READ_OFFSET + 8),
                 0);
    symbol_called(&cubin, GA_CUBIN_VARIABLE, &variable);
    for (unsigned i = 0; i < GA_CALLS_COUNT; i++) {
        symbol_called(&cubin, names[i], &slot);
        cr_assert_eq(slot.st_value, variable.st_value + i * 8);
    }
    ga_libc.free(owned);
}

Test(images_stubs, addresses_that_stay_where_they_are)
{
    static uint8_t bytes[CUBIN_SCENE_SIZE + (1 << 15)];
    cubin_scene scene = built(90);
    scene.bytes[scene.offsets[CUBIN_CONSTANT_RELOCATIONS] + 8] = GA_R_ABS32_LO_32;
    expect_no_addresses(&scene, (ga_image){scene.bytes, scene.size});
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_CONSTANT_RELOCATIONS]] = 8 * CUBIN_CONSTANTS - 4;
    expect_no_addresses(&scene, (ga_image){scene.bytes, scene.size});
    for (size_t i = 0; i < CUBIN_CONSTANTS; i++) {
        scene = (cubin_scene){.sm = 90, .calls_cuda = true};
        cubin_scene_build(&scene);
        scene.bytes[scene.offsets[CUBIN_CONSTANT] + 8 * i + 7] =
            1; /* in place, as SHT_REL has it */
        expect_no_addresses(&scene, (ga_image){scene.bytes, scene.size});
    }
    scene = (cubin_scene){.sm = 90, .calls_cuda = true, .constants = 8};
    cubin_scene_build(&scene);
    Elf64_Shdr constants = header_at(&scene, CUBIN_CONSTANTS_OF_PROGRAM);
    Elf64_Ehdr header;
    constants.sh_size = (1 << 15) - sizeof(ga_cubin_variable) - 8 * CUBIN_CONSTANTS + 8;
    memcpy(&header, scene.bytes, sizeof header);
    memcpy(bytes, scene.bytes, scene.size);
    memcpy(bytes + header.e_shoff + CUBIN_CONSTANTS_OF_PROGRAM * sizeof constants, &constants,
           sizeof constants);
    expect_no_addresses(&scene, (ga_image){bytes, sizeof bytes});
}

/* LDC.IL, LDC.IS and LDC.ISL add half of the register to the number of the bank. */
Test(images_stubs, reads_that_choose_a_bank_stay)
{
    for (unsigned mode = 0; mode < 4; mode++) {
        cubin_scene scene = built(90);
        served it;
        size_t at = scene.offsets[CUBIN_TEXT] + CUBIN_READ_OFFSET;
        scene.bytes[at + 9] = (uint8_t)(mode << 6);
        cr_assert_eq(serve(&it, &scene, (stubs_scene){0}), GA_OK, "%s", ga_error_text());
        cr_assert_eq(memcmp(it.image.bytes + at, scene.bytes + at, 16) == 0, mode != 0, "%u", mode);
        drop(&it);
    }
}

/* Constants of the program are addresses, in either form of relocations. */
Test(images_stubs, relocations_of_constants_are_kept)
{
    for (int i = 0; i < 2; i++) {
        cubin_scene scene = {
            .sm = 90, .calls_cuda = true, .constants = 8, .has_pointers = true, .has_addends = i};
        Elf64_Sym symbol;
        served it;
        cubin_scene_build(&scene);
        cr_assert_eq(serve(&it, &scene, (stubs_scene){0}), GA_OK, "%s", ga_error_text());
        symbol_called(&it.cubin, GA_CUBIN_VARIABLE, &symbol);
        expect_relocations(&it, symbol.st_shndx, 8, 1);
        drop(&it);
        Elf64_Shdr damaged = header_at(&scene, CUBIN_RELOCATIONS_OF_PROGRAM);
        Elf64_Ehdr header;
        damaged.sh_entsize = 5;
        memcpy(&header, scene.bytes, sizeof header);
        memcpy(scene.bytes + header.e_shoff + CUBIN_RELOCATIONS_OF_PROGRAM * sizeof damaged,
               &damaged, sizeof damaged);
        cr_assert_eq(serve(&it, &scene, (stubs_scene){0}), GA_ERR_UNSUPPORTED);
        expect_sentence("expected entries of");
    }
}

Test(images_stubs, the_variable_goes_behind_the_programs_constants)
{
    expect_variable(0, 0);
    expect_variable(1, 8);
    expect_variable(16, 16);
}

static uint32_t info_number(const served *it, const cubin_scene *scene, unsigned index)
{
    uint32_t number;
    memcpy(&number, it->image.bytes + scene->offsets[CUBIN_INFO] + index * 12 + 8, sizeof number);
    return number;
}

Test(images_stubs, registers_and_stack_are_raised)
{
    for (unsigned sm = 80; sm <= 90; sm += 10) {
        cubin_scene scene = built(sm);
        ga_cubin_section text;
        served it;
        cr_assert_eq(serve(&it, &scene, (stubs_scene){0}), GA_OK, "%s", ga_error_text());
        cr_assert_eq(info_number(&it, &scene, 0), 32);
        cr_assert_eq(info_number(&it, &scene, 1), CUBIN_STACK); /* the kernel's own frame */
        cr_assert_eq(info_number(&it, &scene, 2), CUBIN_STACK + 200);
        cr_assert(ga_cubin_section_at(&it.cubin, CUBIN_TEXT, &text));
        cr_assert_eq(text.header.sh_info, sm < 90 ? 32u << 24 | CUBIN_KERNEL : CUBIN_KERNEL);
        drop(&it);
    }
    cubin_scene recursive = {.sm = 90, .calls_cuda = true, .stack = GA_STACK_SIZE_UNKNOWN};
    served it;
    cubin_scene_build(&recursive);
    cr_assert_eq(serve(&it, &recursive, (stubs_scene){0}), GA_OK, "%s", ga_error_text());
    cr_assert_eq(info_number(&it, &recursive, 2), needs.recursion);
    drop(&it);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refused(const cubin_scene *scene, stubs_scene from, const char *part)
{
    served it;
    cr_assert_eq(serve(&it, scene, from), GA_ERR_UNSUPPORTED, "expected \"%s\"", part);
    expect_sentence(part);
}

Test(images_stubs, forms_that_are_not_understood_are_refused)
{
    static const stubs_scene good;
    cubin_scene scene = built(90);
    scene.is_relocatable = true;
    cubin_scene_build(&scene);
    expect_refused(&scene, good, "relocatable");
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_INFO] + 12] = 9; /* an unknown format */
    expect_refused(&scene, good, ".nv.info");
    scene = built(90);
    scene.bytes[scene.offsets[CUBIN_LOCAL_INFO] + 8] ^= 0x20; /* another layout of bank 0 */
    expect_refused(&scene, good, ".nv.info.kernel: expected parameters at byte 528");
}

Test(images_stubs, other_forms_of_stubs_are_refused)
{
    cubin_scene scene = built(90);
    expect_refused(&scene, (stubs_scene){.target = STUBS_OTHER}, "relocations for that address");
    expect_refused(&scene, (stubs_scene){.target = STUBS_FIRST}, "relocations for that address");
    expect_refused(&scene, (stubs_scene){.has_no_none = true}, "expected " GA_CUBIN_NONE);
    for (int i = 1; i < STUBS_INSTRUCTIONS - 1; i++) {
        if (i != STUBS_OFFSET_MOVE + 1 && i != STUBS_OFFSET_MOVE) {
            expect_refused(&scene, (stubs_scene){.broken = i}, "a return address on the stack");
        }
    }
}

Test(images_stubs, a_full_bank_of_constants_is_refused)
{
    enum {
        FULL = (1 << 16) - 24
    };
    static uint8_t bytes[2 * CUBIN_SCENE_SIZE + FULL];
    cubin_scene scene = {.sm = 90, .calls_cuda = true, .constants = 8};
    stubs_scene from = {.sm = 90};
    ga_cubin cubin;
    ga_cubin stubs;
    ga_image image;
    void *owned;
    cubin_scene_build(&scene);
    stubs_scene_build(&from);
    memcpy(bytes, scene.bytes, scene.size);
    Elf64_Shdr constants = header_at(&scene, CUBIN_CONSTANTS_OF_PROGRAM);
    cr_assert_eq(ga_cubin_open(&stubs, (ga_image){from.cubin.bytes, from.cubin.size}), GA_OK);
    for (int i = 0; i < 2; i++) { /* 8 bytes too few, and enough */
        cr_assert_eq(ga_cubin_open(&cubin, (ga_image){bytes, sizeof bytes}), GA_OK);
        constants.sh_size = i ? FULL - 8 : FULL;
        memcpy(bytes + cubin.sections + CUBIN_CONSTANTS_OF_PROGRAM * sizeof constants, &constants,
               sizeof constants);
        cr_assert_eq(ga_cubin_serve(&image, &owned, &cubin, &stubs, &needs),
                     i ? GA_OK : GA_ERR_UNSUPPORTED, "%s", ga_error_text());
        ga_libc.free(owned);
    }
}

Test(images_stubs, stubs_for_another_architecture_are_refused)
{
    cubin_scene scene = built(90);
    stubs_scene from = {.sm = 80};
    ga_cubin cubin;
    ga_cubin stubs;
    ga_image image;
    void *owned;
    stubs_scene_build(&from);
    cr_assert_eq(ga_cubin_open(&cubin, (ga_image){scene.bytes, scene.size}), GA_OK);
    cr_assert_eq(ga_cubin_open(&stubs, (ga_image){from.cubin.bytes, from.cubin.size}), GA_OK);
    cr_assert_eq(ga_cubin_serve(&image, &owned, &cubin, &stubs, &needs), GA_ERR_UNSUPPORTED);
    expect_sentence("sm_80");
    cr_assert_eq(ga_cubin_serve(&image, &owned, &cubin, &cubin, &needs), GA_ERR_UNSUPPORTED);
    expect_sentence("gpualloc_call_"); /* it has none */
}
