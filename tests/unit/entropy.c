/* SPDX-License-Identifier: MIT
 *
 * Random bytes for seeds: from the kernel, and from the fallbacks if a real seccomp filter refuses
 * system calls. Each sandbox is a child process.
 */
#include "../../liballoc/platform/entropy.h"

#include "support/scene.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WORDS = 100,
    NO_SANDBOX = 77
};

/* Which calls the filter refuses, and with which errors. */
typedef struct sandbox {
    int getrandom_error; /* 0: permitted; also below */
    int open_error;
    bool is_random; /* the expected result of ga_entropy_fill() */
} sandbox;

static bool are_all_different(const uint64_t *words)
{
    for (int i = 0; i < WORDS; i++) {
        for (int k = 0; k < i; k++) {
            if (words[i] == words[k]) {
                return false;
            }
        }
    }
    return true;
}

/* The kernel's answer to a refused call, a branch for each: error 0 permits the call. */
static bool enter(const sandbox *s)
{
    unsigned random =
        s->getrandom_error ? SECCOMP_RET_ERRNO | (unsigned)s->getrandom_error : SECCOMP_RET_ALLOW;
    unsigned open = s->open_error ? SECCOMP_RET_ERRNO | (unsigned)s->open_error : SECCOMP_RET_ALLOW;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, random),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, open),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int refused_error(void)
{
    char byte;
    return getrandom(&byte, 1, GRND_NONBLOCK) == 1 ? 0 : errno;
}

/* 0: words of a child in the sandbox are as they should be. */
static int work_in(void *context)
{
    const sandbox *s = context;
    uint64_t words[WORDS] = {0};
    unsigned char odd[13] = {0};
    if (!enter(s) || refused_error() != s->getrandom_error) {
        return NO_SANDBOX;
    }
    errno = EDOM;
    for (int i = 0; i < WORDS - 10; i++) {
        words[i] = ga_entropy();
    }
    bool random = ga_entropy_fill(words + WORDS - 10, 10 * sizeof *words);
    random &= ga_entropy_fill(odd, sizeof odd) == random;
    bool tail = odd[8] || odd[9] || odd[10] || odd[11] || odd[12];
    return errno == EDOM && random == s->is_random && tail && are_all_different(words) ? 0 : 1;
}

static void expect_words_in(sandbox s)
{
    int status = scene_in_child(work_in, &s);
    if (status == NO_SANDBOX) {
        cr_skip_test("no seccomp filter is permitted here");
    }
    cr_assert_eq(status, 0, "getrandom: %d, open: %d: status %d", s.getrandom_error, s.open_error,
                 status);
}

Test(entropy, the_kernel_serves)
{
    expect_words_in((sandbox){.is_random = true});
    expect_words_in((sandbox){.open_error = EACCES, .is_random = true});
}

/* ENOSYS: an old kernel or container runtime. EPERM: a sandbox. EAGAIN: there is no entropy yet,
 * and the call must not block. */
Test(entropy, a_refused_getrandom_leaves_urandom)
{
    const int errors[] = {ENOSYS, EPERM, EAGAIN, EFAULT};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        expect_words_in((sandbox){.getrandom_error = errors[i], .is_random = true});
    }
}

Test(entropy, without_both_the_words_still_differ)
{
    expect_words_in((sandbox){.getrandom_error = ENOSYS, .open_error = ENOENT});
    expect_words_in((sandbox){.getrandom_error = EPERM, .open_error = EMFILE});
}

/* Children of one parent share its AT_RANDOM and its count of calls. */
Test(entropy, forked_children_have_words_of_their_own)
{
    enum {
        CHILDREN = 20
    };
    uint64_t *words = mmap(NULL, WORDS * sizeof *words, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(words, MAP_FAILED);
    sandbox s = {.getrandom_error = ENOSYS, .open_error = ENOENT};
    for (int i = 0; i < WORDS; i++) {
        words[i] = (uint64_t)i;
    }
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            bool entered = enter(&s);
            words[i] = ga_entropy();
            _exit(entered ? 0 : NO_SANDBOX);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) == NO_SANDBOX) {
            cr_skip_test("no seccomp filter is permitted here");
        }
    }
    cr_assert(are_all_different(words));
    munmap(words, WORDS * sizeof *words);
}
