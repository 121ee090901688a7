/* SPDX-License-Identifier: MIT
 *
 * Finds the preload libraries and the benchmark programs relative to this executable, so that a
 * build tree and a moved installation both work.
 */
#include "../../liballoc/platform/environment.h"
#include "elf_file.h"
#include "paths.h"

#include <gpualloc/backend.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
    const char *name, *folder; /* in a build tree */
} libraries[] = {
    [GA_PRELOAD_MALLOC] = {"libgpualloc-malloc.so", "malloc"},
    [GA_PRELOAD_ALIGN] = {"libgpualloc-align.so", "align"},
    [GA_PRELOAD_CUDA] = {"libgpualloc-cuda.so", "cuda"},
};

ga_status ga_path_absolute(ga_path *out, const char *path)
{
    char cwd[PATH_MAX] = "";
    if (*path != '/' && !getcwd(cwd, sizeof cwd)) {
        return ga_fail(GA_ERR_IO, "\"%.200s\": the current directory has no name", path);
    }
    int length = snprintf(out->text, sizeof out->text, "%s%s%s", cwd, *cwd ? "/" : "", path);
    if (length >= (int)sizeof out->text) {
        return ga_fail(GA_ERR_IO, "\"%.200s...\": expected a path of at most %d bytes", path,
                       PATH_MAX - 1);
    }
    return GA_OK;
}

static bool is_in(ga_path *out, const char *dir, const char *name)
{
    int length = snprintf(out->text, sizeof out->text, "%s/%s", dir, name);
    return length < (int)sizeof out->text && access(out->text, R_OK) == 0;
}

static ga_status find_in(ga_path *out, const char *variable, const char *dir, const char *name)
{
    ga_path base;
    ga_status status = ga_path_absolute(&base, dir);
    if (status == GA_OK && !is_in(out, base.text, name)) {
        status = ga_fail(GA_ERR_LIBRARY, "%s: expected %s in \"%s\"", variable, name, base.text);
    }
    return status;
}

/* The directory two levels above the executable; empty if unknown. */
static bool find_base(ga_path *out)
{
    ssize_t length = readlink("/proc/self/exe", out->text, sizeof out->text - 1);
    out->text[length > 0 ? length : 0] = '\0';
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(out->text, '/');
        if (!slash) {
            out->text[0] = '\0';
            return false;
        }
        *slash = '\0';
    }
    return true;
}

/* Search the folders (the last is NULL) relative to the directory above this executable's, which
 * becomes *base. */
static bool is_beside(ga_path *out, ga_path *base, const char *const folders[], const char *name)
{
    bool known = find_base(base);
    for (size_t i = 0; known && folders[i]; i++) {
        char dir[PATH_MAX];
        int length = snprintf(dir, sizeof dir, "%s/%s", base->text, folders[i]);
        if (length < (int)sizeof dir && is_in(out, dir, name)) {
            return true;
        }
    }
    return false;
}

/* GA_CLI_LIBDIR is the build's libdir: relative to the prefix if it lies within, else absolute. */
static ga_status find_library(ga_path *out, const char *name, const char *folder)
{
    const char *const beside[] = {folder, GA_CLI_LIBDIR, "lib64", "lib", NULL};
    ga_path base;
    if (is_beside(out, &base, beside, name) || is_in(out, GA_CLI_LIBDIR_FULL, name)) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_LIBRARY,
                   "cannot find %s in %s, " GA_CLI_LIBDIR
                   ", lib64 or lib of \"%s\"; GPUALLOC_PRELOAD_DIR can say where it is",
                   name, folder, *base.text ? base.text : GA_CLI_LIBDIR_FULL);
}

const char *ga_preload_name(ga_preload which)
{
    return libraries[which].name;
}

/* ---- checking a library -------------------------------------------------------------------- */

static bool can_be_executed(const ga_elf *library)
{
    void *page = mmap(NULL, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, library->fd, 0);
    return page != MAP_FAILED && munmap(page, 1) == 0;
}

