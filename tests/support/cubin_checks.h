/* SPDX-License-Identifier: MIT
 *
 * Parts of a cubin that was made for a test, and the sentence of a failure.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_CUBIN_CHECKS_H
#define GPUALLOC_TESTS_SUPPORT_CUBIN_CHECKS_H

#include "cubin_scene.h"

#include <gpualloc/gpualloc.h>

#include <criterion/criterion.h>
#include <string.h>

static inline void expect_sentence(const char *part)
{
    cr_assert(strstr(ga_error_text(), part), "expected \"%s\" in \"%s\"", part, ga_error_text());
}

static inline cubin_scene built(unsigned sm)
{
    cubin_scene scene = {.sm = sm,
                         .calls_cuda = true,
                         .has_addends = sm >= 90,
                         .call_type = sm >= 90 ? GA_R_ABS55_16_34 : GA_R_ABS47_34};
    cubin_scene_build(&scene);
    return scene;
}

static inline uint64_t word_at(const cubin_scene *scene, unsigned section, size_t offset)
{
    uint64_t word;
    memcpy(&word, scene->bytes + scene->offsets[section] + offset, sizeof word);
    return word;
}

static inline Elf64_Shdr header_at(const cubin_scene *scene, unsigned section)
{
    Elf64_Ehdr header;
    Elf64_Shdr found;
    memcpy(&header, scene->bytes, sizeof header);
    memcpy(&found, scene->bytes + header.e_shoff + section * sizeof found, sizeof found);
    return found;
}

#endif
