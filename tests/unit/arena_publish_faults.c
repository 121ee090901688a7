/* SPDX-License-Identifier: MIT
 *
 * One arena in several processes: bad names, other users, peers that misbehave, and calls that
 * fail.
 */
#include "support/arena_members.h"

#include "arena/sharing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static char name[64];
static char path[64];

static const uid_t NOBODY = 65534;

static ga_arena *start(void)
{
    snprintf(name, sizeof name, "@gpualloc-arena-%d", (int)getpid());
    snprintf(path, sizeof path, "/tmp/gpualloc-arena-%d", (int)getpid());
    setenv("GPUALLOC_LOG", "error", 1);
    vmm_driver_start(NULL);
    ga_arena *arena =
        open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FD | GA_ARENA_EXACT, .reserve = GIB));
    for (uint64_t size = 2 * MIB; size <= 6 * MIB; size += 2 * MIB) {
        assert_ok(ga_arena_grow(arena, size));
    }
    write_marks(arena, 0, 6 * MIB);
    return arena;
}

static void finish(ga_arena *arena)
{
    ga_arena_close(arena);
    assert_nothing_left();
}

/* ---- names -------------------------------------------------------------------------- */

Test(arena_publish_faults, names)
{
    char longest[120] = "@";
    ga_arena *opened;
    ga_arena *arena = start();
    memset(longest + 1, 'x', 107);
    static const char *const empty[] = {NULL, "", "@"};
    for (int i = 0; i < 3; i++) {
        assert_fails(ga_arena_publish(arena, empty[i]), GA_ERR_ARGUMENT,
                     "arena: no name; expected a path, or @ and a text");
        assert_fails(ga_arena_join(&opened, empty[i], GA_ARENA_READ), GA_ERR_ARGUMENT,
                     "arena: no name; expected a path, or @ and a text");
    }
    assert_fails(ga_arena_publish(arena, longest), GA_ERR_ARGUMENT,
                 "arena: the name @xxxxxxxxxxxxxxxxxxx... is too long: expected at most 107 bytes");
    assert_says(ga_arena_join(&opened, longest, GA_ARENA_READ), GA_ERR_ARGUMENT, "is too long");
    longest[0] = '/';
    assert_says(ga_arena_publish(arena, longest), GA_ERR_ARGUMENT, "is too long");
    longest[0] = '@';
    longest[107] = 0;
    assert_ok(ga_arena_publish(arena, longest));
    assert_ok(ga_arena_join(&opened, longest, GA_ARENA_READ));
    ga_arena_close(opened);
    assert_says(ga_arena_publish(arena, name), GA_ERR_ARGUMENT, "it is published already, as @xxx");
    finish(arena);
}

Test(arena_publish_faults, wrong_arguments)
{
    ga_arena *opened = NULL;
    ga_arena_openers openers;
    ga_arena *arena = start();
    assert_fails(ga_arena_publish(NULL, name), GA_ERR_ARGUMENT,
                 "arena: expected an arena, got NULL");
    cr_assert_eq(ga_arena_update(NULL), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_arena_count_openers(NULL, &openers), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_arena_count_openers(arena, NULL), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_arena_join(NULL, name, GA_ARENA_READ), GA_ERR_ARGUMENT);
    ga_arena_unpublish(NULL);
    ga_arena_unpublish(arena);
    assert_openers(arena, 0, 0, false);
    assert_fails(ga_arena_join(&opened, name, (ga_arena_access)7), GA_ERR_ARGUMENT,
                 "arena: access 7: expected GA_ARENA_READ or GA_ARENA_READ_WRITE");
    assert_fails(ga_arena_update(arena), GA_ERR_ARGUMENT,
                 "arena: it was not opened by ga_arena_join()");
    ga_arena *plain = open_with(on_host);
    assert_fails(ga_arena_publish(plain, name), GA_ERR_UNSUPPORTED,
                 "arena: it was made without GA_ARENA_SHARE_FD");
    ga_arena_close(plain);
    finish(arena);
}

