/* SPDX-License-Identifier: MIT
 *
 * Opens and closes heaps of the specs, and opens the files as the program will.
 */
#include "trial.h"

#include "../../liballoc/backends/native/dl_aligned.h"
#include "../../liballoc/backends/native/dl_file.h"
#include "../../liballoc/backends/trace/format.h"
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/object_symbols.h"
#include "../../liballoc/platform/output_file.h"
#include "../../liballoc/runtime/options.h"
#include "../../liballoc/runtime/registry.h"
#include "../cuda/settings.h"
#include "paths.h"

#include <gpualloc/backend.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- specs --------------------------------------------------------------------------------- */

static const char *bare_option(const char *name)
{
    const ga_backend *backend = ga_registry_find(name);
    return backend ? backend->bare_option : NULL;
}

static bool writes_file(const ga_spec *spec)
{
    for (size_t i = 0; i < spec->layer_count; i++) {
        if (strcmp(spec->layers[i].name, "trace") == 0) {
            return true;
        }
    }
    return false;
}

/* Remove a variable from the environment until unhide() restores it. */
static char *hide(const char *variable)
{
    const char *value = ga_environment(variable);
    char *copy = value ? strdup(value) : NULL;
    unsetenv(variable);
    return copy;
}

static void unhide(const char *variable, char *value)
{
    if (value) {
        setenv(variable, value, 1);
    }
    free(value);
}

/* Opens a heap without tracing or counting. */
static ga_status open_and_close(const char *spec)
{
    char *trace = hide("GPUALLOC_TRACE");
    char *stats = hide("GPUALLOC_STATS");
    ga_heap *heap;
    ga_status status = ga_heap_open(&heap, GA_PLACE_HOST, 0, spec);
    ga_heap_close(heap);
    unhide("GPUALLOC_TRACE", trace);
    unhide("GPUALLOC_STATS", stats);
    return status;
}

/* ---- specs whose libraries may end the process ---------------------------------------------- */

typedef struct trial_answer {
    ga_status status;
    char text[1024];
    ga_library preloadable;
} trial_answer;

/* A write of at most PIPE_BUF bytes arrives in one piece. */
_Static_assert(sizeof(trial_answer) <= PIPE_BUF, "the answer fits into one write");

static bool loads_library(const ga_spec *spec)
{
    for (size_t i = 0; i < spec->layer_count; i++) {
        if (strcmp(spec->layers[i].name, "dl") == 0) {
            return true;
        }
    }
    return false;
}

/* The malloc family: the names of the glibc manual, "Replacing malloc". The C library's own version
 * of a missing one would return blocks that the library's free() does not know. */
static const char *const unaligned_names[] = {
    "malloc", "free", "calloc", "realloc", "malloc_usable_size", NULL};
static const char *const aligned_names[] = {"aligned_alloc", "memalign", "posix_memalign",
                                            "pvalloc",       "valloc",   NULL};

static bool defines(void *library, const char *const *names)
{
    for (; *names; names++) {
        if (!ga_dl_own_symbol(library, *names)) {
            return false;
        }
    }
    return true;
}

enum {
    TRIED_MAX = 4096, /* alignments and sizes from 16 to this */
    BLOCKS = 4        /* the first may be aligned by chance */
};

/* Ask each of the functions for aligned blocks of many sizes: mimalloc 2.0.9 does not align those
 * whose size is a power of two. The blocks are not freed, because this process ends soon. */
static bool aligns(void *library)
{
    ga_dl_memalign *memalign, *aligned_alloc;
    int (*posix_memalign)(void **out, size_t align, size_t size);
    *(void **)&memalign = ga_dl_own_symbol(library, "memalign");
    *(void **)&aligned_alloc = ga_dl_own_symbol(library, "aligned_alloc");
    *(void **)&posix_memalign = ga_dl_own_symbol(library, "posix_memalign");
    uintptr_t wrong = 0;
    for (size_t align = 16; align <= TRIED_MAX; align *= 2) {
        for (size_t size = 16; size <= TRIED_MAX; size *= 2) {
            for (int i = 0; i < BLOCKS; i++) {
                void *block = NULL;
                wrong |= (uintptr_t)memalign(align, size) % align;
                wrong |= (uintptr_t)aligned_alloc(align, size) % align;
                wrong |= (uintptr_t)posix_memalign(&block, align, size);
                wrong |= (uintptr_t)block % align;
            }
        }
    }
    return wrong == 0;
}

static struct link_map *map_of(void *library)
{
    struct link_map *map = NULL;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map : NULL;
}

