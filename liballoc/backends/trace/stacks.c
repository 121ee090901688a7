/* SPDX-License-Identifier: MIT
 *
 * ga_stacks_here
 *   ga_modules_refresh     raises the epoch if a library was unloaded
 *   ga_unwind              fast path: a stack of the thread's memo, with its id
 *   describe               the frames outside gpualloc
 *   ga_stacks_put          look the stack up in the table, or add it
 *   define                 note the definition of a new stack, as parts
 *
 * STRUCTURE  a hash table of positions in an array of words, to which stacks are appended
 * INVARIANT  all stacks in the table are of one epoch: when a library was unloaded, the table is
 *            emptied, because another may be loaded at its addresses
 * ORDER      the recorder's lock guards the table. No lock is held while the unwinder runs, which
 *            may wait for the loader's.
 */
#include "stacks.h"

#include "../../platform/log.h"
#include "../../platform/thread.h"
#include "modules.h"
#include "unwind.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum {
    KNOWN_FRAMES = 64, /* a memo keeps so many at least: a stack is completed by them */
    HEAD_WORDS = offsetof(ga_trace_stack, frame) / sizeof(uint64_t),
    WORDS_MAX = 8 << 20, /* of the table: 64 MiB */
    SLOTS = 1 << 20
};

_Static_assert(sizeof(ga_trace_stack) % sizeof(uint64_t) == 0, "stacks consist of words");

struct ga_stacks {
    unsigned depth;
    bool full_logged;
    /* The key of memos: different for each recorder, process and epoch. Both are stored with the
     * recorder's lock held. relaxed: a thread that reads an old one is late, see begin_epoch() */
    uint64_t version;
    uint32_t epoch; /* of the table */
    /* The rest is guarded by the recorder's lock. */
    uint32_t last_id;
    size_t used;     /* words */
    unsigned count;  /* stacks in the table */
    uint32_t *slots; /* position in `words`, plus 1; 0: empty */
    uint64_t *words; /* of each stack: its id, then the ga_trace_stack */
    ga_modules *modules;
};

static uint64_t versions; /* relaxed: only counts */

static _Thread_local ga_unwind_memo *memo;
static _Thread_local bool busy; /* this thread is in ga_stacks_here() */

/* ---- the table ------------------------------------------------------------------------------- */

static void *reserve(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return room == MAP_FAILED ? NULL : room;
}

static void release(void *room, size_t bytes)
{
    if (room) {
        munmap(room, bytes);
    }
}

ga_stacks *ga_stacks_new(unsigned depth)
{
    ga_stacks *s = reserve(sizeof *s);
    if (!s) {
        return NULL;
    }
    s->depth = depth;
    s->version = __atomic_add_fetch(&versions, 1, __ATOMIC_RELAXED); /* relaxed, see `versions` */
    s->slots = reserve(SLOTS * sizeof *s->slots);
    s->words = reserve(WORDS_MAX * sizeof *s->words);
    s->modules = ga_modules_new();
    if (!s->slots || !s->words || !s->modules) {
        ga_stacks_delete(s);
        return NULL;
    }
    return s;
}

void ga_stacks_delete(ga_stacks *s)
{
    if (s) {
        release(s->slots, SLOTS * sizeof *s->slots);
        release(s->words, WORDS_MAX * sizeof *s->words);
        ga_modules_delete(s->modules);
        munmap(s, sizeof *s);
    }
}

/* Fails only for lack of memory in the kernel; then the pages stay and are cleared. */
static void clear(void *room, size_t bytes)
{
    if (madvise(room, bytes, MADV_DONTNEED) != 0) {
        memset(room, 0, bytes);
    }
}

static void empty_table(ga_stacks *s)
{
    clear(s->slots, SLOTS * sizeof *s->slots);
    clear(s->words, s->used * sizeof *s->words);
    s->used = 0;
    s->count = 0;
    /* relaxed, both: see `versions` and the member */
    uint64_t version = __atomic_add_fetch(&versions, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&s->version, version, __ATOMIC_RELAXED);
}

