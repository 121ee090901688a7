/* SPDX-License-Identifier: MIT
 *
 * Allocation while the process ends: in atexit handlers, in destructors, and in a detached thread
 * that continues during them.
 */
#include "churn.h"

static void *kept;

static void last_handler(void)
{
    kept = realloc(kept, 30000);
    CHECK(kept);
    churn(3, 20000);
}

static void first_handler(void)
{
    churn(4, 20000);
    free(malloc(100));
}

__attribute__((destructor)) static void end(void)
{
    churn(5, 20000);
    free(kept);
    char *text = strdup("destructor: served\n");
    CHECK(text);
    CHECK(write(STDOUT_FILENO, text, strlen(text)) == (ssize_t)strlen(text));
    free(text);
}

int main(void)
{
    pthread_t thread;
    kept = malloc(10);
    CHECK(kept && atexit(last_handler) == 0 && atexit(first_handler) == 0);
    CHECK(pthread_create(&thread, NULL, churn_thread, (void *)1) == 0);
    CHECK(pthread_detach(thread) == 0);
    return 0;
}