Test(arena_publish_faults, paths)
{
    char sentence[160];
    ga_arena *opened;
    ga_arena *arena = start();
    snprintf(sentence, sizeof sentence, "arena: no process listens at %s: no such file", path);
    assert_fails(ga_arena_join(&opened, path, GA_ARENA_READ), GA_ERR_IO, sentence);
    assert_says(ga_arena_publish(arena, "/tmp/no-such-folder/of-gpualloc/name"), GA_ERR_IO,
                "cannot open /tmp/no-such-folder/of-gpualloc/.name.gpualloc-lock: No such file");
    close(open(path, O_CREAT | O_RDWR, 0600));
    snprintf(sentence, sizeof sentence, "arena: %s exists and is not a socket", path);
    assert_fails(ga_arena_publish(arena, path), GA_ERR_ARGUMENT, sentence);
    assert_says(ga_arena_join(&opened, path, GA_ARENA_READ), GA_ERR_ARGUMENT, "is not a socket");
    cr_assert_eq(unlink(path), 0);
    assert_ok(ga_arena_publish(arena, path));
    struct stat file;
    cr_assert(lstat(path, &file) == 0 && (file.st_mode & 0777) == 0600);
    ga_arena *second = open_with(WITH(on_host, .flags = GA_ARENA_SHARE_FD));
    snprintf(sentence, sizeof sentence, "arena: %s is in use by process %d", path, (int)getpid());
    assert_fails(ga_arena_publish(second, path), GA_ERR_IO, sentence);
    cr_assert_eq(chdir("/tmp"), 0); /* a name without a folder */
    assert_says(ga_arena_publish(second, strrchr(path, '/') + 1), GA_ERR_IO,
                "is in use by process");
    cr_assert_eq(unlink(path), 0); /* another publisher may take the path now */
    assert_ok(ga_arena_publish(second, path));
    ga_arena_unpublish(arena); /* leaves the other's path */
    assert_ok(ga_arena_join(&opened, path, GA_ARENA_READ_WRITE));
    cr_assert_eq(ga_arena_size(opened), 0);
    ga_arena_close(opened);
    ga_arena_close(second);
    cr_assert_neq(access(path, F_OK), 0);
    finish(arena);
}

Test(arena_publish_faults, an_abstract_name_in_use)
{
    ga_arena *arena = start();
    member other = member_start("publish", "host", name, "2");
    assert_says(ga_arena_publish(arena, name), GA_ERR_IO, "is in use by another process");
    member_is_killed(&other);
    assert_ok(ga_arena_publish(arena, name));
    finish(arena);
}

enum {
    HEIRS = 8
};

static pthread_barrier_t at_once;

static void *inherit(void *context)
{
    ga_local_listener *listener = context;
    pthread_barrier_wait(&at_once);
    ga_local_listen(path, listener);
    return NULL;
}

/* Of many that find a stale path, one takes it over, and keeps it. */
Test(arena_publish_faults, a_stale_path_has_one_heir)
{
    pthread_t threads[HEIRS];
    ga_local_listener listeners[HEIRS];
    ga_arena *arena = start();
    pthread_barrier_init(&at_once, NULL, HEIRS);
    for (int round = 0; round < 200; round++) {
        ga_local_peer peer = {.listener = -1, .end = ga_local_now() + 1000};
        int heirs = 0;
        assert_ok(ga_local_listen(path, &listeners[0]));
        close(listeners[0].socket); /* as at its process's end: the path stays */
        for (int i = 0; i < HEIRS; i++) {
            pthread_create(&threads[i], NULL, inherit, &listeners[i]);
        }
        for (int i = 0; i < HEIRS; i++) {
            pthread_join(threads[i], NULL);
            heirs += listeners[i].socket >= 0;
        }
        cr_assert_eq(heirs, 1, "round %d: %d heirs", round, heirs);
        assert_ok(ga_local_connect(path, &peer));
        close(peer.socket);
        for (int i = 0; i < HEIRS; i++) {
            ga_local_remove(&listeners[i]);
            ga_local_close(&listeners[i]);
        }
    }
    finish(arena);
}

