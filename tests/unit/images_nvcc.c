/* SPDX-License-Identifier: MIT
 *
 * The images that nvcc makes of images.cu: fat binaries with machine code for all architectures,
 * compiled as a whole, linked (-rdc=true) and with -G, plain and compressed. If nvcc changes a
 * form, a test here fails. stubs.cu has the stubs for all architectures.
 */
#include "../../interpose/images/cubin.h"
#include "../../interpose/images/fatbin.h"
#include "../../interpose/images/info.h"
#include "../../interpose/images/ptx.h"
#include "../../interpose/kernel/module.h"
#include "../../liballoc/platform/libc.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ALL_CALLS = GA_CALLS_MALLOC | GA_CALLS_FREE | GA_CALLS_ALIGNED,
    NEEDED_REGISTERS = 48, /* more than any of these kernels has */
    NEEDED_STACK = 160,
    NEEDED_RECURSION = 1024 + NEEDED_STACK,
    ZEROS_SIZE = 256 /* of the constants in images.cu */
};

static ga_image read_file(const char *path)
{
    FILE *file = fopen(path, "rbe");
    cr_assert(file && fseek(file, 0, SEEK_END) == 0, "%s", path);
    size_t size = (size_t)ftell(file);
    uint8_t *bytes = malloc(size);
    rewind(file);
    cr_assert(bytes && fread(bytes, 1, size, file) == size);
    fclose(file);
    return (ga_image){bytes, size};
}

static unsigned count_relocations(const ga_cubin *cubin, const char *callee)
{
    ga_cubin_section section;
    unsigned count = 0;
    for (size_t i = 1; i < cubin->section_count; i++) {
        cr_assert(ga_cubin_section_at(cubin, i, &section));
        uint32_t type = section.header.sh_type;
        if (type != SHT_REL && type != SHT_RELA) {
            continue;
        }
        for (size_t at = 0; at < section.content.size; at += section.header.sh_entsize) {
            Elf64_Rel entry;
            Elf64_Sym symbol;
            memcpy(&entry, section.content.bytes + at, sizeof entry);
            memcpy(&symbol, cubin->symbols.bytes + ELF64_R_SYM(entry.r_info) * sizeof symbol,
                   sizeof symbol);
            count += !strcmp((const char *)cubin->strings.bytes + symbol.st_name, callee);
        }
    }
    return count;
}

static const ga_cubin_needs raised = {NEEDED_REGISTERS, NEEDED_STACK, NEEDED_RECURSION, 0};

static const char *const names[] = {"malloc", "free", "__cuda_syscall_aligned_malloc"};

static void expect_needs(const ga_cubin *cubin, const char *kernel)
{
    ga_cubin_needs needs;
    ga_status status = ga_cubin_read_needs(cubin, kernel, &needs);
    cr_assert_eq(status, GA_OK, "%s: %s", kernel, ga_error_text());
    cr_assert_eq(needs.registers, NEEDED_REGISTERS, "%s: %u", kernel, needs.registers);
    cr_assert(needs.stack >= NEEDED_STACK, "%s: %u", kernel, needs.stack);
}

/* The offset of parameters in constant bank 0. */
static uint32_t parameters_of(unsigned sm)
{
    return sm < 90 ? 0x160 : sm == 90 ? 0x210 : 0x380;
}

/* The stubs for an architecture. They live as long as the program. */
static ga_cubin stubs_for(unsigned sm)
{
    ga_image fatbin = read_file(getenv("IMAGES_STUBS"));
    ga_fatbin_entry entry;
    ga_image image;
    void *owned;
    ga_cubin stubs;
    cr_assert_eq(ga_fatbin_choose(&entry, fatbin, sm), GA_OK, "%s", ga_error_text());
    cr_assert_eq(ga_fatbin_unpack(&image, &owned, &entry), GA_OK, "%s", ga_error_text());
    cr_assert_eq(ga_cubin_open(&stubs, image), GA_OK, "%s", ga_error_text());
    return stubs;
}

static uint32_t symbol_called(const ga_cubin *cubin, const char *wanted, Elf64_Sym *out)
{
    for (uint32_t i = 1; i < cubin->symbols.size / sizeof *out; i++) {
        memcpy(out, cubin->symbols.bytes + i * sizeof *out, sizeof *out);
        if (strcmp((const char *)cubin->strings.bytes + out->st_name, wanted) == 0) {
            return i;
        }
    }
    cr_assert(false, "sm_%u: no symbol %s", cubin->sm, wanted);
    return 0;
}

