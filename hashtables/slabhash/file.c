/* SPDX-License-Identifier: MIT
 *
 * Tables in files: a head of 48 bytes, then the keys and values of all pairs, one after the other,
 * in the machine's order of bytes, of which the head's first word tells.
 */
#include "table.h"

#include "../../liballoc/platform/libc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    PAIRS = 4096 /* read or written at once */
};

static const uint64_t MAGIC = UINT64_C(0x3168736162616c73); /* "slabash1" */

typedef struct head {
    uint64_t magic;
    uint32_t head_size, kind;
    uint64_t count;
    uint64_t sum;  /* of the pairs */
    uint64_t seal; /* of what stands before it */
    uint64_t zero;
} head;

typedef struct stream {
    FILE *file;
    const char *path;
    uint32_t kind;
    uint64_t count, sum;
    bool failed;
    uint32_t held;
    uint64_t pairs[2 * PAIRS];
} stream;

/* FNV-1a by words of 64 bits, finished so that the last ones count as much as the first. */
static uint64_t add_to_sum(uint64_t sum, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, 8);
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
        sum ^= sum >> 29;
    }
    return sum;
}

static uint64_t seal_of(const head *h)
{
    return add_to_sum(UINT64_C(0xcbf29ce484222325), h, offsetof(head, seal));
}

static ga_status bad(const stream *s, const char *what, const char *expected)
{
    return ga_fail(GA_ERR_IO, "slabhash: %s: %s: expected %s", s->path, what, expected);
}

static ga_status system_says(const stream *s, const char *verb)
{
    return ga_fail(GA_ERR_IO, "slabhash: %s: cannot %s it: %s", s->path, verb, strerror(errno));
}

/* ---- save ----------------------------------------------------------------------------------- */

/* Pairs stand in files at 64 bits each, whatever the mode. */
static void write_held(stream *s)
{
    size_t size = s->held * 2 * sizeof(uint64_t);
    s->sum = add_to_sum(s->sum, s->pairs, size);
    s->count += s->held;
    s->failed = s->failed || fwrite(s->pairs, 1, size, s->file) != size;
    s->held = 0;
}

static bool write_pair(void *context, uint64_t key, uint64_t value)
{
    stream *s = context;
    s->pairs[2 * s->held] = key;
    s->pairs[2 * s->held + 1] = value;
    if (++s->held == PAIRS) {
        write_held(s);
    }
    return !s->failed;
}

static ga_status write_all(ga_slabhash *table, stream *s)
{
    head h = {.magic = MAGIC, .head_size = sizeof h, .kind = table->kind};
    s->failed = fwrite(&h, 1, sizeof h, s->file) != sizeof h; /* its place; not valid as it is */
    table->ops->each(table, write_pair, s);
    write_held(s);
    h.count = s->count;
    h.sum = s->sum;
    h.seal = seal_of(&h);
    if (s->failed || fseek(s->file, 0, SEEK_SET) || fwrite(&h, 1, sizeof h, s->file) != sizeof h ||
        fflush(s->file)) {
        return system_says(s, "write");
    }
    return GA_OK;
}

static ga_status check_path(const ga_slabhash *table, const char *path)
{
    ga_status status = ga_slabhash_check(table);
    return status || path
               ? status
               : ga_fail(GA_ERR_ARGUMENT, "slabhash: no path of a file: expected a text");
}

static ga_status new_stream(stream **out, const ga_slabhash *table, const char *path,
                            const char *how)
{
    stream *s = ga_libc.calloc(1, sizeof *s);
    *out = s;
    if (!s) {
        return ga_fail(GA_ERR_MEMORY, "slabhash: no memory to read or write a file");
    }
    s->path = path;
    s->kind = table->kind;
    s->file = fopen(path, how);
    if (!s->file) {
        ga_status status = system_says(s, *how == 'r' ? "open" : "make");
        ga_libc.free(s);
        return status;
    }
    return GA_OK;
}

ga_status ga_slabhash_save(ga_slabhash *table, const char *path)
{
    stream *s;
    ga_status status = check_path(table, path);
    status = status ? status : new_stream(&s, table, path, "wb");
    if (status != GA_OK) {
        return status;
    }
    status = write_all(table, s);
    if (fclose(s->file) && status == GA_OK) {
        status = system_says(s, "write");
    }
    if (status != GA_OK) {
        unlink(path); /* half a file is none */
    }
    ga_libc.free(s);
    return status;
}