/* ---- other users -------------------------------------------------------------------- */

/* Run `body` in a child with another user. Returns its exit status. */
static int as_nobody(int (*body)(void))
{
    int status = -1;
    pid_t child = fork();
    if (!child) {
        _exit(setuid(NOBODY) == 0 ? body() : 99);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int is_refused(const char *where)
{
    ga_arena *opened;
    ga_status status = ga_arena_join(&opened, where, GA_ARENA_READ);
    bool good = status == GA_ERR_ARGUMENT && !opened &&
                strstr(ga_error_text(), "belongs to user 0; expected this process's user, 65534");
    if (!good) {
        fprintf(stderr, "status %d: %s\n", (int)status, ga_error_text());
    }
    return good ? 0 : 1;
}

static int join_name(void)
{
    return is_refused(name);
}

static int join_path(void)
{
    return is_refused(path);
}

static int publish_over_path(void)
{
    ga_arena *arena;
    ga_arena_options options = WITH(on_host, .flags = GA_ARENA_SHARE_FD);
    return ga_arena_open(&arena, &options) == GA_OK &&
                   ga_arena_publish(arena, path) == GA_ERR_ARGUMENT &&
                   strstr(ga_error_text(), "belongs to user 0")
               ? 0
               : 1;
}

/* Without the checks of the opener's side: the publisher closes the connection. */
static int connect_directly(void)
{
    ga_join_request request = {.magic = GA_JOIN_MAGIC, .kind = GA_OPENER_READER};
    ga_join_answer answer;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(fd, (struct sockaddr *)&address, size) != 0) {
        return 2;
    }
    send(fd, &request, sizeof request, MSG_NOSIGNAL);
    return recv(fd, &answer, sizeof answer, 0) <= 0 ? 0 : 1;
}

Test(arena_publish_faults, other_users_are_refused)
{
    if (geteuid() != 0) {
        cr_skip_test("only root can act as another user");
    }
    ga_arena *arena = start();
    ga_arena *second = open_with(WITH(on_host, .flags = GA_ARENA_SHARE_FD));
    assert_ok(ga_arena_publish(arena, name));
    assert_ok(ga_arena_publish(second, path));
    cr_assert_eq(as_nobody(join_name), 0);
    cr_assert_eq(as_nobody(connect_directly), 0);
    cr_assert_eq(as_nobody(join_path), 0);
    cr_assert_eq(as_nobody(publish_over_path), 0);
    cr_assert_eq(chmod(path, 0666), 0); /* the mode is not what refuses them */
    cr_assert_eq(as_nobody(join_path), 0);
    assert_openers(arena, 0, 0, true);
    ga_arena_close(second);
    finish(arena);
}

/* Another user's process that has locked a file or a folder, until it is killed. */
static pid_t hold_as_nobody(const char *what, int flags)
{
    int held[2];
    char byte;
    cr_assert_eq(pipe(held), 0);
    pid_t child = fork();
    if (!child) {
        int fd = setuid(NOBODY) == 0 ? open(what, flags, 0600) : -1;
        bool good = fd >= 0 && flock(fd, LOCK_EX) == 0;
        _exit(good && write(held[1], "", 1) == 1 ? pause() : 1);
    }
    close(held[1]);
    cr_assert_eq(read(held[0], &byte, 1), 1);
    close(held[0]);
    return child;
}

static void kill_one(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* In a folder of all users, another one can neither hold the lock of a path nor go unnamed. */
Test(arena_publish_faults, locks_of_other_users)
{
    char sentence[200];
    char folder[] = "/tmp/gpualloc-folder-XXXXXX";
    char lock[80];
    if (geteuid() != 0) {
        cr_skip_test("only root can act as another user");
    }
    ga_arena *arena = start();
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chmod(folder, 01777), 0);
    snprintf(path, sizeof path, "%s/name", folder);
    snprintf(lock, sizeof lock, "%s/.name.gpualloc-lock", folder);
    pid_t other = hold_as_nobody(folder, O_RDONLY | O_DIRECTORY);
    int64_t begin = ga_local_now();
    assert_ok(ga_arena_publish(arena, path));
    ga_arena_unpublish(arena);
    cr_assert_lt(ga_local_now() - begin, 5000);
    kill_one(other);
    other = hold_as_nobody(lock, O_RDWR | O_CREAT);
    snprintf(sentence, sizeof sentence,
             "arena: %s belongs to user 65534; expected this process's user, 0", lock);
    assert_fails(ga_arena_publish(arena, path), GA_ERR_ARGUMENT, sentence);
    kill_one(other);
    cr_assert_eq(unlink(lock), 0);
    close(open(lock, O_CREAT | O_RDWR, 0644));
    assert_says(ga_arena_publish(arena, path), GA_ERR_ARGUMENT, "can be opened by other users");
    cr_assert_eq(unlink(lock), 0);
    assert_ok(ga_arena_publish(arena, path));
    cr_assert_neq(access(lock, F_OK), 0);
    finish(arena);
    cr_assert_neq(access(lock, F_OK), 0);
    cr_assert_eq(rmdir(folder), 0);
}

/* ---- peers that misbehave ----------------------------------------------------------- */

static int connect_to_name(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, size), 0);
    return fd;
}

