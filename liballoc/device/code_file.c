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
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GA_CODE_FILE "gpualloc-device-code.fatbin"
#define FATBIN_MAGIC UINT32_C(0xba55ed50)

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
static bool own_path(char path[PATH_MAX], bool *program)
{
    if (!own_object) {
        return false;
    }
    const char *name = own_object->l_name;
    *program = !*name;
    if (*name) {
        return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX;
    }
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static int open_in(char path[PATH_MAX], const char *own, const char *folder)
{
    const char *slash = strrchr(own, '/');
    int length = snprintf(path, PATH_MAX, "%.*s%s" GA_CODE_FILE, slash ? (int)(slash + 1 - own) : 0,
                          own, folder);
    int fd = -1;
    do {
        errno = ENAMETOOLONG;
        fd = length < PATH_MAX ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    } while (fd < 0 && errno == EINTR); /* a signal, on FUSE */
    return fd;
}

/* Beside the library; for a program also in lib/ beside its folder, which its errors name. */
static int open_beside(char path[PATH_MAX])
{
    char own[PATH_MAX];
    bool program = false;
    if (!own_path(own, &program)) {
        return -1;
    }
    int fd = open_in(path, own, "");
    return fd < 0 && program ? open_in(path, own, "../lib/") : fd;
}

/* The start of a fat binary. cuModuleLoadData() trusts the size, and does not return from a file
 * that is shorter. */
typedef struct fatbin_start {
    uint32_t magic;
    uint16_t version;
    uint16_t header_size;
    uint64_t size; /* bytes behind the header */
} fatbin_start;

static bool is_whole(const void *code, size_t size)
{
    fatbin_start start;
    if (size < sizeof start) {
        return false;
    }
    memcpy(&start, code, sizeof start);
    return start.magic == FATBIN_MAGIC && start.header_size <= size &&
           start.size <= size - start.header_size;
}

ga_status ga_code_file_open(ga_code_file *out)
{
    char path[PATH_MAX] = "";
    struct stat there;
    int fd = open_beside(path);
    if (fd < 0) {
        return ga_fail(
            GA_ERR_DEVICE,
            "no device code: \"%.500s\" cannot be read: %s; a build without nvcc has none", path,
            strerror(errno));
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
    if (is_whole(out->code, out->size)) {
        return GA_OK;
    }
    ga_code_file_close(out);
    *out = (ga_code_file){0};
    return ga_fail(GA_ERR_DEVICE,
                   "\"%.500s\": expected device code, got %lld bytes that are not "
                   "one whole fat binary",
                   path, (long long)there.st_size);
}

void ga_code_file_close(ga_code_file *file)
{
    if (file->code) {
        munmap(file->code, file->size);
    }
}
