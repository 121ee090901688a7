/* SPDX-License-Identifier: MIT
 *
 * The settings that the preload for CUDA programs takes from GPUALLOC_DEVICE, and the rest, which
 * is a heap's spec.
 */
#include "../../interpose/cuda/settings.h"

#include <criterion/criterion.h>
#include <string.h>

static ga_cuda_settings read_good(const char *text, const char *spec)
{
    ga_cuda_settings settings;
    cr_assert_eq(ga_cuda_settings_read(&settings, text), GA_OK, "%s: %s", text, ga_error_text());
    cr_assert_str_eq(settings.spec, spec);
    return settings;
}

Test(cuda_settings, nothing_of_ours)
{
    static const char *const specs[] = {"cuda",
                                        "vmm:cache=auto,rdma=off,share=none",
                                        "vmm:free=wait,cache=wide,rdma=auto,share=auto",
                                        "slab:keep=all/vmm:limit=3G,cache=1G,rdma=on,share=fd",
                                        "async:release=0,free=now",
                                        "vmm:cache=0,rdma=auto,share=auto/cuda:free=sync"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        ga_cuda_settings settings = read_good(specs[i], specs[i]);
        cr_assert(settings.limit == UINT64_MAX && settings.free == GA_CUDA_FREE_SYNC &&
                  settings.ipc == GA_CUDA_IPC_AUTO);
    }
}

Test(cuda_settings, ours)
{
    ga_cuda_settings s = read_good("cuda:free=event,ipc=compat,limit=20G", "cuda");
    cr_assert(s.free == GA_CUDA_FREE_EVENT && s.ipc == GA_CUDA_IPC_COMPAT);
    cr_assert_eq(s.limit, UINT64_C(20) << 30);
    s = read_good("cuda:free=sync,ipc=none,limit=none", "cuda");
    cr_assert(s.free == GA_CUDA_FREE_SYNC && s.ipc == GA_CUDA_IPC_NONE && s.limit == UINT64_MAX);
    s = read_good("slab:limit=none/vmm:cache=1G",
                  "slab:keep=16M/vmm:cache=1G,rdma=auto,share=auto");
    cr_assert_eq(s.limit, UINT64_MAX);
    s = read_good("vmm:chunk=32M,free=event,limit=1G,cache=0",
                  "vmm:chunk=32M,limit=1G,cache=0,rdma=auto,share=auto");
    cr_assert(s.free == GA_CUDA_FREE_EVENT && s.limit == UINT64_C(1) << 30);
    s = read_good("async:limit=1,release=\"0\"", "async:release=0");
    cr_assert_eq(s.limit, 1);
    s = read_good("vmm:ipc=handle,cache=0", "vmm:cache=0,rdma=auto,share=fd");
    cr_assert_eq(s.ipc, GA_CUDA_IPC_HANDLE);
    read_good("vmm:ipc=handle", "vmm:cache=wide,rdma=auto,share=fd");
    read_good("slab:ipc=handle/vmm:chunk=2M",
              "slab:keep=16M/vmm:chunk=2M,cache=wide,rdma=auto,share=fd");
    read_good("vmm:share=none,ipc=handle", "vmm:share=none,cache=wide,rdma=auto");
    read_good("vmm", "vmm:cache=wide,rdma=auto,share=auto");
    read_good("vmm:ipc=none", "vmm:cache=wide,rdma=auto");
    read_good("slab/vmm:share=none", "slab:keep=16M/vmm:share=none,cache=wide,rdma=auto");
    read_good("slab:unit=512,keep=1M/cuda", "slab:unit=512,keep=1M/cuda");
    read_good("slab:unit=512,capacity=1G/cuda", "slab:unit=512,capacity=1G/cuda");
    read_good("slab:preset=paper/cuda", "slab:preset=paper/cuda");
    read_good("slab:unit=512/cuda", "slab:unit=512,keep=16M/cuda");
    s = read_good("vmm:free=order", "vmm:cache=wide,rdma=auto,share=auto");
    cr_assert_eq(s.free, GA_CUDA_FREE_ORDER);
    read_good("cuda:ipc=handle", "cuda");
    s = read_good("async:pinned=1G,release=0", "async:release=0");
    cr_assert_eq(s.pinned, UINT64_C(1) << 30);
    s = read_good("async:pinned=none", "async");
    cr_assert_eq(s.pinned, 0);
    read_good("trace:file=\"a b\",ipc=none/vmm", "trace:file=\"a b\"/vmm:cache=wide,rdma=auto");
    read_good("trace:file=\"a\\\"b\"/vmm",
              "trace:file=\"a\\\"b\"/vmm:cache=wide,rdma=auto,share=auto");
}

Test(cuda_settings, wrong)
{
    static const struct {
        const char *text, *part;
    } wrong[] = {
        {"", "column 1"},
        {"vmm:", "column"},
        {"vmm:limit=0", "vmm: limit: expected a size from 1 byte on, or none, got \"0\""},
        {"cuda:limit", "got \"\""},
        {"cuda:limit=99999999999999999999", "limit"},
        {"cuda:ipc=yes", "cuda: ipc: expected auto, none, compat or handle, got \"yes\""},
        {"cuda:ipc", "ipc"},
        {"vmm:free=sync,free=event", "vmm: free: expected once, got it twice"},
        {"vmm:free=wait,free=event", "vmm: free: expected once, got it twice"},
        {"cuda:limit=1G,ipc=none,limit=2G", "cuda: limit: expected once, got it twice"},
        {"async:pinned=1G,pinned=1G", "async: pinned: expected once, got it twice"},
        {"cuda:pinned=-1", "cuda: pinned: expected a size, or none, got \"-1\""},
        {"cuda:free=now", "cuda: free: expected sync, event or order, got \"now\""},
        {"vmm:free=evnt", "vmm: free: expected sync, event, order, wait, now, got \"evnt\""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ga_cuda_settings settings;
        cr_assert_eq(ga_cuda_settings_read(&settings, wrong[i].text), GA_ERR_SPEC);
        cr_assert(strstr(ga_error_text(), wrong[i].part), "%s: %s", wrong[i].text, ga_error_text());
    }
}

Test(cuda_settings, long_ones)
{
    static char text[GA_SPEC_LENGTH + 100];
    ga_cuda_settings settings;
    memset(text, 'a', sizeof text - 1);
    cr_assert_eq(ga_cuda_settings_read(&settings, text), GA_ERR_SPEC);
    text[GA_SPEC_LENGTH - 1] = '\0';
    cr_assert_eq(ga_cuda_settings_read(&settings, text), GA_OK);
    cr_assert_str_eq(settings.spec, text);
}
