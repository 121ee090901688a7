/* SPDX-License-Identifier: MIT
 *
 * Slab hashes in files: a saved table is loaded; damaged files, and files too large for a table;
 * saves that fail and keep the old file.
 */
#include "support/folder.h"
#include "support/probe.h"
#include "support/slabhash_scene.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static bool expect_loaded(void *context, uint64_t key, uint64_t value)
{
    ga_slabhash_found found;
    assert_ok(ga_slabhash_search(context, key, &found));
    cr_assert(found.found &&
              (value == found.value || value == found.value + 1 || value + 1 == found.value));
    return true;
}

Test(slabhash_files, save_and_load)
{
    make_path(path);
    for (uint32_t kind = 0; kind < 6; kind++) {
        ga_slabhash_mode mode = (ga_slabhash_mode)(kind % 3);
        uint32_t flags = kind / 3;
        ga_slabhash *table = filled(mode, flags, 9001);
        ga_slabhash *other = open_table((ga_slabhash_options){
            .mode = mode, .flags = flags, .buckets = 700, .path = 3, .seed = 9});
        uint64_t size;
        assert_ok(ga_slabhash_save(table, path));
        assert_ok(ga_slabhash_load(other, path));
        assert_ok(ga_slabhash_size(other, &size));
        cr_assert_eq(size, 9001);
        assert_ok(ga_slabhash_each(table, expect_loaded, other));
        assert_ok(ga_slabhash_close(table));
        assert_ok(ga_slabhash_close(other));
    }
    unlink(path);
}

static void write_file(const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, size, file) == size);
    fclose(file);
}

static void expect_refused(ga_slabhash *table, ga_status status, const char *what)
{
    char sentence[200];
    uint64_t size;
    snprintf(sentence, sizeof sentence, "slabhash: %s: %s", path, what);
    assert_fails_with(ga_slabhash_load(table, path), status, sentence);
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, 0);
}

Test(slabhash_files, damaged_files)
{
    make_path(path);
    static unsigned char bytes[48 + 16 * 100 + 1];
    ga_slabhash *table = filled(GA_SLABHASH_MAP32, 0, 100);
    assert_ok(ga_slabhash_save(table, path));
    FILE *file = fopen(path, "rb");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    cr_assert_eq(size, 48 + 16 * 100);
    assert_ok(ga_slabhash_clear(table));
    for (size_t length = 0; length < size; length += length < 60 ? 1 : 97) {
        write_file(bytes, length);
        expect_refused(table, GA_ERR_IO, "truncated: expected");
    }
    write_file(bytes, size + 1);
    expect_refused(table, GA_ERR_IO, "longer than it says");
    for (size_t at = 0; at < size; at += at < 60 ? 1 : 31) {
        bytes[at] ^= 4;
        write_file(bytes, size);
        expect_refused(table, GA_ERR_IO, at < 8 ? "no table" : at >= 12 ? "corrupt" : "no table");
        bytes[at] ^= 4;
    }
    write_file(bytes, size);
    ga_slabhash *other = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP64});
    expect_refused(other, GA_ERR_ARGUMENT, "a map32: expected a map64");
    assert_ok(ga_slabhash_load(table, path));
    unlink(path);
    expect_refused(other, GA_ERR_IO, "cannot open it: No such file or directory");
    assert_fails_with(ga_slabhash_save(table, "/nowhere/at/all"), GA_ERR_IO,
                      "slabhash: /nowhere/at/all: cannot make it: ");
    assert_ok(ga_slabhash_close(table));
    assert_ok(ga_slabhash_close(other));
}

Test(slabhash_files, what_is_no_file_is_not_waited_for, .timeout = 20)
{
    make_path(path);
    unlink(path);
    ga_slabhash *table = filled(GA_SLABHASH_MAP32, 0, 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_refused(table, GA_ERR_IO, "no regular file: expected a file of ga_slabhash_save()");
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    expect_refused(table, GA_ERR_IO, "no regular file: expected a file of ga_slabhash_save()");
    rmdir(path);
    assert_ok(ga_slabhash_close(table));
}

/* During a load, in its allocation: descriptors of the file that exec() would keep. */
static int inherited;
static int opened;

static ga_status alloc_and_look(void *state, size_t size, size_t align, void **out)
{
    struct stat file, there;
    for (int fd = 0; stat(path, &file) == 0 && fd < 64; fd++) {
        if (fstat(fd, &there) == 0 && there.st_dev == file.st_dev && there.st_ino == file.st_ino) {
            opened++;
            inherited += !(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        }
    }
    return probe_backend.alloc_aligned(state, size, align, out);
}

Test(slabhash_files, a_load_keeps_its_file_from_children)
{
    static ga_backend looking;
    ga_heap *heap;
    ga_slabhash *table = filled(GA_SLABHASH_MAP32, 0, 9001);
    make_path(path);
    assert_ok(ga_slabhash_save(table, path));
    looking = probe_backend;
    looking.name = "looking";
    looking.alloc_aligned = alloc_and_look;
    assert_ok(ga_backend_register(&looking));
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "looking"));
    ga_slabhash *other =
        open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32, .heap = heap, .buckets = 1});
    assert_ok(ga_slabhash_load(other, path));
    cr_assert_gt(opened, 0);
    cr_assert_eq(inherited, 0);
    unlink(path);
    assert_ok(ga_slabhash_close(table));
    assert_ok(ga_slabhash_close(other));
    assert_ok(ga_heap_close(heap));
}

