/* SPDX-License-Identifier: MIT
 *
 * Statistics as text and as JSON, of any length, and the reports that GPUALLOC_STATS asks for.
 *
 * STRUCTURE  `destination` is copied from the environment once and then constant
 * INVARIANT  its other members are complete before `kind` is set
 * ORDER      R1 to R2
 * PROGRESS   no thread waits for another; one that meets BEING_READ wants no reports itself
 */
#include "report.h"

#include "../platform/environment.h"
#include "../platform/libc.h"
#include "../platform/log.h"
#include "../platform/output_file.h"
#include "../platform/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
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

size_t ga_heap_stats_text(const ga_heap *heap, char *buffer, size_t size)
{
    ga_stats s = {0};
    ga_text text = {buffer, size, 0};
    char live[24], peak[24], requested[24], granted[24], held[24];
    ga_heap_stats(heap, &s);
    write_bytes(live, sizeof live, s.live_bytes);
    write_bytes(peak, sizeof peak, s.peak_bytes);
    write_bytes(requested, sizeof requested, s.requested_bytes);
    write_bytes(granted, sizeof granted, s.granted_bytes);
    write_bytes(held, sizeof held, s.held_bytes);
    ga_text_add(&text, "heap       ");
    ga_text_add_printable(&text, heap ? heap->text : "");
    ga_text_add(&text,
                " (%s)\n"
                "allocs     %20" PRIu64 "   frees      %20" PRIu64 "\n"
                "reallocs   %20" PRIu64 "   failures   %20" PRIu64 "\n"
                "live       %20s   in blocks  %20" PRIu64 "\n"
                "peak       %20s   held       %20s\n"
                "requested  %20s   granted    %20s (%+.1f %%)\n"
                "growths    %20" PRIu64 "\n",
                ga_place_text(heap ? heap->place : GA_PLACE_COUNT), s.allocs, s.frees, s.reallocs,
                s.failures, live, s.live_blocks, peak, s.held_bytes ? held : "unknown", requested,
                granted, overhead_percent(&s), s.growths);
    if (heap && heap->published) {
        ga_text_add(&text, "malloc in kernels is replaced, published %u times\n", heap->published);
    }
    return text.length;
}

/* ---- as JSON ------------------------------------------------------------------------------ */

/* The members that every line begins with, without the closing brace. */
static void add_json_head(ga_text *text, ga_place place, int device)
{
    ga_text_add(text, "{\"abi\":1,\"pid\":%d,\"program\":\"", (int)getpid());
    ga_text_add_json(text, program_invocation_short_name);
    ga_text_add(text, "\",\"place\":\"%s\",\"device\":%d", ga_place_text(place), device);
}

size_t ga_heap_stats_json(const ga_heap *heap, char *buffer, size_t size)
{
    ga_stats s = {0};
    ga_text text = {buffer, size, 0};
    ga_heap_stats(heap, &s);
    add_json_head(&text, heap ? heap->place : GA_PLACE_COUNT, heap ? heap->device : 0);
    ga_text_add(&text, ",\"spec\":\"");
    ga_text_add_json(&text, heap ? heap->text : "");
    ga_text_add(&text,
                "\",\"allocs\":%" PRIu64 ",\"frees\":%" PRIu64 ",\"reallocs\":%" PRIu64
                ",\"failures\":%" PRIu64 ",\"live_blocks\":%" PRIu64 ",\"live_bytes\":%" PRIu64
                ",\"peak_bytes\":%" PRIu64 ",\"requested_bytes\":%" PRIu64
                ",\"granted_bytes\":%" PRIu64 ",\"held_bytes\":%" PRIu64 ",\"growths\":%" PRIu64
                "%s}\n",
                s.allocs, s.frees, s.reallocs, s.failures, s.live_blocks, s.live_bytes,
                s.peak_bytes, s.requested_bytes, s.granted_bytes, s.held_bytes, s.growths,
                heap && heap->published ? ",\"replaces_malloc\":true" : "");
    return text.length;
}

/* ---- where GPUALLOC_STATS says ------------------------------------------------------------- */

enum {
    COPY_FROM =
        100 /* the least number for a copied descriptor, out of the way of a program's own */
};

typedef enum destination_kind {
    NOT_WANTED = 0,
    BEING_READ, /* by a thread that reads the environment; counts as NOT_WANTED */
    TO_DESCRIPTOR,
    TO_FILE
} destination_kind;

/* Where reports go. Copied when a heap is opened, because a program may clear or overwrite its
 * environment, or change its directory, before the report is due; and then kept. */
static struct {
    destination_kind kind; /* written last: R1 */
    bool json;
    char name[PATH_MAX + 8]; /* as the user wrote it, for messages; a path is absolute */
    /* TO_DESCRIPTOR: its number, and a copy of it as it was when the first heap was opened. A
     * copy, because many programs close theirs before they end; compared before use, because
     * others close every descriptor they did not open, and the number may mean a file of theirs
     * by then. */
    int original, copy;
    dev_t device;
    ino_t inode;
} destination;

static bool is_json(const char *path)
{
    size_t length = strlen(path);
    return length >= 5 && strcmp(path + length - 5, ".json") == 0;
}

/* The descriptor that the text names, or -1: 1 is standard error, - is standard output. */
static int descriptor_named(const char *to)
{
    return strcmp(to, "1") == 0   ? STDERR_FILENO
           : strcmp(to, "-") == 0 ? STDOUT_FILENO
                                  : ga_output_descriptor(to);
}

static void keep_descriptor(int fd)
{
    struct stat stat;
    destination.original = fd;
    destination.copy = -1;
    if (fstat(fd, &stat) == 0) {
        destination.copy = fcntl(fd, F_DUPFD_CLOEXEC, COPY_FROM);
        destination.device = stat.st_dev;
        destination.inode = stat.st_ino;
    }
}