static ga_status check_version(const ga_elf *library, const char *path)
{
    char version[32];
    if (!ga_elf_is_of_our_kind(library)) {
        return ga_fail(GA_ERR_LIBRARY, "\"%s\" is made for another kind of processor", path);
    }
    if (!ga_elf_version(library, version)) {
        return ga_fail(GA_ERR_LIBRARY, "\"%s\" is no library of gpualloc %s", path,
                       ga_version_text());
    }
    if (strcmp(version, ga_version_text()) != 0) {
        return ga_fail(GA_ERR_LIBRARY, "\"%s\" is of gpualloc %s; expected this command's, %s",
                       path, version, ga_version_text());
    }
    return GA_OK;
}

/* For each process, the loader would report a library that it cannot load. */
static ga_status check_library(const char *path)
{
    ga_elf library;
    if (!ga_elf_open(&library, path)) {
        return ga_fail(GA_ERR_LIBRARY, "\"%s\" is no library of gpualloc %s", path,
                       ga_version_text());
    }
    ga_status status = check_version(&library, path);
    if (status == GA_OK && !can_be_executed(&library)) {
        status = ga_fail(GA_ERR_LIBRARY,
                         "\"%s\" cannot be loaded: %s; is its file system mounted noexec?", path,
                         strerror(errno));
    }
    ga_elf_close(&library);
    return status;
}

static bool ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), size = strlen(end);
    return length >= size && strcmp(name + length - size, end) == 0;
}

/* Whether searching the folder of the library first finds no library of others. */
static bool has_ours_alone(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    DIR *entries = opendir(folder);
    bool alone = entries;
    for (struct dirent *it; alone && (it = readdir(entries));) {
        bool library = strstr(it->d_name, ".so.") || ends_in(it->d_name, ".so");
        alone = !library || strncmp(it->d_name, "libgpualloc", strlen("libgpualloc")) == 0;
    }
    if (entries) {
        closedir(entries);
    }
    return alone;
}

/* preload_list.h says how. */
static bool can_be_named(const char *path)
{
    return !strpbrk(path, ":$") &&
           (!strchr(path, ' ') || (!strchr(path, ';') && has_ours_alone(path)));
}

ga_status ga_preload_find(ga_path *out, ga_preload which)
{
    const char *dir = ga_environment("GPUALLOC_PRELOAD_DIR");
    const char *name = libraries[which].name;
    ga_status status = dir && *dir ? find_in(out, "GPUALLOC_PRELOAD_DIR", dir, name)
                                   : find_library(out, name, libraries[which].folder);
    if (status == GA_OK && !can_be_named(out->text)) {
        return ga_fail(GA_ERR_LIBRARY,
                       "\"%s\": expected a path without a colon or a dollar sign, or with a space "
                       "only where no other libraries are: LD_PRELOAD cannot name it; put a link "
                       "to it elsewhere "
                       "and name that directory in GPUALLOC_PRELOAD_DIR",
                       out->text);
    }
    return status == GA_OK ? check_library(out->text) : status;
}

ga_status ga_bench_program_find(ga_path *out, const char *name)
{
    static const char *const beside[] = {"../bench/coalesce", GA_CLI_LIBEXECDIR, "bin", NULL};
    const char *told = ga_environment("GPUALLOC_BENCH_DIR");
    ga_path base;
    if (told && *told) {
        return find_in(out, "GPUALLOC_BENCH_DIR", told, name);
    }
    if (is_beside(out, &base, beside, name)) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_LIBRARY,
                   "cannot find %s in ../bench/coalesce, " GA_CLI_LIBEXECDIR
                   " or bin of \"%s\": it is there where nvcc was found when gpualloc was built; "
                   "GPUALLOC_BENCH_DIR can say where it is",
                   name, base.text);
}

ga_status ga_rewrite_program_find(ga_path *out)
{
    static const char *const beside[] = {"rewrite", GA_CLI_LIBEXECDIR, NULL};
    static const char name[] = "gpualloc-rewrite";
    ga_path base;
    if (is_beside(out, &base, beside, name)) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_LIBRARY,
                   "cannot find %s in rewrite or " GA_CLI_LIBEXECDIR
                   " of \"%s\": it is there where the development files of Clang, such as "
                   "libclang-14-dev, were found when gpualloc was built",
                   name, base.text);
}