/* One that says nothing is dropped after a second; garbage at once. */
Test(arena_publish_faults, openers_that_misbehave)
{
    ga_arena *opened;
    char garbage[24];
    ga_arena *arena = start();
    memset(garbage, 7, sizeof garbage);
    assert_ok(ga_arena_publish(arena, name));
    int silent = connect_to_name();
    int loud = connect_to_name();
    int brief = connect_to_name();
    cr_assert_eq(send(loud, garbage, sizeof garbage, 0), (ssize_t)sizeof garbage);
    cr_assert_eq(send(brief, garbage, 3, 0), 3);
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    check_marks(opened, 6 * MIB);
    assert_openers(arena, 1, 0, true);
    cr_assert_leq(recv(silent, garbage, 1, 0), 0);
    cr_assert_leq(recv(loud, garbage, 1, 0), 0);
    ga_arena_close(opened);
    close(silent);
    close(loud);
    close(brief);
    silent = connect_to_name(); /* the end does not wait for its second */
    usleep(10000);
    finish(arena);
    close(silent);
}

/* Fill packets with descriptors until the user may have no more in any. Returns the socket from
 * which they can be received; -1: there is no such limit. */
static int exhaust_descriptors(void)
{
    int pair[2];
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = sizeof control.room};
    struct rlimit few = {64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair);
    control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &pair[0], sizeof(int));
    while (sendmsg(pair[0], &packet, 0) == 1) {
    }
    return errno == ETOOMANYREFS ? pair[1] : -1;
}

static void *join_later(void *context)
{
    ga_arena *opened = NULL;
    (void)context;
    return ga_arena_join(&opened, name, GA_ARENA_READ) == GA_OK ? opened : NULL;
}

/* While a packet to an opener cannot be sent, the arena and fork() do not wait. */
static int do_not_wait(void)
{
    ga_arena *arena;
    ga_arena_options options = WITH(on_host, .flags = GA_ARENA_SHARE_FD, .reserve = GIB);
    pthread_t opener;
    void *opened = NULL;
    snprintf(name, sizeof name, "@gpualloc-arena-%d", (int)getpid());
    if (ga_arena_open(&arena, &options) || ga_arena_publish(arena, name)) {
        return 1;
    }
    int receiver = exhaust_descriptors();
    if (receiver < 0) {
        return 77;
    }
    pthread_create(&opener, NULL, join_later, NULL);
    usleep(100000); /* until the publisher tries to answer */
    int64_t begin = ga_local_now();
    ga_status grown = ga_arena_grow(arena, 2 * MIB);
    pid_t child = fork();
    if (!child) {
        _exit(0);
    }
    int64_t took = ga_local_now() - begin;
    waitpid(child, NULL, 0);
    close(receiver); /* and with it all descriptors in its packets */
    pthread_join(opener, &opened);
    fprintf(stderr, "%d ms\n", (int)took);
    return grown == GA_OK && took < 1000 && opened ? 0 : 2;
}

