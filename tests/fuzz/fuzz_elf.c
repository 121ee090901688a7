/* SPDX-License-Identifier: MIT
 *
 * Any file as a program, as `gpualloc run` reads it before it executes it. It would catch reads and
 * writes past a buffer, texts without an end, and loops that a file's own figures keep long.
 */
#include "../../interpose/cli/elf_file.h"
#include "fuzz.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *const fuzz_tokens[] = {
    "\xff\xff\xff\xff\xff\xff\xff\xff",
    "\xff\xff\xff\x7f",
    "\1\0\0\0\0\0\0",
    "gpualloc",
    "malloc",
    NULL,
};

enum {
    ADDRESS = 0x1000,
    SEGMENTS = 4
};

/* A program with a loader, a note, and a symbol. */
typedef struct image {
    ElfW(Ehdr) header;
    ElfW(Phdr) segments[SEGMENTS];
    char loader[16];
    uint32_t note_sizes[3];
    char note_name[12], note_text[8];
    ElfW(Dyn) dynamic[5];
    ElfW(Sym) symbols[2];
    char names[16];
    uint32_t hash_head[4];
    ElfW(Addr) filter[1];
    uint32_t buckets[1], chain[1];
    uint32_t old_hashes[5]; /* of System V: two counts, a bucket, and a link for each symbol */
} image;

static ElfW(Phdr) segment(ElfW(Word) type, size_t at, size_t size)
{
    return (ElfW(Phdr)){
        .p_type = type, .p_offset = at, .p_vaddr = ADDRESS + at, .p_filesz = size, .p_memsz = size};
}

static ElfW(Dyn) entry(ElfW(Sxword) tag, size_t at)
{
    return (ElfW(Dyn)){.d_tag = tag, .d_un = {.d_ptr = ADDRESS + at}};
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

static image good_image(bool old)
{
    ElfW(Dyn) hashes = old ? entry(DT_HASH, offsetof(image, old_hashes))
                           : entry(DT_GNU_HASH, offsetof(image, hash_head));
    image it = {
        .segments = {segment(PT_LOAD, 0, sizeof it),
                     segment(PT_INTERP, offsetof(image, loader), sizeof it.loader),
                     segment(PT_NOTE, offsetof(image, note_sizes),
                             offsetof(image, dynamic) - offsetof(image, note_sizes)),
                     segment(PT_DYNAMIC, offsetof(image, dynamic), sizeof it.dynamic)},
        .loader = "/lib/ld.so",
        .note_sizes = {9, 6, 1},
        .note_name = "gpualloc",
        .note_text = "1.2.3",
        .dynamic = {entry(DT_SYMTAB, offsetof(image, symbols)),
                    entry(DT_STRTAB, offsetof(image, names)),
                    hashes,
                    {.d_tag = DT_SONAME},
                    {.d_tag = DT_NULL}},
        .symbols = {{0}, {.st_name = 1, .st_shndx = 1}},
        .names = "\0malloc",
        .hash_head = {1, 1, 1, 0},
        .buckets = {1},
        .chain = {hash_of("malloc") | 1},
        .old_hashes = {1, 2, 1},
    };
    int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    FUZZ_NEED(read(own, &it.header, sizeof it.header) == (ssize_t)sizeof it.header);
    close(own);
    it.header.e_phoff = offsetof(image, segments);
    it.header.e_phnum = SEGMENTS;
    return it;
}

size_t fuzz_seed(size_t number, uint8_t room[FUZZ_INPUT_MAX])
{
    image it = good_image(number == 1);
    memcpy(room, &it, sizeof it);
    return number < 2 ? sizeof it : 0;
}

/* ---- the target ----------------------------------------------------------------------------- */

static void check(const ga_elf *elf, bool good)
{
    char loader[PATH_MAX], version[32];
    bool known = ga_elf_loader(elf, loader);
    bool defines = ga_elf_defines(elf, "malloc");
    bool library = ga_elf_is_library(elf);
    bool has_version = ga_elf_version(elf, version);
    FUZZ_NEED(!known || strlen(loader) < sizeof loader);
    FUZZ_NEED(!has_version || strlen(version) < sizeof version);
    if (good) {
        FUZZ_NEED(known && strcmp(loader, "/lib/ld.so") == 0);
        FUZZ_NEED(defines && !ga_elf_defines(elf, "free"));
        FUZZ_NEED(library && has_version && strcmp(version, "1.2.3") == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    image seeds[2] = {good_image(false), good_image(true)};
    bool good = size == sizeof *seeds &&
                (memcmp(data, &seeds[0], size) == 0 || memcmp(data, &seeds[1], size) == 0);
    char path[32];
    ga_elf elf;
    int file = memfd_create("program", MFD_CLOEXEC);
    FUZZ_NEED(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (ga_elf_open(&elf, path)) {
        if (ga_elf_is_of_our_kind(&elf)) {
            check(&elf, good);
        }
        ga_elf_close(&elf);
    }
    close(file);
    return 0;
}
