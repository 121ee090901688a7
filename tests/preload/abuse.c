/* SPDX-License-Identifier: MIT
 *
 * Commits one misuse of malloc as an attacker would, and checks for harm:
 *
 *   abuse KIND
 *
 * The last line of the output is the harm, "none" if there is none. A program that was ended prints
 * nothing. test_security.py compares the effects with the table of docs/security.md.
 */
#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    SMALL = 64,
    LARGE = 1 << 20,
    ODD = 48, /* a multiple of 16 and of no higher power of two */
    OTHER = 1024,
    PAGE = 4096,
    BLOCKS = 64,
    MANY = 1000,
    LATER = 100000,    /* requests in which the allocator may notice the misuse */
    GLIBC_SIZE = 0x51, /* in front of a block of SMALL bytes in glibc */
    GLIBC_NEXT = 0x61, /* in front of a larger one */
    LARGER = 88        /* bytes that fit such a block */
};

static char *volatile blocks[MANY]; /* live, or NULL */
static char *volatile victim;
static char *volatile gone; /* the victim's address, once it is free */
static size_t block_size;

/* Memory that was never allocated. */
static uint64_t forged[64] __attribute__((aligned(64)));

static _Noreturn void end(const char *harm)
{
    puts(harm);
    fflush(stdout);
    _exit(0);
}

static void allocate(int count, size_t size)
{
    block_size = size;
    for (int i = 0; i < count; i++) {
        blocks[i] = malloc(size);
        CHECK(blocks[i]);
        memset(blocks[i], 'A' + i % 16, size);
    }
    victim = gone = blocks[count / 2];
}

static void release(int i)
{
    free(blocks[i]);
    blocks[i] = NULL;
}

static bool overlap(const char *a, size_t a_size, const char *b, size_t b_size)
{
    return a < b + b_size && b < a + a_size;
}

/* Requests of another size, in which the allocator may notice, and frees that were put off
 * happen. */
static void go_on(size_t size)
{
    static char *volatile held[32];
    for (int i = 0; i < LATER; i++) {
        free(held[i % 32]);
        held[i % 32] = malloc(size);
    }
}

/* Check whether new blocks of this size overlap each other or live ones, or lie outside of every
 * heap. */
static void look_for_two_owners(int count, size_t size)
{
    char **later = calloc((size_t)count, sizeof *later);
    CHECK(later);
    for (int i = 0; i < count; i++) {
        later[i] = malloc(size);
        CHECK(later[i]);
        if (overlap(later[i], size, (char *)forged, sizeof forged)) {
            end("steered");
        }
        for (int j = 0; j < i; j++) {
            if (overlap(later[i], size, later[j], size)) {
                end("two owners");
            }
        }
        for (int j = 0; j < MANY; j++) {
            if (blocks[j] && overlap(later[i], size, blocks[j], block_size)) {
                end("two owners");
            }
        }
    }
    free(later);
}

/* ---- freeing twice ------------------------------------------------------------------------- */

static void double_free(void)
{
    allocate(BLOCKS, SMALL);
    release(BLOCKS / 2);
    free(gone);
    go_on(OTHER);
    look_for_two_owners(BLOCKS, SMALL);
}

static void double_free_later(void)
{
    allocate(BLOCKS, SMALL);
    release(BLOCKS / 2);
    release(0);
    free(gone);
    go_on(OTHER);
    look_for_two_owners(BLOCKS, SMALL);
}

static void double_free_much_later(void)
{
    allocate(MANY, SMALL);
    for (int i = 0; i < MANY; i++) {
        release(i);
    }
    free(gone);
    go_on(OTHER);
    look_for_two_owners(2 * MANY, SMALL);
}

static void double_free_large(void)
{
    allocate(4, LARGE);
    release(2);
    free(gone);
    go_on(OTHER);
    look_for_two_owners(8, LARGE);
}

static pthread_barrier_t turn;
static char *volatile others[BLOCKS];

/* Frees the victim, lets the other thread free it again, and allocates. */
static void *freeing_thread(void *unused)
{
    others[0] = malloc(SMALL); /* with a cache from here on */
    free(victim);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    for (int i = 1; i < BLOCKS; i++) {
        others[i] = malloc(SMALL);
    }
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn); /* its blocks have one owner */
    return unused;
}

