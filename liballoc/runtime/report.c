/* SPDX-License-Identifier: MIT
 *
 * Statistics as text and as JSON. The JSON is one format string: this runs inside a malloc that
 * is about to end, where no library can be asked to build it.
 */
#include "report.h"

#include "../platform/environment.h"
#include "../platform/log.h"
#include "../platform/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ga_status ga_heap_stats(const ga_heap *heap, ga_stats *out)
{
    if (!heap || !out) {
        return ga_fail(GA_ERR_ARGUMENT, "ga_heap_stats: expected a heap and room, got NULL");
    }
    while (!heap->counters) {
        heap = heap->parent;
    }
    ga_counters_read(heap->counters, out);
    if (heap->backend->stats) {
        ga_backend_stats own = {0};
        heap->backend->stats(heap->state, &own);
        if (heap->bypassed) {
            out->live_bytes = own.live_bytes;
        }
        if (heap->place == GA_PLACE_KERNEL) { /* what kernels do passes the counters by */
            out->live_blocks = own.live_blocks;
            out->live_bytes = own.live_bytes;
        }
        out->held_bytes = own.held_bytes;
        out->growths = own.growths;
    }
    return GA_OK;
}

/* ---- as text ------------------------------------------------------------------------------ */

static void write_bytes(char *out, size_t size, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(out, size, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
}

static double overhead_percent(const ga_stats *s)
{
    return s->requested_bytes && s->granted_bytes
               ? 100.0 * (double)s->granted_bytes / (double)s->requested_bytes - 100.0
               : 0.0;
}

/* One more line, where the heap replaces malloc in kernels. */
static size_t write_published(const ga_heap *heap, char *buffer, size_t size, size_t used)
{
    int length = snprintf(used < size ? buffer + used : NULL, used < size ? size - used : 0,
                          "malloc in kernels is replaced, published %u times\n", heap->published);
    return length < 0 ? 0 : (size_t)length;
}

size_t ga_heap_stats_text(const ga_heap *heap, char *buffer, size_t size)
{
    ga_stats s = {0};
    char live[24], peak[24], requested[24], granted[24], held[24];
    ga_heap_stats(heap, &s);
    write_bytes(live, sizeof live, s.live_bytes);
    write_bytes(peak, sizeof peak, s.peak_bytes);
    write_bytes(requested, sizeof requested, s.requested_bytes);
    write_bytes(granted, sizeof granted, s.granted_bytes);
    write_bytes(held, sizeof held, s.held_bytes);
    int length = snprintf(
        buffer, size,
        "heap       %s (%s)\n"
        "allocs     %20" PRIu64 "   frees      %20" PRIu64 "\n"
        "reallocs   %20" PRIu64 "   failures   %20" PRIu64 "\n"
        "live       %20s   in blocks  %20" PRIu64 "\n"
        "peak       %20s   held       %20s\n"
        "requested  %20s   granted    %20s (%+.1f %%)\n"
        "growths    %20" PRIu64 "\n",
        heap ? heap->text : "", ga_place_text(heap ? heap->place : GA_PLACE_COUNT), s.allocs,
        s.frees, s.reallocs, s.failures, live, s.live_blocks, peak, s.held_bytes ? held : "unknown",
        requested, granted, overhead_percent(&s), s.growths);
    size_t used = length < 0 ? 0 : (size_t)length;
    return heap && heap->published ? used + write_published(heap, buffer, size, used) : used;
}

/* ---- as JSON ------------------------------------------------------------------------------ */

/* The length of a UTF-8 character by its first byte; 0: none begins like this. */
static size_t utf8_announced(unsigned char first)
{
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The bytes of the character at `c`, 0 where there is none: JSON is UTF-8, paths need not be. */
static size_t utf8_length(const unsigned char *c)
{
    size_t length = utf8_announced(*c);
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (*c == 0xe0 && c[1] < 0xa0) || (*c == 0xf0 && c[1] < 0x90);
    bool no_character = (*c == 0xed && c[1] > 0x9f) || (*c == 0xf4 && c[1] > 0x8f);
    return overlong || no_character ? 0 : length;
}

/* `text` as the inside of a JSON string. */
static void escape(char *out, size_t size, const char *text)
{
    size_t used = 0;
    const unsigned char *c = (const unsigned char *)text;
    while (*c && used + 7 < size) {
        size_t length = utf8_length(c);
        if (*c == '"' || *c == '\\') {
            used += (size_t)sprintf(out + used, "\\%c", *c);
        } else if (length == 0 || *c < ' ') {
            used += (size_t)sprintf(out + used, "\\u%04x", length ? *c : 0xfffdu);
        } else {
            memcpy(out + used, c, length);
            used += length;
        }
        c += length ? length : 1;
    }
    out[used] = '\0';
}

size_t ga_heap_stats_json(const ga_heap *heap, char *buffer, size_t size)
{
    ga_stats s = {0};
    char spec[2048];
    char program[256];
    ga_heap_stats(heap, &s);
    escape(spec, sizeof spec, heap ? heap->text : "");
    escape(program, sizeof program, program_invocation_short_name);
    int length = snprintf(
        buffer, size,
        "{\"abi\":1,\"pid\":%d,\"program\":\"%s\",\"place\":\"%s\",\"device\":%d,\"spec\":\"%s\","
        "\"allocs\":%" PRIu64 ",\"frees\":%" PRIu64 ",\"reallocs\":%" PRIu64
        ",\"failures\":%" PRIu64 ",\"live_blocks\":%" PRIu64 ",\"live_bytes\":%" PRIu64
        ",\"peak_bytes\":%" PRIu64 ",\"requested_bytes\":%" PRIu64 ",\"granted_bytes\":%" PRIu64
        ",\"held_bytes\":%" PRIu64 ",\"growths\":%" PRIu64 "%s}\n",
        (int)getpid(), program, ga_place_text(heap ? heap->place : GA_PLACE_COUNT),
        heap ? heap->device : 0, spec, s.allocs, s.frees, s.reallocs, s.failures, s.live_blocks,
        s.live_bytes, s.peak_bytes, s.requested_bytes, s.granted_bytes, s.held_bytes, s.growths,
        heap && heap->published ? ",\"replaces_malloc\":true" : "");
    return length < 0 ? 0 : (size_t)length;
}

/* ---- where GPUALLOC_STATS says ------------------------------------------------------------- */

static const char *destination(void)
{
    const char *to = ga_environment("GPUALLOC_STATS");
    return to && *to && strcmp(to, "0") != 0 ? to : NULL;
}

bool ga_report_wanted(void)
{
    return destination() != NULL;
}

static bool is_json(const char *path)
{
    size_t length = strlen(path);
    return length >= 5 && strcmp(path + length - 5, ".json") == 0;
}

/* Standard error as it was when the first heap was opened. A copy, because many programs close
 * theirs before they end; compared before use, because others close every descriptor they did not
 * open, and the number may mean a file of theirs by then. */
static struct {
    int fd;
    dev_t device;
    ino_t inode;
} standard_error = {.fd = -1};

enum {
    COPY_FROM = 100 /* the least number for the copy, out of the way of a program's own */
};

static void keep_standard_error(void)
{
    struct stat stat;
    if (fstat(STDERR_FILENO, &stat) == 0) {
        standard_error.fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, COPY_FROM);
        standard_error.device = stat.st_dev;
        standard_error.inode = stat.st_ino;
    }
}

static bool is_standard_error(int fd)
{
    struct stat stat;
    return fd >= 0 && fstat(fd, &stat) == 0 && stat.st_dev == standard_error.device &&
           stat.st_ino == standard_error.inode;
}

/* One write, so that the reports of processes that end together do not mix. */
static bool append(const char *path, const char *text, size_t length)
{
    if (strcmp(path, "1") == 0) {
        int fd = is_standard_error(standard_error.fd) ? standard_error.fd : STDERR_FILENO;
        return !is_standard_error(fd) || write(fd, text, length) == (ssize_t)length;
    }
    int fd = ga_output_open(path);
    bool written = fd >= 0 && write(fd, text, length) == (ssize_t)length;
    if (fd >= 0) {
        close(fd);
    }
    return written;
}

void ga_report(const ga_heap *heap)
{
    const char *to = destination();
    if (!to) {
        return;
    }
    char text[4096];
    size_t head = 0;
    size_t room = sizeof text;
    if (!is_json(to)) {
        char program[256]; /* foreign text: it must not add lines of its own to the report */
        escape(program, sizeof program, program_invocation_short_name);
        head = (size_t)snprintf(text, room, "gpualloc: statistics of %.200s, process %d\n", program,
                                (int)getpid());
    }
    size_t body = is_json(to) ? ga_heap_stats_json(heap, text, room)
                              : ga_heap_stats_text(heap, text + head, room - head);
    size_t length = head + body < room ? head + body : room - 1;
    if (!append(to, text, length)) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_STATS: cannot write \"%s\": %s", to, strerror(errno));
    }
}

