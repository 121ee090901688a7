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
    FORMAT = 1, /* to be changed with the layout of an entry, and with the way to compile */
    PARTS = 3   /* of a key */
};

#define MAGIC UINT64_C(0x6e69627563616721) /* "!gacubin" */

typedef struct header {
    uint64_t magic;
    uint64_t checksum; /* of all that follows */
    uint64_t key_size, code_size;
} header;

/* The first part of a key; all bytes of it are set. The fields of a fat binary's entry and the PTX
 * follow. */
typedef struct key {
    uint32_t format, sm;
    int32_t driver_version;
    uint32_t option_count;
    uint64_t fields_size;
    uint64_t driver_size, driver_time; /* of the driver's file: updates keep the version */
    char driver_name[64];              /* with the number of the release */
    uint32_t names[GA_PTX_OPTIONS_MOST], values[GA_PTX_OPTIONS_MOST];
} key;

/* It can be undone, so that a difference in one word makes another number. */
static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

static uint64_t hash(uint64_t from, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t h = from ^ size;
    uint64_t word;
    for (; size >= sizeof word; at += sizeof word, size -= sizeof word) {
        memcpy(&word, at, sizeof word);
        h = mix(h, word);
    }
    word = 0;
    memcpy(&word, at, size);
    return mix(h, word);
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

/* In front of the PTX in a fat binary. */
static ga_image fields_of(const ga_ptx_source *source)
{
    return source->entry ? ga_fatbin_fields(source->entry) : (ga_image){(const uint8_t *)"", 0};
}

/* False: the result depends on something that the key does not have. */
static bool make_key(key *out, const ga_ptx_source *source)
{
    memset(out, 0, sizeof *out);
    out->format = FORMAT;
    out->sm = source->sm;
    out->fields_size = fields_of(source).size;
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

/* The parts of a key, in their order in an entry. */
static void list_parts(ga_image parts[PARTS], const key *k, const ga_ptx_source *source)
{
    parts[0] = (ga_image){(const uint8_t *)k, sizeof *k};
    parts[1] = fields_of(source);
    parts[2] = source->ptx;
}

static uint64_t name_of(const ga_image parts[PARTS])
{
    uint64_t name = 0;
    for (int i = 0; i < PARTS; i++) {
        name = hash(name, parts[i].bytes, parts[i].size);
    }
    return name;
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

/* Whether the key is the one of `parts`, of which the first has the size of the second. */
static bool is_for(ga_image file, const header *head, const ga_image parts[PARTS])
{
    size_t at = sizeof *head;
    size_t end = at + (size_t)head->key_size;
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].size > end - at ||
            memcmp(file.bytes + at, parts[i].bytes, parts[i].size) != 0) {
            return false;
        }
        at += parts[i].size;
    }
    return at == end;
}

bool ga_ptx_cache_find(ga_image *out, void **owned, const ga_ptx_source *source)
{
    key k;
    header head;
    ga_image file, parts[PARTS];
    if (!make_key(&k, source)) {
        return false;
    }
    list_parts(parts, &k, source);
    uint64_t name = name_of(parts);
    if (!ga_cache_folder_read(&file, name)) {
        return false;
    }
    const char *why = !is_whole(file, &head)        ? "damaged"
                      : !is_for(file, &head, parts) ? "for other PTX"
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

static uint8_t *append(uint8_t *at, ga_image content)
{
    memcpy(at, content.bytes, content.size);
    return at + content.size;
}

void ga_ptx_cache_keep(const ga_ptx_source *source, ga_image cubin)
{
    key k;
    ga_image parts[PARTS];
    if (!make_key(&k, source)) {
        return;
    }
    list_parts(parts, &k, source);
    header head = {MAGIC, 0, parts[0].size + parts[1].size + parts[2].size, cubin.size};
    size_t size = sizeof head + (size_t)head.key_size + cubin.size;
    uint8_t *file = ga_libc.malloc(size);
    if (!file) {
        return;
    }
    uint8_t *at = file + sizeof head;
    for (int i = 0; i < PARTS; i++) {
        at = append(at, parts[i]);
    }
    append(at, cubin);
    head.checksum = hash(MAGIC, file + sizeof head, size - sizeof head);
    memcpy(file, &head, sizeof head);
    ga_cache_folder_write(name_of(parts), (ga_image){file, size});
    ga_libc.free(file);
}
