/* SPDX-License-Identifier: MIT
 *
 *   export  ga_cuda_handover_begin -> start_thread -> answer_requests -> serve -> send_pieces
 *   import  ga_cuda_handover_request -> connect_to -> receive_head -> receive_answer
 *
 * STRUCTURE  an abstract socket of sequenced packets, and a thread that serves one connection at a
 *            time, one request each. The request is the number; the answer is a head, then a packet
 *            with a descriptor for each piece.
 * INVARIANT  client and server have the same effective user; each checks the other (SO_PEERCRED)
 * ORDER      the caller orders the start, before the thread exists; IH1/IH2 order tests of a name
 * PROGRESS   the server drops a client that does not send within 1 s, or does not receive all
 *            within 10 s. A signal neither prolongs nor ends a wait. The program may close the
 *            socket and reuse its descriptor, so the server checks the descriptor before each use.
 */
#include "handover.h"

#include "../../liballoc/platform/entropy.h"
#include "../../liballoc/platform/libc.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    REQUEST_TIMEOUT = 1000, /* ms that the server waits for a request */
    ANSWER_TIMEOUT = 10000, /* ms that a whole answer may take, to send or to receive */
    BACKLOG = 128,          /* connections that wait for accept4() */
    MAX_DESCRIPTORS = 2     /* in one packet: CMSG_SPACE() pads the room for one to two */
};

typedef struct head {
    uint64_t before;
    uint32_t count; /* 0: no such export */
} head;

static struct {
    int socket; /* -1: not started */
    ga_cuda_socket_name name;
    ga_cuda_find_pieces *find;
    int answer_timeout; /* ms */
} server = {.socket = -1, .answer_timeout = ANSWER_TIMEOUT};

/* ---- sockets ----------------------------------------------------------------------------- */

/* Abstract socket names leave no files behind. */
static socklen_t address_of(const ga_cuda_socket_name *name, struct sockaddr_un *out)
{
    static const char before[] = "gpualloc-cuda-";
    size_t length = sizeof before - 1;
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path + 1, before, length);
    for (size_t i = 0; i < GA_CUDA_SOCKET_NAME_BYTES; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", name->bytes[i]);
        memcpy(out->sun_path + 1 + length + 2 * i, digits, 2);
    }
    length += (size_t)2 * GA_CUDA_SOCKET_NAME_BYTES;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int make_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Wait until a non-blocking socket is ready, or until `end` on the monotonic clock, in ms. False:
 * timeout, or the socket has failed. */
