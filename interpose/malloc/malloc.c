/* SPDX-License-Identifier: MIT
 *
 * The malloc family of the process, as glibc documents it; aligned.c has memalign() and its kin.
 * Each entry point handles the cases that the heap interface leaves open (zero sizes, foreign
 * pointers, errno) and jumps through the table.
 */
#include "../../liballoc/platform/foreign.h"
#include "../../liballoc/platform/output_file.h"
#include "aligned.h"
#include "entry.h"
#include "libc_next.h"
#include "served.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Not declared by glibc before 2.41, or only for C23. */
EXPORT void cfree(void *block);
EXPORT void free_sized(void *block, size_t size);
EXPORT void free_aligned_sized(void *block, size_t align, size_t size);

/* True for a block in the served range; false for NULL, foreign pointers, and where only the
 * heap can tell. */
static inline bool in_range(const void *block)
{
    return (uintptr_t)block - ga_served.range_base < ga_served.range_size;
}

static bool is_ours(const void *block)
{
    return in_range(block) || ga_served_owns(block);
}

/* ---- allocation --------------------------------------------------------------------------- */

EXPORT void *malloc(size_t size)
{
    return ga_served.malloc(size);
}

EXPORT void *calloc(size_t count, size_t size)
{
    return ga_served.calloc(count, size);
}

static void *refuse(int error)
{
    errno = error;
    return NULL;
}

/* Backends do not set errno; aligned.c does. */
void *ga_aligned_alloc(size_t align, size_t size)
{
    return ga_served.memalign(align, size);
}

/* ---- release ------------------------------------------------------------------------------ */

static __attribute__((noinline)) void free_outside(void *block)
{
    if (!block) {
        return;
    }
    if (ga_served_owns(block)) {
        ga_served.free(block);
    } else {
        ga_foreign_free(block);
    }
}

ENTRY void free(void *block)
{
    if (__builtin_expect(in_range(block), 1)) {
        ga_served.free(block);
    } else {
        free_outside(block);
    }
}

/* glibc dropped it from its headers but still exports it for programs linked before 2.26. Weak,
 * because a program may define a function of that name. */
EXPORT __attribute__((weak)) void cfree(void *block)
{
    free(block);
}

EXPORT void free_sized(void *block, size_t size)
{
    (void)size;
    free(block);
}

EXPORT void free_aligned_sized(void *block, size_t align, size_t size)
{
    (void)align;
    (void)size;
    free(block);
}

/* ---- resizing ----------------------------------------------------------------------------- */

ENTRY void *realloc(void *block, size_t size)
{
    if (!block) {
        return ga_served.malloc(size);
    }
    if (size == 0) {
        free(block);
        return NULL;
    }
    /* The C library resizes its own blocks. */
    void *moved = is_ours(block) ? ga_served.realloc(block, size) : ga_foreign_realloc(block, size);
    return moved ? moved : refuse(ENOMEM); /* jemalloc's table does not set errno */
}

EXPORT void *reallocarray(void *block, size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? refuse(ENOMEM) : realloc(block, bytes);
}

/* ---- questions ---------------------------------------------------------------------------- */

EXPORT size_t malloc_usable_size(void *block)
{
    if (!block) {
        return 0;
    }
    return is_ours(block) ? ga_served.usable_size(block) : ga_foreign_usable_size(block);
}

static bool served_by_libc(void)
{
    ga_heap *heap = ga_served_heap();
    return !heap || ga_served.range_size == SIZE_MAX;
}

EXPORT int malloc_trim(size_t keep)
{
    if (served_by_libc()) {
        return ga_libc.trim ? ga_libc.trim(keep) : 0;
    }
    return ga_trim(ga_served_heap(), keep) == GA_OK;
}

/* For heaps other than the C library's: live and held bytes, and the difference as free. */
static struct mallinfo2 info_of_heap(void)
{
    ga_stats stats = {0};
    ga_heap_stats(ga_served_heap(), &stats);
    bool some_free = stats.held_bytes > stats.live_bytes;
    return (struct mallinfo2){
        .arena = stats.held_bytes,
        .uordblks = stats.live_bytes,
        .fordblks = some_free ? stats.held_bytes - stats.live_bytes : 0,
    };
}

ENTRY struct mallinfo2 mallinfo2(void)
{
    struct mallinfo2 info = {0};
    return served_by_libc() && ga_libc_info(&info) ? info : info_of_heap();
}

static int clamp(size_t value)
{
    return value < INT_MAX ? (int)value : INT_MAX;
}

/* glibc lets the values wrap around. The largest int misleads a program less than a negative
 * value. */
EXPORT struct mallinfo mallinfo(void)
{
    struct mallinfo2 info = mallinfo2();
    return (struct mallinfo){
        .arena = clamp(info.arena),
        .ordblks = clamp(info.ordblks),
        .smblks = clamp(info.smblks),
        .hblks = clamp(info.hblks),
        .hblkhd = clamp(info.hblkhd),
        .usmblks = clamp(info.usmblks),
        .fsmblks = clamp(info.fsmblks),
        .uordblks = clamp(info.uordblks),
        .fordblks = clamp(info.fordblks),
        .keepcost = clamp(info.keepcost),
    };
}

/* glibc's XML document, with one heap and totals only. */
static int write_info(FILE *out)
{
    struct mallinfo2 info = info_of_heap();
    int written =
        fprintf(out,
                "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n</sizes>\n"
                "<total type=\"fast\" count=\"0\" size=\"0\"/>\n"
                "<total type=\"rest\" count=\"0\" size=\"%zu\"/>\n"
                "<system type=\"current\" size=\"%zu\"/>\n"
                "<system type=\"max\" size=\"%zu\"/>\n"
                "</heap>\n"
                "<total type=\"fast\" count=\"0\" size=\"0\"/>\n"
                "<total type=\"rest\" count=\"0\" size=\"%zu\"/>\n"
                "<total type=\"mmap\" count=\"0\" size=\"0\"/>\n"
                "<system type=\"current\" size=\"%zu\"/>\n"
                "<system type=\"max\" size=\"%zu\"/>\n"
                "</malloc>\n",
                info.fordblks, info.arena, info.arena, info.fordblks, info.arena, info.arena);
    return written < 0 ? -1 : 0;
}

EXPORT int malloc_info(int options, FILE *out)
{
    if (options != 0) {
        return EINVAL;
    }
    int result;
    return served_by_libc() && ga_libc_write_info(out, &result) ? result : write_info(out);
}

EXPORT void malloc_stats(void)
{
    enum {
        STATS_SPARE = 4096 /* other threads may lengthen figures between the two calls */
    };
    if (served_by_libc()) {
        ga_libc_print_stats();
        return;
    }
    size_t size = ga_heap_stats_text(ga_served_heap(), NULL, 0) + STATS_SPARE;
    char *text = ga_libc.malloc(size);
    if (!text) {
        return;
    }
    size_t length = ga_heap_stats_text(ga_served_heap(), text, size);
    /* failure is ignored: the program may have closed standard error */
    ga_output_write(STDERR_FILENO, text, length < size ? length : size - 1);
    ga_libc.free(text);
}
