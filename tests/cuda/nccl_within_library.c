/* SPDX-License-Identifier: MIT
 *
 * A library that an NCCL of its own is linked into: two of its functions. Calls of them bind to the
 * first definition in the program's scope, which is a preloaded hook.
 */
#define EXPORT __attribute__((visibility("default")))

EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupEnd(void);
EXPORT int groups_within(void);

static int depth, ended;

int ncclGroupStart(void)
{
    depth++;
    return 0;
}

int ncclGroupEnd(void)
{
    ended += depth-- == 1;
    return 0;
}

/* Returns how many of three groups this library's functions have begun and ended; -1: an error. */
int groups_within(void)
{
    for (int i = 0; i < 3; i++) {
        if (ncclGroupStart() || ncclGroupEnd()) {
            return -1;
        }
    }
    return ended;
}
