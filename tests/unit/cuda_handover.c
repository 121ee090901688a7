/* SPDX-License-Identifier: MIT
 *
 * Memory passed from process to process: both ends are in this process, and in some tests one end
 * violates the protocol.
 */
#include "../../interpose/cuda/handover.h"
#include "support/expect.h"
#include "support/vmm_pieces.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef struct answer_head {
    uint64_t before;
    uint32_t count;
} answer_head;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static size_t descriptors(void)
{
    size_t count = 0;
    DIR *all = opendir("/proc/self/fd");
    while (readdir(all)) {
        count++;
    }
    closedir(all);
    return count;
}

static int some_file(void)
{
    int fd = memfd_create("some", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

/* ---- a server that violates the protocol -------------------------------------------------- */

/* Tests run side by side, in one space of names. */
static void name_it(ga_cuda_socket_name *out, unsigned char number)
{
    pid_t own = getpid();
    memset(out, number, sizeof *out);
    memcpy(out, &own, sizeof own);
}

static socklen_t address_of(const ga_cuda_socket_name *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *at = out->sun_path + 1;
    at += sprintf(at, "gpualloc-cuda-");
    for (size_t i = 0; i < sizeof name->bytes; i++) {
        at += sprintf(at, "%02x", name->bytes[i]);
    }
    return (socklen_t)(at - (char *)out);
}

static int listen_at(const ga_cuda_socket_name *name)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(made, (struct sockaddr *)&address, size), 0);
    cr_assert_eq(listen(made, 4), 0);
    return made;
}

static void send_piece(int to, int descriptors_each)
{
    uint64_t size = 4096;
    int fd = some_file();
    int both[2] = {fd, fd};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof both)];
    } control = {0};
    size_t bytes = (size_t)descriptors_each * sizeof fd;
    struct iovec data = {&size, sizeof size};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = CMSG_SPACE(bytes)};
    control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), both, bytes);
    sendmsg(to, &packet, MSG_NOSIGNAL);
    close(fd);
}

/* A server that answers once, after it has dropped other requests: with a given number of pieces,
 * delay and number of descriptors. */
typedef struct answerer {
    ga_cuda_socket_name name;
    int listening;
    unsigned drops, pieces, late, descriptors; /* late: milliseconds */
    pthread_t thread;
} answerer;

static void *answer(void *argument)
{
    const answerer *a = argument;
    uint64_t number = 0;
    for (unsigned i = 0; i < a->drops; i++) {
        close(accept(a->listening, NULL, NULL));
    }
    int to = accept(a->listening, NULL, NULL);
    cr_assert_eq(recv(to, &number, sizeof number, 0), sizeof number);
    usleep(a->late * 1000);
    answer_head head = {.count = a->pieces};
    send(to, &head, sizeof head, MSG_NOSIGNAL);
    for (unsigned i = 0; i < a->pieces; i++) {
        usleep(a->late * 1000);
        send_piece(to, (int)a->descriptors);
    }
    close(to);
    return NULL;
}

