/* SPDX-License-Identifier: MIT
 *
 * The program wraps dlopen() and dlsym() under a lock, as heaptrack does: it allocates there, and a
 * first malloc that called them would wait for itself. The driver ends a hang.
 */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int calls;

static void *wrapped(void)
{
    pthread_mutex_lock(&lock);
    calls++;
    void *record = malloc(100);
    pthread_mutex_unlock(&lock);
    free(record);
    return NULL;
}

__attribute__((visibility("default"))) void *dlopen(const char *file, int mode)
{
    (void)file, (void)mode;
    return wrapped();
}

__attribute__((visibility("default"))) void *dlsym(void *restrict handle, const char *restrict name)
{
    (void)handle, (void)name;
    return wrapped();
}

int main(void)
{
    void *block = malloc(100);
    CHECK(block);
    free(block);
    printf("calls of the allocator to the loader: %d\n", calls);
    return 0;
}
