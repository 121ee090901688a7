/* SPDX-License-Identifier: MIT
 *
 * ga_unwind
 *   recall                 fast path: the caller's registers and all words are as they were
 *   on_frame               called by _Unwind_Backtrace() for each frame
 *     join_known           stops at a frame of the newest stack whose outer part is as it was
 *   add_checks             find the words that the next capture has to compare
 *
 * INVARIANT  the instruction, stack and frame pointer of a frame decide where the unwinder reads
 *            those of the next frame, and what it reads are words of the frame. `check` has every
 *            word of a frame that equals one of them. So if the registers of a frame and these
 *            words are unchanged, unwinding would give the same next frame. The frame pointer
 *            counts only where it `matters`: an instruction's rule is either to use it, and then it
 *            points into the frame, or not to use it.
 * ORDER      words are compared from the inside outwards: a frame that is proved the same is there,
 *            so its words can be read.
 *
 * A frame for which no word equals the next instruction, as where return addresses are signed, ends
 * what can be recognised: `rigid` is behind it.
 */
#include "unwind.h"

#include "../../platform/log.h"
#include "../../simt/planted.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>

/* FRAME_POINTER: its number in DWARF; on other processors nothing is recognised. RETURN_ON_TOP: the
 * return address is always the last word of a frame. */
#if defined __x86_64__
#define FRAME_POINTER 6
#define RETURN_ON_TOP true
#elif defined __aarch64__
#define FRAME_POINTER 29
#define RETURN_ON_TOP false
#else
#define FRAME_POINTER (-1)
#define RETURN_ON_TOP false
#endif

enum {
    SETS = 32,
    WAYS = 8,
    HASH_SHIFT = 59,
    FRAME_CHECKS = 12,  /* words of a frame at most */
    FRAME_WORDS = 4096, /* a larger frame is not searched */
};

/* A check: the distance in words from the first frame's stack pointer, and the register. */
enum {
    IS_IP,
    IS_SP,
    IS_FP,
    REGISTERS
};

struct ga_unwind_memo {
    size_t bytes;
    unsigned frames, checks; /* room of each stack */
    unsigned turn;           /* the next way to replace */
    ga_unwound *newest;
    ga_unwound stacks[SETS][WAYS];
};

/* ---- libgcc ---------------------------------------------------------------------------------- */

static struct {
    _Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void *);
    _Unwind_Word (*ip)(struct _Unwind_Context *, int *);
    _Unwind_Word (*sp)(struct _Unwind_Context *);
    _Unwind_Word (*gr)(struct _Unwind_Context *, int);
    bool lock_free;
} gcc;

enum {
    NOT_LOADED = 0,
    LOADED,
    MISSING
};

static int state; /* UW1: `gcc` is constant once this is LOADED */

static bool load(void)
{
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return false;
    }
    *(void **)&gcc.backtrace = dlsym(library, "_Unwind_Backtrace");
    *(void **)&gcc.ip = dlsym(library, "_Unwind_GetIPInfo");
    *(void **)&gcc.sp = dlsym(library, "_Unwind_GetCFA");
    *(void **)&gcc.gr = dlsym(library, "_Unwind_GetGR");
    gcc.lock_free = dlsym(RTLD_DEFAULT, "_dl_find_object") != NULL;
    return gcc.backtrace && gcc.ip && gcc.sp && gcc.gr;
}

/* The loader's state, by the program's dynamic section. The symbol _r_debug may be a copy that a
 * program has of it, which does not change. */
static int find_loader(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const ElfW(Dyn) *entry = (const void *)(info->dlpi_addr + segment->p_vaddr);
        while (segment->p_type == PT_DYNAMIC && entry->d_tag != DT_NULL) {
            if (entry->d_tag == DT_DEBUG) {
                *(const struct r_debug **)out = (const struct r_debug *)entry->d_un.d_ptr;
            }
            entry++;
        }
    }
    return 1; /* the program is the first */
}

/* False while the loader adds or removes a library, as it may when it allocates. */
static bool loader_is_ready(void)
{
    const struct r_debug *loader = NULL;
    dl_iterate_phdr(find_loader, &loader);
    return !loader || loader->r_state == RT_CONSISTENT;
}

