/* SPDX-License-Identifier: MIT
 *
 * Finds programs as the shell does, and detects those that LD_PRELOAD does not reach: the loader
 * ignores it for programs that gain or keep privileges, static programs have no loader, musl's
 * loader cannot bind the preload's calls of glibc, a program's own malloc comes before any
 * library's, and a loader with an older C library cannot bind the preload either.
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

/* Copy the next word of a line, without its quotes, and return what follows it. */
static const char *next_word(const char *line, char *out, size_t size)
{
    size_t length = 0;
    char quote = '\0';
    line += strspn(line, " \t");
    for (; *line && *line != '\n' && (quote || (*line != ' ' && *line != '\t')); line++) {
        if (*line == quote) {
            quote = '\0';
        } else if (!quote && (*line == '"' || *line == '\'')) {
            quote = *line;
        } else if (length + 1 < size) {
            out[length++] = *line;
        }
    }
    out[length] = '\0';
    return line;
}

typedef struct env_line {
    const char *rest; /* the words that are not read yet */
    char word[256];
    bool drops; /* the preload is removed, or replaced */
} env_line;

static void drop_if_preload(env_line *line, const char *variable)
{
    line->drops = line->drops || strcmp(variable, "LD_PRELOAD") == 0;
}

/* Read the options of one letter in a word. Those with a value have it in the word, or in the next
 * one; that of -S is more words. Returns true if the rest of the word is such a word, the
 * program's. */
static bool read_letters(env_line *line)
{
    for (const char *letter = line->word + 1; *letter; letter++) {
        if (*letter == 'i') {
            line->drops = true;
        } else if (strchr("uCS", *letter)) {
            char option = *letter;
            memmove(line->word, letter + 1, strlen(letter));
            if (!*line->word && option != 'S') {
                line->rest = next_word(line->rest, line->word, sizeof line->word);
            }
            if (option == 'u') {
                drop_if_preload(line, line->word);
            }
            return option == 'S' && *line->word;
        }
    }
    return false;
}

/* Read a word before the program's name. Returns true if the word is, or becomes, that name. */
static bool read_word(env_line *line)
{
    static const char split[] = "--split-string=", unset[] = "--unset=";
    char *word = line->word;
    if (strncmp(word, split, sizeof split - 1) == 0) {
        memmove(word, word + sizeof split - 1, strlen(word) - sizeof split + 2);
        return *word && read_word(line);
    }
    if (strcmp(word, "-") == 0 || strcmp(word, "--ignore-environment") == 0) {
        line->drops = true;
    } else if (strncmp(word, unset, sizeof unset - 1) == 0) {
        drop_if_preload(line, word + sizeof unset - 1);
    } else if (word[0] == '-' && word[1] != '-') {
        return read_letters(line) && read_word(line);
    } else if (*word != '-' && strchr(word, '=')) {
        line->drops = line->drops || strncmp(word, "LD_PRELOAD=", 11) == 0;
    } else {
        return *word != '-';
    }
    return false;
}

/* The way to the file that decides. */
typedef struct trail {
    ga_path path;
    bool env;   /* env(1) is among the interpreters */
    bool drops; /* and removes the preload */
    int error;  /* the errno that execve(2) leaves; 0: none known */
} trail;

/* The interpreter env(1) runs a program that it finds in PATH. */
static void follow_env(trail *to, const char *words)
{
    env_line line = {.rest = words};
    const char *slash = strrchr(to->path.text, '/');
    ga_path found;
    if (strcmp(slash ? slash + 1 : to->path.text, "env") != 0) {
        return;
    }
    do {
        line.rest = next_word(line.rest, line.word, sizeof line.word);
    } while (!read_word(&line) && *line.rest);
    if (ga_program_find(&found, line.word) == 0) {
        to->path = found;
    }
    to->env = true;
    to->drops = to->drops || line.drops;
}

/* Whether the kernel executes the interpreter: it does not use quotes, and takes no part of a
 * name. */
static void take_interpreter(trail *to, const char *line, size_t size)
{
    size_t length = strcspn(line, " \t\n");
    snprintf(to->path.text, sizeof to->path.text, "%.*s", (int)length, line);
    if (length && length < size && !to->env) {
        to->error = runnable(to->path.text);
    }
}

/* True if the file is a script, whose interpreter is then the file. */
static bool follow_script(trail *to)
{
    char line[256];
    int fd = ga_file_open(to->path.text);
    ssize_t length = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0) {
        close(fd);
    }
    line[length < 0 ? 0 : length] = '\0';
    if (strncmp(line, "#!", 2) != 0) {
        return false;
    }
    const char *name = line + 2 + strspn(line + 2, " \t");
    take_interpreter(to, name, sizeof line - 1 - (size_t)(name - line));
    follow_env(to, name + strcspn(name, " \t\n"));
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
    bool setgid = (stat_of.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);
    bool group = setgid && stat_of.st_gid != getgid();
    bool capable = getuid() != 0 && getxattr(program, "security.capability", NULL, 0) > 0;
    return (user || group || capable) && !grants_nothing(program);
}

/* As by a program that has the effective user of its file, and runs others: the loader ignores the
 * environment of those, too. */
static bool has_rights(void)
{
    return geteuid() != getuid() || getegid() != getgid();
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
    } else if (!ga_elf_loader(elf, loader)) {
        return; /* unreadable */
    } else if (*loader && access(loader, F_OK) != 0) {
        out->error = errno;
    } else if (is_musl(*loader ? loader : program)) {
        set_trouble(out, true, "it is made for musl, and the library for glibc");
    } else if (!*loader && ga_elf_is_library(elf)) {
        return; /* a loader, which loads a program that it is given */
    } else if (!*loader) {
        set_trouble(out, false, "it is linked statically");
    } else if (ga_elf_defines(elf, "malloc")) {
        set_trouble(out, false, "it defines malloc itself, and that comes first");
    } else if (!is_same_file(loader, own_loader())) {
        ga_loader_ask(out, loader, program, preload);
    }
}

void ga_program_reach(ga_reach *out, const char *program, const char *preload)
{
    trail to = {.error = 0};
    ga_elf elf;
    *out = (ga_reach){.trouble = ""};
    snprintf(to.path.text, sizeof to.path.text, "%s", program);
    for (int i = 0; i < INTERPRETERS_MAX && !to.error && follow_script(&to); i++) {
    }
    out->error = to.error;
    if (to.error) {
        return;
    }
    if (to.drops) {
        set_trouble(out, false, "env removes it from the environment");
    } else if (gains_rights(to.path.text)) {
        set_trouble(out, false, "it gains rights when it runs (setuid, setgid or capabilities)");
    } else if (has_rights()) {
        set_trouble(out, false, "this process has rights that its user has not");
    } else if (ga_elf_open(&elf, to.path.text)) {
        inspect(out, &elf, to.path.text, preload);
        out->error = to.env ? 0 : out->error; /* env itself starts */
        ga_elf_close(&elf);
    }
}
