/* SPDX-License-Identifier: MIT
 *
 * Reads, chooses and decompresses the entries of fat binaries.
 */
#include "fatbin.h"

#include "../../liballoc/platform/libc.h"

#include <gpualloc/backend.h>

#include <string.h>

#ifdef GA_HAVE_LZ4
#include <lz4.h>
#endif
#ifdef GA_HAVE_ZSTD
#include <zstd.h>
#endif

#define SIZE_LIMIT (UINT64_C(1) << 30) /* of a decompressed image: NVIDIA's largest have 100 MB */

/* ---- reading ------------------------------------------------------------------------------- */

bool ga_fatbin_next(ga_fatbin_entry *out, ga_image fatbin, size_t *at)
{
    ga_fatbin_header header;
    if (*at == 0) {
        if (fatbin.size < sizeof header) {
            return false;
        }
        memcpy(&header, fatbin.bytes, sizeof header);
        if (header.magic != GA_FATBIN_MAGIC || header.header_size < sizeof header) {
            return false;
        }
        *at = header.header_size;
    }
    if (*at > fatbin.size || fatbin.size - *at < sizeof out->record) {
        return false;
    }
    ga_fatbin_record *record = &out->record;
    size_t left = fatbin.size - *at;
    memcpy(record, fatbin.bytes + *at, sizeof *record);
    if (record->header_size < sizeof *record || record->header_size > left ||
        record->padded_size > left - record->header_size ||
        record->compressed_size > record->padded_size) {
        return false;
    }
    size_t stored = record->compressed_size ? record->compressed_size : record->padded_size;
    out->payload = (ga_image){fatbin.bytes + *at + record->header_size, stored};
    *at += record->header_size + (size_t)record->padded_size;
    return true;
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* Machine code for Tegra runs on no desktop GPU of the same major number. */
static bool is_tegra(unsigned sm)
{
    static const unsigned all[] = {53, 62, 72, 87, 101};
    size_t i = 0;
    while (i < sizeof all / sizeof *all && all[i] != sm) {
        i++;
    }
    return i < sizeof all / sizeof *all;
}

static bool is_for(const ga_fatbin_record *record, unsigned sm)
{
    bool same_major = record->sm / 10 == sm / 10;
    if (record->flags & GA_FATBIN_EXACT ||
        (record->kind == GA_FATBIN_ELF && is_tegra(record->sm))) {
        return record->sm == sm;
    }
    if (record->flags & GA_FATBIN_FAMILY || record->kind == GA_FATBIN_ELF) {
        return same_major && record->sm <= sm;
    }
    return record->sm <= sm;
}

/* More is better; 0: the driver does not take it. */
static uint64_t rank_of(const ga_fatbin_record *record, unsigned sm)
{
    bool is_code = record->kind == GA_FATBIN_ELF;
    if ((!is_code && record->kind != GA_FATBIN_PTX) || !is_for(record, sm)) {
        return 0;
    }
    uint64_t narrow = record->flags & GA_FATBIN_EXACT    ? 2
                      : record->flags & GA_FATBIN_FAMILY ? 1
                                                         : 0;
    return (uint64_t)is_code << 40 | (uint64_t)record->sm << 2 | narrow;
}

ga_status ga_fatbin_choose(ga_fatbin_entry *out, ga_image fatbin, unsigned sm)
{
    ga_fatbin_entry entry;
    uint64_t best = 0;
    size_t at = 0;
    unsigned count = 0;
    for (; ga_fatbin_next(&entry, fatbin, &at); count++) {
        uint64_t rank = rank_of(&entry.record, sm);
        if (rank > best) {
            best = rank;
            *out = entry;
        }
    }
    if (at != fatbin.size) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "fat binary: expected an entry at byte %zu of %zu, got damaged data", at,
                       fatbin.size);
    }
    return best ? GA_OK
                : ga_fail(GA_ERR_UNSUPPORTED,
                          "fat binary: expected code for sm_%u, got none among %u entries", sm,
                          count);
}

bool ga_fatbin_may_run(ga_image fatbin, unsigned sm)
{
    ga_fatbin_entry entry;
    size_t at = 0;
    while (ga_fatbin_next(&entry, fatbin, &at)) {
        const ga_fatbin_record *record = &entry.record;
        bool is_code = record->kind == GA_FATBIN_ELF;
        if ((!is_code && record->kind != GA_FATBIN_PTX) || rank_of(record, sm) ||
            (is_code && record->sm / 10 == sm / 10)) {
            return true;
        }
    }
    return at != fatbin.size; /* the rest is not known */
}

/* ---- entries as they are ------------------------------------------------------------------- */

ga_image ga_fatbin_fields(const ga_fatbin_entry *entry)
{
    size_t size = entry->record.header_size;
    return (ga_image){entry->payload.bytes - size, size};
}

