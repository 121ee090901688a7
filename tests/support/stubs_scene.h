/* SPDX-License-Identifier: MIT
 *
 * A cubin with the stubs, made without nvcc, in the form that ptxas gives them. Stub i has i + 1
 * more instructions at its end. Then comes GA_CUBIN_NONE, of which the code is a number here. Each
 * stub has three relocations: one for the offset of the variable, in
 * a section of its own for the first stub, as nvlink has it before sm_90; and two against itself.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_STUBS_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_STUBS_SCENE_H

#include "../../interpose/images/cubin.h"

#include "cubin_scene.h"

enum {
    STUBS_NAMES = 1, /* the sections */
    STUBS_STRINGS,
    STUBS_SYMBOLS,
    STUBS_GLOBAL,
    STUBS_WITHOUT, /* .rel.text of the first stub */
    STUBS_TEXT,    /* of each stub, and behind these .rela.text */
    STUBS_WITH = STUBS_TEXT + GA_CALLS_COUNT,
    STUBS_NONE = STUBS_WITH + GA_CALLS_COUNT,
    STUBS_SECTIONS,

    STUBS_FIRST = 1, /* the symbols */
    STUBS_OFFSET = STUBS_FIRST + GA_CALLS_COUNT,
    STUBS_OTHER,
    STUBS_NONE_SYMBOL,
    STUBS_SYMBOL_COUNT,

    STUBS_INSTRUCTIONS = 12, /* of the form; in them, and in the order of their places: */
    STUBS_OFFSET_MOVE = 3,
    STUBS_RETURN_LOW = 5,
    STUBS_RETURN_HIGH = 6,
    STUBS_REGISTERS = 24
};

/* As nvdisasm 13 reads them, for sm_90. */
static const uint64_t stubs_scene_form[STUBS_INSTRUCTIONS][2] = {
    {UINT64_C(0xfffffff801017810), UINT64_C(0x000fca0007ffe0ff)}, /* IADD3 R1, R1, -0x8, RZ */
    {UINT64_C(0x0000041501007387), UINT64_C(0x0001e80000100800)}, /* STL [R1+0x4], R21 */
    {UINT64_C(0x0000001401007387), UINT64_C(0x0001e20000100800)}, /* STL [R1], R20 */
    {UINT64_C(0x0000000000067802), UINT64_C(0x000fcc0000000f00)}, /* MOV R6, 0 */
    {UINT64_C(0x00c0020006067b82), UINT64_C(0x000e640000000a00)}, /* LDC.64 R6, c[0x3][R6+0x8] */
    {UINT64_C(0x0000000000147802), UINT64_C(0x000fe40000000f00)}, /* MOV R20, 0 */
    {UINT64_C(0x0000000000157802), UINT64_C(0x000fce0000000f00)}, /* MOV R21, 0 */
    {UINT64_C(0x0000000006007343), UINT64_C(0x000fea0003c00000)}, /* CALL.ABS.NOINC R6 */
    {UINT64_C(0x0000000001147983), UINT64_C(0x000ea80000100800)}, /* LDL R20, [R1] */
    {UINT64_C(0x0000040001157983), UINT64_C(0x0000a40000100800)}, /* LDL R21, [R1+0x4] */
    {UINT64_C(0x0000000801017810), UINT64_C(0x001fe20007ffe0ff)}, /* IADD3 R1, R1, 0x8, RZ */
    {UINT64_C(0x0000000014007950), UINT64_C(0x004fec0003e00000)}, /* RET.ABS.NODEC R20 0x0 */
};

/* As a jump: NOPs wait for the same events. Behind the first instruction that stays, they take as
 * many cycles as before. */
static const uint64_t stubs_scene_jump[STUBS_INSTRUCTIONS][2] = {
    {UINT64_C(0x7918), UINT64_C(0x000fc20000000000)},
    {UINT64_C(0x7918), UINT64_C(0x000fe20000000000)},
    {UINT64_C(0x7918), UINT64_C(0x000fe20000000000)},
    {UINT64_C(0x0000000000067802), UINT64_C(0x000fcc0000000f00)},
    {UINT64_C(0x00c0020006067b82), UINT64_C(0x000e640000000a00)},
    {UINT64_C(0x7918), UINT64_C(0x000fe40000000000)},
    {UINT64_C(0x7918), UINT64_C(0x000fce0000000000)},
    {UINT64_C(0x0000000006007343), UINT64_C(0x000fea0003c00000)},
    {UINT64_C(0x7918), UINT64_C(0x000fe80000000000)},
    {UINT64_C(0x7918), UINT64_C(0x000fe40000000000)},
    {UINT64_C(0x7918), UINT64_C(0x001fe20000000000)},
    {UINT64_C(0x0000000014007950), UINT64_C(0x004fec0003e00000)},
};

/* The code of GA_CUBIN_NONE. */
static const uint64_t stubs_scene_none[2] = {UINT64_C(0x7950), 1};

typedef struct stubs_scene {
    unsigned sm;
    uint32_t target; /* the symbol of the first stub's first relocation; 0: the offset's */
    bool has_no_none;
    int broken; /* number of an instruction of the first stub that is another one; 0: none */
    cubin_scene cubin;
} stubs_scene;

static inline size_t stubs_scene_size(unsigned stub)
{
    return (STUBS_INSTRUCTIONS + stub + 1) * sizeof *stubs_scene_form;
}

