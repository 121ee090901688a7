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

/* Does not wait for the other end, if it is a pipe. */
static int open_in(char path[PATH_MAX], const char *own, const char *folder)
{
    const char *slash = strrchr(own, '/');
    int length = snprintf(path, PATH_MAX, "%.*s%s" GA_CODE_FILE, slash ? (int)(slash + 1 - own) : 0,
                          own, folder);
    int fd = -1;
    do {
        errno = ENAMETOOLONG;
        fd = length < PATH_MAX ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
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

/* ---- checksum -------------------------------------------------------------------------------- */

enum {
    BYTES = 256 /* values of a byte */
};

/* Of each byte, as the highest one of a remainder. */
static void make_remainders(uint32_t table[BYTES])
{
    for (uint32_t byte = 0; byte < BYTES; byte++) {
        uint32_t crc = byte << 24;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc << 1 ^ (crc >> 31 ? UINT32_C(0x04c11db7) : 0);
        }
        table[byte] = crc;
    }
}

/* As POSIX cksum: of the bytes, and of the size as bytes, the lowest first. */
static uint32_t crc_of(const unsigned char *bytes, size_t size)
{
    uint32_t table[BYTES];
    uint32_t crc = 0;
    make_remainders(table);
    for (size_t i = 0; i < size; i++) {
        crc = crc << 8 ^ table[crc >> 24 ^ bytes[i]];
    }
    for (; size; size >>= 8) {
        crc = crc << 8 ^ table[crc >> 24 ^ (size & 0xff)];
    }
    return ~crc;
}

/* cuModuleLoadData() trusts the file: from one that was cut or damaged it may not return, or
 * crash, or load other code. */
static bool is_expected(const ga_code_file *file, const ga_code_sum *expected)
{
    return file->size == expected->size && crc_of(file->code, file->size) == expected->crc;
}

/* ---------------------------------------------------------------------------------------------- */

/* An empty file is mapped as nothing. */
static ga_status map_file(ga_code_file *out, int fd, const char *path)
{
    struct stat there;
    void *code = NULL;
    bool is_known = fstat(fd, &there) == 0;
    if (is_known && there.st_size > 0) {
        code = mmap(NULL, (size_t)there.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (!is_known || code == MAP_FAILED) {
        return ga_fail(GA_ERR_DEVICE, "no device code: \"%.500s\" cannot be read: %s", path,
                       strerror(errno));
    }
    *out = (ga_code_file){code, (size_t)there.st_size};
    return GA_OK;
}

ga_status ga_code_file_open(ga_code_file *out, const ga_code_sum *expected)
{
    char path[PATH_MAX] = "";
    if (!expected->size) {
        return ga_fail(GA_ERR_DEVICE, "no device code: a build without nvcc has none, nor has a "
                                      "preload for the host");
    }
    int fd = open_beside(path);
    if (fd < 0) {
        return ga_fail(GA_ERR_DEVICE, "no device code: \"%.500s\" cannot be read: %s", path,
                       strerror(errno));
    }
    ga_status status = map_file(out, fd, path);
    close(fd);
    if (status != GA_OK || is_expected(out, expected)) {
        return status;
    }
    size_t size = out->size;
    ga_code_file_close(out);
    *out = (ga_code_file){0};
    return ga_fail(GA_ERR_DEVICE,
                   "\"%.500s\": expected the device code of this build, %llu bytes; got %zu bytes "
                   "that are damaged or of another build",
                   path, (unsigned long long)expected->size, size);
}

void ga_code_file_close(ga_code_file *file)
{
    if (file->code) {
        munmap(file->code, file->size);
    }
}