void ga_report_unreplaced(int device)
{
    const char *to = destination();
    char text[512];
    char program[256];
    if (!to) {
        return;
    }
    escape(program, sizeof program, program_invocation_short_name);
    int length =
        is_json(to)
            ? snprintf(text, sizeof text,
                       "{\"abi\":1,\"pid\":%d,\"program\":\"%s\",\"place\":\"kernel\","
                       "\"device\":%d,\"replaces_malloc\":false}\n",
                       (int)getpid(), program, device)
            : snprintf(
                  text, sizeof text,
                  "gpualloc: %.200s, process %d, device %d: malloc in kernels is not replaced\n",
                  program, (int)getpid(), device);
    if (length < 0 || !append(to, text, (size_t)length)) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_STATS: cannot write \"%s\": %s", to, strerror(errno));
    }
}

void ga_report_text(const char *plain, const char *json)
{
    const char *to = destination();
    const char *text = to && is_json(to) ? json : plain;
    if (to && !append(to, text, strlen(text))) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_STATS: cannot write \"%s\": %s", to, strerror(errno));
    }
}

static void report_all(void)
{
    ga_heap_each_root(ga_report);
}

static void register_report(void)
{
    const char *to = destination();
    if (to && strcmp(to, "1") == 0) {
        keep_standard_error();
    }
    if (to) {
        atexit(report_all);
    }
}

void ga_report_when_exiting(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_report);
}