/* Whether libgpualloc-align.so finds the library's functions, and aligned blocks by them. */
static bool can_be_aligned(void *library)
{
    const struct link_map *map = map_of(library);
    ga_dl_memalign *memalign = NULL;
    ga_dl_free *release = NULL;
    if (map && ga_object_symbol(map, "malloc")) {
        *(void **)&release = ga_object_symbol(map, "free");
        *(void **)&memalign = ga_object_symbol(map, "memalign");
        if (!memalign) {
            *(void **)&memalign = ga_object_symbol(map, "aligned_alloc");
        }
    }
    bool all = release && memalign;
    for (size_t align = 16; all && align <= TRIED_MAX; align *= 2) {
        for (size_t size = 16; all && size <= TRIED_MAX; size *= 2) {
            for (int i = 0; all && i < BLOCKS; i++) {
                all = ga_dl_aligned(memalign, release, align, size) != NULL;
            }
        }
    }
    return all;
}

/* The file of a loaded library. None if LD_PRELOAD cannot hold its path. */
static ga_library file_of(void *library, bool aligns)
{
    ga_library file = {.aligns = aligns};
    struct link_map *map = map_of(library);
    char *path = map ? realpath(map->l_name, NULL) : NULL;
    if (path && strlen(path) < sizeof file.path && !strpbrk(path, " :$")) {
        strcpy(file.path, path);
    }
    free(path);
    return file;
}

/* `spec` was opened, so its library is loaded. */
static ga_library find_preloadable(const ga_spec *spec)
{
    ga_value values[GA_SPEC_OPTIONS];
    const char *texts[GA_SPEC_OPTIONS];
    const ga_backend *backend = ga_registry_find("dl");
    void *library = NULL;
    if (spec->layer_count == 1 &&
        ga_options_resolve(backend, &spec->layers[0], values, texts) == GA_OK) {
        library = dlopen(values[0].text, RTLD_NOW | RTLD_NOLOAD); /* dl has one option, its path */
    }
    if (!library || !defines(library, unaligned_names)) {
        return (ga_library){.path = ""};
    }
    if (defines(library, aligned_names) && aligns(library)) {
        return file_of(library, true);
    }
    return can_be_aligned(library) ? file_of(library, false) : (ga_library){.path = ""};
}

static _Noreturn void try_in_child(const char *spec, const ga_spec *parsed, int out)
{
    trial_answer answer = {.status = open_and_close(spec)};
    if (answer.status == GA_OK) {
        answer.preloadable = find_preloadable(parsed);
    } else {
        snprintf(answer.text, sizeof answer.text, "%s", ga_error_text());
    }
    ssize_t written = write(out, &answer, sizeof answer);
    _exit(written == (ssize_t)sizeof answer ? 0 : 1);
}

static ga_status ended(const char *spec, int status)
{
    bool killed = WIFSIGNALED(status);
    return ga_fail(GA_ERR_LIBRARY, "\"%.300s\": loading it ends the process with %s %d", spec,
                   killed ? "signal" : "status", killed ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Opens the heap in a child, because a library's constructors or first malloc may end the
 * process. */
static ga_status open_in_child(const char *spec, const ga_spec *parsed, ga_library *preloadable)
{
    trial_answer answer;
    int pipes[2];
    int status = 0;
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return open_and_close(spec);
    }
    pid_t child = fork();
    if (child == 0) {
        try_in_child(spec, parsed, pipes[1]);
    }
    close(pipes[1]);
    ssize_t got = child < 0 ? 0 : read(pipes[0], &answer, sizeof answer);
    close(pipes[0]);
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return open_and_close(spec);
    }
    if (got != (ssize_t)sizeof answer) {
        return ended(spec, status);
    }
    *preloadable = answer.preloadable;
    return answer.status == GA_OK ? GA_OK : ga_fail(answer.status, "%s", answer.text);
}

static ga_status parse(ga_spec *out, const char *spec)
{
    return ga_spec_parse(out, spec, bare_option);
}

ga_status ga_trial_host(const char *spec, ga_library *preloadable)
{
    ga_spec parsed;
    *preloadable = (ga_library){.path = ""};
    ga_status status = parse(&parsed, spec);
    if (status != GA_OK) {
        return status;
    }
    if (writes_file(&parsed)) {
        return ga_heap_check(GA_PLACE_HOST, spec);
    }
    return loads_library(&parsed) ? open_in_child(spec, &parsed, preloadable)
                                  : open_and_close(spec);
}

/* ---- relative paths ------------------------------------------------------------------------ */

static bool is_bare_dl(const ga_spec *spec, size_t layer)
{
    const ga_spec_layer *l = &spec->layers[layer];
    return layer + 1 == spec->layer_count && strcmp(l->name, "dl") == 0 && l->option_count == 1 &&
           l->options[0].value;
}

/* A path that each program would find in its own directory. The loader searches for a library whose
 * name has no slash. */
