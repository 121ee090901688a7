/* SPDX-License-Identifier: MIT
 *
 * The preload is looked for beside this executable, so that a build tree and an installation that
 * was moved both work.
 */
#include "paths.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From the directory above this executable's; GA_CLI_LIBDIR is the libdir of the build, relative
 * to its prefix where it lies within. */
static const char *const beside[] = {"malloc", GA_CLI_LIBDIR, "lib64", "lib"};

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

static bool is_in(ga_path *out, const char *dir)
{
    int length = snprintf(out->text, sizeof out->text, "%s/" GA_PRELOAD_NAME, dir);
    return length < (int)sizeof out->text && access(out->text, R_OK) == 0;
}

static ga_status find_in(ga_path *out, const char *dir)
{
    ga_path base;
    ga_status status = ga_path_absolute(&base, dir);
    if (status == GA_OK && !is_in(out, base.text)) {
        status = ga_fail(GA_ERR_LIBRARY,
                         "GPUALLOC_PRELOAD_DIR: expected " GA_PRELOAD_NAME " in \"%s\"", base.text);
    }
    return status;
}

/* Two levels up from the executable's name. */
static bool find_base(ga_path *out)
{
    ssize_t length = readlink("/proc/self/exe", out->text, sizeof out->text - 1);
    out->text[length > 0 ? length : 0] = '\0';
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(out->text, '/');
        if (!slash) {
            return false;
        }
        *slash = '\0';
    }
    return true;
}

static ga_status find_beside(ga_path *out)
{
    ga_path base;
    bool known = find_base(&base);
    for (size_t i = 0; known && i < sizeof beside / sizeof *beside; i++) {
        char dir[PATH_MAX];
        int length = snprintf(dir, sizeof dir, "%s/%s", base.text, beside[i]);
        if (length < (int)sizeof dir && is_in(out, dir)) {
            return GA_OK;
        }
    }
    if (is_in(out, GA_CLI_LIBDIR_FULL)) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_LIBRARY,
                   "cannot find " GA_PRELOAD_NAME " in malloc, " GA_CLI_LIBDIR
                   ", lib64 or lib of \"%s\"; GPUALLOC_PRELOAD_DIR can say where it is",
                   known ? base.text : GA_CLI_LIBDIR_FULL);
}

ga_status ga_preload_find(ga_path *out)
{
    const char *dir = getenv("GPUALLOC_PRELOAD_DIR");
    ga_status status = dir && *dir ? find_in(out, dir) : find_beside(out);
    if (status == GA_OK && strpbrk(out->text, " :")) {
        return ga_fail(GA_ERR_LIBRARY,
                       "\"%s\": LD_PRELOAD cannot hold a path with a space or a colon; put a link "
                       "to it elsewhere and name that directory in GPUALLOC_PRELOAD_DIR",
                       out->text);
    }
    return status;
}
