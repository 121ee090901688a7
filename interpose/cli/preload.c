/* SPDX-License-Identifier: MIT
 *
 * Finds the preload libraries and the benchmark programs relative to this executable, so that a
 * build tree and a moved installation both work.
 */
#include "../../liballoc/platform/environment.h"
#include "paths.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

ga_status ga_preload_find(ga_path *out, ga_preload which)
{
    const char *dir = ga_environment("GPUALLOC_PRELOAD_DIR");
    const char *name = libraries[which].name;
    ga_status status = dir && *dir ? find_in(out, "GPUALLOC_PRELOAD_DIR", dir, name)
                                   : find_library(out, name, libraries[which].folder);
    if (status == GA_OK && strpbrk(out->text, " :")) {
        return ga_fail(GA_ERR_LIBRARY,
                       "\"%s\": LD_PRELOAD cannot hold a path with a space or a colon; put a link "
                       "to it elsewhere and name that directory in GPUALLOC_PRELOAD_DIR",
                       out->text);
    }
    return status;
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
