/* SPDX-License-Identifier: MIT
 *
 * Maps the device code of a build with -Ddevice_code=file.
 */
#include "code_file.h"

#include <gpualloc/backend.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GA_CODE_FILE "gpualloc-device-code.fatbin"

static const struct link_map *own_object; /* set once, before threads use it */

/* In a constructor, because dladdr1() takes the lock of the dynamic linker, and ga_code_file_open()
 * is called under locks. */
__attribute__((constructor)) static void find_own_object(void)
{
    Dl_info info;
    void *object = NULL;
    if (dladdr1((void *)(uintptr_t)ga_code_file_open, &info, &object, RTLD_DL_LINKMAP)) {
        own_object = object;
    }
}

/* The path of the library or program that contains this function. */
static bool own_path(char path[PATH_MAX])
{
    if (!own_object) {
        return false;
    }
    const char *name = own_object->l_name;
    if (*name) { /* empty for the program */
        return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX;
    }
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Beside the library; for a program in bin/, in lib/. */
static int open_beside(char path[PATH_MAX])
{
    static const char *const folders[] = {"", "../lib/"};
    char own[PATH_MAX];
    if (!own_path(own)) {
        return -1;
    }
    char *slash = strrchr(own, '/');
    int fd = -1;
    for (size_t i = 0; fd < 0 && i < sizeof folders / sizeof *folders; i++) {
        int length = snprintf(path, PATH_MAX, "%.*s%s" GA_CODE_FILE,
                              slash ? (int)(slash + 1 - own) : 0, own, folders[i]);
        fd = length < PATH_MAX ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    }
    return fd;
}

ga_status ga_code_file_open(ga_code_file *out)
{
    char path[PATH_MAX] = "";
    struct stat there;
    int fd = open_beside(path);
    if (fd < 0) {
        return ga_fail(GA_ERR_DEVICE,
                       "this build has no device code: nvcc was not found for it, and \"%.500s\" "
                       "cannot be read: %s",
                       path, strerror(errno));
    }
    void *code = MAP_FAILED;
    if (fstat(fd, &there) == 0 && there.st_size > 0) {
        code = mmap(NULL, (size_t)there.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    close(fd);
    if (code == MAP_FAILED) {
        return ga_fail(GA_ERR_DEVICE, "\"%.500s\": expected device code", path);
    }
    *out = (ga_code_file){code, (size_t)there.st_size};
    return GA_OK;
}

void ga_code_file_close(ga_code_file *file)
{
    if (file->code) {
        munmap(file->code, file->size);
    }
}
