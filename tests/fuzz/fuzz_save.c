/* SPDX-License-Identifier: MIT
 *
 * Saved slab hashes on damaged files. It would catch reads past a buffer, a table that a refused
 * file has changed, pairs that a table cannot have, pairs that are lost on the way through a file,
 * and messages that are empty or cannot be printed.
 *
 * The first byte of an input selects the table that loads it, and whether the head is made to fit
 * the rest.
 */
#include "fuzz.h"

#include <err.h>
#include <gpualloc/slabhash.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *const fuzz_tokens[] = {
    "slabash1",
    "\xff\xff\xff\xff\xff\xff\xff\xff",
    "\xfe\xff\xff\xff\xff\xff\xff\xff",
    "\xff\xff\xff\xff\x01\x01\x01\x01",
    "\xfd\xff\xff\x7f",
    "\x30",
    NULL,
};

enum {
    MODES = 3,
    KINDS = 2 * 2 * MODES, /* with and without GA_SLABHASH_MULTI and GA_SLABHASH_GROW */
    REPAIRED = 0x80,       /* of the first byte: the head is made to fit */
    PAIR = 16,
    PAIRS_MAX = FUZZ_INPUT_MAX / PAIR
};

/* As in hashtables/slabhash/host/file.c. */
typedef struct head {
    uint64_t magic;
    uint32_t head_size, kind;
    uint64_t count, sum, seal, zero;
} head;

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

/* Kinds as files have them: the mode, and 4 for a multimap. */
static uint32_t kind_of(size_t table)
{
    return (uint32_t)(table % MODES + (table / MODES % 2 ? 4 : 0));
}

static head head_over(size_t table, const uint8_t *pairs, size_t size)
{
    head h = {.magic = UINT64_C(0x3168736162616c73), .head_size = sizeof h};
    h.kind = kind_of(table);
    h.count = size / PAIR;
    h.sum = add_to_sum(0, pairs, size);
    h.seal = add_to_sum(UINT64_C(0xcbf29ce484222325), &h, offsetof(head, seal));
    return h;
}

/* ---- seeds ---------------------------------------------------------------------------------- */

static size_t put_pairs(uint8_t *room, uint64_t first, size_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t pair[2] = {first + i, i};
        memcpy(room + i * PAIR, pair, PAIR);
    }
    return count * PAIR;
}

/* For each kind a whole file, and pairs with a generated head; some keys are wide or reserved. */
size_t fuzz_seed(size_t number, uint8_t room[FUZZ_INPUT_MAX])
{
    static const uint64_t firsts[] = {0, 0x7ffffff0, 0xfffffff0, UINT64_MAX - 7};
    size_t table = number % KINDS;
    size_t way = number / KINDS;
    if (way >= 8) {
        return 0;
    }
    size_t head_size = way < 4 ? sizeof(head) : 0;
    room[0] = (uint8_t)(table | (head_size ? 0 : REPAIRED));
    size_t size = put_pairs(room + 1 + head_size, firsts[way % 4], way ? 10 : 300);
    head h = head_over(table, room + 1 + head_size, size);
    memcpy(room + 1, &h, head_size);
    return 1 + head_size + size;
}

/* ---- files ---------------------------------------------------------------------------------- */

static const char *file_with(const uint8_t *head_bytes, size_t head_size, const uint8_t *rest,
                             size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("table", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 ||
        pwrite(fd, head_bytes, head_size, 0) != (ssize_t)head_size ||
        pwrite(fd, rest, size, (off_t)head_size) != (ssize_t)size) {
        err(1, "cannot write a file to read");
    }
    return path;
}

static char saved[64];

static void remove_saved(void)
{
    unlink(saved);
}

static const char *saved_path(void)
{
    if (!*saved) {
        const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(saved, sizeof saved, "%s/gpualloc-fuzz-save-%ld", folder, (long)getpid());
        atexit(remove_saved);
    }
    return saved;
}

/* ---- tables --------------------------------------------------------------------------------- */

static ga_slabhash *table_of(size_t number, size_t which)
{
    static ga_slabhash *tables[2][KINDS];
    ga_slabhash **table = &tables[which][number];
    if (!*table) {
        ga_slabhash_options options = {
            .options_size = sizeof options,
            .mode = (ga_slabhash_mode)(number % MODES),
            .flags = (number / MODES % 2 ? GA_SLABHASH_MULTI : 0u) |
                     (number / MODES / 2 ? GA_SLABHASH_GROW : 0u),
            .buckets = 16,
            .seed = 1 + which,
            .limit = 16 << 20,
        };
        FUZZ_NEED(ga_slabhash_open(table, &options) == GA_OK);
    }
    return *table;
}

static uint64_t size_of(ga_slabhash *table)
{
    uint64_t size;
    FUZZ_NEED(ga_slabhash_size(table, &size) == GA_OK);
    return size;
}

/* The other table has an equal number of pairs of each key, and an equal value for unique keys. */
static bool check_pair(void *other, uint64_t key, uint64_t value)
{
    uint64_t values[PAIRS_MAX];
    uint64_t count;
    FUZZ_NEED(ga_slabhash_search_all(other, key, values, PAIRS_MAX, &count) == GA_OK);
    bool there = false;
    for (uint64_t i = 0; i < count; i++) {
        there |= values[i] == value;
    }
    FUZZ_NEED(there);
    return true;
}

static void check_loaded(ga_slabhash *table, size_t number, size_t pairs)
{
    ga_slabhash *other = table_of(number, 1);
    FUZZ_NEED(size_of(table) <= pairs);
    FUZZ_NEED(!(kind_of(number) & 4) || size_of(table) == pairs);
    FUZZ_NEED(ga_slabhash_save(table, saved_path()) == GA_OK);
    FUZZ_NEED(ga_slabhash_load(other, saved_path()) == GA_OK);
    FUZZ_NEED(size_of(other) == size_of(table));
    FUZZ_NEED(ga_slabhash_each(table, check_pair, other) == GA_OK);
    FUZZ_NEED(ga_slabhash_clear(other) == GA_OK);
}

static void load(size_t number, const char *path, size_t pairs)
{
    ga_slabhash *table = table_of(number, 0);
    ga_status status = ga_slabhash_load(table, path);
    if (status == GA_OK) {
        check_loaded(table, number, pairs);
        FUZZ_NEED(ga_slabhash_clear(table) == GA_OK);
    } else {
        FUZZ_NEED(status == GA_ERR_IO || status == GA_ERR_ARGUMENT);
        fuzz_check_sentence();
    }
    FUZZ_NEED(size_of(table) == 0);
}

/* ---- the target ----------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t first = size ? data[0] : 0;
    size_t number = (first & ~(unsigned)REPAIRED) % KINDS;
    const uint8_t *rest = size ? data + 1 : data;
    size -= size ? 1 : 0;
    if (first & REPAIRED) {
        size -= size % PAIR;
        head h = head_over(number, rest, size);
        load(number, file_with((const uint8_t *)&h, sizeof h, rest, size), size / PAIR);
    } else {
        size_t pairs = size < sizeof(head) ? 0 : (size - sizeof(head)) / PAIR;
        load(number, file_with(rest, 0, rest, size), pairs);
    }
    return 0;
}
