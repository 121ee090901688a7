/* SPDX-License-Identifier: MIT
 *
 * Misuse of malloc that must be harmless:
 *
 *   misused KIND SIZE [unnoticed]
 *
 * Prints the address. No block may have two owners, and the C library must not get an address of
 * the heap. `unnoticed`: the heap does not detect it, and its results are those for a live block.
 */
#include "check.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    BLOCKS = 64
};

extern void *__libc_malloc(size_t size);
void free_sized(void *block, size_t size) __attribute__((weak));

static char *blocks[BLOCKS];
static char *victim; /* the block that is misused; the one before it in memory is live */

/* The last 8 bytes before the victim would be its size in the eyes of glibc. */
static void choose_victim(size_t size)
{
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(size);
        CHECK(blocks[i]);
        memset(blocks[i], 0, size);
    }
    victim = blocks[BLOCKS / 2];
    for (int i = 0; i < BLOCKS; i++) {
        for (int j = 0; j < BLOCKS; j++) {
            if (blocks[j] == blocks[i] + size) {
                victim = blocks[j];
                *(size_t *)(void *)(victim - 8) = 0x51;
            }
        }
    }
}

static void misuse(const char *kind, size_t size, bool noticed)
{
    char *volatile gone = victim;
    if (strcmp(kind, "interior-free") == 0) {
        free(gone + 16);
        return;
    }
    free(victim);
    if (strcmp(kind, "double-free") == 0) {
        free(gone);
    } else if (strcmp(kind, "double-free-sized") == 0) {
        free_sized(gone, size);
    } else if (strcmp(kind, "realloc") == 0) {
        errno = 0;
        CHECK((!realloc(gone, 2 * size) && errno == ENOMEM) || !noticed);
    } else if (strcmp(kind, "realloc-in-place") == 0) {
        errno = 0;
        CHECK((!realloc(gone, size - 8) && errno == ENOMEM) || !noticed);
    } else if (strcmp(kind, "reallocarray") == 0) {
        errno = 0;
        CHECK((!reallocarray(gone, 2, size) && errno == ENOMEM) || !noticed);
    } else if (strcmp(kind, "usable-size") == 0) {
        CHECK(malloc_usable_size(gone) == 0 || !noticed);
    } else {
        CHECK(!"a kind");
    }
}

static void look_for_two_owners(size_t size)
{
    static char *later[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        char *from_libc = __libc_malloc(0x48);
        CHECK(from_libc != victim);
        later[i] = malloc(size);
        CHECK(later[i]);
        for (int j = 0; j < i; j++) {
            CHECK(later[i] != later[j]);
        }
        for (int j = 0; j < BLOCKS; j++) {
            CHECK(later[i] != blocks[j] || blocks[j] == victim);
        }
    }
}

int main(int argc, char **argv)
{
    CHECK(argc >= 3);
    size_t size = strtoul(argv[2], NULL, 10);
    choose_victim(size);
    misuse(argv[1], size, argc == 3);
    look_for_two_owners(size);
    printf("%p\n", (void *)victim);
    return 0;
}
