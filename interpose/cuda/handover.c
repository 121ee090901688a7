/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  an abstract socket of sequenced packets, and a thread: one request at a time, each a
 *            connection. A request is the number; the answer a head, then a packet for each piece
 *            with its descriptor.
 * INVARIANT  who asks and who answers have the same effective user: both look (SO_PEERCRED)
 * ORDER      the caller's for the beginning, before the thread is there; H1/H2 for who asks
 *            whether a name is ours
 * PROGRESS   who has not sent within a second, or not taken all within ten, is dropped. Signals
 *            make no wait longer, nor end it. The program may close our socket and have its number
 *            again: it is looked at before it is used.
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
    REQUEST_TIME = 1000, /* milliseconds that a request may take to come */
    ANSWER_TIME = 10000, /* that an answer may take, all of it, to go or to come */
    WAITING = 128,       /* connections that nobody has looked at yet */
    MOST_DESCRIPTORS = 2 /* in a packet: there is room for one, and it is padded */
};

typedef struct head {
    uint64_t before;
    uint32_t count; /* 0: there is nothing of that number */
} head;

static struct {
    int socket; /* -1: none, or none yet */
    ga_cuda_name name;
    ga_cuda_find_pieces *find;
    int answer_time; /* milliseconds */
} own = {.socket = -1, .answer_time = ANSWER_TIME};

/* ---- sockets ----------------------------------------------------------------------------- */

/* In the abstract name space, which has no files that could be left behind. */
static socklen_t address_of(const ga_cuda_name *name, struct sockaddr_un *out)
{
    static const char before[] = "gpualloc-cuda-";
    size_t length = sizeof before - 1;
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path + 1, before, length);
    for (size_t i = 0; i < GA_CUDA_NAME_BYTES; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", name->bytes[i]);
        memcpy(out->sun_path + 1 + length + 2 * i, digits, 2);
    }
    length += (size_t)2 * GA_CUDA_NAME_BYTES;
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

/* Sockets do not block; who waits for one does it here, until `end` of the clock. False: it took
 * too long, or something is wrong with it. */
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

static bool is_for_later(ssize_t result)
{
    return result < 0 && (errno == EAGAIN || errno == EINTR);
}

