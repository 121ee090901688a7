/* SPDX-License-Identifier: MIT
 *
 * Cubins and fat binaries of a few hundred bytes, made without nvcc, in the forms that nvcc emits.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_CUBIN_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_CUBIN_SCENE_H

#include "../../interpose/images/cubin_format.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    CUBIN_SCENE_SIZE = 4096,

    CUBIN_NAMES = 1, /* the sections */
    CUBIN_STRINGS,
    CUBIN_SYMBOLS,
    CUBIN_INFO,
    CUBIN_CONSTANT_RELOCATIONS,
    CUBIN_CONSTANT,
    CUBIN_TEXT_RELOCATIONS,
    CUBIN_TEXT,
    CUBIN_LOCAL_INFO,
    CUBIN_CONSTANTS_OF_PROGRAM,
    CUBIN_RELOCATIONS_OF_PROGRAM, /* of these */
    CUBIN_SECTIONS,
    CUBIN_SECTIONS_MOST = 16,

    CUBIN_KERNEL = 1, /* the symbols */
    CUBIN_MALLOC,
    CUBIN_FREE,
    CUBIN_VPRINTF,
    CUBIN_SYMBOL_COUNT,

    CUBIN_CONSTANTS = 3, /* of malloc, vprintf and free */
    CUBIN_PROGRAM_CONSTANTS_MOST = 64,
    CUBIN_CALL_OFFSET = 16, /* in the code: calls of malloc, vprintf and free follow, */
    CUBIN_READ_OFFSET = 64, /* and a read of an address */
    CUBIN_REGISTERS = 24,
    CUBIN_STACK = 16,
    CUBIN_PARAMETERS = 0x210 /* of sm_90; here for all */
};

typedef struct cubin_scene {
    unsigned sm;
    bool is_old;         /* the ABI of CUDA 12 */
    bool is_relocatable; /* ET_REL */
    bool has_addends;    /* SHT_RELA */
    bool calls_cuda;     /* malloc and free */
    uint32_t call_type;  /* GA_R_ABS47_34 or GA_R_ABS55_16_34; 0: no relocations of the code */
    uint32_t stack;      /* 0: CUBIN_STACK */
    uint32_t constants;  /* bytes of the program's own, each 0x5a; 0: no such section */
    bool has_pointers;   /* the first 8 of them are the address of the kernel */
    uint8_t bytes[CUBIN_SCENE_SIZE];
    size_t size;
    size_t offsets[CUBIN_SECTIONS_MOST]; /* of the sections */
} cubin_scene;

/* Append at a multiple of 8; returns the offset. */
static inline size_t cubin_scene_add(cubin_scene *scene, const void *bytes, size_t size)
{
    size_t at = (scene->size + 7) / 8 * 8;
    memcpy(scene->bytes + at, bytes, size);
    scene->size = at + size;
    return at;
}

static inline void cubin_scene_section(cubin_scene *scene, Elf64_Shdr *sections, unsigned index,
                                       uint32_t type, const void *bytes, size_t size)
{
    sections[index].sh_type = type;
    sections[index].sh_offset = scene->offsets[index] = cubin_scene_add(scene, bytes, size);
    sections[index].sh_size = size;
}

static inline void cubin_scene_symbols(cubin_scene *scene, Elf64_Shdr *sections)
{
    static const char ours[] = "\0kernel\0malloc\0free\0vprintf";
    static const char others[] = "\0kernel\0nalloc\0gree\0vprintf";
    static const uint32_t names[] = {0, 1, 8, 15, 20};
    Elf64_Sym symbols[CUBIN_SYMBOL_COUNT] = {0};
    for (unsigned i = 1; i < CUBIN_SYMBOL_COUNT; i++) {
        symbols[i] = (Elf64_Sym){.st_name = names[i],
                                 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                 .st_other = i == CUBIN_KERNEL ? GA_STO_ENTRY : 0,
                                 .st_shndx = i == CUBIN_KERNEL ? CUBIN_TEXT : SHN_UNDEF};
    }
    cubin_scene_section(scene, sections, CUBIN_STRINGS, SHT_STRTAB,
                        scene->calls_cuda ? ours : others, sizeof ours);
    cubin_scene_section(scene, sections, CUBIN_SYMBOLS, SHT_SYMTAB, symbols, sizeof symbols);
    sections[CUBIN_SYMBOLS].sh_link = CUBIN_STRINGS;
    sections[CUBIN_SYMBOLS].sh_entsize = sizeof *symbols;
}

