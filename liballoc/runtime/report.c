/* SPDX-License-Identifier: MIT
 *
 * Statistics as text and as JSON of any length, and the reports that GPUALLOC_STATS requests.
 *
 * A report may be made while the program's malloc shuts down. So the buffer comes from mmap(), and
 * no library builds the JSON.
 */
#include "report.h"

#include "../platform/environment.h"
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
#include <sys/mman.h>
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
        if (heap->place == GA_PLACE_KERNEL) { /* calls in kernels do not reach the counters */
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

static void add_table(ga_text *text, const ga_heap *heap)
{
    ga_stats s = {0};
    char live[24], peak[24], requested[24], granted[24], held[24];
    ga_heap_stats(heap, &s);
    write_bytes(live, sizeof live, s.live_bytes);
    write_bytes(peak, sizeof peak, s.peak_bytes);
    write_bytes(requested, sizeof requested, s.requested_bytes);
    write_bytes(granted, sizeof granted, s.granted_bytes);
    write_bytes(held, sizeof held, s.held_bytes);
    ga_text_add(text, "heap       ");
    ga_text_add_printable(text, heap ? heap->text : "");
    ga_text_add(text,
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
        ga_text_add(text, "malloc in kernels is replaced, published %u times\n", heap->published);
    }
}

size_t ga_heap_stats_text(const ga_heap *heap, char *buffer, size_t size)
{
    ga_text text = {buffer, size, 0};
    add_table(&text, heap);
    return text.length;
}

/* ---- as JSON ------------------------------------------------------------------------------ */

static void add_json(ga_text *text, const ga_heap *heap)
{
    ga_stats s = {0};
    ga_heap_stats(heap, &s);
    ga_report_json_head(text, heap ? heap->place : GA_PLACE_COUNT);
    ga_text_add(text, ",\"device\":%d,\"spec\":\"", heap ? heap->device : 0);
    ga_text_add_json(text, heap ? heap->text : "");
    ga_text_add(text,
                "\",\"allocs\":%" PRIu64 ",\"frees\":%" PRIu64 ",\"reallocs\":%" PRIu64
                ",\"failures\":%" PRIu64 ",\"live_blocks\":%" PRIu64 ",\"live_bytes\":%" PRIu64
                ",\"peak_bytes\":%" PRIu64 ",\"requested_bytes\":%" PRIu64
                ",\"granted_bytes\":%" PRIu64 ",\"held_bytes\":%" PRIu64 ",\"growths\":%" PRIu64
                "%s}\n",
                s.allocs, s.frees, s.reallocs, s.failures, s.live_blocks, s.live_bytes,
                s.peak_bytes, s.requested_bytes, s.granted_bytes, s.held_bytes, s.growths,
                heap && heap->published ? ",\"replaces_malloc\":true" : "");
}

size_t ga_heap_stats_json(const ga_heap *heap, char *buffer, size_t size)
{
    ga_text text = {buffer, size, 0};
    add_json(&text, heap);
    return text.length;
}

/* ---- where GPUALLOC_STATS says ------------------------------------------------------------- */

enum {
    /* Least number of a copied descriptor, so that it is none that the program expects. */
    COPY_FROM = 100
};

typedef enum destination_kind {
    NO_REPORT = 0,
    TO_DESCRIPTOR,
    TO_FILE
} destination_kind;

/* The destination of reports. Read when the first heap is opened, because a program may clear or
 * overwrite its environment, or change its directory, before a report is due. Constant
 * afterwards. */
static struct {
    destination_kind kind;
    bool json;
    pid_t process;           /* the only one that reports (GPUALLOC_STATS_PID); 0: every one does */
    char name[PATH_MAX + 8]; /* as the user wrote it, for messages; a path is absolute */
    /* TO_DESCRIPTOR: its number, and a copy made when the first heap is opened, because many
     * programs close theirs before they end. Compared by device and inode before use, because other
     * programs close every descriptor that they did not open and may reuse the number for a
     * file. */
    int original, copy;
    dev_t device;
    ino_t inode;
} destination;

static bool is_json(const char *path)
{
    size_t length = strlen(path);
    return length >= 5 && strcmp(path + length - 5, ".json") == 0;
}

/* The descriptor that the text names, or -1: "1" is standard error, "-" is standard output. */
static int descriptor_named(const char *to)
{
    return strcmp(to, "1") == 0   ? STDERR_FILENO
           : strcmp(to, "-") == 0 ? STDOUT_FILENO
                                  : ga_output_descriptor(to);
}

static void copy_descriptor(int fd)
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

/* Store the path, made absolute. It stays relative if the current folder has been removed. */
static void store_path(const char *to)
{
    char folder[PATH_MAX] = "";
    if (*to != '/' && !getcwd(folder, sizeof folder)) {
        *folder = '\0';
    }
    int length = snprintf(destination.name, sizeof destination.name, "%s%s%s", folder,
                          *folder ? "/" : "", to);
    if (length < 0 || length >= PATH_MAX) { /* open() refuses the empty name */
        ga_log(GA_LOG_ERROR, "GPUALLOC_STATS: expected a path of at most %d bytes", PATH_MAX - 1);
        *destination.name = '\0';
    }
}

static destination_kind destination_of(const char *to)
{
    if (!to || !*to || strcmp(to, "0") == 0) {
        return NO_REPORT;
    }
    int fd = descriptor_named(to);
    destination.json = is_json(to);
    if (fd >= 0) {
        snprintf(destination.name, sizeof destination.name, "%.100s", to);
        copy_descriptor(fd);
    } else {
        store_path(to);
    }
    return fd >= 0 ? TO_DESCRIPTOR : TO_FILE;
}

/* The process that the text names; 0 for none. */
static pid_t process_named(const char *text)
{
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : 0;
    if (!text || !*text) {
        return 0;
    }
    if (*end || number <= 0 || number > INT_MAX) {
        ga_log(GA_LOG_WARN, "GPUALLOC_STATS_PID: expected a process id, got \"%.100s\"", text);
        return 0;
    }
    return (pid_t)number;
}

/* False in the descendants of the process that alone reports. A program that the process executes
 * keeps its id, and a forked child has another. */
static bool is_reporter(void)
{
    return !destination.process || destination.process == getpid();
}

static void read_destination(void)
{
    ga_log_level_in_force(); /* reads GPUALLOC_LOG now, too */
    const char *to = ga_environment("GPUALLOC_STATS");
    destination.process = to ? process_named(ga_environment("GPUALLOC_STATS_PID")) : 0;
    destination.kind = is_reporter() ? destination_of(to) : NO_REPORT;
}

bool ga_report_wanted(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_destination);
    return destination.kind != NO_REPORT;
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

/* In one write(2) if the kernel accepts it, so that reports of processes that end together do not
 * mix. */
static bool write_to_file(const char *text, size_t length)
{
    int fd = ga_output_open(destination.name);
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
        return "it is a FIFO that nobody reads";
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
        ga_log(GA_LOG_ERROR, "GPUALLOC_STATS: cannot write \"%.300s\": %s", destination.name,
               reason(errno));
    }
}