/* The path made absolute. A folder that is gone leaves a relative path. */
static void keep_path(const char *to)
{
    char folder[PATH_MAX] = "";
    if (*to != '/' && !getcwd(folder, sizeof folder)) {
        *folder = '\0';
    }
    int length = snprintf(destination.name, sizeof destination.name, "%s%s%s", folder,
                          *folder ? "/" : "", to);
    if (length < 0 || length >= PATH_MAX) { /* what is left names no file: open() refuses it */
        ga_log(GA_LOG_ERROR, "GPUALLOC_STATS: expected a path of at most %d bytes", PATH_MAX - 1);
        *destination.name = '\0';
    }
}

static destination_kind read_destination(void)
{
    const char *to = ga_environment("GPUALLOC_STATS");
    if (!to || !*to || strcmp(to, "0") == 0) {
        return NOT_WANTED;
    }
    int fd = descriptor_named(to);
    destination.json = is_json(to);
    if (fd >= 0) {
        snprintf(destination.name, sizeof destination.name, "%.100s", to);
        keep_descriptor(fd);
    } else {
        keep_path(to);
    }
    return fd >= 0 ? TO_DESCRIPTOR : TO_FILE;
}

bool ga_report_wanted(void)
{
    destination_kind kind = NOT_WANTED;
    /* R2: acquire, if it fails. Pairs with R1: the other members are read behind it. If it
     * succeeds it only elects the thread that reads the environment: relaxed. */
    if (__atomic_compare_exchange_n(&destination.kind, &kind, BEING_READ, false, __ATOMIC_RELAXED,
                                    __ATOMIC_ACQUIRE)) {
        kind = read_destination();
        /* R1: release. Pairs with R2: the other members are written before. */
        __atomic_store_n(&destination.kind, kind, __ATOMIC_RELEASE);
    }
    return kind != NOT_WANTED && kind != BEING_READ;
}

static bool is_destination(int fd)
{
    struct stat stat;
    return fd >= 0 && fstat(fd, &stat) == 0 && stat.st_dev == destination.device &&
           stat.st_ino == destination.inode;
}

static bool write_to_descriptor(const char *text, size_t length)
{
    int fd = is_destination(destination.copy) ? destination.copy : destination.original;
    return !is_destination(fd) || ga_output_write(fd, text, length);
}

/* In one write where the kernel takes it, so that the reports of processes that end together do
 * not mix. */
static bool write_to_file(const char *text, size_t length)
{
    int fd = ga_output_open(destination.name, GA_OUTPUT_APPEND);
    bool written = fd >= 0 && ga_output_write(fd, text, length);
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return written;
}

static const char *reason(int error)
{
    switch (error) {
    case ELOOP:
        return "it is a symbolic link; expected a file, a device or a FIFO";
    case ENXIO:
        return "nobody reads from it";
    case EINVAL:
        return "expected a regular file, a character device or a FIFO";
    default:
        return strerror(error);
    }
}

static void write_report(const char *text, size_t length)
{
    bool written = destination.kind == TO_DESCRIPTOR ? write_to_descriptor(text, length)
                                                     : write_to_file(text, length);
    if (!written) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_STATS: cannot write \"%s\": %s", destination.name,
               reason(errno));
    }
}

/* ---- reports ------------------------------------------------------------------------------ */

static void add_text_head(ga_text *text, const char *what)
{
    ga_text_add(text, "gpualloc: %s", what);
    ga_text_add_printable(text, program_invocation_short_name);
    ga_text_add(text, ", process %d", (int)getpid());
}

static size_t compose(const ga_heap *heap, char *buffer, size_t size)
{
    ga_text text = {buffer, size, 0};
    if (destination.json) {
        return ga_heap_stats_json(heap, buffer, size);
    }
    add_text_head(&text, "statistics of ");
    ga_text_add(&text, "\n");
    bool fits = text.length < size;
    return text.length + ga_heap_stats_text(heap, fits ? buffer + text.length : NULL,
                                            fits ? size - text.length : 0);
}

void ga_report(const ga_heap *heap)
{
    enum {
        SPARE = 256 /* figures of other threads may become longer between the two passes */
    };
    if (!ga_report_wanted()) {
        return;
    }
    size_t size = compose(heap, NULL, 0) + SPARE;
    char *text = ga_libc.malloc(size);
    if (!text) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_STATS: no memory for a report of %zu bytes", size);
        return;
    }
    size_t length = compose(heap, text, size);
    write_report(text, length < size ? length : size - 1);
    ga_libc.free(text);
}

void ga_report_unreplaced(int device)
{
    char buffer[2048]; /* enough for a program's name of NAME_MAX bytes, each six in JSON */
    ga_text text = {buffer, sizeof buffer, 0};
    if (!ga_report_wanted()) {
        return;
    }
    if (destination.json) {
        add_json_head(&text, GA_PLACE_KERNEL, device);
        ga_text_add(&text, ",\"replaces_malloc\":false}\n");
    } else {
        add_text_head(&text, "");
        ga_text_add(&text, ", device %d: malloc in kernels is not replaced\n", device);
    }
    if (text.length < sizeof buffer) {
        write_report(buffer, text.length);
    }
}

void ga_report_text(const char *plain, const char *json)
{
    if (ga_report_wanted()) {
        const char *text = destination.json ? json : plain;
        write_report(text, strlen(text));
    }
}

static void report_all(void)
{
    ga_heap_each_root(ga_report);
}

static void register_report(void)
{
    atexit(report_all);
}

void ga_report_when_exiting(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (ga_report_wanted()) {
        pthread_once(&once, register_report);
    }
}
