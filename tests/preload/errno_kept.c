/* SPDX-License-Identifier: MIT
 *
 * free() keeps errno even if the kernel refuses to take pages back: from the middle of the run on,
 * a system call filter answers munmap, madvise and mprotect with EPERM.
 */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum {
    BLOCKS = 40
};

static int refuse_to_take_back(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &filter);
}

int main(void)
{
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(i % 2 ? (size_t)32 << 20 : (size_t)200 << 10);
        CHECK(blocks[i]);
        memset(blocks[i], 1, 4096);
    }
    if (refuse_to_take_back()) {
        return 77;
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        errno = 77;
        free(blocks[i]);
        CHECK(errno == 77);
    }
    puts("errno kept");
    return 0;
}
