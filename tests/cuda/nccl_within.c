/* SPDX-License-Identifier: MIT
 *
 * A program with a library that an NCCL of its own is linked into. Under the preload the library's
 * calls reach its own functions.
 */
#include <dlfcn.h>
#include <stdio.h>

int groups_within(void);

int main(void)
{
    int groups = groups_within();
    void *other = dlopen("libnccl.so.2", RTLD_NOW); /* another NCCL, of another library */
    int more = groups_within();
    if (!other || groups != 3 || more != 6) {
        printf("%s: %d groups, then %d: expected 3 and 6\n", other ? "" : dlerror(), groups, more);
        return 1;
    }
    return 0;
}