static inline void stubs_scene_symbols(stubs_scene *scene, Elf64_Shdr *sections)
{
    static const char *const names[STUBS_SYMBOL_COUNT - 1] = {"gpualloc_call_malloc",
                                                              "gpualloc_call_free",
                                                              "gpualloc_call_malloc_aligned",
                                                              GA_CUBIN_OFFSET,
                                                              "other",
                                                              GA_CUBIN_NONE};
    char strings[256] = "";
    size_t size = 1;
    Elf64_Sym symbols[STUBS_SYMBOL_COUNT] = {0};
    for (unsigned i = 1; i < STUBS_SYMBOL_COUNT; i++) {
        bool is_stub = i < STUBS_OFFSET;
        symbols[i] = (Elf64_Sym){
            .st_name = (uint32_t)size,
            .st_info = ELF64_ST_INFO(STB_GLOBAL, is_stub ? STT_FUNC : STT_OBJECT),
            .st_shndx = (uint16_t)(is_stub ? STUBS_TEXT + i - STUBS_FIRST : STUBS_GLOBAL),
            .st_size = is_stub ? stubs_scene_size(i - STUBS_FIRST) : 1};
        if (i == STUBS_NONE_SYMBOL) {
            symbols[i].st_shndx = scene->has_no_none ? SHN_UNDEF : STUBS_NONE;
        }
        size_t length = strlen(names[i - 1]) + 1;
        memcpy(strings + size, names[i - 1], length);
        size += length;
    }
    cubin_scene_section(&scene->cubin, sections, STUBS_STRINGS, SHT_STRTAB, strings, size);
    cubin_scene_section(&scene->cubin, sections, STUBS_SYMBOLS, SHT_SYMTAB, symbols,
                        sizeof symbols);
    sections[STUBS_SYMBOLS].sh_link = STUBS_STRINGS;
    sections[STUBS_SYMBOLS].sh_entsize = sizeof *symbols;
}

static inline void stubs_scene_code(stubs_scene *scene, Elf64_Shdr *sections, unsigned stub)
{
    uint64_t code[STUBS_INSTRUCTIONS + GA_CALLS_COUNT][2] = {{0}};
    uint64_t own = STUBS_FIRST + stub;
    uint64_t target = scene->target && stub == 0 ? scene->target : STUBS_OFFSET;
    Elf64_Rela with[] = {
        {16 * STUBS_OFFSET_MOVE, ELF64_R_INFO(target, (uint64_t)GA_R_ABS32_LO_32), 0},
        {16 * STUBS_RETURN_LOW, ELF64_R_INFO(own, (uint64_t)GA_R_ABS32_LO_32), 128},
        {16 * STUBS_RETURN_HIGH, ELF64_R_INFO(own, (uint64_t)GA_R_ABS32_HI_32), 128}};
    Elf64_Rel without = {with[0].r_offset, with[0].r_info};
    unsigned text = STUBS_TEXT + stub;
    memcpy(code, stubs_scene_form, sizeof stubs_scene_form);
    code[STUBS_INSTRUCTIONS + stub][0] = stub + 1;
    if (scene->broken && stub == 0) {
        code[scene->broken][0] = 0x7947; /* BRA */
    }
    cubin_scene_section(&scene->cubin, sections, text, SHT_PROGBITS, code, stubs_scene_size(stub));
    sections[text].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
    sections[text].sh_addralign = 128;
    sections[text].sh_link = STUBS_SYMBOLS;
    sections[text].sh_info = STUBS_FIRST + stub;
    if (scene->sm < 90) {
        sections[text].sh_info |= (uint32_t)STUBS_REGISTERS << 24;
    }
    unsigned from = stub ? 0 : 1;
    cubin_scene_section(&scene->cubin, sections, STUBS_WITH + stub, SHT_RELA, with + from,
                        sizeof with - from * sizeof *with);
    sections[STUBS_WITH + stub].sh_entsize = sizeof *with;
    sections[STUBS_WITH + stub].sh_info = text;
    if (!stub) {
        cubin_scene_section(&scene->cubin, sections, STUBS_WITHOUT, SHT_REL, &without,
                            sizeof without);
        sections[STUBS_WITHOUT].sh_entsize = sizeof without;
        sections[STUBS_WITHOUT].sh_info = text;
    }
}

/* Build the cubin that the members in front of `cubin` describe. */
static inline void stubs_scene_build(stubs_scene *scene)
{
    static const char names[] = "\0section";
    Elf64_Shdr sections[STUBS_SECTIONS] = {0};
    cubin_scene *cubin = &scene->cubin;
    Elf64_Ehdr header = {
        .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, GA_OSABI_NEW},
        .e_type = ET_EXEC,
        .e_machine = GA_EM_CUDA,
        .e_version = EV_CURRENT,
        .e_flags = scene->sm << 8,
        .e_ehsize = sizeof header,
        .e_shentsize = sizeof *sections,
        .e_shnum = STUBS_SECTIONS,
        .e_shstrndx = STUBS_NAMES};
    *cubin = (cubin_scene){.sm = scene->sm, .size = sizeof header};
    sections[STUBS_GLOBAL] = (Elf64_Shdr){.sh_type = SHT_NOBITS, .sh_size = 24};
    cubin_scene_section(cubin, sections, STUBS_NAMES, SHT_STRTAB, names, sizeof names);
    stubs_scene_symbols(scene, sections);
    for (unsigned i = 0; i < GA_CALLS_COUNT; i++) {
        stubs_scene_code(scene, sections, i);
    }
    cubin_scene_section(cubin, sections, STUBS_NONE, SHT_PROGBITS, stubs_scene_none,
                        sizeof stubs_scene_none);
    for (unsigned i = 1; i < STUBS_SECTIONS; i++) {
        sections[i].sh_name = 1;
    }
    header.e_shoff = cubin_scene_add(cubin, sections, sizeof sections);
    memcpy(cubin->bytes, &header, sizeof header);
}

#endif
