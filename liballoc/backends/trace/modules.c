/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  an array of the modules that are loaded, each with a hash of all that its definition
 *            says
 * ORDER      `looking` is tried, never waited for, since a program may allocate in a callback of
 *            dl_iterate_phdr(), with the loader's lock held. It guards all of a ga_modules.
 *            A child of a process with threads never takes the loader's lock, which one of these
 *            may have held.
 * PROGRESS   a look at the loader's counters of loads and unloads; only if one has changed, at all
 *            modules
 */
#include "modules.h"

#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MODULES_MAX = 4096,
    TEXT_MAX = 1 << 20, /* bytes of definitions that are kept for children */
    FORK_WAIT_NS = 50000000,
    TASK_LINKS = 3 /* of /proc/self/task where there is one thread */
};

typedef struct module {
    uint64_t hash;
    uint32_t id;
    uint32_t at, bytes; /* its definition in `text`; 0 bytes: not kept */
    bool seen;
} module;

struct ga_modules {
    unsigned long long loads, unloads; /* the loader's counters at the last look */
    uint64_t looked_ns;                /* relaxed: a late value only leads to one more look */
    uint32_t epoch;                    /* relaxed: stored by the thread that found the unload */
    uint32_t last_id;
    bool kept_only; /* a child of a process with threads: must not wait for the loader's lock */
    bool redefine;  /* the child's file has no definitions yet */
    unsigned count;
    uint32_t used; /* bytes of `text` */
    module module[MODULES_MAX];
    char text[TEXT_MAX];
};

static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
static bool held_by_fork;  /* guarded by `looking` */
static bool alone_in_fork; /* the process that forks has one thread; set by that thread */

/* ---- a definition ---------------------------------------------------------------------------- */

typedef union definition {
    ga_trace_module module;
    char bytes[GA_TRACE_DEFINITION_MAX];
} definition;

enum {
    TEXT_AT = offsetof(ga_trace_module, text)
};

static size_t round_up(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

/* Copy the build ID out of a note segment. Returns its length, 0 for none. */
static uint32_t copy_build_id(char *out, const char *notes, size_t size)
{
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, notes, sizeof note);
        size_t name = round_up(note.n_namesz);
        size_t whole = sizeof note + name + round_up(note.n_descsz);
        if (whole > size || name > size) {
            return 0;
        }
        const char *text = notes + sizeof note;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(text, "GNU", 4) == 0 &&
            note.n_descsz <= GA_TRACE_BUILD_ID_MAX) {
            memcpy(out, text + name, note.n_descsz);
            return note.n_descsz;
        }
        notes += whole;
        size -= whole;
    }
    return 0;
}

static void add_segments(definition *out, const struct dl_phdr_info *info)
{
    ga_trace_module *m = &out->module;
    m->bias = info->dlpi_addr;
    m->start = UINT64_MAX;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD) {
            m->start = start < m->start ? start : m->start;
            m->end = start + segment->p_memsz > m->end ? start + segment->p_memsz : m->end;
        } else if (segment->p_type == PT_NOTE && !m->id_bytes) {
            m->id_bytes = copy_build_id(m->text, (const char *)(uintptr_t)start, segment->p_memsz);
        }
    }
}

/* The loader has an empty name for the program, and a relative path as it was given. */
static size_t add_path(char *out, size_t room, const char *name)
{
    size_t length = 0;
    if (!*name) {
        ssize_t got = readlink("/proc/self/exe", out, room - 1);
        length = got > 0 ? (size_t)got : 0;
        out[length] = '\0';
        return length;
    }
    if (*name != '/' && strchr(name, '/') && getcwd(out, room / 2)) {
        length = strlen(out);
        out[length++] = '/';
    }
    return length + (size_t)snprintf(out + length, room - length, "%s", name);
}

static size_t define_module(definition *out, const struct dl_phdr_info *info)
{
    memset(out, 0, TEXT_AT + GA_TRACE_BUILD_ID_MAX);
    add_segments(out, info);
    size_t head = TEXT_AT + out->module.id_bytes;
    size_t length = add_path(out->bytes + head, sizeof *out - head, info->dlpi_name);
    size_t bytes = head + length + 1;
    return bytes <= sizeof *out ? bytes : sizeof *out;
}

