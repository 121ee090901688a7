/* SPDX-License-Identifier: MIT */
#include "object_symbols.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A sanitizer may look up its own functions through us before it has set up the shadow memory that
 * instrumented code needs. So nothing in this file is instrumented. */
#define UNINSTRUMENTED __attribute__((no_sanitize("address,undefined,thread")))

/* One object's symbols, as its dynamic section says. */
typedef struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *hashes;     /* the GNU hash table */
    const uint32_t *old_hashes; /* that of System V, which an object may have instead */
} symbols;

/* The loader has turned offsets of the dynamic section into addresses, except in the vDSO. */
UNINSTRUMENTED static const void *address_of(const struct link_map *object, const ElfW(Dyn) * entry)
{
    ElfW(Addr) at = entry->d_un.d_ptr;
    return (const void *)(at < object->l_addr ? at + object->l_addr : at);
}

UNINSTRUMENTED static symbols symbols_of(const struct link_map *object)
{
    symbols found = {0};
    for (const ElfW(Dyn) *entry = object->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) {
            found.table = address_of(object, entry);
        } else if (entry->d_tag == DT_STRTAB) {
            found.names = address_of(object, entry);
        } else if (entry->d_tag == DT_GNU_HASH) {
            found.hashes = address_of(object, entry);
        } else if (entry->d_tag == DT_HASH) {
            found.old_hashes = address_of(object, entry);
        }
    }
    return found;
}

UNINSTRUMENTED static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

/* Not strcmp(), because the search may be for a sanitizer's strcmp(). */
UNINSTRUMENTED static bool is_same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* Layout of a GNU hash table: number of buckets, index of the first symbol, number of filter words
 * and a shift; the filter; the buckets; then a hash for each symbol, with the lowest bit set in the
 * last one of a bucket. */
UNINSTRUMENTED static const ElfW(Sym) * search_hashes(const symbols *in, const char *name)
{
    uint32_t bucket_count = in->hashes[0];
    uint32_t first = in->hashes[1];
    const uint32_t *buckets = in->hashes + 4 + in->hashes[2] * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = buckets + bucket_count;
    uint32_t hash = hash_of(name);
    uint32_t at = bucket_count ? buckets[hash % bucket_count] : 0;
    for (; at >= first && at; at++) {
        const ElfW(Sym) *symbol = &in->table[at];
        if ((chain[at - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            is_same(in->names + symbol->st_name, name)) {
            return symbol;
        }
        if (chain[at - first] & 1) {
            break;
        }
    }
    return NULL;
}

/* Layout of a hash table of System V: number of buckets, number of symbols; the buckets; a link for
 * each symbol. Such objects are rare, so that all symbols are compared. */
UNINSTRUMENTED static const ElfW(Sym) * search_all(const symbols *in, const char *name)
{
    for (uint32_t at = 1; at < in->old_hashes[1]; at++) {
        const ElfW(Sym) *symbol = &in->table[at];
        if (symbol->st_shndx != SHN_UNDEF && is_same(in->names + symbol->st_name, name)) {
            return symbol;
        }
    }
    return NULL;
}

UNINSTRUMENTED void *ga_object_symbol(const struct link_map *object, const char *name)
{
    symbols in = symbols_of(object);
    const ElfW(Sym) *symbol = NULL;
    if (in.table && in.names && in.hashes) {
        symbol = search_hashes(&in, name);
    } else if (in.table && in.names && in.old_hashes) {
        symbol = search_all(&in, name);
    }
    return symbol ? (void *)(object->l_addr + symbol->st_value) : NULL;
}