Test(arena_publish_faults, nothing_waits_for_an_opener)
{
    if (geteuid() != 0) {
        cr_skip_test("only root can act as another user");
    }
    int status = as_nobody(do_not_wait);
    if (status == 77) {
        cr_skip_test("descriptors in packets have no limit here");
    }
    cr_assert_eq(status, 0);
}

/* A process of the user that listens, but publishes no arena. */
Test(arena_publish_faults, a_name_of_another_program)
{
    ga_arena *opened;
    char answer[400] = {0};
    ga_arena *arena = start();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    int streams = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_eq(bind(streams, (struct sockaddr *)&address, size), 0);
    cr_assert_eq(listen(streams, 1), 0);
    cr_assert_neq(ga_arena_join(&opened, name, GA_ARENA_READ), GA_OK);
    close(streams);
    int packets = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    cr_assert_eq(bind(packets, (struct sockaddr *)&address, size), 0);
    cr_assert_eq(listen(packets, 4), 0);
    pid_t child = fork();
    if (!child) {
        int first = accept(packets, NULL, NULL);
        close(first); /* no answer */
        int second = accept(packets, NULL, NULL);
        _exit(send(second, answer, sizeof answer, 0) > 0 && recv(second, answer, 24, 0) > 0 ? 0
                                                                                            : 1);
    }
    close(packets);
    assert_says(ga_arena_join(&opened, name, GA_ARENA_READ), GA_ERR_IO, "does not answer");
    assert_says(ga_arena_join(&opened, name, GA_ARENA_READ), GA_ERR_IO, "does not answer");
    waitpid(child, NULL, 0);
    assert_says(ga_arena_join(&opened, name, GA_ARENA_READ), GA_ERR_IO, "it has ended");
    finish(arena);
}

/* A file that its owner could make smaller under a mapping. */
Test(arena_publish_faults, files_that_are_not_sealed)
{
    ga_arena *host = open_with(WITH(on_host, .flags = GA_ARENA_SHARE_FD, .reserve = GIB));
    ga_arena_share share = {.size = MIB, .fd = memfd_create("unsealed", 0)};
    cr_assert_eq(ftruncate(share.fd, MIB), 0);
    assert_says(ga_arena_import(host, &share), GA_ERR_ARGUMENT,
                "expected a sealed file in memory of 1048576 bytes");
    close(share.fd);
    assert_says(ga_arena_import(host, &share), GA_ERR_ARGUMENT, "expected a sealed file");
    assert_ok(ga_arena_grow(host, 2 * MIB));
    assert_ok(ga_arena_export(host, 0, &share));
    cr_assert_neq(ftruncate(share.fd, 0), 0);
    share.size = MIB;
    assert_says(ga_arena_import(host, &share), GA_ERR_ARGUMENT, "expected a sealed file");
    share.size = 2 * MIB;
    assert_ok(ga_arena_import(host, &share));
    strcpy(base_of(host), "mapped twice");
    cr_assert_str_eq(base_of(host) + 2 * MIB, "mapped twice");
    close(share.fd);
    ga_arena_close(host);
}

Test(arena_publish_faults, host_memory_is_shared_by_descriptors_alone)
{
    static const int peers[] = {0};
    assert_refused(WITH(on_host, .flags = GA_ARENA_SHARE_FD | GA_ARENA_RDMA), GA_ERR_UNSUPPORTED,
                   "arena: memory of the host is shared by descriptors alone: flags 0x5, 0 peers; "
                   "expected neither GA_ARENA_SHARE_FABRIC nor GA_ARENA_RDMA, and no peers");
    assert_refused(WITH(on_host, .flags = GA_ARENA_SHARE_FD, .peers = peers, .peer_count = 1),
                   GA_ERR_UNSUPPORTED,
                   "arena: memory of the host is shared by descriptors alone: flags 0x1, 1 peers; "
                   "expected neither GA_ARENA_SHARE_FABRIC nor GA_ARENA_RDMA, and no peers");
}