static void double_free_thread(void)
{
    pthread_t thread;
    allocate(BLOCKS, SMALL);
    pthread_barrier_init(&turn, NULL, 2);
    CHECK(pthread_create(&thread, NULL, freeing_thread, NULL) == 0);
    pthread_barrier_wait(&turn);
    blocks[BLOCKS / 2] = NULL;
    free(gone);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = others[i];
    }
    look_for_two_owners(BLOCKS, SMALL);
}

static void realloc_after_free(void)
{
    allocate(BLOCKS, SMALL);
    release(BLOCKS / 2);
    blocks[BLOCKS / 2] = realloc(gone, SMALL - 8);
    go_on(OTHER);
    look_for_two_owners(BLOCKS, SMALL);
}

/* ---- freeing invalid pointers ------------------------------------------------------------- */

static void foreign_free(void)
{
    free(forged + 8);
    look_for_two_owners(BLOCKS, SMALL);
}

/* Memory that imitates a live block of glibc. */
static void forged_free(void)
{
    forged[7] = GLIBC_SIZE;
    forged[7 + GLIBC_SIZE / 8] = GLIBC_SIZE;
    free(forged + 8);
    look_for_two_owners(BLOCKS, SMALL);
}

static void interior_free(void)
{
    allocate(BLOCKS, SMALL);
    free(victim + 16);
    go_on(OTHER);
    look_for_two_owners(BLOCKS, SMALL);
    look_for_two_owners(BLOCKS, SMALL / 2);
}

/* An address inside a block with the alignment of a block. */
static void aligned_interior_free(void)
{
    allocate(BLOCKS, ODD);
    free(victim + 16);
    go_on(OTHER);
    look_for_two_owners(BLOCKS, ODD);
    look_for_two_owners(BLOCKS, ODD / 2);
}

/* The words before the address imitate the beginning of a block of glibc. */
static void forged_interior_free(void)
{
    allocate(BLOCKS, 2 * SMALL);
    for (int i = 0; i < BLOCKS; i++) {
        ((uint64_t *)(void *)blocks[i])[1] = GLIBC_SIZE;
        ((uint64_t *)(void *)blocks[i])[1 + GLIBC_SIZE / 8] = GLIBC_SIZE;
    }
    free(victim + 16);
    go_on(OTHER);
    look_for_two_owners(BLOCKS, SMALL);
    look_for_two_owners(BLOCKS, 2 * SMALL);
}

static void interior_free_large(void)
{
    allocate(4, LARGE);
    free(victim + PAGE);
    go_on(OTHER);
    look_for_two_owners(8, LARGE);
}

/* ---- using freed blocks ------------------------------------------------------------------- */

static void read_after_free(int count, size_t size)
{
    allocate(count, size);
    char before = victim[size / 2];
    release(count / 2);
    if (gone[size / 2] == before) {
        end("contents stay");
    }
}

static void read_after_free_small(void)
{
    read_after_free(BLOCKS, SMALL);
}

static void read_after_free_large(void)
{
    read_after_free(4, LARGE);
}

/* A later owner of the address finds the former owner's contents. */
static void write_after_free(void)
{
    static char *volatile held[32];
    allocate(BLOCKS, SMALL);
    release(BLOCKS / 2);
    gone[SMALL / 2] = 'b';
    for (int i = 0; i < LATER; i++) {
        free(held[i % 32]);
        held[i % 32] = malloc(SMALL);
        if (held[i % 32] == gone && gone[SMALL / 2] == 'b') {
            end("written");
        }
    }
}

/* A link of the free list, if the allocator stores it in the block, is set to an address of the
 * attacker's choice: glibc xors links with their address, which the attacker knows. */
static void link_after_free(void)
{
    allocate(BLOCKS, SMALL);
    release(0);
    release(BLOCKS / 2);
    uint64_t target = (uint64_t)(uintptr_t)(forged + 8);
    *(uint64_t *)(void *)gone = target ^ (uint64_t)(uintptr_t)gone >> 12;
    look_for_two_owners(BLOCKS, SMALL);
}

static void contents_handed_on(int count, size_t size)
{
    allocate(count, size);
    char before = victim[size / 2];
    release(count / 2);
    go_on(OTHER);
    for (int i = 0; i < count; i++) {
        char *volatile later = malloc(size);
        CHECK(later);
        if (later[size / 2] == before) {
            end("contents handed on");
        }
    }
}

static void contents_handed_on_small(void)
{
    contents_handed_on(BLOCKS, SMALL);
}

static void contents_handed_on_large(void)
{
    contents_handed_on(4, LARGE);
}

