/* SPDX-License-Identifier: MIT
 *
 * Sockets between processes of one user: waits that end at their time. tests/unit/arena_publish.c
 * and arena_publish_faults.c have names, takeovers, packets and other users.
 */
#include "platform/local_socket.h"

#include "support/expect.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WAIT_MS = 200,
    LATE_MS = 5000 /* less than a wait without a limit of its own */
};

static void expect_took(int64_t begin, int64_t least_ms)
{
    int64_t took = ga_local_now() - begin;
    cr_assert(took >= least_ms && took < LATE_MS, "%ld ms", (long)took);
}

Test(local_socket, accept_ends_at_its_time)
{
    char name[GA_LOCAL_NAME_BYTES];
    ga_local_listener listener;
    snprintf(name, sizeof name, "@gpualloc-socket-%d", (int)getpid());
    assert_ok(ga_local_listen(name, &listener));
    int64_t begin = ga_local_now();
    cr_assert_eq(ga_local_accept(&listener, begin + WAIT_MS), -1);
    expect_took(begin, WAIT_MS);
    begin = ga_local_now();
    cr_assert_eq(ga_local_accept(&listener, begin), -1); /* the time is over */
    expect_took(begin, 0);
    ga_local_peer peer = {.socket = -1, .listener = -1, .end = ga_local_now() + LATE_MS};
    assert_ok(ga_local_connect(name, &peer));
    int accepted = ga_local_accept(&listener, ga_local_now() + LATE_MS);
    cr_assert_geq(accepted, 0);
    close(accepted);
    close(peer.socket);
    ga_local_shut_down(&listener);
    cr_assert_eq(ga_local_accept(&listener, GA_LOCAL_NO_END), -1);
    ga_local_close(&listener);
}

/* The end of a name does not wait long for a process that was stopped with the lock of the path. */
Test(local_socket, a_path_whose_lock_is_held)
{
    char path[GA_LOCAL_NAME_BYTES];
    char lock[GA_LOCAL_NAME_BYTES + 32];
    ga_local_listener listener;
    snprintf(path, sizeof path, "/tmp/gpualloc-socket-%d", (int)getpid());
    snprintf(lock, sizeof lock, "/tmp/.gpualloc-socket-%d.gpualloc-lock", (int)getpid());
    assert_ok(ga_local_listen(path, &listener));
    int held = open(lock, O_RDWR | O_CREAT, 0600);
    cr_assert(held >= 0 && flock(held, LOCK_EX) == 0);
    int64_t begin = ga_local_now();
    ga_local_remove(&listener);
    expect_took(begin, 1000);
    cr_assert_neq(access(path, F_OK), 0);
    ga_local_close(&listener);
    close(held);
    cr_assert_eq(unlink(lock), 0);
}