static bool put_packet(int socket, const struct msghdr *packet, size_t size, int64_t end)
{
    ssize_t sent;
    do {
        sent = sendmsg(socket, packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (is_for_later(sent) && wait_for(socket, POLLOUT, end));
    return sent == (ssize_t)size;
}

/* How many bytes; -1: none came in time. */
static ssize_t take_packet(int socket, struct msghdr *packet, int64_t end)
{
    ssize_t got;
    do {
        got = recvmsg(socket, packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (is_for_later(got) && wait_for(socket, POLLIN, end));
    return got;
}

static bool put_bytes(int socket, void *from, size_t size, int64_t end)
{
    struct iovec data = {from, size};
    struct msghdr packet = {.msg_iov = &data, .msg_iovlen = 1};
    return put_packet(socket, &packet, size, end);
}

static bool take_bytes(int socket, void *out, size_t size, int64_t end)
{
    struct iovec data = {out, size};
    struct msghdr packet = {.msg_iov = &data, .msg_iovlen = 1};
    return take_packet(socket, &packet, end) == (ssize_t)size;
}

/* Whether that number is our socket's yet, by its name. */
static bool is_our_socket(int socket)
{
    struct sockaddr_un ours, its;
    socklen_t size = address_of(&own.name, &ours);
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

/* ---- answering --------------------------------------------------------------------------- */

/* One packet that takes a descriptor along. */
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
    return put_packet(socket, &packet, sizeof size, end);
}

static void send_pieces(int socket, const ga_vmm_pieces *pieces)
{
    head first = {.before = pieces->before, .count = (uint32_t)pieces->count};
    int64_t end = now() + own.answer_time;
    bool sent = put_bytes(socket, &first, sizeof first, end);
    for (size_t i = 0; sent && i < pieces->count; i++) {
        sent = send_piece(socket, &pieces->list[i], end);
    }
}

static void serve(int socket)
{
    uint64_t number;
    ga_vmm_pieces pieces = {0};
    if (is_same_user(socket) && take_bytes(socket, &number, sizeof number, now() + REQUEST_TIME)) {
        own.find(number, &pieces);
        send_pieces(socket, &pieces);
        ga_vmm_pieces_drop(&pieces);
    }
}

/* Whether there may be another after this. A program that has closed all descriptors has closed
 * ours. */
static bool goes_on(int error)
{
    return error == EINTR || error == ECONNABORTED || error == EMFILE || error == ENFILE ||
           error == ENOMEM || error == ENOBUFS;
}

static void *answer(void *argument)
{
    int listening = (int)(intptr_t)argument;
    while (is_our_socket(listening)) {
        int socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        if (socket >= 0) {
            serve(socket);
            close(socket);
        } else if (!goes_on(errno)) {
            return NULL;
        } else if (errno != EINTR) {
            usleep(10000); /* until a descriptor is closed somewhere */
        }
    }
    return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(int socket)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, answer, (void *)(intptr_t)socket);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) {
        pthread_detach(thread);
    }
    return error;
}

static int listen_at(const ga_cuda_name *name)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int made = make_socket();
    if (made >= 0 &&
        (bind(made, (struct sockaddr *)&address, size) != 0 || listen(made, WAITING) != 0)) {
        close(made);
        made = -1;
    }
    return made;
}

ga_status ga_cuda_handover_begin(ga_cuda_find_pieces *find, ga_cuda_name *name)
{
    if (own.socket < 0) {
        ga_cuda_name made;
        ga_entropy_fill(made.bytes, sizeof made.bytes);
        int socket = listen_at(&made);
        if (socket < 0) {
            return ga_fail(GA_ERR_MEMORY, "no socket: %s", strerror(errno));
        }
        own.name = made;
        own.find = find;
        int error = start_thread(socket);
        if (error) {
            close(socket);
            return ga_fail(GA_ERR_MEMORY, "no thread: %s", strerror(error));
        }
        /* H1: release. Pairs with H2: the name is whole. */
        __atomic_store_n(&own.socket, socket, __ATOMIC_RELEASE);
    }
    *name = own.name;
    return GA_OK;
}

bool ga_cuda_handover_is_ours(const ga_cuda_name *name)
{
    /* H2: acquire. Pairs with H1. */
    return __atomic_load_n(&own.socket, __ATOMIC_ACQUIRE) >= 0 &&
           memcmp(name, &own.name, sizeof *name) == 0;
}

void ga_cuda_handover_child(void)
{
    if (own.socket >= 0 && is_our_socket(own.socket)) {
        close(own.socket);
    }
    own.socket = -1;
}

void ga_cuda_handover_patience(int milliseconds)
{
    own.answer_time = milliseconds;
}

/* ---- asking ------------------------------------------------------------------------------- */

/* A queue of those who ask that is full is tried again: it has no event to wait for. */
static bool reaches(int socket, const ga_cuda_name *name, int64_t end)
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

static int connect_to(const ga_cuda_name *name, int64_t end)
{
    int made = make_socket();
    if (made < 0) {
        ga_fail(GA_ERR_MEMORY, "no socket: %s", strerror(errno));
        return -1;
    }
    if (fcntl(made, F_SETFL, O_NONBLOCK) != 0 || !reaches(made, name, end)) {
        ga_fail(GA_ERR_POINTER, "the process that has the memory does not answer: %s",
                strerror(errno));
    } else if (!is_same_user(made)) {
        ga_fail(GA_ERR_POINTER, "the process that has the memory is another user's");
    } else {
        return made;
    }
    close(made);
    return -1;
}

/* One descriptor and no more; what else came is closed. -1: there was none, or too many. */
static int descriptor_in(struct msghdr *packet)
{
    int found[MOST_DESCRIPTORS];
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(packet); c; c = CMSG_NXTHDR(packet, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            size_t bytes = c->cmsg_len - CMSG_LEN(0);
            memcpy(found + count, CMSG_DATA(c), bytes); /* there is room for all that fits */
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

static bool take_piece(int socket, struct ga_vmm_piece *out, int64_t end)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))]; /* or two: it is padded */
    } control;
    struct iovec data = {&out->size, sizeof out->size};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = sizeof control.room};
    ssize_t got = take_packet(socket, &packet, end);
    out->fd = got < 0 ? -1 : descriptor_in(&packet);
    return got == (ssize_t)sizeof out->size && out->fd >= 0;
}

static ga_status take_list(int socket, uint32_t count, int64_t end, ga_vmm_pieces *out)
{
    out->list = ga_libc.calloc(count, sizeof *out->list);
    if (!out->list) {
        return ga_fail(GA_ERR_MEMORY, "no memory to list %u pieces", count);
    }
    while (out->count < count) {
        struct ga_vmm_piece *piece = &out->list[out->count];
        bool taken = take_piece(socket, piece, end);
        out->count += piece->fd >= 0;
        if (!taken) {
            ga_vmm_pieces_drop(out);
            return ga_fail(GA_ERR_MEMORY, "of %u pieces not all came", count);
        }
    }
    return GA_OK;
}

/* Whether there was an answer at all: a process that has no time sends its request late, and is
 * dropped. */
static bool take_head(int socket, uint64_t number, int64_t end, head *out)
{
    return put_bytes(socket, &number, sizeof number, end) &&
           take_bytes(socket, out, sizeof *out, end);
}

static ga_status take_answer(int socket, const head *first, int64_t end, ga_vmm_pieces *out)
{
    if (!first->count || first->count > GA_VMM_PIECES) {
        return ga_fail(GA_ERR_POINTER, "the process that has had the memory has it no more");
    }
    out->before = first->before;
    return take_list(socket, first->count, end, out);
}

/* Again, then, as long as there is time. */
ga_status ga_cuda_handover_ask(const ga_cuda_name *name, uint64_t number, ga_vmm_pieces *out)
{
    int64_t end = now() + own.answer_time;
    head first;
    *out = (ga_vmm_pieces){0};
    do {
        int socket = connect_to(name, end);
        if (socket < 0) {
            return GA_ERR_POINTER;
        }
        bool told = take_head(socket, number, end, &first);
        ga_status status = told ? take_answer(socket, &first, end, out) : GA_ERR_POINTER;
        close(socket);
        if (told) {
            return status;
        }
        usleep(1000);
    } while (now() < end);
    return ga_fail(GA_ERR_POINTER, "the process that has the memory does not answer");
}