/* Instructions with these low 12 bits. */
static unsigned count_instructions(const ga_cubin_section *code, unsigned low)
{
    unsigned count = 0;
    for (size_t at = 0; at + 16 <= code->content.size; at += 16) {
        uint64_t word;
        memcpy(&word, code->content.bytes + at, sizeof word);
        count += (word & 0xfff) == low;
    }
    return count;
}

/* The function is the stub's code, in a section of its own, without saves of the return address. */
static void expect_stub(const ga_cubin *cubin, const ga_cubin *stubs, int i)
{
    enum {
        NOP = 0x918,
        STL = 0x387,
        LDL = 0x983,
        LDC = 0xb82,
        SAVES = 8
    };
    static const char *const stub_names[] = GA_CUBIN_STUBS;
    Elf64_Sym symbol[2];
    ga_cubin_section code[2];
    uint32_t index = symbol_called(cubin, names[i], &symbol[0]);
    symbol_called(stubs, stub_names[i], &symbol[1]);
    cr_assert(ga_cubin_section_at(cubin, symbol[0].st_shndx, &code[0]));
    cr_assert(ga_cubin_section_at(stubs, symbol[1].st_shndx, &code[1]));
    cr_assert(code[0].content.size && code[0].content.size == code[1].content.size);
    cr_assert_eq(count_instructions(&code[0], NOP), count_instructions(&code[1], NOP) + SAVES);
    cr_assert_eq(count_instructions(&code[0], STL) + count_instructions(&code[0], LDL), 0);
    cr_assert_eq(count_instructions(&code[0], LDC), 1);
    cr_assert_eq(symbol[0].st_size, symbol[1].st_size);
    cr_assert_eq(code[0].header.sh_flags, code[1].header.sh_flags);
    cr_assert_eq(code[0].header.sh_info & 0xffffff, index);
    cr_assert_eq(code[0].header.sh_info >> 24, code[1].header.sh_info >> 24);
}

/* The function that gives NULL: zeros to R4 and R5, and a return to R20 and R21, as callers of
 * malloc expect. It needs no relocations. */
static void expect_none(const ga_cubin *cubin)
{
    enum {
        CS2R = 0x805,
        RET = 0x950
    };
    Elf64_Sym symbol;
    ga_cubin_section code;
    ga_cubin_section section;
    uint64_t words[4];
    symbol_called(cubin, GA_CUBIN_NONE, &symbol);
    cr_assert(ga_cubin_section_at(cubin, symbol.st_shndx, &code));
    cr_assert(code.content.size >= sizeof words);
    memcpy(words, code.content.bytes, sizeof words);
    cr_assert((words[0] & 0xfff) == CS2R && (words[0] >> 16 & 0xff) == 4, "sm_%u", cubin->sm);
    cr_assert((words[2] & 0xfff) == RET && (words[2] >> 24 & 0xff) == 20, "sm_%u", cubin->sm);
    for (size_t i = 1; i < cubin->section_count; i++) {
        cr_assert(ga_cubin_section_at(cubin, i, &section));
        cr_assert(!ga_cubin_has_relocations(&section) || !section.content.size ||
                  section.header.sh_info != symbol.st_shndx);
    }
}

/* The program's constants, and with stubs the variable behind them, are zeros, and in the file. */
static void expect_zero_constants(const ga_cubin *cubin, size_t size)
{
    ga_cubin_section section;
    unsigned count = 0;
    for (size_t i = 1; i < cubin->section_count; i++) {
        cr_assert(ga_cubin_section_at(cubin, i, &section));
        if (strcmp(section.name, ".nv.constant3") == 0) {
            cr_assert_eq(section.header.sh_type, SHT_PROGBITS, "sm_%u", cubin->sm);
            cr_assert_eq(section.header.sh_size, size, "sm_%u", cubin->sm);
            cr_assert_eq(section.content.size, size, "sm_%u", cubin->sm);
            for (size_t at = 0; at < size; at++) {
                cr_assert_eq(section.content.bytes[at], 0, "sm_%u: byte %zu", cubin->sm, at);
            }
            count++;
        }
    }
    cr_assert_eq(count, 1, "sm_%u: %u sections of constants", cubin->sm, count);
}

/* A disassembler, where there is one, reads the whole file. */
static void expect_disassembled(ga_image image)
{
    const char *program = getenv("IMAGES_NVDISASM");
    char path[] = "/tmp/images-XXXXXX";
    char command[512];
    if (!program || !*program) {
        return;
    }
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, image.bytes, image.size) == (ssize_t)image.size);
    snprintf(command, sizeof command, "'%s' '%s' | grep -q '^" GA_CUBIN_VARIABLE ":'", program,
             path);
    cr_assert_eq(system(command), 0, "%s", command);
    close(fd);
    unlink(path);
}