/* ---- load ----------------------------------------------------------------------------------- */

static ga_status read_head(stream *s, head *h)
{
    if (fread(h, 1, sizeof *h, s->file) != sizeof *h) {
        return ferror(s->file) ? system_says(s, "read") : bad(s, "truncated", "a whole head");
    }
    if (h->magic != MAGIC || h->head_size != sizeof *h) {
        return bad(s, "no table", "a file of ga_slabhash_save() on a machine like this");
    }
    if (h->seal != seal_of(h) || h->zero) {
        return bad(s, "corrupt", "a head that fits its seal");
    }
    if (h->kind != s->kind) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: %s: a %s%s: expected a %s%s", s->path,
                       GA_SLABHASH_IS_MULTI(h->kind) ? "multi" : "",
                       ga_slabhash_mode_text((ga_slabhash_mode)GA_SLABHASH_MODE(h->kind)),
                       GA_SLABHASH_IS_MULTI(s->kind) ? "multi" : "",
                       ga_slabhash_mode_text((ga_slabhash_mode)GA_SLABHASH_MODE(s->kind)));
    }
    return GA_OK;
}

/* The next pairs, as many as there is room for; `left` are still to come. */
static ga_status read_some(stream *s, uint64_t left)
{
    s->held = left < PAIRS ? (uint32_t)left : PAIRS;
    size_t size = s->held * 2 * sizeof(uint64_t);
    if (fread(s->pairs, 1, size, s->file) != size) {
        return ferror(s->file) ? system_says(s, "read")
                               : bad(s, "truncated", "as many pairs as its head says");
    }
    return GA_OK;
}

/* Whether the table could have this pair. */
static bool can_be(uint32_t kind, uint64_t key, uint64_t value)
{
    bool fits = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 || !((key | value) >> 32);
    return fits && ga_slabhash_allowed(kind, GA_SLABHASH_INSERT, key, value);
}

/* All of it, before anything is put in. */
static ga_status look_through(stream *s, const head *h)
{
    ga_status status = GA_OK;
    bool possible = true;
    for (uint64_t left = h->count; left && status == GA_OK; left -= s->held) {
        status = read_some(s, left);
        s->sum = add_to_sum(s->sum, s->pairs, status ? 0 : s->held * 2 * sizeof(uint64_t));
        for (uint32_t i = 0; i < s->held && status == GA_OK; i++) {
            possible = possible && can_be(s->kind, s->pairs[2 * i], s->pairs[2 * i + 1]);
        }
    }
    if (status == GA_OK && fgetc(s->file) != EOF) {
        status = bad(s, "longer than it says", "as many pairs as its head says");
    }
    if (status == GA_OK && (s->sum != h->sum || !possible)) {
        status = bad(s, "corrupt", "pairs that fit their sum");
    }
    return status;
}

static ga_status put_in(ga_slabhash *table, const stream *s, uint64_t *loaded)
{
    ga_status status = GA_OK;
    for (uint32_t i = 0; i < s->held && status == GA_OK; i++) {
        status = (GA_SLABHASH_IS_MULTI(s->kind) ? ga_slabhash_insert : ga_slabhash_replace)(
            table, s->pairs[2 * i], s->pairs[2 * i + 1], NULL);
        *loaded += status == GA_OK ? 1 : 0;
    }
    return status;
}

static ga_status load(ga_slabhash *table, stream *s)
{
    head h;
    uint64_t loaded = 0;
    ga_status status = read_head(s, &h);
    status = status ? status : look_through(s, &h);
    if (status == GA_OK && fseek(s->file, sizeof h, SEEK_SET)) {
        status = system_says(s, "read");
    }
    for (uint64_t left = h.count; status == GA_OK && left; left -= s->held) {
        status = read_some(s, left);
        status = status ? status : put_in(table, s, &loaded);
    }
    return status == GA_ERR_MEMORY
               ? ga_fail(GA_ERR_MEMORY, "slabhash: %s: no slabs for more than %llu of %llu pairs",
                         s->path, (unsigned long long)loaded, (unsigned long long)h.count)
               : status;
}

ga_status ga_slabhash_load(ga_slabhash *table, const char *path)
{
    stream *s;
    ga_status status = check_path(table, path);
    status = status ? status : new_stream(&s, table, path, "rb");
    if (status != GA_OK) {
        return status;
    }
    status = load(table, s);
    fclose(s->file);
    ga_libc.free(s);
    return status;
}
