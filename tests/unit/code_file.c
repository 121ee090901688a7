/* SPDX-License-Identifier: MIT
 *
 * Device code in a file beside the program.
 */
#include "device/code_file.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
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

static void write_code(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert(file);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

/* One test, because tests run at once. */
Test(code_file, beside_the_program)
{
    char path[PATH_MAX];
    ga_code_file file = {0};
    cr_assert_eq(look_ups, 1, "in the constructor");
    path_of_code(path);
    unlink(path);
    cr_assert_eq(ga_code_file_open(&file), GA_ERR_DEVICE);
    cr_assert(strstr(ga_error_text(), "has no device code"), "%s", ga_error_text());
    write_code(path, "");
    cr_assert_eq(ga_code_file_open(&file), GA_ERR_DEVICE);
    cr_assert(strstr(ga_error_text(), path), "%s", ga_error_text());
    ga_code_file_close(&file); /* nothing was opened */
    write_code(path, "code");
    cr_assert_eq(ga_code_file_open(&file), GA_OK);
    cr_assert_eq(file.size, 4);
    cr_assert_eq(memcmp(file.code, "code", 4), 0);
    ga_code_file_close(&file);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(look_ups, 1, "code is loaded under locks that a constructor may wait for");
}