void ga_stacks_begin_child(ga_stacks *s)
{
    empty_table(s);
    s->last_id = 0;
    s->epoch = 0;
    s->full_logged = false;
    ga_modules_reset(s->modules);
}

static uint64_t hash_of(const ga_trace_stack *stack)
{
    uint64_t hash = stack->flags;
    for (uint32_t i = 0; i < stack->frames; i++) {
        hash = (hash ^ stack->frame[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static bool is_equal(const ga_trace_stack *a, const ga_trace_stack *b)
{
    return a->frames == b->frames && a->flags == b->flags &&
           memcmp(a->frame, b->frame, a->frames * sizeof *a->frame) == 0;
}

/* The slot that has the stack, or the empty one where it belongs. */
static uint32_t *find(const ga_stacks *s, const ga_trace_stack *stack)
{
    for (uint64_t at = hash_of(stack);; at++) {
        uint32_t *slot = &s->slots[at % SLOTS];
        const uint64_t *words = s->words + *slot;
        if (!*slot || is_equal((const ga_trace_stack *)(const void *)words, stack)) {
            return slot;
        }
    }
}

static bool has_room(ga_stacks *s, size_t words)
{
    bool room = s->used + words <= WORDS_MAX && s->count < SLOTS / 4 * 3;
    if (!room && !s->full_logged) {
        s->full_logged = true;
        ga_log(GA_LOG_WARN,
               "trace: the table of call stacks is full (%u stacks, %zu MiB): allocations from "
               "further ones are recorded without",
               s->count, s->used * sizeof *s->words >> 20);
    }
    return room;
}

uint32_t ga_stacks_put(ga_stacks *s, const ga_trace_stack *stack, bool *is_new)
{
    uint32_t *slot = find(s, stack);
    size_t words = 1 + HEAD_WORDS + stack->frames;
    *is_new = false;
    if (*slot) {
        return (uint32_t)s->words[*slot - 1];
    }
    if (!has_room(s, words)) {
        return 0;
    }
    s->words[s->used] = ++s->last_id;
    memcpy(s->words + s->used + 1, stack, (words - 1) * sizeof *s->words);
    *slot = (uint32_t)s->used + 1;
    s->used += words;
    s->count++;
    *is_new = true;
    return s->last_id;
}

/* ---- definitions ----------------------------------------------------------------------------- */

typedef struct notes {
    ga_recorder *recorder;
    uint64_t now_ns;
} notes;

static void define(void *context, ga_trace_op kind, uint32_t id, const void *definition,
                   size_t bytes)
{
    const notes *n = context;
    for (size_t at = 0; at < bytes; at += GA_TRACE_PART_BYTES) {
        union {
            ga_trace_part part;
            ga_trace_record record;
        } next = {.part = {.time_ns = n->now_ns,
                           .kind = (uint8_t)kind,
                           .id = id,
                           .part = (uint32_t)(at / GA_TRACE_PART_BYTES)}};
        size_t left = bytes - at;
        memcpy(next.part.bytes, (const char *)definition + at,
               left < GA_TRACE_PART_BYTES ? left : GA_TRACE_PART_BYTES);
        ga_recorder_note(n->recorder, &next.record);
    }
}

typedef union description {
    ga_trace_stack stack;
    uint64_t words[HEAD_WORDS + GA_TRACE_FRAMES_MAX];
} description;

/* The frames outside gpualloc's library. Where it is linked statically only the first one, which is
 * of this file, is known to be inside. */
static void describe(description *out, const ga_stacks *s, const ga_unwound *u)
{
    unsigned first = 1;
    while (first < u->count && ga_modules_is_own(u->frame[first].ip)) {
        first++;
    }
    bool own = first == 1;
    unsigned most = own ? s->depth + GA_TRACE_OWN_FRAMES : s->depth;
    unsigned count = first < u->count ? u->count - first : 0;
    out->stack.frames = count < most ? count : most;
    out->stack.flags =
        (count > most || !u->complete ? GA_TRACE_STACK_DEEPER : 0) | (own ? GA_TRACE_STACK_OWN : 0);
    out->stack.bytes = (uint32_t)(sizeof out->stack + out->stack.frames * sizeof(uint64_t));
    for (unsigned i = 0; i < out->stack.frames; i++) {
        const ga_unwind_frame *frame = &u->frame[first + i];
        out->stack.frame[i] = frame->exact ? frame->ip : frame->ip - 1;
    }
}

/* ---- this thread's stack --------------------------------------------------------------------- */

/* With the recorder's lock held. An older epoch than the table's is that of a thread that was late;
 * the library which was unloaded meanwhile is not in its stack. */
static void begin_epoch(ga_stacks *s, uint32_t epoch)
{
    if (epoch > s->epoch) {
        empty_table(s);
        __atomic_store_n(&s->epoch, epoch, __ATOMIC_RELAXED); /* relaxed, see the member */
    }
}

static uint32_t add(ga_stacks *s, const notes *n, ga_unwound *u)
{
    description d;
    bool is_new;
    uint32_t epoch = ga_modules_update(s->modules, define, (void *)n);
    describe(&d, s, u);
    if (!d.stack.frames) {
        return 0;
    }
    ga_recorder_lock();
    begin_epoch(s, epoch);
    d.stack.epoch = s->epoch;
    u->key = s->version;
    uint32_t id = ga_stacks_put(s, &d.stack, &is_new);
    ga_recorder_unlock();
    if (is_new) {
        define((void *)n, GA_TRACE_STACK, id, &d, d.stack.bytes);
    }
    return id;
}

static uint64_t key_of(ga_stacks *s, const notes *n)
{
    uint32_t epoch = ga_modules_refresh(s->modules, n->now_ns, define, (void *)n);
    if (epoch > __atomic_load_n(&s->epoch, __ATOMIC_RELAXED)) { /* relaxed, see the member */
        ga_recorder_lock();
        begin_epoch(s, epoch);
        ga_recorder_unlock();
    }
    return __atomic_load_n(&s->version, __ATOMIC_RELAXED); /* relaxed, see the member */
}

/* Inlined, because a further frame would be unwound each time. */
static inline __attribute__((always_inline)) uint32_t look_up(ga_stacks *s, const notes *n,
                                                              ga_unwind_memo *in)
{
    ga_unwound *u = ga_unwind(in, key_of(s, n), s->depth + GA_TRACE_OWN_FRAMES + 1);
    if (!u->id) {
        u->id = add(s, n, u);
    }
    return u->id;
}

/* This thread's memo with room for the depth; NULL if its end would not free it. */
static ga_unwind_memo *own_memo(unsigned frames)
{
    if (memo && ga_unwind_memo_frames(memo) < frames) {
        ga_stacks_leave_thread();
    }
    if (!memo && ga_thread_enroll()) {
        memo = ga_unwind_memo_new(frames);
    }
    return memo;
}

uint32_t ga_stacks_here(ga_stacks *s, ga_recorder *recorder, uint64_t now_ns)
{
    uint32_t id = 0;
    int saved = errno;
    if (busy) {
        return 0;
    }
    busy = true;
    if (ga_unwind_ready() && (ga_unwind_takes_no_lock() || !ga_modules_are_kept_only(s->modules))) {
        const notes n = {recorder, now_ns};
        unsigned kept = s->depth > KNOWN_FRAMES ? s->depth : KNOWN_FRAMES;
        unsigned frames = kept + GA_TRACE_OWN_FRAMES + 1;
        ga_unwind_memo *own = own_memo(frames);
        ga_unwind_memo *used = own ? own : ga_unwind_memo_new(frames);
        id = used ? look_up(s, &n, used) : 0;
        if (used != own) {
            ga_unwind_memo_delete(used);
        }
    }
    busy = false;
    errno = saved;
    return id;
}

void ga_stacks_leave_thread(void)
{
    ga_unwind_memo_delete(memo);
    memo = NULL;
}