/* ---- calls that fail ---------------------------------------------------------------- */

/* Each driver call of an opening fails once, on either side: all of the arena or none of it. */
Test(arena_publish_faults, driver_calls_that_fail)
{
    ga_arena *arena = start();
    uint64_t failed = 0;
    assert_ok(ga_arena_publish(arena, name));
    for (uint64_t n = 1;; n++) {
        ga_arena *opened = NULL;
        vmm_driver_counts before = vmm_driver_count();
        vmm_driver_fail(NULL, n, CUDA_ERROR_OUT_OF_MEMORY);
        ga_status status = ga_arena_join(&opened, name, GA_ARENA_READ);
        bool planned = vmm_driver_has_failed();
        vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
        cr_assert_eq(status == GA_OK, opened != NULL);
        failed += status != GA_OK;
        if (opened) {
            check_marks(opened, 6 * MIB);
            ga_arena_close(opened);
        }
        vmm_driver_counts after = vmm_driver_count();
        cr_assert(after.ranges == before.ranges && after.mappings == before.mappings &&
                      after.handles == before.handles,
                  "call %" PRIu64, n);
        assert_openers(arena, 0, 0, true);
        if (!planned) {
            break;
        }
    }
    cr_assert_gt(failed, 10);
    finish(arena);
}

Test(arena_publish_faults, an_update_is_whole_or_nothing)
{
    ga_arena *opened;
    ga_arena *arena = start();
    assert_ok(ga_arena_publish(arena, name));
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    assert_ok(ga_arena_grow(arena, 8 * MIB));
    assert_ok(ga_arena_grow(arena, 10 * MIB));
    write_marks(arena, 6 * MIB, 10 * MIB);
    vmm_driver_fail("cuMemExportToShareableHandle", 2, CUDA_ERROR_INVALID_VALUE);
    assert_says(ga_arena_update(opened), GA_ERR_IO, "does not answer, or has ended meanwhile");
    cr_assert_eq(ga_arena_size(opened), 6 * MIB);
    vmm_driver_fail("cuMemMap", 2, CUDA_ERROR_OUT_OF_MEMORY);
    assert_says(ga_arena_update(opened), GA_ERR_MEMORY, "cuMemMap: CUDA_ERROR_OUT_OF_MEMORY");
    cr_assert_eq(ga_arena_size(opened), 6 * MIB);
    assert_ok(ga_arena_update(opened));
    check_marks(opened, 10 * MIB);
    ga_arena_close(opened);
    finish(arena);
}

/* Openers and publisher with too few descriptors. */
Test(arena_publish_faults, descriptors_run_out)
{
    ga_arena *opened = NULL;
    ga_arena *arena = start();
    struct rlimit limit, before;
    assert_ok(ga_arena_publish(arena, name));
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    ga_arena_close(opened);
    usleep(50000); /* the publisher's thread closes the connection */
    int descriptors = descriptors_of(getpid());
    getrlimit(RLIMIT_NOFILE, &before);
    int lowest = dup(0); /* free descriptor */
    close(lowest);
    limit = before;
    int failed = 0;
    for (rlim_t more = 0; more < 16; more++) {
        limit.rlim_cur = (rlim_t)lowest + more;
        setrlimit(RLIMIT_NOFILE, &limit);
        ga_status status = ga_arena_join(&opened, name, GA_ARENA_READ);
        setrlimit(RLIMIT_NOFILE, &before);
        failed += status != GA_OK;
        cr_assert(status == GA_OK || status == GA_ERR_MEMORY || status == GA_ERR_IO ||
                      status == GA_ERR_DEVICE,
                  "%d: %s", (int)status, ga_error_text());
        ga_arena_close(opened);
        usleep(20000); /* the publisher closes what it had */
        cr_assert_eq(descriptors_of(getpid()), descriptors);
        assert_openers(arena, 0, 0, true);
    }
    cr_assert_gt(failed, 0);
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    ga_arena_close(opened);
    finish(arena);
}
