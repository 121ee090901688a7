/* SPDX-License-Identifier: MIT
 *
 * Commits one misuse of malloc and prints its effect. Run with an allocator preloaded:
 *
 *   misuse KIND SIZE
 *
 * If the allocator detects the misuse, a signal ends the program. Otherwise the last line is "two
 * owners" if one address was allocated twice, "reused" if the former owner can still write a freed
 * block that the next owner uses, or "silent".
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LATER = 100000 /* number of requests after the misuse */
};

static void end(const char *word)
{
    puts(word);
    exit(0);
}

/* Allocate blocks of the size until one address appears twice. */
static void look_for_two_owners(size_t size)
{
    static void *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = malloc(size);
        for (int j = 0; blocks[i] && j < i; j++) {
            if (blocks[j] == blocks[i]) {
                end("two owners");
            }
        }
    }
}

/* Later requests, in which the allocator may notice the misuse. */
static void go_on(size_t size)
{
    static void *held[32];
    for (int i = 0; i < LATER; i++) {
        free(held[i % 32]);
        held[i % 32] = malloc(size);
    }
}

int main(int argc, char **argv)
{
    const char *kind = argc == 3 ? argv[1] : "";
    size_t size = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    unsigned char *volatile block = malloc(size);
    unsigned char *volatile other = malloc(size);
    unsigned char *volatile gone = block;
    memset(block, 'a', size);
    if (strcmp(kind, "double-free") == 0) {
        free(block);
        free(gone);
        look_for_two_owners(size);
    } else if (strcmp(kind, "double-free-later") == 0) {
        free(block);
        free(other);
        free(gone);
        look_for_two_owners(size);
    } else if (strcmp(kind, "interior-free") == 0) {
        free(block + 16);
        look_for_two_owners(size);
    } else if (strcmp(kind, "overflow-16") == 0) {
        memset(block + malloc_usable_size(block), 'b', 16);
        free(block);
        go_on(size);
    } else if (strcmp(kind, "overflow-1M") == 0) {
        memset(block, 'b', size + (1 << 20));
        free(block);
        go_on(size);
    } else if (strcmp(kind, "write-after-free") == 0) {
        free(block);
        gone[size / 2] = 'b';
        go_on(size);
    } else if (strcmp(kind, "read-after-free") == 0) {
        free(block);
        end(gone[size / 2] == 'a' ? "contents stay" : "silent");
    } else if (strcmp(kind, "realloc-after-free") == 0) {
        free(block);
        block = realloc(gone, 2 * size);
        look_for_two_owners(size);
    } else if (strcmp(kind, "reused-at-once") == 0) {
        free(block);
        end(malloc(size) == gone ? "reused" : "silent");
    } else {
        fprintf(stderr, "usage: misuse KIND SIZE\n");
        return 2;
    }
    end("silent");
}
