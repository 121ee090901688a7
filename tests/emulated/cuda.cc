/* SPDX-License-Identifier: MIT
 *
 * Fibers, and the blocks that run them. Threads of the host stay from launch to launch.
 */
#include <condition_variable>
#include <mutex>
#include <thread>

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"

#include "kernels.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include <pthread.h>
#define STACK_BYTES (512u << 10)
#else
#define STACK_BYTES (128u << 10)
#endif

enum {
    THREADS = 512, /* of a block, at most */
    WARPS = THREADS / 32,
    SNAPSHOTS = 64,
    AT_ATOMICS = 32 /* of so many atomics, one gives way */
};

emulated_options emulated = {1, EMULATED_RANDOM, 0, 60};

/* The dynamic shared memory of each library's kernels. */
alignas(16) thread_local uint4 ga_spgemm_shared[EMULATED_SHARED_BYTES / sizeof(uint4)];
alignas(16) thread_local uint4 ga_sharded_shared[EMULATED_SHARED_BYTES / sizeof(uint4)];

thread_local emulated_thread *emulated_self;

namespace
{

enum fiber_state {
    READY,
    AT_BARRIER,
    IN_WARP,
    ENDED
};

struct fiber {
    emulated_thread self; /* first: emulated_self is the fiber */
    fiber_state state;
    emulated_place place;
    void *sp;
    char *stack;
    uint32_t mask; /* IN_WARP */
    uint64_t value;
    int snapshot; /* -1: none */
};

struct warp {
    uint32_t waiting; /* lanes */
    uint64_t snapshots[SNAPSHOTS][32];
    uint32_t users[SNAPSHOTS];
};

struct block {
    fiber fibers[THREADS];
    warp warps[WARPS];
    uint64_t ready[THREADS / 64];
    uint32_t threads, ended, at_barrier;
    bool vote, voted;
    uint64_t random;
    void *sp, *stack; /* of the thread of the host */
    size_t stack_bytes;
    const emulated_kernel *kernel;
};

block blocks[EMULATED_BLOCKS];
thread_local block *own;

/* ---- failures -------------------------------------------------------------------------------- */

void print_block(const block &b)
{
    static const char *const states[] = {"ready", "at a barrier", "in a warp", "ended"};
    fprintf(stderr, "block %u:\n", b.fibers[0].self.block.x);
    for (uint32_t i = 0, first = 0; i < b.threads; i++) {
        const fiber &f = b.fibers[i];
        const fiber *next = i + 1 < b.threads ? &b.fibers[i + 1] : NULL;
        if (next && next->state == f.state && next->place.line == f.place.line &&
            next->mask == f.mask) {
            continue;
        }
        fprintf(stderr, "  threads %u to %u: %s, %s in %s:%d, mask %x\n", first, i, states[f.state],
                f.place.what, f.place.file, f.place.line, f.mask);
        first = i + 1;
    }
}

std::mutex failing;

[[noreturn]] void fail(const char *why)
{
    failing.lock();
    fprintf(stderr, "emulated: %s\n", why);
    if (own) {
        print_block(*own);
    }
    _exit(1);
}

/* ---- fibers ---------------------------------------------------------------------------------- */

uint64_t random_of(block *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return b->random >> 11;
}

#ifdef __x86_64__
extern "C" void emulated_switch(void **save, void *load);
__asm__(
    ".text\n.globl emulated_switch\n.type emulated_switch,@function\nemulated_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size emulated_switch,.-emulated_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");
#endif

/* Go on at `to`, a fiber or (NULL) the thread of the host. */
void go_to(void **save, fiber *to)
{
#ifdef __SANITIZE_ADDRESS__
    void *fake = NULL;
    __sanitizer_start_switch_fiber(&fake, to ? to->stack : own->stack,
                                   to ? STACK_BYTES : own->stack_bytes);
#endif
    emulated_self = to ? &to->self : NULL;
    emulated_switch(save, to ? to->sp : own->sp);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

fiber *self()
{
    return reinterpret_cast<fiber *>(emulated_self);
}

/* The next fiber that can go on; it is not ready any more. NULL: none can. */
fiber *take_next(bool yields)
{
    block *b = own;
    uint64_t any = 0;
    for (uint64_t word : b->ready) {
        any |= word;
    }
    if (!any) {
        return NULL;
    }
    uint32_t first = 0;
    emulated_order order = yields ? EMULATED_RANDOM : emulated.order;
    if (order == EMULATED_HIGHEST) {
        for (uint32_t i = THREADS / 64; i-- > 0;) {
            if (b->ready[i]) {
                uint32_t at = i * 64 + 63 - (uint32_t)__builtin_clzll(b->ready[i]);
                b->ready[i] &= ~((uint64_t)1 << at % 64);
                return &b->fibers[at];
            }
        }
    }
    if (order == EMULATED_RANDOM) {
        first = (uint32_t)(random_of(b) % THREADS);
    } else if (order == EMULATED_BY_WARP) {
        first = emulated_self ? emulated_self->thread.x / 32 * 32 : random_of(b) % WARPS * 32;
        bool goes_on = b->ready[first / 64] >> first % 64 & 0xffffffffu;
        first = goes_on ? first : (uint32_t)(random_of(b) % WARPS * 32);
    }
    for (uint32_t i = 0; i <= THREADS / 64; i++) {
        uint32_t word = (first / 64 + i) % (THREADS / 64);
        uint64_t bits = b->ready[word];
        bits &= i == 0 ? ~(uint64_t)0 << first % 64 : ~(uint64_t)0;
        if (bits) {
            uint32_t at = word * 64 + (uint32_t)__builtin_ctzll(bits);
            b->ready[word] &= ~((uint64_t)1 << at % 64);
            return &b->fibers[at];
        }
    }
    return NULL;
}

void make_ready(fiber *f)
{
    f->state = READY;
    own->ready[f->self.thread.x / 64] |= (uint64_t)1 << f->self.thread.x % 64;
}

/* Let others go on until this fiber is ready. */
void give_way(bool yields)
{
    fiber *me = self(), *next = take_next(yields);
    if (!next) {
        fail("threads wait for each other");
    }
    if (next != me) {
        go_to(&me->sp, next);
    }
}

void end_fiber()
{
    fiber *me = self();
    me->state = ENDED;
    me->mask = 0;
    own->ended++;
    fiber *next = take_next(false);
    if (!next && own->ended < own->threads) {
        fail("threads wait for some that have ended");
    }
    go_to(&me->sp, next);
}

void begin_fiber()
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    own->kernel->run(own->kernel);
    end_fiber();
    abort();
}

void prepare(fiber *f)
{
    if (!f->stack) {
        void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        f->stack = (char *)stack;
    }
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
    void **top = (void **)(f->stack + STACK_BYTES);
    top[-1] = NULL;
    top[-2] = (void *)begin_fiber;
    memset(top - 8, 0, 6 * sizeof *top);
    f->sp = top - 8;
    f->snapshot = -1;
    f->mask = 0;
    f->place = emulated_place{"begins", "", 0};
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* So that a kernel finds nothing there, and reaches no more of it than the launch asks for. */
void prepare_shared(uint4 *shared, unsigned bytes)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(shared, EMULATED_SHARED_BYTES);
    __asan_poison_memory_region((char *)shared + bytes, EMULATED_SHARED_BYTES - bytes);
#else
    (void)bytes;
    memset((void *)shared, 0xa5, EMULATED_SHARED_BYTES);
#endif
}

void run_block(block *b, const emulated_kernel *kernel, uint32_t number)
{
    own = b;
    b->kernel = kernel;
    b->threads = kernel->threads;
    b->ended = b->at_barrier = 0;
    b->vote = false;
    b->random = (emulated.seed + 1) * 0x9e3779b97f4a7c15u ^ (number + 1) * 0xbf58476d1ce4e5b9u;
    for (warp &w : b->warps) {
        w.waiting = 0;
        memset(w.users, 0, sizeof w.users);
    }
#ifdef __SANITIZE_ADDRESS__
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &b->stack, &b->stack_bytes);
    pthread_attr_destroy(&attributes);
#endif
    prepare_shared(ga_spgemm_shared, kernel->shared);
    prepare_shared(ga_sharded_shared, kernel->shared);
    for (uint32_t i = 0; i < b->threads; i++) {
        fiber *f = &b->fibers[i];
        f->self =
            emulated_thread{{i, 0, 0}, {number, 0, 0}, {b->threads, 1, 1}, {kernel->blocks, 1, 1}};
        prepare(f);
        make_ready(f);
    }
    go_to(&b->sp, take_next(true));
}

