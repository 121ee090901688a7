/* SPDX-License-Identifier: MIT
 *
 * A program whose allocator opens while calls fail (NTH_FROM_START of nth_calls.c): each request is
 * served, or refused with ENOMEM, and the program continues. Prints the number of requests that
 * were served, and the number of calls that were counted.
 */
#include "check.h"
#include "nth_calls.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

int main(void)
{
    unsigned served = 0;
    nth_disarm_fn *nth_disarm;
    *(void **)&nth_disarm = dlsym(RTLD_DEFAULT, "nth_disarm");
    CHECK(nth_disarm);
    for (size_t size = 1; size < (size_t)4 << 20; size *= 2) {
        errno = 0;
        unsigned char *block = malloc(size);
        if (!block) {
            CHECK(errno == ENOMEM);
            continue;
        }
        check_fill(block, size, 5);
        unsigned char *moved = realloc(block, 2 * size);
        block = moved ? moved : block;
        check_filled(block, size, 5);
        size_t usable = malloc_usable_size(block);
        CHECK(!usable || usable >= size);
        free(block);
        served++;
    }
    long calls = nth_disarm();
    printf("%u served, %ld calls\n", served, calls);
    return 0;
}