/* Signals are left to the thread that requests. */
static void begin(answerer *a)
{
    sigset_t all, before;
    sigfillset(&all);
    name_it(&a->name, 7);
    a->listening = listen_at(&a->name);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    cr_assert_eq(pthread_create(&a->thread, NULL, answer, a), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void end(answerer *a)
{
    pthread_join(a->thread, NULL);
    close(a->listening);
}

static void on_alarm(int number)
{
    (void)number;
}

Test(cuda_handover, signals_do_not_end_a_wait)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {0};
    answerer a = {.pieces = 5, .late = 30, .descriptors = 1};
    ga_vmm_pieces pieces;
    sigaction(SIGALRM, &action, NULL);
    begin(&a);
    setitimer(ITIMER_REAL, &often, NULL);
    ga_status status = ga_cuda_handover_request(&a.name, 1, &pieces);
    setitimer(ITIMER_REAL, &never, NULL);
    cr_assert_eq(status, GA_OK, "%s", ga_error_text());
    cr_assert_eq(pieces.count, 5);
    ga_vmm_pieces_drop(&pieces);
    end(&a);
}

/* The time limit holds for the whole answer, not for each packet. */
Test(cuda_handover, a_slow_sender_is_not_waited_for)
{
    answerer a = {.pieces = 20, .late = 100, .descriptors = 1};
    ga_vmm_pieces pieces;
    size_t before = descriptors();
    begin(&a);
    ga_cuda_handover_set_timeout(300);
    double began = now();
    cr_assert_neq(ga_cuda_handover_request(&a.name, 1, &pieces), GA_OK);
    cr_assert_lt(now() - began, 1.5);
    cr_assert_eq(pieces.count, 0);
    end(&a);
    cr_assert_eq(descriptors(), before);
}

Test(cuda_handover, a_descriptor_too_many_does_not_stay)
{
    for (unsigned each = 0; each < 3; each++) {
        answerer a = {.pieces = 3, .descriptors = each};
        ga_vmm_pieces pieces;
        size_t before = descriptors();
        begin(&a);
        ga_status status = ga_cuda_handover_request(&a.name, 1, &pieces);
        cr_assert_eq(status == GA_OK, each == 1, "%u descriptors: %s", each, ga_error_text());
        cr_assert_eq(pieces.count, each == 1 ? 3 : 0);
        ga_vmm_pieces_drop(&pieces);
        end(&a);
        cr_assert_eq(descriptors(), before, "%u descriptors in a packet", each);
    }
}

Test(cuda_handover, a_dropped_client_requests_again)
{
    answerer a = {.drops = 3, .pieces = 2, .descriptors = 1};
    ga_vmm_pieces pieces;
    begin(&a);
    cr_assert_eq(ga_cuda_handover_request(&a.name, 1, &pieces), GA_OK, "%s", ga_error_text());
    cr_assert_eq(pieces.count, 2);
    ga_vmm_pieces_drop(&pieces);
    end(&a);
}

/* ---- a client that violates the protocol -------------------------------------------------- */

static bool find(uint64_t number, ga_vmm_pieces *out)
{
    struct ga_vmm_piece piece = {4096, some_file()};
    ga_vmm_pieces one = {.count = 1, .list = &piece};
    bool copied = number == 1 && vmm_pieces_copy(&one, out) == GA_OK;
    close(piece.fd);
    return copied;
}

static void check_answer(const ga_cuda_socket_name *name)
{
    ga_vmm_pieces pieces;
    cr_assert_eq(ga_cuda_handover_request(name, 1, &pieces), GA_OK, "%s", ga_error_text());
    cr_assert_eq(pieces.count, 1);
    ga_vmm_pieces_drop(&pieces);
}

static int connect_to(const ga_cuda_socket_name *name)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(made, (struct sockaddr *)&address, size), 0);
    return made;
}

Test(cuda_handover, a_silent_client_is_dropped)
{
    ga_cuda_socket_name name;
    assert_ok(ga_cuda_handover_begin(find, &name));
    check_answer(&name);
    int silent = connect_to(&name);
    double began = now();
    check_answer(&name);
    cr_assert_lt(now() - began, 5);
    close(silent);
}

/* ---- a number that is something else by now ------------------------------------------------- */

/* The descriptor that listens there. */
static int find_listening(const ga_cuda_socket_name *name)
{
    struct sockaddr_un wanted;
    socklen_t size = address_of(name, &wanted);
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_un its;
        socklen_t its_size = sizeof its;
        if (getsockname(fd, (struct sockaddr *)&its, &its_size) == 0 && its_size == size &&
            memcmp(&its, &wanted, size) == 0) {
            return fd;
        }
    }
    return -1;
}

Test(cuda_handover, a_child_closes_nothing_of_the_programs)
{
    ga_cuda_socket_name name;
    assert_ok(ga_cuda_handover_begin(find, &name));
    int fd = find_listening(&name);
    cr_assert_geq(fd, 0);
    int file = some_file();
    cr_assert_eq(dup2(file, fd), fd);
    ga_cuda_handover_child();
    cr_assert_neq(fcntl(fd, F_GETFD), -1);
    cr_assert_not(ga_cuda_handover_is_ours(&name));
    close(file);
}

Test(cuda_handover, the_programs_connections_are_its_own)
{
    ga_cuda_socket_name name, theirs;
    assert_ok(ga_cuda_handover_begin(find, &name));
    int fd = find_listening(&name);
    name_it(&theirs, 9);
    int listening = listen_at(&theirs);
    check_answer(&name);
    usleep(50000); /* it waits for the next */
    cr_assert_eq(dup2(listening, fd), fd);
    check_answer(
        &name); /* the server thread is done with earlier requests, and waits for the next */
    struct pollfd one = {.fd = fd, .events = POLLIN};
    for (int round = 0; round < 3; round++) {
        int client = connect_to(&theirs);
        usleep(50000);
        cr_assert_eq(poll(&one, 1, 0), 1, "another has it");
        close(accept(fd, NULL, NULL));
        close(client);
    }
    close(listening);
}