/* ---- writing beside a block ------------------------------------------------------------------ */

/* The distance of the second block above the first, or below it; SIZE_MAX if it is on the other
 * side. */
static size_t distance(int from, int to, bool above)
{
    intptr_t apart = above ? blocks[to] - blocks[from] : blocks[from] - blocks[to];
    return apart > 0 ? (size_t)apart : SIZE_MAX;
}

/* The two that are nearest to each other, the second above the first or below it. */
static void choose_neighbours(int count, bool above, int *first, int *second)
{
    *first = 0;
    *second = 1;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++) {
            if (distance(i, j, above) < distance(*first, *second, above)) {
                *first = i;
                *second = j;
            }
        }
    }
}

static bool is_changed(int i)
{
    for (size_t at = 0; at < block_size; at++) {
        if (blocks[i][at] != 'A' + i % 16) {
            return true;
        }
    }
    return false;
}

static void write_all(size_t size)
{
    for (int i = 0; i < BLOCKS; i++) {
        char *volatile block = malloc(size);
        CHECK(block);
        memset(block, 'z', size);
    }
}

/* Free the written block and its neighbour; the blocks that reuse their memory must not overlap
 * others. */
static void look_for_change(int count, int written, int beside)
{
    bool changed = false;
    for (int i = 0; i < count; i++) {
        changed |= i != written && is_changed(i);
    }
    release(written);
    release(beside);
    write_all(block_size);
    if (block_size == SMALL) {
        write_all(LARGER);
    }
    for (int i = 0; i < count; i++) {
        changed |= blocks[i] && is_changed(i);
    }
    if (changed) {
        end("others changed");
    }
}

static void overflow_one(void)
{
    allocate(BLOCKS, SMALL);
    int chosen, beside;
    choose_neighbours(BLOCKS, true, &chosen, &beside);
    blocks[chosen][malloc_usable_size(blocks[chosen])] = GLIBC_NEXT;
    look_for_change(BLOCKS, chosen, beside);
}

static void overflow_pages(int count, size_t size)
{
    allocate(count, size);
    int chosen, beside;
    choose_neighbours(count, true, &chosen, &beside);
    memset(blocks[chosen], 'b', malloc_usable_size(blocks[chosen]) + 2 * PAGE);
    look_for_change(count, chosen, beside);
}

static void overflow_pages_small(void)
{
    overflow_pages(BLOCKS, SMALL);
}

static void overflow_pages_large(void)
{
    overflow_pages(8, LARGE);
}

static void underflow_word(void)
{
    allocate(BLOCKS, SMALL);
    int chosen, beside;
    choose_neighbours(BLOCKS, false, &chosen, &beside);
    ((uint64_t *)(void *)blocks[chosen])[-1] = GLIBC_NEXT;
    look_for_change(BLOCKS, chosen, beside);
}

/* ---- a block of another heap ----------------------------------------------------------------- */

extern void *__libc_malloc(size_t size);

static void free_of_libc(void)
{
    allocate(BLOCKS, SMALL);
    char *volatile block = __libc_malloc(SMALL);
    free(block);
    look_for_two_owners(BLOCKS, SMALL);
}

/* ---- all ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*commit)(void);
} kinds[] = {
    {"double-free", double_free},
    {"double-free-later", double_free_later},
    {"double-free-much-later", double_free_much_later},
    {"double-free-thread", double_free_thread},
    {"double-free-large", double_free_large},
    {"realloc-after-free", realloc_after_free},
    {"foreign-free", foreign_free},
    {"forged-free", forged_free},
    {"interior-free", interior_free},
    {"aligned-interior-free", aligned_interior_free},
    {"forged-interior-free", forged_interior_free},
    {"interior-free-large", interior_free_large},
    {"read-after-free", read_after_free_small},
    {"read-after-free-large", read_after_free_large},
    {"write-after-free", write_after_free},
    {"link-after-free", link_after_free},
    {"contents-handed-on", contents_handed_on_small},
    {"contents-handed-on-large", contents_handed_on_large},
    {"overflow-one", overflow_one},
    {"overflow-pages", overflow_pages_small},
    {"overflow-pages-large", overflow_pages_large},
    {"underflow", underflow_word},
    {"free-of-libc", free_of_libc},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(argv[1], kinds[i].name) == 0) {
            kinds[i].commit();
            end("none");
        }
    }
    fputs("usage: abuse KIND\n", stderr);
    return 2;
}
