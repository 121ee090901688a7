/* SPDX-License-Identifier: MIT
 *
 * Options of the leak sanitizer: leaks of other libraries, and leaks that a test makes on purpose.
 */
#include "sanitized.h"

#define VISIBLE __attribute__((visibility("default")))

extern void __lsan_ignore_object(const void *block) __attribute__((weak));
VISIBLE const char *__asan_default_options(void);
VISIBLE const char *__lsan_default_suppressions(void);

/* Every line in the sanitizer's report counts as a failure, so suppressions print none. */
VISIBLE const char *__asan_default_options(void)
{
    return "print_suppressions=0";
}

/* tcmalloc's constructor keeps one object forever. */
VISIBLE const char *__lsan_default_suppressions(void)
{
    return "leak:MallocExtension::Register\n";
}

void sanitized_forgive(const void *block)
{
    if (__lsan_ignore_object) {
        __lsan_ignore_object(block);
    }
}
