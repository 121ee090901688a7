/* SPDX-License-Identifier: MIT
 *
 * Tables in files: a head of 48 bytes, then key and value of each pair, 64 bits each, in the
 * machine's byte order, which the head's magic number reveals. A new file is written beside the old
 * one and replaces it when it is complete, so that a failed save leaves the old file as it was.
 *
 *     save    open_temp -> write_all -> replace_target
 *     load    read_head -> validate_pairs -> insert_pairs
 */
#include "table.h"

#include "../../../liballoc/platform/libc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAIRS_AT_ONCE = 4096, /* read or written at once */
    NAME_BYTES = 64,      /* for the name of a temporary file */
    NAME_TRIES = 100,     /* names tried: earlier processes may have left files */
    KIND_MASK = 7         /* the part of a kind that files record: not whether the table grows */
};

static const uint64_t MAGIC = UINT64_C(0x3168736162616c73); /* "slabash1" */

typedef struct head {
    uint64_t magic;
    uint32_t head_size, kind;
    uint64_t count;
    uint64_t sum;  /* checksum of the pairs */
    uint64_t seal; /* checksum of the fields before it */
    uint64_t zero;
} head;

typedef struct stream {
    FILE *file;
    const char *path;
    uint32_t kind;
    uint64_t count, sum;
    int error; /* of the first write that failed, else 0 */
    uint32_t buffered;
    mode_t mode;                           /* permissions of the file to be replaced, else 0 */
    char target[PATH_MAX];                 /* the file to write, with links followed */
    char temp_path[PATH_MAX + NAME_BYTES]; /* where it is written until it is complete */
    uint64_t pairs[2 * PAIRS_AT_ONCE];
} stream;

/* FNV-1a on 64-bit words, with a shift so that the last words count as much as the first. */
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

static ga_status bad_file(const stream *s, const char *what, const char *expected)
{
    return ga_fail(GA_ERR_IO, "slabhash: %s: %s: expected %s", s->path, what, expected);
}

static ga_status system_error(const stream *s, const char *verb, int error)
{
    return ga_fail(GA_ERR_IO, "slabhash: %s: cannot %s it: %s", s->path, verb, strerror(error));
}

/* ---- save ----------------------------------------------------------------------------------- */

static void write_bytes(stream *s, const void *bytes, size_t size)
{
    errno = 0;
    if (!s->error && fwrite(bytes, 1, size, s->file) != size) {
        s->error = errno ? errno : EIO;
    }
}

/* Pairs take 64 bits each for key and value, in all modes. */
static void write_buffered(stream *s)
{
    size_t size = s->buffered * 2 * sizeof(uint64_t);
    s->sum = add_to_sum(s->sum, s->pairs, size);
    s->count += s->buffered;
    write_bytes(s, s->pairs, size);
    s->buffered = 0;
}

static bool write_pair(void *context, uint64_t key, uint64_t value)
{
    stream *s = context;
    s->pairs[2 * s->buffered] = key;
    s->pairs[2 * s->buffered + 1] = value;
    if (++s->buffered == PAIRS_AT_ONCE) {
        write_buffered(s);
    }
    return !s->error;
}

static ga_status write_all(ga_slabhash *table, stream *s)
{
    head h = {.magic = MAGIC, .head_size = sizeof h, .kind = table->kind & KIND_MASK};
    write_bytes(s, &h, sizeof h); /* placeholder; invalid until rewritten at the end */
    table->ops->each(table, write_pair, s);
    write_buffered(s);
    h.count = s->count;
    h.sum = s->sum;
    h.seal = seal_of(&h);
    if (!s->error && fseek(s->file, 0, SEEK_SET)) {
        s->error = errno;
    }
    write_bytes(s, &h, sizeof h);
    if (!s->error && (fflush(s->file) || fsync(fileno(s->file)))) {
        s->error = errno;
    }
    return s->error ? system_error(s, "write", s->error) : GA_OK;
}

static ga_status check_path(const ga_slabhash *table, const char *path)
{
    ga_status status = ga_slabhash_check(table);
    return status || path
               ? status
               : ga_fail(GA_ERR_ARGUMENT, "slabhash: no path of a file: expected a text");
}

static ga_status new_stream(stream **out, const ga_slabhash *table, const char *path)
{
    stream *s = ga_libc.calloc(1, sizeof *s);
    *out = s;
    if (!s) {
        return ga_fail(GA_ERR_MEMORY, "slabhash: no memory to read or write a file");
    }
    s->path = path;
    s->kind = table->kind;
    return GA_OK;
}