/* Two threads may load it at once: both store the same. */
bool ga_unwind_ready(void)
{
    /* UW1: acquire. Pairs with UW2. */
    int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (now != NOT_LOADED) {
        return now == LOADED;
    }
    if (!loader_is_ready()) {
        return false;
    }
    bool loaded = load();
    /* UW2: release. Pairs with UW1: the functions are there. */
    int before = __atomic_exchange_n(&state, loaded ? LOADED : MISSING, __ATOMIC_RELEASE);
    if (!loaded && before == NOT_LOADED) {
        ga_log(GA_LOG_ERROR, "trace: no call stacks: libgcc_s.so.1 cannot be loaded: %s",
               dlerror());
    }
    return loaded;
}

bool ga_unwind_takes_no_lock(void)
{
    return gcc.lock_free;
}

/* ---- the memo -------------------------------------------------------------------------------- */

ga_unwind_memo *ga_unwind_memo_new(unsigned frames)
{
    size_t checks = (size_t)frames * 2;
    size_t each = frames * sizeof(ga_unwind_frame) + checks * sizeof(uint32_t);
    size_t bytes = sizeof(ga_unwind_memo) + SETS * WAYS * each;
    ga_unwind_memo *memo =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memo == MAP_FAILED) {
        return NULL;
    }
    memo->bytes = bytes;
    memo->frames = frames;
    memo->checks = (unsigned)checks;
    char *room = (char *)(memo + 1);
    for (unsigned i = 0; i < SETS * WAYS; i++, room += each) {
        ga_unwound *stack = &memo->stacks[i / WAYS][i % WAYS];
        stack->frame = (ga_unwind_frame *)(void *)room;
        stack->check = (uint32_t *)(void *)(stack->frame + frames);
    }
    return memo;
}

void ga_unwind_memo_delete(ga_unwind_memo *memo)
{
    if (memo) {
        munmap(memo, memo->bytes);
    }
}

unsigned ga_unwind_memo_frames(const ga_unwind_memo *memo)
{
    return memo->frames;
}

static ga_unwound *set_of(ga_unwind_memo *memo, uintptr_t sp)
{
    return memo->stacks[(sp >> 4) * 0x9e3779b97f4a7c15u >> HASH_SHIFT];
}

_Static_assert(SETS == 1 << (64 - HASH_SHIFT), "the hash has as many values as there are sets");

/* ---- recognising a stack --------------------------------------------------------------------- */

static bool is_same(const ga_unwind_frame *known, const ga_unwind_frame *now)
{
    return known->ip == now->ip && known->sp == now->sp &&
           (!known->matters || known->fp == now->fp || GA_PLANTED(unwind_frame_pointer_ignored));
}

static uintptr_t value_of(const ga_unwind_frame *frame, uint32_t check)
{
    uint32_t which = check % REGISTERS;
    return which == IS_IP ? frame->ip : which == IS_SP ? frame->sp : frame->fp;
}

/* True if the words that decide about frames [first + 1, end) are as they were. Reads the frames of
 * callers, which a sanitizer would take for an overrun. */
__attribute__((no_sanitize("address", "thread"), noinline)) static bool
is_unchanged(const ga_unwound *stack, unsigned first, unsigned end, const uint32_t *check)
{
    const uintptr_t *base = (const uintptr_t *)stack->frame[0].sp;
    const uint32_t *at = check;
    for (unsigned i = first; i + 1 < end; i++) {
        const ga_unwind_frame *next = &stack->frame[i + 1];
        for (unsigned n = stack->frame[i].checks; n > 0; n--, at++) {
            if (base[*at / REGISTERS] != value_of(next, *at) &&
                !GA_PLANTED(unwind_words_not_compared)) {
                return false;
            }
        }
    }
    return true;
}

static const uint32_t *checks_from(const ga_unwound *stack, unsigned first)
{
    const uint32_t *check = stack->check;
    for (unsigned i = 0; i < first; i++) {
        check += stack->frame[i].checks;
    }
    return check;
}

