/* SPDX-License-Identifier: MIT
 *
 * The memory that the process can still have, from /proc, its memory cgroups and its limits.
 * Backends query it inside malloc, so nothing here allocates and errno is kept: files are read with
 * open() and read() into buffers on the stack. A value that cannot be read imposes no limit.
 */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define UNLIMITED UINT64_MAX

/* Some threads have stacks of 16 KiB: all buffers together need less than 8 KiB. */
enum {
    /* The fields that we read of meminfo, status and memory.stat are in the first 2 KiB. */
    FILE_BYTES = 3072,
    LINES_BYTES = 2048,
    FOLDER_BYTES = 512,
    PATH_BYTES = FOLDER_BYTES + 64,
    NAME_BYTES = PATH_BYTES + 256
};

/* ---- arithmetic that stops at its ends ----------------------------------------------------- */

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UNLIMITED - b ? UNLIMITED : a + b;
}

/* Bytes left of a limit; UNLIMITED without a limit. */
static uint64_t headroom(uint64_t limit, uint64_t used)
{
    return limit == UNLIMITED ? UNLIMITED : limit > used ? limit - used : 0;
}

/* ---- files --------------------------------------------------------------------------------- */

/* The file's text, cut to the buffer; false if the file cannot be read. */
static bool read_text(const char *root, const char *path, char *text, size_t size)
{
    char name[NAME_BYTES];
    size_t length = 0;
    ssize_t got = -1;
    snprintf(name, sizeof name, "%s%s", root, path);
    int file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (file >= 0 && length < size - 1 &&
           (got = read(file, text + length, size - 1 - length)) > 0) {
        length += (size_t)got;
    }
    if (file >= 0) {
        close(file);
    }
    text[length] = '\0';
    return length > 0 && got >= 0;
}

/* The number at the beginning of the text; `fallback` if there is none, as in "max". */
static uint64_t parse_number(const char *text, uint64_t fallback)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    return end == text ? fallback : number;
}

/* The number after `key` in the line that begins with `key`. */
static uint64_t parse_field(const char *text, const char *key, uint64_t fallback)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0) {
            return parse_number(line + length, fallback);
        }
    }
    return fallback;
}

/* The kernel writes KiB; the result is in bytes. */
static uint64_t parse_kib(const char *text, const char *key, uint64_t fallback)
{
    uint64_t kib = parse_field(text, key, UNLIMITED);
    return kib > UNLIMITED / 1024 ? fallback : kib * 1024;
}

/* ---- memory cgroups ------------------------------------------------------------------------ */

/* A memory controller's files. Version 2 limits swap separately, version 1 memory and swap
 * together. */
typedef struct controller {
    const char *mount;
    const char *limit, *usage;
    const char *inactive, *active; /* fields of memory.stat: page cache, which the kernel can
                                    * drop */
    const char *swap_limit, *swap_usage;
    const char *both_limit, *both_usage;
} controller;

static const controller version_1 = {
    .mount = "/sys/fs/cgroup/memory",
    .limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .inactive = "total_inactive_file ",
    .active = "total_active_file ",
    .both_limit = "memory.memsw.limit_in_bytes",
    .both_usage = "memory.memsw.usage_in_bytes",
};

static const controller version_2 = {
    .mount = "/sys/fs/cgroup",
    .limit = "memory.max",
    .usage = "memory.current",
    .inactive = "inactive_file ",
    .active = "active_file ",
    .swap_limit = "memory.swap.max",
    .swap_usage = "memory.swap.current",
};

static uint64_t read_value(const char *root, const char *folder, const char *file,
                           uint64_t fallback)
{
    char path[PATH_BYTES];
    char text[64];
    if (!file) {
        return fallback;
    }
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_text(root, path, text, sizeof text) ? parse_number(text, fallback) : fallback;
}

static uint64_t read_droppable(const char *root, const char *folder, const controller *c)
{
    char path[PATH_BYTES];
    char text[FILE_BYTES];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (!read_text(root, path, text, sizeof text)) {
        return 0;
    }
    return sum(parse_field(text, c->inactive, 0), parse_field(text, c->active, 0));
}

/* Bytes left of one group's limits. Page cache counts as used, but the kernel drops it for our
 * memory, so it is added. */
static uint64_t group_headroom(const char *root, const char *folder, const controller *c,
                               uint64_t swap)
{
    uint64_t limit = read_value(root, folder, c->limit, UNLIMITED);
    uint64_t both_limit = read_value(root, folder, c->both_limit, UNLIMITED);
    if (limit == UNLIMITED && both_limit == UNLIMITED) {
        return UNLIMITED;
    }
    uint64_t droppable = read_droppable(root, folder, c);
    uint64_t used = read_value(root, folder, c->usage, 0);
    uint64_t both_used = read_value(root, folder, c->both_usage, 0);
    uint64_t swap_left = headroom(read_value(root, folder, c->swap_limit, UNLIMITED),
                                  read_value(root, folder, c->swap_usage, 0));
    uint64_t memory = headroom(limit, headroom(used, droppable));
    uint64_t both = headroom(both_limit, headroom(both_used, droppable));
    return lesser(sum(memory, lesser(swap, swap_left)), both);
}

/* The smallest number of bytes left in the group and in its ancestors. In a container that sees
 * only its own group the path may name missing folders; these impose no limit, and the mount itself
 * is the container's group. */
