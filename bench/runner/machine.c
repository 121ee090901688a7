/* SPDX-License-Identifier: MIT
 *
 * The machine as Linux describes it under /proc.
 */
#include "machine.h"

#include "commit.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* The text after the colon of the first line that starts with `key`. */
static int line_value(const char *file, const char *key, char *out, size_t size)
{
    FILE *stream = fopen(file, "re");
    char line[512];
    int found = 0;
    while (stream && !found && fgets(line, sizeof line, stream)) {
        char *colon = strchr(line, ':');
        if (colon && strncmp(line, key, strlen(key)) == 0) {
            colon += 1 + strspn(colon + 1, " \t");
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(out, size, "%s", colon);
            found = 1;
        }
    }
    if (stream) {
        fclose(stream);
    }
    return found;
}

const char *ga_bench_processor(void)
{
    static char name[256];
    if (!name[0] && !line_value("/proc/cpuinfo", "model name", name, sizeof name)) {
        struct utsname machine; /* arm kernels give part numbers instead of a name */
        uname(&machine);
        snprintf(name, sizeof name, "%s", machine.machine);
    }
    return name;
}

unsigned ga_bench_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

const char *ga_bench_commit(void)
{
    return GA_BENCH_COMMIT;
}

ga_bench_date ga_bench_today(void)
{
    ga_bench_date date;
    struct tm parts;
    time_t now = time(NULL);
    gmtime_r(&now, &parts);
    strftime(date.text, sizeof date.text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return date;
}

/* The kernel's running count. It is kept per thread and lags by up to 64 pages a thread. */
static size_t roughly_resident(void)
{
    size_t pages = 0;
    FILE *stream = fopen("/proc/self/statm", "re");
    if (stream) {
        if (fscanf(stream, "%*u %zu", &pages) != 1) {
            pages = 0;
        }
        fclose(stream);
    }
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

size_t ga_bench_resident(void)
{
    char text[64];
    size_t kibibytes;
    /* The exact sum over all pages, if the kernel has that file. */
    if (line_value("/proc/self/smaps_rollup", "Rss", text, sizeof text) &&
        sscanf(text, "%zu", &kibibytes) == 1) {
        return kibibytes * 1024;
    }
    return roughly_resident();
}