/* Never destroyed, because threads wait for them when the program ends. */
std::mutex &lock = *new std::mutex;
std::condition_variable &changed = *new std::condition_variable;
const emulated_kernel *current;
uint32_t next_block, ended_blocks;
uint64_t launches;

void host_thread(uint32_t number)
{
    uint64_t seen = 0;
    for (;;) {
        const emulated_kernel *kernel;
        {
            std::unique_lock<std::mutex> held(lock);
            changed.wait(held, [&] { return launches != seen; });
            seen = launches;
            kernel = current;
        }
        while (kernel) {
            uint32_t block_number;
            {
                std::lock_guard<std::mutex> held(lock);
                if (current != kernel || launches != seen || next_block >= kernel->blocks) {
                    break;
                }
                block_number = next_block++;
            }
            run_block(&blocks[number], kernel, block_number);
            std::lock_guard<std::mutex> held(lock);
            ended_blocks++;
            changed.notify_all();
        }
    }
}

void start_threads()
{
    static bool started;
    for (uint32_t i = 0; !started && i < EMULATED_BLOCKS; i++) {
        std::thread(host_thread, i).detach();
    }
    started = true;
}

} // namespace

/* ---- called by kernels ----------------------------------------------------------------------- */

void emulated_fail(emulated_place place, const char *why)
{
    self()->place = place;
    fail(why);
}

