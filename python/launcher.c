/* SPDX-License-Identifier: MIT
 *
 * The `gpualloc` that pip installs beside python3. It executes the command in the Python package of
 * its own version, where the libraries are beside it. An installation may be moved, and several
 * versions of Python may share a prefix.
 */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Below the folder above bin/: of a prefix, of `pip install --target`, and of an unpacked wheel. */
static const char *const folders[] = {
    "lib*/python*/*-packages",
    "lib*/pypy*/*-packages",
    ".",
    "..",
};

/* The folder that contains bin/gpualloc, with each character that glob() would interpret behind a
 * backslash. */
static int find_prefix(char prefix[2 * PATH_MAX])
{
    char self[PATH_MAX];
    if (!realpath((const char *)getauxval(AT_EXECFN), self)) {
        return -1;
    }
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(self, '/');
        if (slash) {
            *slash = '\0';
        }
    }
    char *to = prefix;
    for (const char *from = self; *from; from++) {
        if (strchr("*?[\\", *from)) {
            *to++ = '\\';
        }
        *to++ = *from;
    }
    *to = '\0';
    return 0;
}

/* Execute the command beside a dist-info folder of this version. Returns only if there is none, or
 * it cannot be executed. */
static void execute_in(const char *prefix, const char *folder, char **argv)
{
    char pattern[3 * PATH_MAX];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/%s/gpualloc-" VERSION ".dist-info", prefix, folder);
    if (glob(pattern, 0, NULL, &found) != 0) {
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char command[PATH_MAX + 32];
        int length = (int)(strrchr(found.gl_pathv[i], '/') - found.gl_pathv[i]);
        snprintf(command, sizeof command, "%.*s/gpualloc/bin/gpualloc", length, found.gl_pathv[i]);
        execv(command, argv);
        fprintf(stderr, "gpualloc: cannot execute \"%s\": %s\n", command, strerror(errno));
    }
    globfree(&found);
}

int main(int argc, char **argv)
{
    (void)argc;
    char prefix[2 * PATH_MAX];
    if (find_prefix(prefix) != 0) {
        fprintf(stderr, "gpualloc: cannot find its own path: %s\n", strerror(errno));
        return 1;
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        execute_in(prefix, folders[i], argv);
    }
    fprintf(stderr,
            "gpualloc: expected the Python package gpualloc " VERSION
            " in %s/lib*/python*: install "
            "its wheel again\n",
            prefix);
    return 1;
}
