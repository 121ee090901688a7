/* SPDX-License-Identifier: MIT */
#include "elf_file.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTE_NAME "gpualloc"

/* Bounds for damaged files; real ones stay far below. */
enum {
    NOTES_MAX = 64,
    ENTRIES_MAX = 4096,     /* of the dynamic section */
    CANDIDATES_MAX = 65536, /* symbols in a bucket of the hash table */
    SEGMENTS_SIZE = 65536   /* bytes of their table; the kernel executes no file with more */
};

/* ---- opening ------------------------------------------------------------------------------- */

int ga_file_open(const char *path)
{
    struct stat there;
    if (stat(path, &there) != 0 || !S_ISREG(there.st_mode)) {
        return -1; /* opening a device can have effects */
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &there) != 0 || !S_ISREG(there.st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool read_at(const ga_elf *elf, uint64_t at, void *out, size_t size)
{
    return at <= INT64_MAX && pread(elf->fd, out, size, (off_t)at) == (ssize_t)size;
}

bool ga_elf_open(ga_elf *out, const char *path)
{
    out->fd = ga_file_open(path);
    if (out->fd >= 0 && read_at(out, 0, &out->header, sizeof out->header) &&
        memcmp(out->header.e_ident, ELFMAG, SELFMAG) == 0) {
        return true;
    }
    ga_elf_close(out);
    return false;
}

void ga_elf_close(ga_elf *elf)
{
    if (elf->fd >= 0) {
        close(elf->fd);
        elf->fd = -1;
    }
}

bool ga_elf_is_of_our_kind(const ga_elf *elf)
{
    ga_elf own;
    if (!ga_elf_open(&own, "/proc/self/exe")) {
        return true; /* unknown: without /proc */
    }
    ga_elf_close(&own);
    return elf->header.e_ident[EI_CLASS] == own.header.e_ident[EI_CLASS] &&
           elf->header.e_ident[EI_DATA] == own.header.e_ident[EI_DATA] &&
           elf->header.e_machine == own.header.e_machine;
}

/* ---- segments ------------------------------------------------------------------------------ */

/* The next segment of a type, from number *at on. p_type is PT_NULL behind the last, and if the
 * segments cannot be read, which `error` then tells. */
static ElfW(Phdr) next_segment(const ga_elf *elf, ElfW(Word) type, unsigned *at, bool *error)
{
    ElfW(Phdr) segment;
    *error = elf->header.e_phentsize != sizeof segment ||
             elf->header.e_phnum > SEGMENTS_SIZE / sizeof segment;
    while (!*error && *at < elf->header.e_phnum) {
        uint64_t place = elf->header.e_phoff + (*at)++ * sizeof segment;
        *error = !read_at(elf, place, &segment, sizeof segment);
        if (*error) {
            break;
        }
        if (segment.p_type == type) {
            return segment;
        }
    }
    return (ElfW(Phdr)){.p_type = PT_NULL};
}

static ElfW(Phdr) first_segment(const ga_elf *elf, ElfW(Word) type, bool *error)
{
    unsigned at = 0;
    return next_segment(elf, type, &at, error);
}

bool ga_elf_loader(const ga_elf *elf, char name[PATH_MAX])
{
    bool error;
    ElfW(Phdr) segment = first_segment(elf, PT_INTERP, &error);
    name[0] = '\0';
    if (error || segment.p_type == PT_NULL) {
        return !error;
    }
    size_t length = segment.p_filesz < PATH_MAX ? segment.p_filesz : PATH_MAX - 1;
    name[length] = '\0';
    return read_at(elf, segment.p_offset, name, length);
}

bool ga_elf_version(const ga_elf *elf, char text[32])
{
    struct {
        uint32_t name_size, text_size, type;
        char name[(sizeof NOTE_NAME + 3) / 4 * 4];
    } note;
    unsigned at = 0;
    bool error;
    ElfW(Phdr) segment;
    while (segment = next_segment(elf, PT_NOTE, &at, &error), segment.p_type == PT_NOTE) {
        uint64_t place = segment.p_offset;
        uint64_t end = place + segment.p_filesz;
        for (int i = 0; i < NOTES_MAX && place < end; i++) {
            if (!read_at(elf, place, &note, sizeof note)) {
                break;
            }
            bool ours = note.name_size == sizeof NOTE_NAME && note.text_size <= 32 &&
                        memcmp(note.name, NOTE_NAME, sizeof NOTE_NAME) == 0;
            memset(text, 0, 32);
            if (ours && read_at(elf, place + sizeof note, text, note.text_size) && !text[31]) {
                return true;
            }
            place += 12 + (((uint64_t)note.name_size + 3) & ~3ull) +
                     (((uint64_t)note.text_size + 3) & ~3ull);
        }
    }
    return false;
}

unsigned ga_elf_build_id(const ga_elf *elf, unsigned char out[GA_ELF_BUILD_ID_MAX])
{
    struct {
        uint32_t name_size, text_size, type;
        char name[4];
    } note;
    unsigned at = 0;
    bool error;
    ElfW(Phdr) segment;
    while (segment = next_segment(elf, PT_NOTE, &at, &error), segment.p_type == PT_NOTE) {
        uint64_t place = segment.p_offset;
        uint64_t end = place + segment.p_filesz;
        for (int i = 0; i < NOTES_MAX && place < end; i++) {
            if (!read_at(elf, place, &note, sizeof note)) {
                break;
            }
            if (note.type == NT_GNU_BUILD_ID && note.name_size == sizeof note.name &&
                memcmp(note.name, "GNU", sizeof note.name) == 0 &&
                note.text_size <= GA_ELF_BUILD_ID_MAX &&
                read_at(elf, place + sizeof note, out, note.text_size)) {
                return note.text_size;
            }
            place += 12 + (((uint64_t)note.name_size + 3) & ~3ull) +
                     (((uint64_t)note.text_size + 3) & ~3ull);
        }
    }
    return 0;
}

/* ---- dynamic symbols ----------------------------------------------------------------------- */

/* Of the dynamic section: addresses, which place_of() makes places in the file. 0: none. */
typedef struct symbol_tables {
    uint64_t symbols, names;
    uint64_t hashes, old_hashes; /* of GNU, and of System V */
    bool soname;
} symbol_tables;

static uint64_t place_of(const ga_elf *elf, ElfW(Addr) address)
{
    unsigned at = 0;
    bool error;
    ElfW(Phdr) segment;
    while (segment = next_segment(elf, PT_LOAD, &at, &error), segment.p_type == PT_LOAD) {
        if (address - segment.p_vaddr < segment.p_filesz) {
            return address - segment.p_vaddr + segment.p_offset;
        }
    }
    return 0;
}

static symbol_tables addresses_of(const ga_elf *elf)
{
    symbol_tables found = {0};
    bool error;
    ElfW(Phdr) dynamic = first_segment(elf, PT_DYNAMIC, &error);
    ElfW(Dyn) entry = {.d_tag = DT_NULL};
    uint64_t count = dynamic.p_type == PT_NULL ? 0 : dynamic.p_filesz / sizeof entry;
    for (uint64_t i = 0; i < count && i < ENTRIES_MAX; i++) {
        if (!read_at(elf, dynamic.p_offset + i * sizeof entry, &entry, sizeof entry) ||
            entry.d_tag == DT_NULL) {
            break;
        }
        uint64_t *address = entry.d_tag == DT_SYMTAB     ? &found.symbols
                            : entry.d_tag == DT_STRTAB   ? &found.names
                            : entry.d_tag == DT_GNU_HASH ? &found.hashes
                            : entry.d_tag == DT_HASH     ? &found.old_hashes
                                                         : NULL;
        if (address) {
            *address = entry.d_un.d_ptr;
        }
        found.soname = found.soname || entry.d_tag == DT_SONAME;
    }
    return found;
}

static symbol_tables tables_of(const ga_elf *elf)
{
    symbol_tables found = addresses_of(elf);
    found.symbols = place_of(elf, found.symbols);
    found.names = place_of(elf, found.names);
    found.hashes = place_of(elf, found.hashes);
    found.old_hashes = place_of(elf, found.old_hashes);
    return found;
}

bool ga_elf_is_library(const ga_elf *elf)
{
    return addresses_of(elf).soname;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

static bool is_definition(const ga_elf *elf, const symbol_tables *in, uint32_t number,
                          const char *name)
{
    ElfW(Sym) symbol;
    char found[64];
    size_t size = strlen(name) + 1;
    return size <= sizeof found &&
           read_at(elf, in->symbols + number * sizeof symbol, &symbol, sizeof symbol) &&
           symbol.st_shndx != SHN_UNDEF && read_at(elf, in->names + symbol.st_name, found, size) &&
           memcmp(found, name, size) == 0;
}

/* liballoc/platform/object_symbols.c has the layouts of the hash tables, there of a loaded file. */
static bool gnu_table_has(const ga_elf *elf, const symbol_tables *in, const char *function)
{
    uint32_t head[4]; /* buckets, first symbol, words of the filter, a shift */
    if (!read_at(elf, in->hashes, head, sizeof head) || head[0] == 0) {
        return false;
    }
    uint32_t hash = hash_of(function);
    uint32_t at, kept;
    uint64_t buckets = in->hashes + sizeof head + (uint64_t)head[2] * sizeof(ElfW(Addr));
    uint64_t chain = buckets + (uint64_t)head[0] * 4;
    if (!read_at(elf, buckets + (uint64_t)(hash % head[0]) * 4, &at, 4) || at < head[1]) {
        return false;
    }
    for (int i = 0; i < CANDIDATES_MAX; i++, at++) {
        if (!read_at(elf, chain + (uint64_t)(at - head[1]) * 4, &kept, 4)) {
            break;
        }
        if ((kept | 1) == (hash | 1) && is_definition(elf, in, at, function)) {
            return true;
        }
        if (kept & 1) {
            break;
        }
    }
    return false;
}

static uint32_t old_hash_of(const char *name)
{
    uint32_t hash = 0;
    for (; *name; name++) {
        hash = (hash << 4) + (unsigned char)*name;
        hash = (hash ^ (hash >> 28 << 4)) & 0x0fffffff;
    }
    return hash;
}

static bool old_table_has(const ga_elf *elf, const symbol_tables *in, const char *function)
{
    uint32_t head[2]; /* buckets, symbols */
    if (!read_at(elf, in->old_hashes, head, sizeof head) || head[0] == 0) {
        return false;
    }
    uint32_t number = old_hash_of(function) % head[0]; /* of a word behind the head */
    for (int i = 0; i < CANDIDATES_MAX; i++) {
        uint32_t symbol;
        uint64_t place = in->old_hashes + sizeof head + (uint64_t)number * 4;
        if (!read_at(elf, place, &symbol, 4) || symbol == 0 || symbol >= head[1]) {
            break;
        }
        if (is_definition(elf, in, symbol, function)) {
            return true;
        }
        number = head[0] + symbol;
    }
    return false;
}

bool ga_elf_defines(const ga_elf *elf, const char *function)
{
    symbol_tables in = tables_of(elf);
    if (!in.symbols || !in.names) {
        return false;
    }
    return in.hashes       ? gnu_table_has(elf, &in, function)
           : in.old_hashes ? old_table_has(elf, &in, function)
                           : false;
}