Test(slabhash_files, a_file_for_which_there_is_no_memory)
{
    make_path(path);
    ga_slabhash *table = filled(GA_SLABHASH_MAP64, 0, 70000);
    ga_slabhash *small =
        open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP64, .buckets = 512, .limit = 1});
    char sentence[100];
    uint64_t size;
    assert_ok(ga_slabhash_save(table, path));
    assert_fails_with(ga_slabhash_load(small, path), GA_ERR_MEMORY, "slabhash: /tmp/slabhash-");
    assert_ok(ga_slabhash_size(small, &size));
    snprintf(sentence, sizeof sentence, "no slabs for more than %" PRIu64 " of 70000 pairs", size);
    cr_assert(strstr(ga_error_text(), sentence), "%s", ga_error_text());
    cr_assert_gt(size, 8192 * 6);
    unlink(path);
    assert_ok(ga_slabhash_close(table));
    assert_ok(ga_slabhash_close(small));
}

/* ---- files that cannot be written: the old contents stay ---------------------------------- */

/* A directory of its own, and the path of a file in it. */
static char directory[32];

static void make_directory(void)
{
    strcpy(directory, "/tmp/slabhash-XXXXXX");
    cr_assert(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

Test(slabhash_files, a_save_that_fails_keeps_the_old_file)
{
    char sentence[200];
    uint64_t size;
    struct stat now;
    ga_slabhash *small = filled(GA_SLABHASH_MAP32, 0, 10);
    ga_slabhash *large = filled(GA_SLABHASH_MAP32, 0, 20000);
    make_directory();
    assert_ok(ga_slabhash_save(small, path));
    cr_assert_eq(chmod(path, 0640), 0);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(65536);
    ga_status status = ga_slabhash_save(large, path);
    limit_files(RLIM_INFINITY);
    snprintf(sentence, sizeof sentence, "slabhash: %s: cannot write it: File too large", path);
    assert_fails(status, GA_ERR_IO, sentence);
    cr_assert_eq(files_in_folder(directory), 1);
    assert_ok(ga_slabhash_clear(small));
    assert_ok(ga_slabhash_load(small, path));
    assert_ok(ga_slabhash_size(small, &size));
    cr_assert_eq(size, 10);
    assert_ok(ga_slabhash_save(large, path));
    cr_assert(stat(path, &now) == 0 && (now.st_mode & 0777) == 0640);
    cr_assert_eq(now.st_size, 48 + 16 * 20000);
    cr_assert_eq(files_in_folder(directory), 1);
    cr_assert(unlink(path) == 0 && rmdir(directory) == 0);
    assert_ok(ga_slabhash_close(small));
    assert_ok(ga_slabhash_close(large));
}

/* A link is followed; its target is written if it is a file. */
Test(slabhash_files, what_is_no_file_stays)
{
    char link_path[80], sentence[200];
    struct stat there;
    ga_slabhash *table = filled(GA_SLABHASH_SET32, 0, 10);
    make_directory();
    snprintf(link_path, sizeof link_path, "%s/link", directory);
    for (int to_nothing = 0; to_nothing < 2; to_nothing++) {
        cr_assert_eq(symlink(to_nothing ? path : "/dev/full", link_path), 0);
        snprintf(sentence, sizeof sentence, "slabhash: %s: %s: expected", link_path,
                 to_nothing ? "a link to nothing" : "no regular file");
        assert_fails_with(ga_slabhash_save(table, link_path), GA_ERR_IO, sentence);
        cr_assert(lstat(link_path, &there) == 0 && S_ISLNK(there.st_mode));
        cr_assert_eq(files_in_folder(directory), 1);
        cr_assert_eq(unlink(link_path), 0);
    }
    assert_fails_with(ga_slabhash_save(table, directory), GA_ERR_IO, "slabhash: /tmp/slabhash-");
    assert_ok(ga_slabhash_save(table, path));
    cr_assert_eq(symlink("file", link_path), 0);
    assert_ok(ga_slabhash_insert(table, 77, 0, NULL));
    assert_ok(ga_slabhash_save(table, link_path));
    cr_assert(lstat(link_path, &there) == 0 && S_ISLNK(there.st_mode));
    cr_assert(stat(path, &there) == 0 && there.st_size == 48 + 16 * 11);
    cr_assert_eq(files_in_folder(directory), 2);
    cr_assert(unlink(link_path) == 0 && unlink(path) == 0 && rmdir(directory) == 0);
    assert_ok(ga_slabhash_close(table));
}