bool emulated_barrier(emulated_place place, bool vote)
{
    block *b = own;
    fiber *me = self();
    me->place = place;
    me->state = AT_BARRIER;
    b->vote = b->vote || vote;
    if (++b->at_barrier < b->threads) {
        give_way(false);
        return b->voted;
    }
    for (uint32_t i = 0; i < b->threads; i++) {
        const emulated_place &other = b->fibers[i].place;
        if (other.line != place.line || strcmp(other.file, place.file) != 0) {
            fail("barriers in different places");
        }
    }
    b->at_barrier = 0;
    b->voted = b->vote;
    b->vote = false;
    bool voted = b->voted;
    if (emulated.naps && random_of(b) % emulated.naps == 0) {
        struct timespec nap = {0, (long)(random_of(b) % 2000000)};
        nanosleep(&nap, NULL);
    }
    for (uint32_t i = 0; i < b->threads; i++) {
        make_ready(&b->fibers[i]);
    }
    give_way(false);
    return voted;
}

const uint64_t *emulated_exchange(emulated_place place, uint32_t mask, uint64_t value)
{
    fiber *me = self();
    uint32_t lane = me->self.thread.x % 32, number = me->self.thread.x / 32;
    warp *w = &own->warps[number];
    fiber *lanes = &own->fibers[number * 32];
    me->place = place;
    me->mask = mask;
    if (!(mask >> lane & 1)) {
        fail("a lane is not in its mask");
    }
    if (me->snapshot >= 0) {
        w->users[me->snapshot]--;
    }
    me->value = value;
    me->state = IN_WARP;
    w->waiting |= (uint32_t)1 << lane;
    if ((w->waiting & mask) != mask) {
        give_way(false);
        return w->snapshots[me->snapshot];
    }
    int at = 0;
    while (w->users[at]) {
        at++;
    }
    w->users[at] = (uint32_t)__builtin_popcount(mask);
    memset(w->snapshots[at], 0, sizeof w->snapshots[at]);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(rest);
        if (lanes[i].mask != mask || lanes[i].place.line != place.line ||
            strcmp(lanes[i].place.what, place.what) != 0) {
            fail("lanes of a warp in different places");
        }
        w->snapshots[at][i] = lanes[i].value;
        lanes[i].snapshot = at;
        make_ready(&lanes[i]);
    }
    w->waiting &= ~mask;
    give_way(false);
    return w->snapshots[me->snapshot];
}

void emulated_sleep(uint32_t ns)
{
    static thread_local uint32_t calls;
    fiber *me = self();
    me->place = emulated_place{"sleeps", "", 0};
    if (++calls % 64 == 0) {
        struct timespec time = {0, (long)ns};
        nanosleep(&time, NULL);
    }
    make_ready(me);
    give_way(true);
}

bool emulated_is_local(const void *address)
{
    const char *stack = self()->stack, *at = (const char *)address;
    return at >= stack && at < stack + STACK_BYTES;
}

void emulated_exit(void)
{
    end_fiber();
    abort();
}

void emulated_at_atomic(void)
{
    if (random_of(own) % AT_ATOMICS == 0) {
        make_ready(self());
        give_way(true);
    }
}

void emulated_run(const emulated_kernel *kernel)
{
    if (kernel->threads % 32 || kernel->threads > THREADS ||
        kernel->shared > EMULATED_SHARED_BYTES) {
        fail("a launch of too many threads, or too much shared memory");
    }
    start_threads();
    std::unique_lock<std::mutex> held(lock);
    current = kernel;
    next_block = ended_blocks = 0;
    launches++;
    changed.notify_all();
    if (!changed.wait_for(held, std::chrono::seconds(emulated.seconds),
                          [&] { return ended_blocks == kernel->blocks; })) {
        fprintf(stderr, "emulated: %s hangs: %u of %u blocks have ended\n", kernel->name,
                ended_blocks, kernel->blocks);
        for (const block &b : blocks) {
            print_block(b);
        }
        _exit(1);
    }
    current = NULL;
    emulated.seed += 0x100;
}