static ga_unwound *recall(ga_unwind_memo *memo, const ga_unwind_frame *caller, uint64_t key,
                          unsigned wanted)
{
    ga_unwound *stack = set_of(memo, caller->sp);
    for (unsigned way = 0; way < WAYS; way++, stack++) {
        if (stack->sp == caller->sp && stack->key == key && stack->count && stack->rigid == 0 &&
            is_same(&stack->frame[0], caller) &&
            is_unchanged(stack, 0, stack->count < wanted ? stack->count : wanted, stack->check)) {
            return stack;
        }
    }
    return NULL;
}

/* ---- unwinding ------------------------------------------------------------------------------- */

typedef struct walk {
    ga_unwound *stack;
    const ga_unwound *known; /* the newest stack, or NULL */
    unsigned place;          /* the frame of `known` that is not further inside */
    unsigned room;
    const ga_unwind_frame *caller;
} walk;

/* Append the frames of `known` that are outside the stack's last one, if that is one of them and
 * they are as they were. */
static bool join_known(walk *w)
{
    const ga_unwound *known = w->known;
    ga_unwound *stack = w->stack;
    const ga_unwind_frame *last = &stack->frame[stack->count - 1];
    while (w->place < known->count && known->frame[w->place].sp < last->sp) {
        w->place++;
    }
    unsigned outside = known->count - w->place;
    if (w->place < known->rigid || outside == 0 || !is_same(&known->frame[w->place], last) ||
        (!known->complete && stack->count - 1 + outside < w->room) ||
        !is_unchanged(known, w->place, known->count, checks_from(known, w->place))) {
        return false;
    }
    unsigned left = w->room - stack->count + 1;
    unsigned taken = outside < left ? outside : left;
    memcpy(&stack->frame[stack->count - 1], &known->frame[w->place],
           taken * sizeof(ga_unwind_frame));
    stack->count = (uint16_t)(stack->count - 1 + taken);
    stack->complete = known->complete && taken == outside;
    return true;
}

