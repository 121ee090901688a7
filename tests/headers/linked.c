/* SPDX-License-Identifier: MIT
 *
 * A program that is linked with libgpualloc and uses a heap of it: its malloc stays the C
 * library's. Prints where malloc is from, before the heap and while it is open.
 *
 * usage: linked SPEC
 */
#include <gpualloc/gpualloc.h>

#include <dlfcn.h>
#include <err.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 4,
    ROUNDS = 2000
};

static ga_heap *heap;

static void print_malloc(void)
{
    Dl_info of_malloc;
    Dl_info of_free;
    if (!dladdr(dlsym(RTLD_DEFAULT, "malloc"), &of_malloc) ||
        !dladdr((void *)(size_t)free, &of_free)) {
        errx(1, "malloc is nowhere");
    }
    printf("%s\n%s\n", of_malloc.dli_fname, of_free.dli_fname);
}

/* Blocks of both in turn, each given back to where it is from. */
static void *use_both(void *unused)
{
    for (size_t i = 1; i < ROUNDS; i++) {
        void *theirs;
        char *ours = malloc(i * 7);
        if (!ours || ga_alloc(heap, i * 7, 0, &theirs) != GA_OK) {
            errx(1, "no memory: %s", ga_error_text());
        }
        memset(ours, 1, i * 7);
        memset(theirs, 2, i * 7);
        if (ours[i * 7 - 1] != 1 || malloc_usable_size(ours) < i * 7 ||
            ga_usable_size(heap, theirs) < i * 7 || ga_free(heap, theirs) != GA_OK) {
            errx(1, "blocks are mixed up: %s", ga_error_text());
        }
        free(ours);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    print_malloc();
    if (argc != 2 || ga_heap_open(&heap, GA_PLACE_HOST, 0, argv[1]) != GA_OK) {
        errx(1, "cannot open a heap: %s", ga_error_text());
    }
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, use_both, NULL) != 0) {
            errx(1, "no thread");
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    print_malloc();
    return ga_heap_close(heap) == GA_OK ? 0 : 1;
}