/* Three entries, `step` bytes apart from `first` on, of malloc, vprintf and free. */
static inline void cubin_scene_relocations(cubin_scene *scene, Elf64_Shdr *sections, unsigned index,
                                           uint32_t type, uint64_t first, uint64_t step)
{
    static const uint32_t callees[CUBIN_CONSTANTS] = {CUBIN_MALLOC, CUBIN_VPRINTF, CUBIN_FREE};
    Elf64_Rela with[CUBIN_CONSTANTS] = {0};
    Elf64_Rel without[CUBIN_CONSTANTS] = {0};
    for (unsigned i = 0; i < CUBIN_CONSTANTS; i++) {
        with[i].r_offset = without[i].r_offset = first + i * step;
        with[i].r_info = without[i].r_info = ELF64_R_INFO((uint64_t)callees[i], type);
    }
    cubin_scene_section(scene, sections, index, scene->has_addends ? SHT_RELA : SHT_REL,
                        scene->has_addends ? (void *)with : (void *)without,
                        type == 0            ? 0
                        : scene->has_addends ? sizeof with
                                             : sizeof without);
    sections[index].sh_entsize = scene->has_addends ? sizeof *with : sizeof *without;
    sections[index].sh_link = CUBIN_SYMBOLS;
    sections[index].sh_info = index + 1;
}

static inline void cubin_scene_info(cubin_scene *scene, Elf64_Shdr *sections)
{
    uint32_t stack = scene->stack ? scene->stack : CUBIN_STACK;
    const struct {
        uint8_t format, attribute;
        uint16_t size;
        uint32_t symbol, number;
    } info[] = {
        {GA_INFO_SIZED, GA_INFO_REGCOUNT, 8, CUBIN_KERNEL, CUBIN_REGISTERS},
        {GA_INFO_SIZED, GA_INFO_FRAME_SIZE, 8, CUBIN_KERNEL, CUBIN_STACK},
        {GA_INFO_SIZED, GA_INFO_MIN_STACK_SIZE, 8, CUBIN_KERNEL, stack},
    };
    cubin_scene_section(scene, sections, CUBIN_INFO, GA_SHT_CUDA_INFO, info, sizeof info);
}

static inline void cubin_scene_local_info(cubin_scene *scene, Elf64_Shdr *sections)
{
    const struct {
        uint8_t format, attribute;
        uint16_t size;
        uint32_t symbol;
        uint16_t offset, bytes;
    } info = {GA_INFO_SIZED, GA_INFO_PARAM_CBANK, 8, 0, CUBIN_PARAMETERS, 8};
    cubin_scene_section(scene, sections, CUBIN_LOCAL_INFO, GA_SHT_CUDA_INFO, &info, sizeof info);
    sections[CUBIN_LOCAL_INFO].sh_info = CUBIN_TEXT;
}

static inline void cubin_scene_code(cubin_scene *scene, Elf64_Shdr *sections)
{
    /* CALL.ABS.NOINC, as nvdisasm prints it, without its target */
    static const uint64_t call[] = {UINT64_C(0x7943), UINT64_C(0x000fea0003c00000)};
    static const uint64_t read = UINT64_C(0x0100020002027b82); /* LDC R2, c[0x4][R2+0x8] */
    uint64_t code[2 + 2 * CUBIN_CONSTANTS + 2] = {0};
    for (unsigned i = 0; i < CUBIN_CONSTANTS; i++) {
        memcpy(code + 2 + 2 * i, call, sizeof call);
    }
    code[CUBIN_READ_OFFSET / sizeof read] = read;
    cubin_scene_section(scene, sections, CUBIN_TEXT, SHT_PROGBITS, code, sizeof code);
    sections[CUBIN_TEXT].sh_info = CUBIN_KERNEL;
    if (scene->sm < 90) {
        sections[CUBIN_TEXT].sh_info |= (uint32_t)CUBIN_REGISTERS << 24;
    }
}

static inline void cubin_scene_pointer(cubin_scene *scene, Elf64_Shdr *sections)
{
    Elf64_Rela with = {.r_info = ELF64_R_INFO((uint64_t)CUBIN_KERNEL, GA_R_64)};
    const unsigned index = CUBIN_RELOCATIONS_OF_PROGRAM;
    size_t size = scene->has_addends ? sizeof with : sizeof(Elf64_Rel);
    cubin_scene_section(scene, sections, index, scene->has_addends ? SHT_RELA : SHT_REL, &with,
                        size);
    sections[index].sh_entsize = size;
    sections[index].sh_link = CUBIN_SYMBOLS;
    sections[index].sh_info = CUBIN_CONSTANTS_OF_PROGRAM;
}

