/* SPDX-License-Identifier: MIT
 *
 * Finds programs as the shell does, and detects those that LD_PRELOAD does not reach: the loader
 * ignores it for programs that gain privileges, static programs have no loader, and musl's loader
 * cannot bind the preload's calls of glibc.
 */
#include "../../liballoc/platform/environment.h"
#include "paths.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
    INTERPRETERS_MAX = 4 /* scripts run by scripts; near the kernel's limit */
};

/* ---- finding ------------------------------------------------------------------------------- */

/* 0, or the errno that execvp(3) would leave. */
static int runnable(const char *path)
{
    struct stat stat_of;
    if (stat(path, &stat_of) != 0) {
        return errno;
    }
    return S_ISREG(stat_of.st_mode) && access(path, X_OK) == 0 ? 0 : EACCES;
}

static int find_in_path(ga_path *out, const char *name)
{
    const char *path = ga_environment("PATH");
    int worst = ENOENT;
    for (const char *dir = path ? path : "/bin:/usr/bin"; dir;) {
        size_t length = strcspn(dir, ":");
        int printed = snprintf(out->text, sizeof out->text, "%.*s%s%s", (int)length, dir,
                               length ? "/" : "./", name);
        int error = printed < (int)sizeof out->text ? runnable(out->text) : ENAMETOOLONG;
        if (error == 0) {
            return 0;
        }
        worst = error == EACCES ? EACCES : worst;
        dir = dir[length] ? dir + length + 1 : NULL;
    }
    return worst;
}

int ga_program_find(ga_path *out, const char *name)
{
    if (!*name) {
        return ENOENT;
    }
    if (!strchr(name, '/')) {
        return find_in_path(out, name);
    }
    int length = snprintf(out->text, sizeof out->text, "%s", name);
    return length < (int)sizeof out->text ? runnable(name) : ENAMETOOLONG;
}

/* ---- inspecting ---------------------------------------------------------------------------- */

/* -1: not a regular file. The kernel executes no others, and opening a FIFO would wait. */
static int open_program(const char *path)
{
    struct stat there;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &there) != 0 || !S_ISREG(there.st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The number of bytes read from the file's start; 0: not readable. */
static size_t read_start(const char *path, void *start, size_t size)
{
    int fd = open_program(path);
    ssize_t length = fd < 0 ? 0 : read(fd, start, size);
    if (fd >= 0) {
        close(fd);
    }
    return length < 0 ? 0 : (size_t)length;
}

/* True if the file is a script; `path` then names its interpreter. */
static bool follow_script(ga_path *path)
{
    char line[256];
    size_t length = read_start(path->text, line, sizeof line - 1);
    line[length] = '\0';
    if (strncmp(line, "#!", 2) != 0) {
        return false;
    }
    const char *name = line + 2 + strspn(line + 2, " \t");
    snprintf(path->text, sizeof path->text, "%.*s", (int)strcspn(name, " \t\n"), name);
    return true;
}

static bool gains_rights(const char *program)
{
    struct stat stat_of;
    if (stat(program, &stat_of) != 0) {
        return false;
    }
    bool user = stat_of.st_mode & S_ISUID && stat_of.st_uid != getuid();
    bool group = stat_of.st_mode & S_ISGID && stat_of.st_gid != getgid();
    bool capable = getuid() != 0 && getxattr(program, "security.capability", NULL, 0) > 0;
    return user || group || capable;
}

/* The PT_INTERP segment, which names the loader. p_type is PT_NULL if there is none; `error` is set
 * if it cannot be read. */
static ElfW(Phdr) loader_segment(int fd, const ElfW(Ehdr) * header, bool *error)
{
    ElfW(Phdr) segment;
    *error = fd < 0;
    for (unsigned i = 0; !*error && i < header->e_phnum; i++) {
        off_t at = (off_t)(header->e_phoff + i * sizeof segment);
        *error = pread(fd, &segment, sizeof segment, at) != (ssize_t)sizeof segment;
        if (!*error && segment.p_type == PT_INTERP) {
            return segment;
        }
    }
    return (ElfW(Phdr)){.p_type = PT_NULL};
}

/* Musl's loader is /lib/ld-musl-ARCH.so.1; a link to it may be in any folder. */
static bool is_musl(int fd, const ElfW(Phdr) * segment)
{
    char name[256] = "";
    size_t length = segment->p_filesz < sizeof name ? segment->p_filesz : sizeof name - 1;
    if (pread(fd, name, length, (off_t)segment->p_offset) != (ssize_t)length) {
        return false;
    }
    const char *last = strrchr(name, '/');
    return strncmp(last ? last + 1 : name, "ld-musl-", 8) == 0;
}

/* The reason why the program's loader ignores the preload; NULL: it does not, or unknown. */
static const char *loader_trouble(const char *program, const ElfW(Ehdr) * header, bool *stops)
{
    bool error;
    int fd = open_program(program);
    ElfW(Phdr) segment = loader_segment(fd, header, &error);
    const char *trouble = NULL;
    if (!error && segment.p_type == PT_NULL) {
        trouble = "it is linked statically";
    } else if (!error && is_musl(fd, &segment)) {
        trouble = "it is made for musl, and the library for glibc";
        *stops = true;
    }
    if (fd >= 0) {
        close(fd);
    }
    return trouble;
}

static bool read_header(const char *path, ElfW(Ehdr) * out)
{
    return read_start(path, out, sizeof *out) == sizeof *out &&
           memcmp(out->e_ident, ELFMAG, SELFMAG) == 0;
}

const char *ga_program_trouble(const char *program, const char *preload, bool *stops)
{
    *stops = false;
    ga_path path;
    ElfW(Ehdr) own, header;
    snprintf(path.text, sizeof path.text, "%s", program);
    for (int i = 0; i < INTERPRETERS_MAX && follow_script(&path); i++) {
    }
    if (gains_rights(path.text)) {
        return "it gains rights when it runs (setuid, setgid or capabilities)";
    }
    if (!read_header(preload, &own) || !read_header(path.text, &header)) {
        return NULL;
    }
    if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || header.e_machine != own.e_machine) {
        return "it is made for another kind of processor than the library";
    }
    return loader_trouble(path.text, &header, stops);
}