static _Unwind_Reason_Code on_frame(struct _Unwind_Context *context, void *data)
{
    walk *w = data;
    ga_unwound *stack = w->stack;
    int exact = 0;
    uintptr_t ip = gcc.ip(context, &exact);
    uintptr_t sp = gcc.sp(context);
    if (stack->count == 0 && (ip != w->caller->ip || sp != w->caller->sp)) {
        return _URC_NO_REASON; /* a frame of this file */
    }
    if (!ip) {
        return _URC_END_OF_STACK;
    }
    if (stack->count == w->room) {
        stack->complete = false;
        return _URC_END_OF_STACK;
    }
    uintptr_t fp = FRAME_POINTER < 0 ? 0 : gcc.gr(context, FRAME_POINTER);
    stack->frame[stack->count++] =
        (ga_unwind_frame){.ip = ip, .sp = sp, .fp = fp, .exact = exact != 0};
    return w->known && join_known(w) ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* ---- the words to compare -------------------------------------------------------------------- */

typedef struct found {
    unsigned count;
    bool seen[REGISTERS];
} found;

static bool points_into(const ga_unwind_frame *frame)
{
    return frame->fp >= frame->sp && frame->fp < frame[1].sp;
}

/* Note each word of frame `i` from `sp` on that equals one of the next frame's registers, of those
 * that `wanted` has. */
__attribute__((no_sanitize("address", "thread"), noinline)) static void
search_frame(found *out, const ga_unwound *stack, unsigned i, uintptr_t sp,
             const bool wanted[REGISTERS], uint32_t *check)
{
    const ga_unwind_frame *next = &stack->frame[i + 1];
    const uintptr_t *base = (const uintptr_t *)stack->frame[0].sp;
    for (; sp + sizeof(uintptr_t) <= next->sp; sp += sizeof(uintptr_t)) {
        const uintptr_t *word = (const uintptr_t *)sp;
        for (uint32_t which = 0; which < REGISTERS; which++) {
            if (wanted[which] && *word == value_of(next, which) && out->count < FRAME_CHECKS) {
                check[out->count++] = (uint32_t)(word - base) * REGISTERS + which;
                out->seen[which] = true;
            }
        }
    }
}

/* The words of frame `i` that decide about the next one's registers. A frame that is realigned has
 * the next one's stack pointer among its words, and a frame pointer. */
static found find_words(const ga_unwound *stack, unsigned i, uint32_t *check)
{
    const ga_unwind_frame *here = &stack->frame[i];
    static const bool return_only[REGISTERS] = {[IS_IP] = true};
    const bool rest[REGISTERS] = {
        [IS_IP] = !RETURN_ON_TOP, [IS_SP] = points_into(here), [IS_FP] = here[1].matters};
    found out = {0};
    if (RETURN_ON_TOP) {
        search_frame(&out, stack, i, here[1].sp - sizeof(uintptr_t), return_only, check);
    }
    if (rest[IS_IP] || rest[IS_SP] || rest[IS_FP]) {
        search_frame(&out, stack, i, here->sp, rest, check);
    }
    return out;
}

/* The frame pointer of the next frame is in a word of this one, or the register still has it. */
static bool decides(const ga_unwound *stack, unsigned i, const found *words)
{
    const ga_unwind_frame *next = &stack->frame[i + 1];
    return words->count < FRAME_CHECKS && words->seen[IS_IP] &&
           (!next->matters || words->seen[IS_FP] || stack->frame[i].fp == next->fp);
}

static bool can_search(const ga_unwound *stack, unsigned i)
{
    const ga_unwind_frame *here = &stack->frame[i];
    uintptr_t base = stack->frame[0].sp;
    return FRAME_POINTER >= 0 && (here->sp - base) % sizeof(uintptr_t) == 0 && here->sp >= base &&
           here[1].sp > here->sp && here[1].sp - here->sp <= FRAME_WORDS * sizeof(uintptr_t) &&
           (here[1].sp - base) / sizeof(uintptr_t) < UINT32_MAX / REGISTERS;
}

/* From the outside inwards, because a frame pointer matters also where a frame passes it on. The
 * last frame's is taken to matter: the next frame is not known. */
static void set_matters(ga_unwound *stack)
{
    for (unsigned i = stack->count; i-- > 0;) {
        ga_unwind_frame *here = &stack->frame[i];
        here->matters = i + 1 == stack->count || points_into(here) ||
                        (here[1].matters && here->fp == here[1].fp);
    }
}

static void add_checks(const ga_unwind_memo *memo, ga_unwound *stack)
{
    unsigned used = 0;
    stack->rigid = 0;
    set_matters(stack);
    for (unsigned i = 0; i + 1 < stack->count; i++) {
        uint32_t words[FRAME_CHECKS];
        found all = can_search(stack, i) ? find_words(stack, i, words) : (found){0};
        if (!decides(stack, i, &all) || used + all.count > memo->checks) {
            stack->rigid = (uint16_t)(i + 1);
            stack->frame[i].checks = 0;
            continue;
        }
        memcpy(stack->check + used, words, all.count * sizeof *words);
        stack->frame[i].checks = (uint8_t)all.count;
        used += all.count;
    }
}

/* ---- the interface --------------------------------------------------------------------------- */

/* The next stack of the set to replace, which is not the newest one: its frames are of use. */
static ga_unwound *oldest(ga_unwind_memo *memo, ga_unwound *set)
{
    ga_unwound *stack = &set[memo->turn++ % WAYS];
    return stack != memo->newest ? stack : &set[memo->turn++ % WAYS];
}

__attribute__((noinline)) ga_unwound *ga_unwind(ga_unwind_memo *memo, uint64_t key, unsigned wanted)
{
    ga_unwind_frame caller = {
        .ip = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)),
        .sp = (uintptr_t)__builtin_dwarf_cfa(),
        .fp = *(uintptr_t *)__builtin_frame_address(0),
    };
    ga_unwound *stack = recall(memo, &caller, key, wanted);
    if (!stack) {
        stack = oldest(memo, set_of(memo, caller.sp));
        stack->key = key;
        stack->id = 0;
        stack->count = 0;
        stack->sp = caller.sp;
        stack->complete = true;
        walk w = {stack, memo->newest, 0, memo->frames, &caller};
        gcc.backtrace(on_frame, &w);
        add_checks(memo, stack);
    }
    memo->newest = stack;
    return stack;
}
