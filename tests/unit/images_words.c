/* SPDX-License-Identifier: MIT
 *
 * Cubins: what they call and need, and numbers in their instructions, on cubins that are made here.
 */
#include "../../interpose/images/cubin.h"
#include "../../interpose/images/info.h"

#include "support/cubin_checks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- what they say --------------------------------------------------------------------------- */

Test(images_stubs, cubins_tell_what_they_call)
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

Test(images_stubs, needs_of_a_kernel)
{
    cubin_scene scene = built(90);
    ga_cubin cubin;
    ga_cubin_needs needs;
    cr_assert_eq(ga_cubin_open(&cubin, (ga_image){scene.bytes, scene.size}), GA_OK);
    cr_assert_eq(ga_cubin_read_needs(&cubin, "kernel", &needs), GA_OK, "%s", ga_error_text());
    cr_assert(needs.registers == CUBIN_REGISTERS && needs.stack == CUBIN_STACK &&
              needs.parameters == CUBIN_PARAMETERS);
    cr_assert_eq(ga_cubin_read_needs(&cubin, "malloc", &needs), GA_ERR_UNSUPPORTED);
    expect_sentence("\"malloc\"");
}

Test(images_stubs, elf_that_is_no_cubin_is_refused)
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

Test(images_stubs, cut_off_cubins_are_refused)
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

/* ---- numbers in instructions ----------------------------------------------------------------- */

static const char *const variables[] = {"malloc", "free"};
static const uint64_t values[] = {UINT64_C(0x1234567890abcdef), 0};
static const ga_cubin_words words = {variables, values, 2};

static ga_status write_words(cubin_scene *scene)
{
    ga_cubin cubin;
    cr_assert_eq(ga_cubin_open(&cubin, (ga_image){scene->bytes, scene->size}), GA_OK);
    return ga_cubin_write_words(&cubin, scene->bytes, &words);
}

/* With relocations of the code only. */
static cubin_scene halves(uint32_t type)
{
    cubin_scene scene = {.sm = 90, .calls_cuda = true, .call_type = type};
    Elf64_Ehdr header;
    cubin_scene_build(&scene);
    Elf64_Shdr none = header_at(&scene, CUBIN_CONSTANT_RELOCATIONS);
    none.sh_size = 0;
    memcpy(&header, scene.bytes, sizeof header);
    memcpy(scene.bytes + header.e_shoff + CUBIN_CONSTANT_RELOCATIONS * sizeof none, &none,
           sizeof none);
    return scene;
}

Test(images_stubs, numbers_go_into_instructions)
{
    static const uint32_t types[] = {GA_R_ABS32_LO_32, GA_R_ABS32_HI_32};
    for (int i = 0; i < 2; i++) {
        cubin_scene scene = halves(types[i]);
        cr_assert_eq(write_words(&scene), GA_OK, "%s", ga_error_text());
        cr_assert_eq(word_at(&scene, CUBIN_TEXT, 16),
                     i ? UINT64_C(0x1234567800007943) : UINT64_C(0x90abcdef00007943));
        cr_assert_eq(word_at(&scene, CUBIN_TEXT, 48), UINT64_C(0x7943)); /* 0 */
        Elf64_Shdr left = header_at(&scene, CUBIN_TEXT_RELOCATIONS);
        cr_assert_eq(left.sh_size, left.sh_entsize);
        cr_assert_eq(ELF64_R_SYM(word_at(&scene, CUBIN_TEXT_RELOCATIONS, 8)), CUBIN_VPRINTF);
        cr_assert_eq(word_at(&scene, CUBIN_TEXT_RELOCATIONS, 0), CUBIN_CALL_OFFSET + 16);
    }
}

static void expect_words_refused(cubin_scene *scene, const char *part)
{
    cr_assert_eq(write_words(scene), GA_ERR_UNSUPPORTED, "expected \"%s\"", part);
    expect_sentence(part);
}

Test(images_stubs, other_places_for_numbers_are_refused)
{
    cubin_scene scene = built(90);
    expect_words_refused(&scene, ".nv.constant4"); /* no instruction */
    scene = halves(GA_R_64);
    expect_words_refused(&scene, "type 2"); /* no half */
    scene = halves(GA_R_ABS32_LO_32);
    scene.bytes[scene.offsets[CUBIN_TEXT] + CUBIN_CALL_OFFSET + 4] = 1; /* not 0 before */
    expect_words_refused(&scene, ".text.kernel");
    scene = halves(GA_R_ABS32_LO_32);
    scene.bytes[scene.offsets[CUBIN_TEXT_RELOCATIONS] + 1] = 0xff; /* an offset behind the code */
    expect_words_refused(&scene, "byte 65296");
}