/* ---- reports ------------------------------------------------------------------------------ */

void ga_report_composed(ga_report_compose *compose, const void *context)
{
    enum {
        SPARE = 4096 /* bytes by which figures of other threads may get longer between the two
                      * calls */
    };
    ga_text text = {NULL, 0, 0};
    if (!ga_report_wanted() || !is_reporter()) {
        return;
    }
    compose(&text, destination.json, context);
    size_t size = text.length + SPARE;
    char *buffer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_STATS: no memory for a report of %zu bytes", size);
        return;
    }
    text = (ga_text){buffer, size, 0};
    compose(&text, destination.json, context);
    write_report(buffer, text.length < size ? text.length : size - 1);
    munmap(buffer, size);
}

void ga_report_head(ga_text *text, const char *subject)
{
    ga_text_add(text, "gpualloc: %s", subject);
    ga_text_add_printable(text, program_invocation_short_name);
    ga_text_add(text, ", process %d", (int)getpid());
}

void ga_report_json_head(ga_text *text, ga_place place)
{
    ga_text_add(text, "{\"abi\":1,\"pid\":%d,\"program\":\"", (int)getpid());
    ga_text_add_json(text, program_invocation_short_name);
    ga_text_add(text, "\",\"place\":\"%s\"", ga_place_text(place));
}

static void compose_heap(ga_text *text, bool json, const void *heap)
{
    if (json) {
        add_json(text, heap);
        return;
    }
    ga_report_head(text, "statistics of ");
    ga_text_add(text, "\n");
    add_table(text, heap);
}

void ga_report(const ga_heap *heap)
{
    ga_report_composed(compose_heap, heap);
}

static void compose_unreplaced(ga_text *text, bool json, const void *device)
{
    if (json) {
        ga_report_json_head(text, GA_PLACE_KERNEL);
        ga_text_add(text, ",\"device\":%d,\"replaces_malloc\":false}\n", *(const int *)device);
    } else {
        ga_report_head(text, "");
        ga_text_add(text, ", device %d: malloc in kernels is not replaced\n", *(const int *)device);
    }
}

void ga_report_unreplaced(int device)
{
    ga_report_composed(compose_unreplaced, &device);
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