static bool wait_for(int socket, short events, int64_t end)
{
    struct pollfd one = {.fd = socket, .events = events};
    int ready = 0;
    do {
        int64_t left = end - now();
        ready = poll(&one, 1, left > 0 ? (int)left : 0);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

static bool should_retry(ssize_t result)
{
    return result < 0 && (errno == EAGAIN || errno == EINTR);
}

static bool send_packet(int socket, const struct msghdr *packet, size_t size, int64_t end)
{
    ssize_t sent;
    do {
        sent = sendmsg(socket, packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (should_retry(sent) && wait_for(socket, POLLOUT, end));
    return sent == (ssize_t)size;
}

/* The number of bytes received; -1: none before `end`. */
static ssize_t receive_packet(int socket, struct msghdr *packet, int64_t end)
{
    ssize_t received;
    do {
        received = recvmsg(socket, packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (should_retry(received) && wait_for(socket, POLLIN, end));
    return received;
}

static bool send_bytes(int socket, void *from, size_t size, int64_t end)
{
    struct iovec data = {from, size};
    struct msghdr packet = {.msg_iov = &data, .msg_iovlen = 1};
    return send_packet(socket, &packet, size, end);
}

static bool receive_bytes(int socket, void *out, size_t size, int64_t end)
{
    struct iovec data = {out, size};
    struct msghdr packet = {.msg_iov = &data, .msg_iovlen = 1};
    return receive_packet(socket, &packet, end) == (ssize_t)size;
}

/* False once the program has closed the socket and reused its descriptor. */
static bool is_our_socket(int socket)
{
    struct sockaddr_un ours, its;
    socklen_t size = address_of(&server.name, &ours);
    socklen_t its_size = sizeof its;
    return getsockname(socket, (struct sockaddr *)&its, &its_size) == 0 && its_size == size &&
           memcmp(&ours, &its, size) == 0;
}

static bool is_same_user(int socket)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* ---- the answering thread ---------------------------------------------------------------- */

/* One packet with one descriptor. */
static bool send_piece(int socket, const struct ga_vmm_piece *piece, int64_t end)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    uint64_t size = piece->size;
    struct iovec data = {&size, sizeof size};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = sizeof control.room};
    control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &piece->fd, sizeof piece->fd);
    return send_packet(socket, &packet, sizeof size, end);
}

static void send_pieces(int socket, const ga_vmm_pieces *pieces)
{
    head first = {.before = pieces->before, .count = (uint32_t)pieces->count};
    int64_t end = now() + server.answer_timeout;
    bool sent = send_bytes(socket, &first, sizeof first, end);
    for (size_t i = 0; sent && i < pieces->count; i++) {
        sent = send_piece(socket, &pieces->list[i], end);
    }
}

static void serve(int socket)
{
    uint64_t number;
    ga_vmm_pieces pieces = {0};
    if (is_same_user(socket) &&
        receive_bytes(socket, &number, sizeof number, now() + REQUEST_TIMEOUT)) {
        server.find(number, &pieces);
        send_pieces(socket, &pieces);
        ga_vmm_pieces_drop(&pieces);
    }
}

/* True if accept4() may succeed later. Other errors mean that the program has closed the socket, as
 * programs that close all descriptors do. */
static bool is_transient(int error)
{
    return error == EINTR || error == ECONNABORTED || error == EMFILE || error == ENFILE ||
           error == ENOMEM || error == ENOBUFS;
}

static void *answer_requests(void *argument)
{
    int listening = (int)(intptr_t)argument;
    while (is_our_socket(listening)) {
        int socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        if (socket >= 0) {
            serve(socket);
            close(socket);
        } else if (!is_transient(errno)) {
            return NULL;
        } else if (errno != EINTR) {
            usleep(10000); /* until the process closes a descriptor */
        }
    }
    return NULL;
}

/* Signals go to the program's own threads. */
static int start_thread(int socket)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, answer_requests, (void *)(intptr_t)socket);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) {
        pthread_detach(thread);
    }
    return error;
}

static int listen_at(const ga_cuda_socket_name *name)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int made = make_socket();
    if (made >= 0 &&
        (bind(made, (struct sockaddr *)&address, size) != 0 || listen(made, BACKLOG) != 0)) {
        close(made);
        made = -1;
    }
    return made;
}

ga_status ga_cuda_handover_begin(ga_cuda_find_pieces *find, ga_cuda_socket_name *name)
{
    if (server.socket < 0) {
        ga_cuda_socket_name made;
        ga_entropy_fill(made.bytes, sizeof made.bytes);
        int socket = listen_at(&made);
        if (socket < 0) {
            return ga_fail(GA_ERR_MEMORY, "cannot open a socket: %s", strerror(errno));
        }
        server.name = made;
        server.find = find;
        int error = start_thread(socket);
        if (error) {
            close(socket);
            return ga_fail(GA_ERR_MEMORY, "cannot start a thread: %s", strerror(error));
        }
        /* IH1: release. Pairs with IH2: a reader of the socket sees the whole name. */
        __atomic_store_n(&server.socket, socket, __ATOMIC_RELEASE);
    }
    *name = server.name;
    return GA_OK;
}

bool ga_cuda_handover_is_ours(const ga_cuda_socket_name *name)
{
    /* IH2: acquire. Pairs with IH1. */
    return __atomic_load_n(&server.socket, __ATOMIC_ACQUIRE) >= 0 &&
           memcmp(name, &server.name, sizeof *name) == 0;
}

void ga_cuda_handover_child(void)
{
    if (server.socket >= 0 && is_our_socket(server.socket)) {
        close(server.socket);
    }
    server.socket = -1;
}

void ga_cuda_handover_set_timeout(int milliseconds)
{
    server.answer_timeout = milliseconds;
}

/* ---- requests ----------------------------------------------------------------------------- */

