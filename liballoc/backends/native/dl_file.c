/* SPDX-License-Identifier: MIT
 *
 * Reads the names that a library defines or needs from its ELF file, and finds those of a loaded
 * library.
 */
#include "dl_file.h"

#include "../../platform/libc.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SANITIZER " sanitizer, which ends a program that loads it after its start"

static const struct {
    const char *symbol, *refusal;
} names[] = {
    {"gpualloc_malloc_preload", "is gpualloc's own malloc, which would call itself"},
    {"__asan_init", "is or needs the address" SANITIZER},
    {"__hwasan_init", "is or needs the hardware address" SANITIZER},
    {"__lsan_init", "is or needs the leak" SANITIZER},
    {"__msan_init", "is or needs the memory" SANITIZER},
    {"__tsan_init", "is or needs the thread" SANITIZER},
};

typedef struct file_view {
    const char *bytes;
    size_t size;
} file_view;

/* ---- names of dynamic symbols -------------------------------------------------------------- */

/* [offset, offset + size) of the file, or NULL if the file is shorter. */
static const void *part_at(file_view file, uint64_t offset, uint64_t size)
{
    return offset <= file.size && size <= file.size - offset ? file.bytes + offset : NULL;
}

static const ElfW(Shdr) * section_at(file_view file, const ElfW(Ehdr) * header, uint32_t index)
{
    uint64_t offset = header->e_shoff + (uint64_t)index * sizeof(ElfW(Shdr));
    bool aligned = offset % sizeof(uint64_t) == 0;
    return aligned && index < header->e_shnum ? part_at(file, offset, sizeof(ElfW(Shdr))) : NULL;
}

/* The table of the dynamic symbols' names, each with a NUL. Empty if there is none. */
static file_view symbol_names(file_view file)
{
    const ElfW(Ehdr) *header = part_at(file, 0, sizeof *header);
    bool elf = header && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
               header->e_shentsize == sizeof(ElfW(Shdr));
    for (uint32_t i = 0; elf && i < header->e_shnum; i++) {
        const ElfW(Shdr) *symbols = section_at(file, header, i);
        bool dynamic = symbols && symbols->sh_type == SHT_DYNSYM;
        const ElfW(Shdr) *text = dynamic ? section_at(file, header, symbols->sh_link) : NULL;
        if (text) {
            const char *bytes = part_at(file, text->sh_offset, text->sh_size);
            return (file_view){bytes, bytes ? text->sh_size : 0};
        }
    }
    return (file_view){0};
}

/* The table begins with a NUL, so that each complete name has one before and after it. */
static bool has_name(file_view text, const char *name)
{
    char whole[64];
    int length = snprintf(whole, sizeof whole, "%c%s", 0, name);
    return text.size && memmem(text.bytes, text.size, whole, (size_t)length + 1);
}

static const char *refusal_of(file_view file)
{
    file_view text = symbol_names(file);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (has_name(text, names[i].symbol)) {
            return names[i].refusal;
        }
    }
    return NULL;
}

/* ---- the file ------------------------------------------------------------------------------ */

static const char *refusal_of_open(int fd)
{
    struct stat is;
    if (fstat(fd, &is) != 0) {
        return NULL;
    }
    if (!S_ISREG(is.st_mode)) {
        return "is no regular file"; /* dlopen() would wait for a FIFO's writer */
    }
    if (is.st_size <= 0) {
        return NULL;
    }
    size_t size = (size_t)is.st_size;
    void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        return NULL;
    }
    const char *refusal = refusal_of((file_view){bytes, size});
    munmap(bytes, size);
    return refusal;
}

/* Check the file; false if it cannot be opened. O_NONBLOCK, because a FIFO without a writer would
 * block. */
static bool check_file(const char *path, const char **refusal)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    *refusal = refusal_of_open(fd);
    close(fd);
    return true;
}

/* The folders that the dynamic linker searches, LD_LIBRARY_PATH first; NULL on failure. The caller
 * frees it. */
static Dl_serinfo *search_path(void)
{
    Dl_serinfo size;
    void *program = dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD);
    if (!program || dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) {
        return NULL;
    }
    Dl_serinfo *path = ga_libc.calloc(1, size.dls_size);
    if (path && (dlinfo(program, RTLD_DI_SERINFOSIZE, path) != 0 ||
                 dlinfo(program, RTLD_DI_SERINFO, path) != 0)) {
        ga_libc.free(path);
        return NULL;
    }
    return path;
}

static const char *refusal_of_name(const char *name)
{
    const char *refusal = NULL;
    char path[PATH_MAX];
    Dl_serinfo *folders = search_path();
    for (unsigned i = 0; folders && i < folders->dls_cnt; i++) {
        snprintf(path, sizeof path, "%s/%s", folders->dls_serpath[i].dls_name, name);
        if (check_file(path, &refusal)) {
            break;
        }
    }
    ga_libc.free(folders);
    return refusal;
}

const char *ga_dl_file_refusal(const char *path)
{
    const char *refusal = NULL;
    if (!strchr(path, '/')) {
        return refusal_of_name(path);
    }
    check_file(path, &refusal);
    return refusal;
}

/* ---- a loaded library ----------------------------------------------------------------------- */

void *ga_dl_own_symbol(void *library, const char *name)
{
    struct link_map *map = NULL;
    Dl_info info;
    void *symbol = dlsym(library, name);
    if (!symbol || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !dladdr(symbol, &info)) {
        return NULL;
    }
    return (uintptr_t)info.dli_fbase == (uintptr_t)map->l_addr ? symbol : NULL;
}