static uint64_t ancestors_headroom(const char *root, const char *path, const controller *c,
                                   uint64_t swap)
{
    char folder[FOLDER_BYTES];
    size_t mount = strlen(c->mount);
    uint64_t least = UNLIMITED;
    int length =
        snprintf(folder, sizeof folder, "%s%.*s", c->mount, (int)strcspn(path, "\n"), path);
    if (length < 0 || (size_t)length >= sizeof folder) {
        folder[mount] = '\0';
    }
    for (char *end = folder + strlen(folder); end; end = strrchr(folder, '/')) {
        if ((size_t)(end - folder) < mount) {
            break;
        }
        *end = '\0';
        least = lesser(least, group_headroom(root, folder, c, swap));
    }
    return least;
}

/* Lines have the form ID:CONTROLLERS:PATH; version 2 has one line, "0::PATH". */
static uint64_t cgroup_line(const char *root, const char *line, uint64_t swap)
{
    const char *names = strchr(line, ':');
    const char *path = names ? strchr(names + 1, ':') : NULL;
    if (!path) {
        return UNLIMITED;
    }
    size_t length = (size_t)(path - names - 1);
    if (length == 0) {
        return ancestors_headroom(root, path + 1, &version_2, swap);
    }
    const char *memory = memmem(names + 1, length, "memory", strlen("memory"));
    return memory ? ancestors_headroom(root, path + 1, &version_1, swap) : UNLIMITED;
}

static __attribute__((noinline)) uint64_t cgroups_headroom(const char *root, uint64_t swap)
{
    char text[LINES_BYTES];
    uint64_t least = UNLIMITED;
    if (!read_text(root, "/proc/self/cgroup", text, sizeof text)) {
        return UNLIMITED;
    }
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        least = lesser(least, cgroup_line(root, line, swap));
    }
    return least;
}

/* ---- the process's limits ------------------------------------------------------------------ */

static uint64_t read_limit(int resource)
{
    struct rlimit limit;
    bool limited =
        getrlimit((__rlimit_resource_t)resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? limit.rlim_cur : UNLIMITED;
}

static __attribute__((noinline)) uint64_t limits_headroom(const char *root)
{
    char status[FILE_BYTES];
    uint64_t addresses = read_limit(RLIMIT_AS);
    uint64_t data = read_limit(RLIMIT_DATA);
    if ((addresses == UNLIMITED && data == UNLIMITED) ||
        !read_text(root, "/proc/self/status", status, sizeof status)) {
        return lesser(addresses, data);
    }
    return lesser(headroom(addresses, parse_kib(status, "VmSize:", 0)),
                  headroom(data, parse_kib(status, "VmData:", 0)));
}

/* ---- the system ---------------------------------------------------------------------------- */

enum {
    OVERCOMMIT_HEURISTIC,
    OVERCOMMIT_ALWAYS,
    OVERCOMMIT_NEVER
};

typedef struct system_memory {
    uint64_t all, available; /* with swap */
    uint64_t swap;           /* free */
    uint64_t commit_limit;   /* UNLIMITED except in mode OVERCOMMIT_NEVER, like the next */
    uint64_t commit_left;
    uint64_t overcommit;
} system_memory;

/* Not inlined, so that its buffer leaves the stack before the next function needs one. */
static __attribute__((noinline)) system_memory read_system(const char *root)
{
    char text[FILE_BYTES];
    system_memory m = {.all = UNLIMITED,
                       .available = UNLIMITED,
                       .swap = UNLIMITED,
                       .commit_limit = UNLIMITED,
                       .commit_left = UNLIMITED,
                       .overcommit = OVERCOMMIT_HEURISTIC};
    if (read_text(root, "/proc/sys/vm/overcommit_memory", text, sizeof text)) {
        m.overcommit = parse_number(text, OVERCOMMIT_HEURISTIC);
    }
    if (read_text(root, "/proc/meminfo", text, sizeof text)) {
        m.swap = parse_kib(text, "SwapFree:", 0);
        m.all = sum(parse_kib(text, "MemTotal:", UNLIMITED), parse_kib(text, "SwapTotal:", 0));
        m.available = sum(parse_kib(text, "MemAvailable:", UNLIMITED), m.swap);
        if (m.overcommit == OVERCOMMIT_NEVER) {
            m.commit_limit = parse_kib(text, "CommitLimit:", UNLIMITED);
            m.commit_left = headroom(m.commit_limit, parse_kib(text, "Committed_AS:", 0));
        }
    }
    return m;
}

/* ---- answers ------------------------------------------------------------------------------- */

uint64_t ga_machine_memory_available_in(const char *root)
{
    int saved = errno;
    system_memory m = read_system(root);
    uint64_t system = lesser(m.available, m.commit_left);
    uint64_t process = lesser(cgroups_headroom(root, m.swap), limits_headroom(root));
    errno = saved;
    return lesser(system, process);
}

uint64_t ga_machine_memory_total_in(const char *root)
{
    int saved = errno;
    system_memory m = read_system(root);
    errno = saved;
    return m.overcommit == OVERCOMMIT_ALWAYS ? UNLIMITED : lesser(m.all, m.commit_limit);
}

uint64_t ga_machine_memory_available(void)
{
    return ga_machine_memory_available_in("");
}

uint64_t ga_machine_memory_total(void)
{
    return ga_machine_memory_total_in("");
}
