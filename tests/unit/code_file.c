/* SPDX-License-Identifier: MIT
 *
 * Device code in a file beside the program.
 */
#include "device/code_file.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int look_ups;

/* In the C library's place. It takes the lock of the dynamic linker. */
int dladdr1(const void *address, Dl_info *info, void **extra, int flags)
{
    int (*next)(const void *, Dl_info *, void **, int);
    *(void **)&next = dlsym(RTLD_NEXT, "dladdr1");
    look_ups++;
    return next(address, info, extra, flags);
}

static void path_of_code(char path[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    cr_assert_gt(length, 0);
    path[length] = '\0';
    char *name = strrchr(path, '/') + 1;
    snprintf(name, (size_t)(path + PATH_MAX - name), "gpualloc-device-code.fatbin");
}

static void write_code(const char *path, const void *code, size_t size)
{
    FILE *file = fopen(path, "w");
    cr_assert(file);
    cr_assert_eq(fwrite(code, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

/* The form of a fat binary: a header of 16 bytes, and 4 of code. The checksum is of cksum. */
static const char fatbin[20] = "\x50\xed\x55\xba\1\0\x10\0\4\0\0\0\0\0\0\0code";
static const ga_code_sum sum_of_fatbin = {sizeof fatbin, 3652457048};

/* A file that is not the build's is refused: from some the driver does not return. */
static void refuses(const char *path, const void *code, size_t size)
{
    ga_code_file file = {0};
    write_code(path, code, size);
    cr_assert_eq(ga_code_file_open(&file, &sum_of_fatbin), GA_ERR_DEVICE, "%zu bytes", size);
    cr_assert(strstr(ga_error_text(), path), "%s", ga_error_text());
    cr_assert_not(file.code);
    ga_code_file_close(&file); /* nothing was opened */
}

static void refuses_damage(const char *path)
{
    char other[sizeof fatbin + 1] = {0};
    for (size_t size = 0; size < sizeof fatbin; size++) {
        refuses(path, fatbin, size);
    }
    memcpy(other, fatbin, sizeof fatbin);
    refuses(path, other, sizeof other);
    for (size_t bit = 0; bit < 8 * sizeof fatbin; bit++) {
        memcpy(other, fatbin, sizeof fatbin);
        other[bit / 8] = (char)(other[bit / 8] ^ 1 << bit % 8);
        refuses(path, other, sizeof fatbin);
    }
}

/* What is there instead of a file is refused without waiting. */
static void refuses_others(const char *path)
{
    ga_code_file file = {0};
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(ga_code_file_open(&file, &sum_of_fatbin), GA_ERR_DEVICE);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(ga_code_file_open(&file, &sum_of_fatbin), GA_ERR_DEVICE);
    cr_assert(strstr(ga_error_text(), path), "%s", ga_error_text());
    cr_assert_eq(rmdir(path), 0);
    cr_assert_not(file.code);
}

/* One test, because tests run at once. */
Test(code_file, beside_the_program)
{
    char path[PATH_MAX];
    ga_code_file file = {0};
    const ga_code_sum none = {0};
    cr_assert_eq(look_ups, 1, "in the constructor");
    path_of_code(path);
    unlink(path);
    cr_assert_eq(ga_code_file_open(&file, &sum_of_fatbin), GA_ERR_DEVICE);
    cr_assert(strstr(ga_error_text(), "/../lib/gpualloc-device-code.fatbin"), "%s",
              ga_error_text());
    cr_assert(strstr(ga_error_text(), strerror(ENOENT)), "%s", ga_error_text());
    refuses_damage(path);
    refuses_others(path);
    write_code(path, fatbin, sizeof fatbin);
    cr_assert_eq(ga_code_file_open(&file, &none), GA_ERR_DEVICE, "the build has no file");
    cr_assert_eq(ga_code_file_open(&file, &sum_of_fatbin), GA_OK);
    cr_assert_eq(file.size, sizeof fatbin);
    cr_assert_eq(memcmp(file.code, fatbin, sizeof fatbin), 0);
    ga_code_file_close(&file);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(look_ups, 1, "code is loaded under locks that a constructor may wait for");
}