/* FNV-1a. */
static uint64_t hash_of(const char *bytes, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

/* ---- a look at the loader's list ------------------------------------------------------------- */

typedef struct look {
    ga_modules *modules;
    ga_modules_define *define;
    void *context;
    bool defines; /* the second pass, after unloads are recorded */
} look;

static module *find(ga_modules *m, uint64_t hash)
{
    for (unsigned i = 0; i < m->count; i++) {
        if (m->module[i].hash == hash) {
            return &m->module[i];
        }
    }
    return NULL;
}

/* Keep the definition for children. */
static void keep(ga_modules *m, module *added, const definition *d, size_t bytes)
{
    if (m->used + bytes <= TEXT_MAX) {
        memcpy(m->text + m->used, d, bytes);
        added->at = m->used;
        added->bytes = (uint32_t)bytes;
        m->used += (uint32_t)bytes;
    }
}

static void add(const look *l, definition *d, size_t bytes, uint64_t hash)
{
    ga_modules *m = l->modules;
    if (m->count < MODULES_MAX) {
        module added = {.hash = hash, .id = ++m->last_id, .seen = true};
        d->module.bytes = (uint32_t)bytes;
        d->module.epoch = m->epoch;
        keep(m, &added, d, bytes);
        m->module[m->count++] = added;
        l->define(l->context, GA_TRACE_MODULE, m->last_id, d, bytes);
    }
}

/* Define what the parent knew, for the file of a child. */
static void define_kept(ga_modules *m, ga_modules_define *define, void *context)
{
    for (unsigned i = 0; i < m->count; i++) {
        definition d;
        const module *kept = &m->module[i];
        memcpy(&d, m->text + kept->at, kept->bytes);
        d.module.epoch = 0;
        if (kept->bytes) {
            define(context, GA_TRACE_MODULE, kept->id, &d, kept->bytes);
        }
    }
    m->redefine = false;
}

static int on_module(struct dl_phdr_info *info, size_t size, void *data)
{
    look *l = data;
    definition d;
    (void)size;
    size_t bytes = define_module(&d, info);
    uint64_t hash = hash_of(d.bytes, bytes);
    module *known = find(l->modules, hash);
    if (known) {
        known->seen = true;
    } else if (l->defines) {
        add(l, &d, bytes, hash);
    }
    return 0;
}

static void record_unloads(const look *l)
{
    ga_modules *m = l->modules;
    unsigned kept = 0;
    uint32_t epoch = m->epoch + 1;
    for (unsigned i = 0; i < m->count; i++) {
        if (m->module[i].seen) {
            m->module[kept] = m->module[i];
            m->module[kept++].seen = false;
            continue;
        }
        ga_trace_unload unload = {sizeof unload, epoch};
        l->define(l->context, GA_TRACE_UNLOAD, m->module[i].id, &unload, sizeof unload);
    }
    if (kept < m->count) {
        __atomic_store_n(&m->epoch, epoch, __ATOMIC_RELAXED); /* relaxed, see the member */
    }
    m->count = kept;
}

typedef struct counters {
    unsigned long long loads, unloads;
} counters;

static int read_counters(struct dl_phdr_info *info, size_t size, void *data)
{
    if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs) {
        *(counters *)data = (counters){info->dlpi_adds, info->dlpi_subs};
    }
    return 1;
}

static void look_at(ga_modules *m, ga_modules_define *define, void *context)
{
    counters now = {0};
    look l = {m, define, context, false};
    if (m->kept_only) {
        if (m->redefine) {
            define_kept(m, define, context);
        }
        return;
    }
    dl_iterate_phdr(read_counters, &now);
    if (m->count && now.loads == m->loads && now.unloads == m->unloads) {
        return;
    }
    if (now.unloads != m->unloads) {
        dl_iterate_phdr(on_module, &l);
        record_unloads(&l);
    }
    l.defines = true;
    dl_iterate_phdr(on_module, &l);
    m->loads = now.loads;
    m->unloads = now.unloads;
}

