/* SPDX-License-Identifier: MIT */
/* A planted bug, built only with the thread sanitizer: CI fails unless this is caught. */
#include <pthread.h>

enum {
    ROUNDS = 1000
};

static int counter;

static void *count(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++)
        counter++;
    return NULL;
}

int main(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, count, NULL))
        return 1;
    count(NULL);
    return pthread_join(other, NULL);
}