/* connect(2) to a full backlog fails with EAGAIN and has no event to wait for, so retry. */
static bool connect_retry(int socket, const ga_cuda_socket_name *name, int64_t end)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int result = -1;
    do {
        if (result < 0 && errno == EAGAIN) {
            usleep(1000);
        }
        result = connect(socket, (struct sockaddr *)&address, size);
    } while (result != 0 && (errno == EAGAIN || errno == EINTR) && now() < end);
    return result == 0;
}

static int connect_to(const ga_cuda_socket_name *name, int64_t end)
{
    int made = make_socket();
    if (made < 0) {
        ga_fail(GA_ERR_MEMORY, "cannot open a socket: %s", strerror(errno));
        return -1;
    }
    if (fcntl(made, F_SETFL, O_NONBLOCK) != 0 || !connect_retry(made, name, end)) {
        ga_fail(GA_ERR_POINTER, "the exporting process does not answer: %s", strerror(errno));
    } else if (!is_same_user(made)) {
        ga_fail(GA_ERR_POINTER, "the exporting process belongs to another user");
    } else {
        return made;
    }
    close(made);
    return -1;
}

/* The packet's descriptor; -1: it has none, or more than one, which are all closed. */
static int extract_descriptor(struct msghdr *packet)
{
    int found[MAX_DESCRIPTORS];
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(packet); c; c = CMSG_NXTHDR(packet, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            size_t bytes = c->cmsg_len - CMSG_LEN(0);
            memcpy(found + count, CMSG_DATA(c),
                   bytes); /* the control buffer limits the total to MAX_DESCRIPTORS */
            count += bytes / sizeof *found;
        }
    }
    if (count == 1 && !(packet->msg_flags & MSG_CTRUNC)) {
        return found[0];
    }
    while (count) {
        close(found[--count]);
    }
    return -1;
}

static bool receive_piece(int socket, struct ga_vmm_piece *out, int64_t end)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))]; /* room for two, because of the padding */
    } control;
    struct iovec data = {&out->size, sizeof out->size};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = sizeof control.room};
    ssize_t received = receive_packet(socket, &packet, end);
    out->fd = received < 0 ? -1 : extract_descriptor(&packet);
    return received == (ssize_t)sizeof out->size && out->fd >= 0;
}

static ga_status receive_list(int socket, uint32_t count, int64_t end, ga_vmm_pieces *out)
{
    out->list = ga_libc.calloc(count, sizeof *out->list);
    if (!out->list) {
        return ga_fail(GA_ERR_MEMORY, "no memory to list %u pieces", count);
    }
    while (out->count < count) {
        struct ga_vmm_piece *piece = &out->list[out->count];
        bool whole = receive_piece(socket, piece, end);
        out->count += piece->fd >= 0;
        if (!whole) {
            ga_vmm_pieces_drop(out);
            return ga_fail(GA_ERR_MEMORY, "not all of %u pieces were received", count);
        }
    }
    return GA_OK;
}

/* False: no answer. A process that is short of time sends its request late, and the server drops
 * it. */
static bool receive_head(int socket, uint64_t number, int64_t end, head *out)
{
    return send_bytes(socket, &number, sizeof number, end) &&
           receive_bytes(socket, out, sizeof *out, end);
}

static ga_status receive_answer(int socket, const head *first, int64_t end, ga_vmm_pieces *out)
{
    if (!first->count || first->count > GA_VMM_PIECES) {
        return ga_fail(GA_ERR_POINTER, "the exporting process has freed the memory");
    }
    out->before = first->before;
    return receive_list(socket, first->count, end, out);
}

/* A dropped request is retried until the time is up. */
ga_status ga_cuda_handover_request(const ga_cuda_socket_name *name, uint64_t number,
                                   ga_vmm_pieces *out)
{
    int64_t end = now() + server.answer_timeout;
    head first;
    *out = (ga_vmm_pieces){0};
    do {
        int socket = connect_to(name, end);
        if (socket < 0) {
            return GA_ERR_POINTER;
        }
        bool answered = receive_head(socket, number, end, &first);
        ga_status status = answered ? receive_answer(socket, &first, end, out) : GA_ERR_POINTER;
        close(socket);
        if (answered) {
            return status;
        }
        usleep(1000);
    } while (now() < end);
    return ga_fail(GA_ERR_POINTER, "the exporting process does not answer");
}