/* Relocations of .nv.constant4 against `callee`; NULL: the bytes there. */
static unsigned count_addresses(const ga_cubin *cubin, const char *callee)
{
    ga_cubin_section section;
    ga_cubin_section target;
    Elf64_Sym symbol;
    const char *name;
    size_t step;
    unsigned count = 0;
    for (size_t i = 1; i < cubin->section_count; i++) {
        cr_assert(ga_cubin_section_at(cubin, i, &section));
        if (!callee && strcmp(section.name, ".nv.constant4") == 0) {
            count += (unsigned)section.content.size;
        }
        if (!callee || !ga_cubin_has_relocations(&section) ||
            ga_cubin_relocates(cubin, &section, &target, &step) != GA_OK ||
            strcmp(target.name, ".nv.constant4") != 0) {
            continue;
        }
        for (size_t at = 0; at < section.content.size; at += step) {
            ga_cubin_relocation r = ga_cubin_relocation_at(&section, at);
            count +=
                ga_cubin_symbol_at(cubin, r.symbol, &symbol, &name) && strcmp(name, callee) == 0;
        }
    }
    return count;
}

/* Instructions that read an address in a bank by LDC. */
static unsigned count_reads(const ga_cubin *cubin, unsigned bank)
{
    ga_cubin_section section;
    unsigned count = 0;
    for (size_t i = 1; i < cubin->section_count; i++) {
        cr_assert(ga_cubin_section_at(cubin, i, &section));
        for (size_t at = 0;
             strncmp(section.name, ".text.", 6) == 0 && at + 16 <= section.content.size; at += 16) {
            uint64_t word;
            memcpy(&word, section.content.bytes + at, sizeof word);
            count += (word & 0xfff) == 0xb82 && (word >> 54 & 0x1f) == bank;
        }
    }
    return count;
}

static void serve_and_check(ga_image image)
{
    ga_cubin cubin;
    unsigned before[3];
    unsigned moved = 0; /* addresses of our functions */
    void *owned;
    cr_assert_eq(ga_cubin_open(&cubin, image), GA_OK, "%s", ga_error_text());
    cr_assert(cubin.is_final);
    cr_assert_eq(ga_cubin_calls(&cubin), ALL_CALLS, "sm_%u", cubin.sm);
    ga_cubin stubs = stubs_for(cubin.sm);
    unsigned printfs = count_relocations(&cubin, "vprintf");
    for (int i = 0; i < 3; i++) {
        before[i] = count_relocations(&cubin, names[i]);
        cr_assert(before[i] && printfs, "sm_%u: %s", cubin.sm, names[i]);
        moved += count_addresses(&cubin, names[i]);
    }
    unsigned moved_printfs = moved ? count_addresses(&cubin, "vprintf") : 0;
    unsigned moved_bytes = moved ? count_addresses(&cubin, NULL) : 0;
    unsigned reads = count_reads(&cubin, 4);
    unsigned others = count_reads(&cubin, 3);
    cr_assert(!moved || moved == 3);
    cr_assert(!moved || reads > 3, "sm_%u: %u", cubin.sm, reads);
    expect_zero_constants(&cubin, ZEROS_SIZE);
    ga_cubin_needs needs = raised;
    needs.parameters = parameters_of(cubin.sm);
    cr_assert_eq(ga_cubin_serve(&image, &owned, &cubin, &stubs, &needs), GA_OK, "sm_%u: %s",
                 cubin.sm, ga_error_text());
    cr_assert_eq(ga_cubin_open(&cubin, image), GA_OK, "%s", ga_error_text());
    cr_assert_eq(ga_cubin_calls(&cubin), 0);
    for (int i = 0; i < 3; i++) {
        expect_stub(&cubin, &stubs, i);
        cr_assert_eq(count_relocations(&cubin, names[i]), before[i] + (moved ? 1 : 0), "sm_%u: %s",
                     cubin.sm, names[i]);
    }
    expect_none(&stubs);
    cr_assert_eq(count_relocations(&cubin, GA_CUBIN_NONE),
                 sizeof(ga_cubin_variable) / sizeof(uint64_t));
    cr_assert_eq(count_reads(&cubin, 4), moved ? 0 : reads, "sm_%u", cubin.sm);
    cr_assert_eq(count_reads(&cubin, 3), (moved ? others + reads : others) + 3); /* of stubs */
    cr_assert_eq(count_relocations(&cubin, GA_CUBIN_OFFSET), 0, "sm_%u", cubin.sm);
    cr_assert_eq(count_relocations(&cubin, "vprintf"), printfs + moved_printfs);
    cr_assert(count_relocations(&cubin, "__assertfail") > 0);
    expect_zero_constants(&cubin, ZEROS_SIZE + sizeof(ga_cubin_variable) + moved_bytes);
    expect_needs(&cubin, "below");
    expect_needs(&cubin, "with_new");
    expect_needs(&cubin, "recursive");
    expect_disassembled(image);
    ga_libc.free(owned);
}