static bool is_relative(const ga_spec *spec, size_t layer, const ga_spec_option *option)
{
    bool is_file = strcmp(spec->layers[layer].name, "trace") == 0 &&
                   strcmp(option->key, "file") == 0 && option->value && *option->value;
    bool is_library = is_bare_dl(spec, layer) && strchr(option->value, '/');
    return (is_file || is_library) && *option->value != '/';
}

static bool has_relative(const ga_spec *spec)
{
    bool found = false;
    for (size_t i = 0; i < spec->layer_count; i++) {
        for (size_t k = 0; k < spec->layers[i].option_count; k++) {
            found = found || is_relative(spec, i, &spec->layers[i].options[k]);
        }
    }
    return found;
}

static void print_value(FILE *out, const char *value)
{
    if (!ga_spec_needs_quotes(value)) {
        fputs(value, out);
        return;
    }
    putc('"', out);
    for (; *value; value++) {
        fprintf(out, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    }
    putc('"', out);
}

static ga_status print_option(FILE *out, const ga_spec *spec, size_t layer, size_t index)
{
    ga_path absolute;
    const ga_spec_option *option = &spec->layers[layer].options[index];
    const char *value = option->value;
    if (is_relative(spec, layer, option)) {
        ga_status status = ga_path_absolute(&absolute, value);
        if (status != GA_OK) {
            return status;
        }
        value = absolute.text;
    }
    putc(index ? ',' : ':', out);
    if (is_bare_dl(spec, layer) && *value == '/') {
        fputs(value, out);
        return GA_OK;
    }
    fputs(option->key, out);
    if (value) {
        putc('=', out);
        print_value(out, value);
    }
    return GA_OK;
}

static ga_status print_absolute(FILE *out, const ga_spec *spec)
{
    ga_status status = GA_OK;
    for (size_t i = 0; status == GA_OK && i < spec->layer_count; i++) {
        fprintf(out, "%s%s", i ? "/" : "", spec->layers[i].name);
        for (size_t k = 0; status == GA_OK && k < spec->layers[i].option_count; k++) {
            status = print_option(out, spec, i, k);
        }
    }
    return status;
}

const char *ga_trial_absolute(const char *spec)
{
    ga_spec parsed;
    char *text = NULL;
    size_t size;
    if (parse(&parsed, spec) != GA_OK || !has_relative(&parsed)) {
        return spec;
    }
    FILE *out = open_memstream(&text, &size);
    ga_status status = out ? print_absolute(out, &parsed) : GA_OK;
    if (!out || fclose(out) != 0) {
        status = ga_fail(GA_ERR_MEMORY, "no memory for a spec");
    }
    if (status != GA_OK) {
        free(text);
        return NULL;
    }
    return text;
}

ga_status ga_trial_spec(ga_place place, const char *spec)
{
    ga_cuda_settings settings;
    if (place != GA_PLACE_DEVICE) {
        return ga_heap_check(place, spec);
    }
    ga_status status = ga_cuda_settings_read(&settings, spec);
    return status == GA_OK ? ga_heap_check(place, settings.spec) : status;
}

bool ga_trial_is_foreign(const char *spec)
{
    ga_spec parsed;
    size_t known = 0;
    if (parse(&parsed, spec) != GA_OK) {
        return false;
    }
    while (known < parsed.layer_count && ga_registry_find(parsed.layers[known].name)) {
        known++;
    }
    return known < parsed.layer_count;
}

/* ---- files --------------------------------------------------------------------------------- */

static ga_status cannot_write(const char *path)
{
    return ga_fail(GA_ERR_IO, "cannot write \"%.300s\": %s", path,
                   errno == ELOOP ? "expected no symbolic link" : strerror(errno));
}

ga_status ga_trial_stats_file(const char *path)
{
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
        return GA_OK; /* a terminal or a pipe: opening it may wait */
    }
    int fd = ga_output_open(path);
    if (fd < 0) {
        return cannot_write(path);
    }
    close(fd);
    return GA_OK;
}

/* True for an empty file or a trace. */
static bool may_replace(int fd)
{
    struct stat there;
    char magic[sizeof GA_TRACE_MAGIC];
    if (fstat(fd, &there) != 0 || !S_ISREG(there.st_mode)) {
        return false;
    }
    return there.st_size == 0 || (read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
                                  memcmp(magic, GA_TRACE_MAGIC, sizeof magic) == 0);
}

ga_status ga_trial_trace_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) {
        return cannot_write(path);
    }
    bool replaceable = may_replace(fd);
    close(fd);
    if (!replaceable) {
        return ga_fail(GA_ERR_IO,
                       "\"%.300s\" exists and is no trace; expected a new file, or an older "
                       "trace to write over",
                       path);
    }
    return unlink(path) == 0 ? GA_OK : cannot_write(path);
}
