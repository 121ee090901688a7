/* SPDX-License-Identifier: MIT
 *
 * Under a limit on address space, which the driver sets: the program works, memory runs out with
 * NULL and ENOMEM and no other harm, and freed memory can be allocated again.
 *
 * usage: exhausted SIZE        of the blocks that are requested
 */
#include "check.h"

#include <stdlib.h>
#include <sys/resource.h>

/* A list through the blocks themselves. */
typedef struct block {
    struct block *next;
} block;

/* Blocks of `size` bytes until there are `wanted` bytes of them, or no more. */
static block *take(size_t size, size_t wanted, size_t *taken)
{
    block *list = NULL;
    for (*taken = 0; *taken < wanted; *taken += size) {
        errno = 0;
        block *fresh = *taken % (2 * size) ? malloc(size) : calloc(1, size);
        if (!fresh) {
            CHECK(errno == ENOMEM);
            break;
        }
        fresh->next = list;
        list = fresh;
    }
    return list;
}

static void check_refused(void)
{
    void *out = NULL;
    errno = 0;
    CHECK(!malloc((size_t)1 << 30) && errno == ENOMEM);
    CHECK(posix_memalign(&out, 4096, (size_t)1 << 30) == ENOMEM);
    char *kept = malloc(1);
    errno = 0;
    CHECK(!realloc(kept, (size_t)1 << 30) && (!kept || errno == ENOMEM));
    free(kept);
}

static void give_all(block *list)
{
    while (list) {
        block *next = list->next;
        free(list);
        list = next;
    }
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    size_t taken, again;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY);
    CHECK(argc == 2);
    size_t size = strtoul(argv[1], NULL, 10);
    block *list = take(size, limit.rlim_cur, &taken);
    CHECK(taken < limit.rlim_cur); /* it did run out */
    CHECK(taken > limit.rlim_cur / 2);
    check_refused();
    give_all(list);
    list = take(size, taken / 2, &again);
    CHECK(again >= taken / 2);
    give_all(list);
    puts("exhausted: refused and recovered");
    return 0;
}