/* `count`: the entries with machine code. */
static void check_all(const char *path, unsigned count)
{
    ga_image fatbin = read_file(path);
    ga_fatbin_entry entry;
    size_t at = 0;
    unsigned code = 0;
    while (ga_fatbin_next(&entry, fatbin, &at)) {
        void *owned;
        ga_image image;
        cr_assert_eq(ga_fatbin_unpack(&image, &owned, &entry), GA_OK, "%s: %s", path,
                     ga_error_text());
        if (entry.record.kind == GA_FATBIN_ELF) {
            ga_image measured;
            cr_assert_eq(ga_image_measure(&measured, image.bytes, SIZE_MAX), GA_OK, "%s",
                         ga_error_text());
            cr_assert(measured.size <= image.size && image.size - measured.size < 8);
            serve_and_check(measured);
            code++;
        } else {
            cr_assert_eq(ga_image_kind_of(image), GA_IMAGE_PTX);
            cr_assert_eq(ga_ptx_calls(image), ALL_CALLS);
        }
        ga_libc.free(owned);
    }
    cr_assert(at == fatbin.size && code == count, "%s: %u entries with code", path, code);
    free((void *)fatbin.bytes);
}

Test(images_nvcc, compiled_as_a_whole)
{
    check_all(getenv("IMAGES_WHOLE"), IMAGES_ARCHITECTURES);
}

Test(images_nvcc, linked)
{
    check_all(getenv("IMAGES_LINKED"), IMAGES_ARCHITECTURES);
}

Test(images_nvcc, with_debug_information)
{
    check_all(getenv("IMAGES_DEBUG"), IMAGES_ARCHITECTURES);
}

/* Of each architecture that both releases know. */
Test(images_nvcc, compiled_by_cuda_12)
{
    static const unsigned architectures[] = {75, 80, 86, 89, 90, 100, 103, 120, 121};
    const char *prefix = getenv("IMAGES_12");
    if (!prefix) {
        cr_skip("scripts/install-cuda-runtimes fetches its compiler");
    }
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s%u.cubin", prefix, architectures[i]);
        ga_image image = read_file(path);
        serve_and_check(image);
        free((void *)image.bytes);
    }
}

/* ---- the module of the CUDA preload -------------------------------------------------------- */

/* Constant banks are those of the kernel's module, which is another one. Bank 0 of a kernel has its
 * parameters. */
static void expect_no_constants(const ga_cubin *cubin)
{
    ga_cubin_section section;
    for (size_t i = 1; i < cubin->section_count; i++) {
        cr_assert(ga_cubin_section_at(cubin, i, &section));
        bool is_constant = strncmp(section.name, ".nv.constant", 12) == 0;
        bool is_parameters = strncmp(section.name, ".nv.constant0.", 14) == 0;
        cr_assert(!is_constant || is_parameters || !section.content.size, "sm_%u: %s", cubin->sm,
                  section.name);
        bool is_shared = strncmp(section.name, ".nv.shared.", 11) == 0;
        cr_assert(!is_shared || !section.header.sh_size, "sm_%u: %s", cubin->sm, section.name);
    }
}

/* The words of the view can be written, and each is used. */
static void expect_words(const ga_cubin *cubin)
{
    static const char *const variables[] = GA_KERNEL_MODULE_WORDS;
    enum {
        COUNT = sizeof variables / sizeof *variables
    };
    uint64_t values[COUNT] = {0};
    ga_cubin_words words = {variables, values, COUNT};
    ga_cubin copied;
    uint8_t *copy = malloc(cubin->image.size);
    memcpy(copy, cubin->image.bytes, cubin->image.size);
    for (int i = 0; i < COUNT; i++) {
        cr_assert(count_relocations(cubin, variables[i]) > 1, "sm_%u: %s", cubin->sm, variables[i]);
    }
    cr_assert_eq(ga_cubin_open(&copied, (ga_image){copy, cubin->image.size}), GA_OK);
    cr_assert_eq(ga_cubin_write_words(&copied, copy, &words), GA_OK, "sm_%u: %s", cubin->sm,
                 ga_error_text());
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(count_relocations(&copied, variables[i]), 0);
    }
    free(copy);
}