/* Finds the file to write: an existing regular file, or none yet. Anything else at the path is
 * refused and stays. */
static ga_status find_target(stream *s)
{
    struct stat info;
    if (stat(s->path, &info) == 0) {
        if (!S_ISREG(info.st_mode)) {
            return bad_file(s, "no regular file", "one, or none yet");
        }
        s->mode = info.st_mode & 0777;
        return access(s->path, W_OK) || !realpath(s->path, s->target)
                   ? system_error(s, "write", errno)
                   : GA_OK;
    }
    if (errno != ENOENT) {
        return system_error(s, "make", errno);
    }
    if (lstat(s->path, &info) == 0) {
        return bad_file(s, "a link to nothing", "a regular file, or none yet");
    }
    size_t size = strlen(s->path) + 1;
    if (size > sizeof s->target) {
        return system_error(s, "make", ENAMETOOLONG);
    }
    memcpy(s->target, s->path, size);
    return GA_OK;
}

/* Creates a file in the target's directory, under an unused name. */
static int create_temp(stream *s)
{
    static uint32_t number;
    const char *slash = strrchr(s->target, '/');
    size_t size = slash ? (size_t)(slash + 1 - s->target) : 0;
    int file = -1;
    memcpy(s->temp_path, s->target, size);
    for (int i = 0; file < 0 && i < NAME_TRIES && (!i || errno == EEXIST); i++) {
        /* relaxed: only must be unique */
        uint32_t own = __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED);
        snprintf(s->temp_path + size, NAME_BYTES, ".slabhash-%ld-%u", (long)getpid(), own);
        file = open(s->temp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return file;
}

static ga_status open_temp(stream *s)
{
    ga_status status = find_target(s);
    if (status != GA_OK) {
        return status;
    }
    int file = create_temp(s);
    if (file < 0) {
        return system_error(s, "make", errno);
    }
    if ((s->mode && fchmod(file, s->mode)) || !(s->file = fdopen(file, "wb"))) {
        status = system_error(s, "make", errno);
        close(file);
        unlink(s->temp_path);
    }
    return status;
}

/* Renames the complete file over the target, or removes it and leaves the target as it was. */
static ga_status replace_target(stream *s, ga_status status)
{
    if (fclose(s->file) && status == GA_OK) {
        status = system_error(s, "write", errno);
    }
    if (status == GA_OK && rename(s->temp_path, s->target)) {
        status = system_error(s, "replace", errno);
    }
    if (status != GA_OK) {
        unlink(s->temp_path);
    }
    return status;
}

ga_status ga_slabhash_save(ga_slabhash *table, const char *path)
{
    stream *s = NULL;
    ga_status status = check_path(table, path);
    status = status ? status : new_stream(&s, table, path);
    status = status ? status : ga_slabhash_enter(table, NULL);
    if (status == GA_OK) {
        status = open_temp(s);
        status = status ? status : replace_target(s, write_all(table, s));
        ga_slabhash_exit(table, NULL);
    }
    ga_libc.free(s);
    return status;
}

/* ---- load ----------------------------------------------------------------------------------- */

static ga_status read_head(stream *s, head *h)
{
    if (fread(h, 1, sizeof *h, s->file) != sizeof *h) {
        return ferror(s->file) ? system_error(s, "read", errno)
                               : bad_file(s, "truncated", "a whole head");
    }
    if (h->magic != MAGIC || h->head_size != sizeof *h) {
        return bad_file(s, "no table", "a file of ga_slabhash_save() on a machine like this");
    }
    if (h->seal != seal_of(h) || h->zero) {
        return bad_file(s, "corrupt", "a head that fits its seal");
    }
    if (h->kind != (s->kind & KIND_MASK)) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: %s: a %s%s: expected a %s%s", s->path,
                       GA_SLABHASH_IS_MULTI(h->kind) ? "multi" : "",
                       ga_slabhash_mode_text((ga_slabhash_mode)GA_SLABHASH_MODE(h->kind)),
                       GA_SLABHASH_IS_MULTI(s->kind) ? "multi" : "",
                       ga_slabhash_mode_text((ga_slabhash_mode)GA_SLABHASH_MODE(s->kind)));
    }
    return GA_OK;
}

