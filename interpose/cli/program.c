/* SPDX-License-Identifier: MIT
 *
 * Finds programs as the shell does, and detects those that LD_PRELOAD does not reach: the loader
 * ignores it for programs that gain privileges, static programs have no loader, musl's loader
 * cannot bind the preload's calls of glibc, a program's own malloc comes before any library's, and
 * a loader with an older C library cannot bind the preload either.
 *
 * All of this is known before the program is executed. An answer of the preload itself would need a
 * process beside the program that waits for it, or a descriptor that the program inherits.
 */
#include "../../liballoc/platform/environment.h"
#include "elf_file.h"
#include "paths.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
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

/* ---- following scripts --------------------------------------------------------------------- */

/* Copy the next word of a line, and return what follows it. */
static const char *next_word(const char *line, char *out, size_t size)
{
    line += strspn(line, " \t");
    size_t length = strcspn(line, " \t\n");
    snprintf(out, size, "%.*s", (int)length, line);
    return line + length;
}

/* The interpreter env(1) runs a program that it finds in PATH: the first word that is neither an
 * option nor a variable. */
static void follow_env(ga_path *path, const char *words)
{
    const char *slash = strrchr(path->text, '/');
    char word[256] = "";
    ga_path found;
    if (strcmp(slash ? slash + 1 : path->text, "env") != 0) {
        return;
    }
    do {
        words = next_word(words, word, sizeof word);
    } while (*word == '-' || strchr(word, '='));
    if (ga_program_find(&found, word) == 0) {
        *path = found;
    }
}

/* True if the file is a script; `path` then names its interpreter. */
static bool follow_script(ga_path *path)
{
    char line[256];
    int fd = ga_file_open(path->text);
    ssize_t length = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0) {
        close(fd);
    }
    line[length < 0 ? 0 : length] = '\0';
    if (strncmp(line, "#!", 2) != 0) {
        return false;
    }
    const char *words = next_word(line + 2, path->text, sizeof path->text);
    follow_env(path, words);
    return true;
}

/* ---- inspecting ---------------------------------------------------------------------------- */

/* True if the kernel grants no rights by this file: it is on a file system that is mounted nosuid,
 * or this process has given up new rights. */
static bool grants_nothing(const char *program)
{
    struct statvfs mount;
    return (statvfs(program, &mount) == 0 && mount.f_flag & ST_NOSUID) ||
           prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
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
    return (user || group || capable) && !grants_nothing(program);
}

/* The loader of this process, as the kernel found it in this program's file; "" if unknown. */
static const char *own_loader(void)
{
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    const ElfW(Phdr) *loader = NULL;
    ElfW(Addr) base = 0;
    for (unsigned long i = 0; segments && i < getauxval(AT_PHNUM); i++) {
        base = segments[i].p_type == PT_PHDR ? (ElfW(Addr))segments - segments[i].p_vaddr : base;
        loader = segments[i].p_type == PT_INTERP ? &segments[i] : loader;
    }
    return loader ? (const char *)(base + loader->p_vaddr) : "";
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat there, other;
    return strcmp(a, b) == 0 || (stat(a, &there) == 0 && stat(b, &other) == 0 &&
                                 there.st_dev == other.st_dev && there.st_ino == other.st_ino);
}

/* Musl's loader is /lib/ld-musl-ARCH.so.1; a link to it may be in any folder. */
static bool is_musl(const char *loader)
{
    const char *last = strrchr(loader, '/');
    return strncmp(last ? last + 1 : loader, "ld-musl-", 8) == 0;
}

static void set_trouble(ga_reach *out, bool harmful, const char *trouble)
{
    snprintf(out->trouble, sizeof out->trouble, "%s", trouble);
    out->harmful = harmful;
}

static void inspect(ga_reach *out, const ga_elf *elf, const char *program, const char *preload)
{
    char loader[PATH_MAX];
    if (!ga_elf_is_of_our_kind(elf)) {
        set_trouble(out, true, "it is made for another kind of processor than the library");
    } else if (!ga_elf_loader(elf, loader) || is_same_file(program, own_loader())) {
        return; /* unreadable, or the loader itself, which loads a program that it is given */
    } else if (!*loader) {
        set_trouble(out, false, "it is linked statically");
    } else if (is_musl(loader)) {
        set_trouble(out, true, "it is made for musl, and the library for glibc");
    } else if (ga_elf_defines(elf, "malloc")) {
        set_trouble(out, false, "it defines malloc itself, and that comes first");
    } else if (!is_same_file(loader, own_loader())) {
        ga_loader_ask(out, loader, program, preload);
    }
}

void ga_program_reach(ga_reach *out, const char *program, const char *preload)
{
    ga_path path;
    ga_elf elf;
    *out = (ga_reach){.trouble = ""};
    snprintf(path.text, sizeof path.text, "%s", program);
    for (int i = 0; i < INTERPRETERS_MAX && follow_script(&path); i++) {
    }
    if (gains_rights(path.text)) {
        set_trouble(out, false, "it gains rights when it runs (setuid, setgid or capabilities)");
    } else if (ga_elf_open(&elf, path.text)) {
        inspect(out, &elf, path.text, preload);
        ga_elf_close(&elf);
    }
}