/* Build the cubin that the members in front of `bytes` describe. */
static inline void cubin_scene_build(cubin_scene *scene)
{
    static const char names[] = "\0.shstrtab\0.strtab\0.symtab\0.nv.info\0.rel.nv.constant4\0"
                                ".nv.constant4\0.rel.text.kernel\0.text.kernel\0.nv.info.kernel\0"
                                ".nv.constant3\0.rel.nv.constant3";
    static const uint32_t name_offsets[] = {0, 1, 11, 19, 27, 36, 54, 68, 85, 98, 114, 128};
    static const uint8_t zeros[8 * CUBIN_CONSTANTS];
    Elf64_Shdr sections[CUBIN_SECTIONS] = {0};
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT,
                                     scene->is_old ? GA_OSABI_OLD : GA_OSABI_NEW},
                         .e_type = scene->is_relocatable ? ET_REL : ET_EXEC,
                         .e_machine = GA_EM_CUDA,
                         .e_version = EV_CURRENT,
                         .e_flags = scene->is_old ? scene->sm : scene->sm << 8,
                         .e_ehsize = sizeof header,
                         .e_shentsize = sizeof *sections,
                         .e_shnum = CUBIN_SECTIONS,
                         .e_shstrndx = CUBIN_NAMES};
    scene->size = sizeof header;
    memset(scene->bytes, 0, sizeof scene->bytes);
    cubin_scene_section(scene, sections, CUBIN_NAMES, SHT_STRTAB, names, sizeof names);
    cubin_scene_symbols(scene, sections);
    cubin_scene_info(scene, sections);
    cubin_scene_relocations(scene, sections, CUBIN_CONSTANT_RELOCATIONS, GA_R_64, 0, 8);
    cubin_scene_section(scene, sections, CUBIN_CONSTANT, SHT_PROGBITS, zeros, sizeof zeros);
    cubin_scene_relocations(scene, sections, CUBIN_TEXT_RELOCATIONS, scene->call_type,
                            CUBIN_CALL_OFFSET, 16);
    cubin_scene_code(scene, sections);
    cubin_scene_local_info(scene, sections);
    if (scene->constants) {
        uint8_t content[CUBIN_PROGRAM_CONSTANTS_MOST];
        memset(content, 0x5a, sizeof content);
        cubin_scene_section(scene, sections, CUBIN_CONSTANTS_OF_PROGRAM, SHT_PROGBITS, content,
                            scene->constants);
        sections[CUBIN_CONSTANTS_OF_PROGRAM].sh_addralign = 4;
    }
    if (scene->has_pointers) {
        cubin_scene_pointer(scene, sections);
    }
    for (unsigned i = 0; i < CUBIN_SECTIONS; i++) {
        sections[i].sh_name = name_offsets[i];
    }
    header.e_shoff = cubin_scene_add(scene, sections, sizeof sections);
    memcpy(scene->bytes, &header, sizeof header);
}

/* Append an entry whose compiler options are `options`, as nvcc writes them: the record, the offset
 * and the size of the text, the text. */
static inline void fatbin_scene_add_with(uint8_t *room, size_t *size, ga_fatbin_record record,
                                         const char *options, const void *payload, size_t stored)
{
    ga_fatbin_header header = {GA_FATBIN_MAGIC, 1, sizeof header, 0};
    uint32_t text[2] = {sizeof record + sizeof text, options ? (uint32_t)strlen(options) : 0};
    size_t fields = options ? sizeof text + (text[1] + 7) / 8 * 8 : 0;
    if (*size == 0) {
        *size = sizeof header;
    }
    record.version = 0x101;
    record.header_size = (uint32_t)(sizeof record + fields);
    record.padded_size = (stored + 7) / 8 * 8;
    record.options_offset = options ? sizeof record : 0;
    uint8_t *at = room + *size;
    memset(at, 0, record.header_size + (size_t)record.padded_size);
    memcpy(at, &record, sizeof record);
    if (options) {
        memcpy(at + sizeof record, text, sizeof text);
        memcpy(at + text[0], options, text[1]);
    }
    memcpy(at + record.header_size, payload, stored);
    *size += record.header_size + (size_t)record.padded_size;
    header.size = *size - sizeof header;
    memcpy(room, &header, sizeof header);
}

/* Append an entry to the fat binary in `room`, of which `*size` bytes are used; 0: none yet. */
static inline void fatbin_scene_add(uint8_t *room, size_t *size, ga_fatbin_record record,
                                    const void *payload, size_t stored)
{
    fatbin_scene_add_with(room, size, record, NULL, payload, stored);
}

#endif
