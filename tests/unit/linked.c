/* SPDX-License-Identifier: MIT
 *
 * The heaps behind in-kernel malloc that was replaced by linking, without kernels. The rest needs a
 * GPU: tests/kernel.
 */
#include "linked/linked.h"
#include "support/first_call.h"
#include "support/scene.h"

#include <gpualloc/kernel.h>

#include <criterion/criterion.h>

static void *publish_first(void *unused)
{
    static int variable;
    (void)unused;
    ga_kernel_publish(0, &variable);
    return NULL;
}

/* The child's own first call finds no lock taken. */
Test(linked, a_child_of_a_fork_in_the_first_call, .timeout = 60)
{
    uint64_t before = ga_kernel_epoch();
    scene_capture_begin(); /* the warnings that the pipe is not a library and that memory cannot be
                            * served */
    pid_t child = first_call_fork("GPUALLOC_PLUGINS", publish_first);
    if (child == 0) {
        bool anew = ga_kernel_epoch() > before && !ga_kernel_serving(0);
        _exit(anew && ga_kernel_close(0) == GA_OK ? 0 : 1);
    }
    bool ended = first_call_child_ended(child);
    bool waited = first_call_end();
    scene_capture_end();
    cr_assert(ended, "the child did not end well");
    cr_assert(waited, "the first call did not wait");
}