/* ---- the interface --------------------------------------------------------------------------- */

ga_modules *ga_modules_new(void)
{
    ga_modules *m =
        mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ga_modules_is_own(0); /* finds out now, since a child must not */
    return m == MAP_FAILED ? NULL : m;
}

void ga_modules_delete(ga_modules *modules)
{
    if (modules) {
        munmap(modules, sizeof *modules);
    }
}

/* A thread that is not in the child may have held the loader's lock: then what the parent knew has
 * to do, unless that was being changed. */
void ga_modules_reset(ga_modules *m)
{
    m->kept_only = m->kept_only || !alone_in_fork;
    m->redefine = m->kept_only;
    if (!m->kept_only || !held_by_fork) {
        m->count = 0;
        m->used = 0;
    }
    m->unloads = 0;
    m->epoch = 0;
}

bool ga_modules_are_kept_only(const ga_modules *m)
{
    return m->kept_only;
}

uint32_t ga_modules_update(ga_modules *m, ga_modules_define *define, void *context)
{
    if (pthread_mutex_trylock(&looking) == 0) {
        look_at(m, define, context);
        pthread_mutex_unlock(&looking);
    }
    return __atomic_load_n(&m->epoch, __ATOMIC_RELAXED); /* relaxed, see the member */
}

uint32_t ga_modules_refresh(ga_modules *m, uint64_t now_ns, ga_modules_define *define,
                            void *context)
{
    /* relaxed, both: see the members */
    if (now_ns - __atomic_load_n(&m->looked_ns, __ATOMIC_RELAXED) < GA_MODULES_FRESH_NS) {
        return __atomic_load_n(&m->epoch, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&m->looked_ns, now_ns, __ATOMIC_RELAXED);
    return ga_modules_update(m, define, context);
}

/* ---- gpualloc's own code --------------------------------------------------------------------- */

typedef struct range {
    uintptr_t start, end;
} range;

static int find_own(struct dl_phdr_info *info, size_t size, void *data)
{
    uintptr_t here = (uintptr_t)ga_modules_is_own;
    definition d;
    (void)size;
    memset(&d, 0, TEXT_AT + GA_TRACE_BUILD_ID_MAX);
    add_segments(&d, info);
    if (here - d.module.start >= d.module.end - d.module.start) {
        return 0;
    }
    if (*info->dlpi_name) {
        *(range *)data = (range){d.module.start, d.module.end};
    }
    return 1;
}

bool ga_modules_is_own(uintptr_t address)
{
    static range own;  /* relaxed, both members: each thread stores the same values */
    static bool found; /* MO1: set after `own` */
    /* MO1: acquire. Pairs with MO2. */
    if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE)) {
        range now = {0};
        dl_iterate_phdr(find_own, &now);
        __atomic_store_n(&own.start, now.start, __ATOMIC_RELAXED);
        __atomic_store_n(&own.end, now.end, __ATOMIC_RELAXED);
        /* MO2: release. Pairs with MO1: the range is there. */
        __atomic_store_n(&found, true, __ATOMIC_RELEASE);
    }
    uintptr_t start = __atomic_load_n(&own.start, __ATOMIC_RELAXED);
    return address - start < __atomic_load_n(&own.end, __ATOMIC_RELAXED) - start;
}

/* ---- forks ----------------------------------------------------------------------------------- */

/* So that no other thread changes a ga_modules meanwhile. The wait is short: that thread may itself
 * wait for the loader's lock, which a callback of the program has that waits for a lock of this
 * fork. */
void ga_modules_fork_prepare(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += FORK_WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    struct stat tasks;
    held_by_fork = pthread_mutex_timedlock(&looking, &until) == 0;
    alone_in_fork = stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == TASK_LINKS;
}

void ga_modules_fork_parent(void)
{
    alone_in_fork = false;
    if (held_by_fork) {
        held_by_fork = false;
        pthread_mutex_unlock(&looking);
    }
}

void ga_modules_begin_child(void)
{
    pthread_mutex_init(&looking, NULL);
    held_by_fork = false;
    alone_in_fork = false;
}