/* Reads the next pairs, as many as the buffer takes; `left` pairs are still to come. */
static ga_status read_some(stream *s, uint64_t left)
{
    s->buffered = left < PAIRS_AT_ONCE ? (uint32_t)left : PAIRS_AT_ONCE;
    size_t size = s->buffered * 2 * sizeof(uint64_t);
    if (fread(s->pairs, 1, size, s->file) != size) {
        return ferror(s->file) ? system_error(s, "read", errno)
                               : bad_file(s, "truncated", "as many pairs as its head says");
    }
    return GA_OK;
}

/* True if the table may hold this pair. */
static bool is_possible(uint32_t kind, uint64_t key, uint64_t value)
{
    bool fits = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 || !((key | value) >> 32);
    return fits && ga_slabhash_allowed(kind, GA_SLABHASH_INSERT, key, value);
}

/* Reads and checks the whole file, before a pair is inserted. */
static ga_status validate_pairs(stream *s, const head *h)
{
    ga_status status = GA_OK;
    bool possible = true;
    for (uint64_t left = h->count; left && status == GA_OK; left -= s->buffered) {
        status = read_some(s, left);
        s->sum = add_to_sum(s->sum, s->pairs, status ? 0 : s->buffered * 2 * sizeof(uint64_t));
        for (uint32_t i = 0; i < s->buffered && status == GA_OK; i++) {
            possible = possible && is_possible(s->kind, s->pairs[2 * i], s->pairs[2 * i + 1]);
        }
    }
    if (status == GA_OK && fgetc(s->file) != EOF) {
        status = bad_file(s, "longer than it says", "as many pairs as its head says");
    }
    if (status == GA_OK && s->sum == h->sum && !possible && GA_SLABHASH_IS_GROWING(s->kind)) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "slabhash: %s: a pair that a table that grows cannot have: expected keys "
                       "to 0x%llx and values to 0x%llx",
                       s->path, (unsigned long long)ga_slabhash_key_max(s->kind),
                       (unsigned long long)ga_slabhash_value_max(s->kind));
    }
    if (status == GA_OK && (s->sum != h->sum || !possible)) {
        status = bad_file(s, "corrupt", "pairs that fit their sum");
    }
    return status;
}

static ga_status insert_pairs(ga_slabhash *table, const stream *s, uint64_t *loaded)
{
    ga_status status = GA_OK;
    for (uint32_t i = 0; i < s->buffered && status == GA_OK; i++) {
        status = (GA_SLABHASH_IS_MULTI(s->kind) ? ga_slabhash_insert : ga_slabhash_replace)(
            table, s->pairs[2 * i], s->pairs[2 * i + 1], NULL);
        *loaded += status == GA_OK ? 1 : 0;
    }
    return status;
}

static ga_status load(ga_slabhash *table, stream *s)
{
    head h = {0};
    uint64_t loaded = 0;
    ga_status status = read_head(s, &h);
    status = status ? status : validate_pairs(s, &h);
    if (status == GA_OK && fseek(s->file, sizeof h, SEEK_SET)) {
        status = system_error(s, "read", errno);
    }
    for (uint64_t left = h.count; status == GA_OK && left; left -= s->buffered) {
        status = read_some(s, left);
        status = status ? status : insert_pairs(table, s, &loaded);
    }
    return status == GA_ERR_MEMORY
               ? ga_fail(GA_ERR_MEMORY, "slabhash: %s: no slabs for more than %llu of %llu pairs",
                         s->path, (unsigned long long)loaded, (unsigned long long)h.count)
               : status;
}

/* Regular files only: opening a FIFO would wait for a writer. */
static ga_status open_saved(stream *s)
{
    struct stat info = {0};
    int file = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        return system_error(s, "open", errno);
    }
    bool regular = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
    s->file = regular ? fdopen(file, "rb") : NULL;
    if (s->file) {
        return GA_OK;
    }
    ga_status status = regular ? system_error(s, "open", errno)
                               : bad_file(s, "no regular file", "a file of ga_slabhash_save()");
    close(file);
    return status;
}

ga_status ga_slabhash_load(ga_slabhash *table, const char *path)
{
    stream *s = NULL;
    ga_status status = check_path(table, path);
    status = status ? status : new_stream(&s, table, path);
    status = status ? status : ga_slabhash_enter(table, "load");
    if (status == GA_OK) {
        status = open_saved(s);
        status = status ? status : load(table, s);
        ga_slabhash_exit(table, "load");
        if (s->file) {
            fclose(s->file);
        }
    }
    ga_libc.free(s);
    return status;
}