ga_status ga_fatbin_single(ga_image *out, void **owned, const ga_fatbin_entry *entry)
{
    ga_image fields = ga_fatbin_fields(entry);
    size_t size = fields.size + (size_t)entry->record.padded_size;
    ga_fatbin_header header = {GA_FATBIN_MAGIC, 1, sizeof header, size};
    uint8_t *bytes = *owned = ga_libc.malloc(sizeof header + size);
    if (!bytes) {
        return ga_fail(GA_ERR_MEMORY, "fat binary: no memory for a copy of %zu bytes", size);
    }
    memcpy(bytes, &header, sizeof header);
    memcpy(bytes + sizeof header, fields.bytes, size);
    *out = (ga_image){bytes, sizeof header + size};
    return GA_OK;
}

/* ---- decompressing ------------------------------------------------------------------------- */

/* A way to compress. `fits`: whether that many bytes can come from `from`, tested before memory is
 * taken for them. */
typedef struct method {
    uint64_t flag;
    bool (*fits)(ga_image from, uint64_t size);
    bool (*undo)(char *to, size_t size, ga_image from);
} method;

#ifdef GA_HAVE_LZ4
/* A byte of LZ4 stands for 255 at most. */
static bool fits_lz4(ga_image from, uint64_t size)
{
    return from.size <= INT32_MAX && size / 255 <= from.size;
}

static bool undo_lz4(char *to, size_t size, ga_image from)
{
    return LZ4_decompress_safe((const char *)from.bytes, to, (int)from.size, (int)size) ==
           (int)size;
}
#endif

#ifdef GA_HAVE_ZSTD
/* A frame says its size; nvcc writes one frame. */
static bool fits_zstd(ga_image from, uint64_t size)
{
    return ZSTD_getFrameContentSize(from.bytes, from.size) == size;
}

static bool undo_zstd(char *to, size_t size, ga_image from)
{
    return ZSTD_decompress(to, size, from.bytes, from.size) == size;
}
#endif

static const method methods[] = {
#ifdef GA_HAVE_LZ4
    {GA_FATBIN_LZ4, fits_lz4, undo_lz4},
#endif
#ifdef GA_HAVE_ZSTD
    {GA_FATBIN_ZSTD, fits_zstd, undo_zstd},
#endif
    {0, NULL, NULL},
};

/* NULL: this build has none for the flags of an entry. */
static const method *method_of(uint64_t flags)
{
    const method *m = methods;
    while (m->flag && !(m->flag & flags)) {
        m++;
    }
    return m->flag ? m : NULL;
}

static ga_status damaged(const ga_fatbin_entry *entry)
{
    return ga_fail(GA_ERR_UNSUPPORTED,
                   "fat binary: %zu bytes of compressed code are damaged: expected %llu bytes from "
                   "them",
                   entry->payload.size, (unsigned long long)entry->record.size);
}

static ga_status decompress(ga_image *out, void **owned, const ga_fatbin_entry *entry)
{
    const ga_fatbin_record *record = &entry->record;
    const method *m = method_of(record->flags);
    if (!m) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "fat binary: cannot decompress code with the flags 0x%llx: expected a build "
                       "with liblz4 and libzstd",
                       (unsigned long long)record->flags);
    }
    if (!record->size || record->size > SIZE_LIMIT) {
        return ga_fail(GA_ERR_UNSUPPORTED, "fat binary: expected code of 1 to %llu bytes, got %llu",
                       (unsigned long long)SIZE_LIMIT, (unsigned long long)record->size);
    }
    if (!m->fits(entry->payload, record->size)) {
        return damaged(entry);
    }
    *owned = ga_libc.malloc((size_t)record->size);
    if (!*owned) {
        return ga_fail(GA_ERR_MEMORY, "fat binary: no memory for %llu bytes of code",
                       (unsigned long long)record->size);
    }
    if (!m->undo(*owned, (size_t)record->size, entry->payload)) {
        ga_libc.free(*owned);
        *owned = NULL;
        return damaged(entry);
    }
    *out = (ga_image){*owned, (size_t)record->size};
    return GA_OK;
}

ga_status ga_fatbin_unpack(ga_image *out, void **owned, const ga_fatbin_entry *entry)
{
    const ga_fatbin_record *record = &entry->record;
    *owned = NULL;
    if (record->kind != GA_FATBIN_ELF && record->kind != GA_FATBIN_PTX) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "fat binary: expected PTX or machine code (kind 1 or 2), got kind %u",
                       record->kind);
    }
    if (!record->compressed_size) {
        *out = entry->payload;
        return GA_OK;
    }
    return decompress(out, owned, entry);
}