/* ptxas assumes that registers above 31 survive a call of malloc. */
static void expect_callable(const char *file)
{
    ga_image fatbin = read_file(file);
    ga_fatbin_entry entry;
    size_t at = 0;
    unsigned count = 0;
    while (ga_fatbin_next(&entry, fatbin, &at)) {
        void *owned;
        ga_image image;
        ga_cubin cubin;
        ga_cubin_needs needs;
        cr_assert_eq(ga_fatbin_unpack(&image, &owned, &entry), GA_OK, "%s", ga_error_text());
        cr_assert_eq(ga_cubin_open(&cubin, image), GA_OK, "%s", ga_error_text());
        cr_assert_eq(ga_cubin_calls(&cubin), 0, "sm_%u calls CUDA's malloc", cubin.sm);
        cr_assert_eq(ga_cubin_read_needs(&cubin, GA_KERNEL_MODULE_NEEDS, &needs), GA_OK, "%s",
                     ga_error_text());
        cr_assert(needs.registers <= 32, "sm_%u: %u registers", cubin.sm, needs.registers);
        cr_assert_eq(ga_cubin_read_needs(&cubin, GA_KERNEL_MODULE_ALIGNED, &needs), GA_OK);
        cr_assert(needs.registers <= 32, "sm_%u: %u registers", cubin.sm, needs.registers);
        cr_assert_eq(ga_cubin_read_needs(&cubin, GA_KERNEL_MODULE_STUBS, &needs), GA_OK);
        cr_assert(needs.registers <= 32, "sm_%u: %u registers", cubin.sm, needs.registers);
        cr_assert_eq(count_relocations(&cubin, GA_CUBIN_OFFSET), 3, "sm_%u", cubin.sm);
        expect_no_constants(&cubin);
        expect_words(&cubin);
        ga_libc.free(owned);
        count++;
    }
    cr_assert(count > 0 && at == fatbin.size);
    free((void *)fatbin.bytes);
}

Test(images_nvcc, our_module_can_be_called_from_others)
{
    expect_callable(getenv("IMAGES_MODULE"));
}

Test(images_nvcc, and_as_compiled_from_ptx)
{
    expect_callable(getenv("IMAGES_NEWER"));
}

/* ---- compressed images --------------------------------------------------------------------- */

#ifdef GA_HAVE_ZSTD
Test(images_nvcc, compressed_by_zstd)
{
    check_all(getenv("IMAGES_ZSTD"), IMAGES_ARCHITECTURES);
}
#endif

#ifdef GA_HAVE_LZ4
Test(images_nvcc, compressed_by_lz4)
{
    check_all(getenv("IMAGES_LZ4"), IMAGES_ARCHITECTURES);
}
#endif

/* Each way of compressing gives the bytes that are stored plain. */
static void expect_equal(const char *compressed, const char *plain)
{
    ga_image all[2] = {read_file(compressed), read_file(plain)};
    size_t at[2] = {0};
    ga_fatbin_entry entry[2];
    unsigned count = 0;
    while (ga_fatbin_next(&entry[0], all[0], &at[0]) && ga_fatbin_next(&entry[1], all[1], &at[1])) {
        void *owned[2];
        ga_image image[2];
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(ga_fatbin_unpack(&image[i], &owned[i], &entry[i]), GA_OK, "%s",
                         ga_error_text());
        }
        cr_assert(owned[0] || entry[0].record.kind == GA_FATBIN_ELF);
        cr_assert_null(owned[1]);
        size_t size = image[0].size < image[1].size ? image[0].size : image[1].size;
        cr_assert(image[1].size - size < 8 && memcmp(image[0].bytes, image[1].bytes, size) == 0);
        ga_libc.free(owned[0]);
        count++;
    }
    cr_assert(count > IMAGES_ARCHITECTURES && at[1] == all[1].size);
    free((void *)all[0].bytes);
    free((void *)all[1].bytes);
}

#ifdef GA_HAVE_ZSTD
Test(images_nvcc, zstd_gives_the_plain_bytes)
{
    expect_equal(getenv("IMAGES_ZSTD"), getenv("IMAGES_WHOLE"));
}
#endif

#ifdef GA_HAVE_LZ4
Test(images_nvcc, lz4_gives_the_plain_bytes)
{
    expect_equal(getenv("IMAGES_LZ4"), getenv("IMAGES_WHOLE"));
}
#endif
