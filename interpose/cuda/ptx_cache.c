/* SPDX-License-Identifier: MIT
 *
 * An entry is a file: a header, the key, the machine code. The key is the PTX with its options, the
 * architecture and the driver. The file's name is a hash of the key; two keys of one name replace
 * each other, and never serve for each other, because the whole key is compared.
 */
#include "ptx_cache.h"

#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "cache_folder.h"
#include "next.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    FORMAT = 1 /* to be changed with the layout of an entry, and with the way to compile */
};

#define MAGIC UINT64_C(0x6e69627563616721) /* "!gacubin" */

typedef struct header {
    uint64_t magic;
    uint64_t checksum; /* of all that follows */
    uint64_t key_size, code_size;
} header;

/* The first part of a key; all bytes of it are set. The PTX follows. */
typedef struct key {
    uint32_t format, sm;
    int32_t driver_version;
    uint32_t option_count;
    uint64_t driver_size, driver_time; /* of the driver's file: updates keep the version */
    char driver_name[64];              /* with the number of the release */
    uint32_t names[GA_PTX_OPTIONS_MOST], values[GA_PTX_OPTIONS_MOST];
} key;

/* Bytes to a number. Each step can be undone, so a difference in one word makes another number. */
static uint64_t hash(uint64_t from, const void *bytes, size_t size)
{
    uint64_t h = from ^ size;
    for (size_t at = 0; at < size; at += sizeof h) {
        uint64_t word = 0;
        memcpy(&word, (const uint8_t *)bytes + at,
               size - at < sizeof word ? size - at : sizeof word);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    return h;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool identify_driver(key *out)
{
    typedef CUresult get_version(int *version);
    char path[PATH_MAX];
    Dl_info library;
    struct stat status;
    get_version *get;
    *(void **)&get = ga_cuda_next_symbol("cuDriverGetVersion");
    if (!get || get(&out->driver_version) != CUDA_SUCCESS || !dladdr(*(void **)&get, &library) ||
        !realpath(library.dli_fname, path) || stat(path, &status) != 0) {
        return false;
    }
    out->driver_size = (uint64_t)status.st_size;
    out->driver_time =
        (uint64_t)status.st_mtim.tv_sec * 1000000000 + (uint64_t)status.st_mtim.tv_nsec;
    snprintf(out->driver_name, sizeof out->driver_name, "%s", strrchr(path, '/'));
    return true;
}

/* False: the result depends on something that the key does not have. */
static bool make_key(key *out, const ga_ptx_source *source)
{
    memset(out, 0, sizeof *out);
    out->format = FORMAT;
    out->sm = source->sm;
    const char *why = NULL;
    for (unsigned i = 0; i < source->options->count && !why; i++) {
        ga_ptx_option_kind kind = ga_ptx_option_kind_of(source->options->options[i]);
        if (kind == GA_PTX_OPTION_OTHER || out->option_count == GA_PTX_OPTIONS_MOST) {
            why = "an option whose value may be an address";
        } else if (kind == GA_PTX_OPTION_NUMBER) {
            out->names[out->option_count] = (uint32_t)source->options->options[i];
            out->values[out->option_count++] = (uint32_t)(uintptr_t)source->options->values[i];
        }
    }
    if (!why && !identify_driver(out)) {
        why = "the driver's file is not known";
    }
    if (why) {
        ga_log(GA_LOG_INFO, "the cache of compiled PTX is not used: %s", why);
    }
    return !why;
}

static uint64_t name_of(const key *k, ga_image ptx)
{
    return hash(hash(0, k, sizeof *k), ptx.bytes, ptx.size);
}

/* ---- entries --------------------------------------------------------------------------------- */

static bool is_whole(ga_image file, header *head)
{
    if (file.size < sizeof *head) {
        return false;
    }
    memcpy(head, file.bytes, sizeof *head);
    size_t rest = file.size - sizeof *head;
    return head->magic == MAGIC && head->key_size <= rest &&
           head->code_size == rest - head->key_size &&
           head->checksum == hash(MAGIC, file.bytes + sizeof *head, rest);
}

static bool is_for(ga_image file, const header *head, const key *k, ga_image ptx)
{
    const uint8_t *stored = file.bytes + sizeof *head;
    return head->key_size == sizeof *k + ptx.size && memcmp(stored, k, sizeof *k) == 0 &&
           memcmp(stored + sizeof *k, ptx.bytes, ptx.size) == 0;
}

bool ga_ptx_cache_find(ga_image *out, void **owned, const ga_ptx_source *source)
{
    key k;
    header head;
    ga_image file;
    if (!make_key(&k, source)) {
        return false;
    }
    uint64_t name = name_of(&k, source->ptx);
    if (!ga_cache_folder_read(&file, name)) {
        return false;
    }
    const char *why = !is_whole(file, &head)                  ? "damaged"
                      : !is_for(file, &head, &k, source->ptx) ? "for other PTX"
                                                              : NULL;
    if (why) {
        ga_log(GA_LOG_INFO, "the entry %016llx of the cache of compiled PTX is not used: it is %s",
               (unsigned long long)name, why);
        ga_libc.free((void *)(uintptr_t)file.bytes);
        return false;
    }
    *owned = (void *)(uintptr_t)file.bytes;
    *out = (ga_image){file.bytes + sizeof head + head.key_size, (size_t)head.code_size};
    return true;
}

void ga_ptx_cache_keep(const ga_ptx_source *source, ga_image cubin)
{
    key k;
    ga_image ptx = source->ptx;
    if (!make_key(&k, source)) {
        return;
    }
    header head = {MAGIC, 0, sizeof k + ptx.size, cubin.size};
    size_t size = sizeof head + (size_t)head.key_size + cubin.size;
    uint8_t *file = ga_libc.malloc(size);
    if (!file) {
        return;
    }
    uint8_t *at = file + sizeof head;
    memcpy(at, &k, sizeof k);
    memcpy(at + sizeof k, ptx.bytes, ptx.size);
    memcpy(at + sizeof k + ptx.size, cubin.bytes, cubin.size);
    head.checksum = hash(MAGIC, at, size - sizeof head);
    memcpy(file, &head, sizeof head);
    ga_cache_folder_write(name_of(&k, ptx), (ga_image){file, size});
    ga_libc.free(file);
}
