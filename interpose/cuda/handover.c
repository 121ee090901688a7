/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  an abstract socket of sequenced packets, and a thread: one request at a time, each a
 *            connection. A request is the number; the answer a head, then a packet for each piece
 *            with its descriptor.
 * INVARIANT  who asks and who answers have the same effective user: both look (SO_PEERCRED)
 * ORDER      the caller's for the beginning, before the thread is there; H1/H2 for who asks
 *            whether a name is ours
 * PROGRESS   who does not send or take within a second is dropped
 */
#include "handover.h"

#include "../../liballoc/platform/libc.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    ANSWER_SECONDS = 1, /* that a request may take to come, and a packet to be taken */
    ASK_SECONDS = 10,   /* that an answer may take */
    WAITING = 128       /* connections that nobody has looked at yet */
};

typedef struct head {
    uint64_t before;
    uint32_t count; /* 0: there is nothing of that number */
} head;

static struct {
    int socket; /* -1: none, or none yet */
    ga_cuda_name name;
    ga_cuda_find_pieces *find;
} own = {.socket = -1};

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

static void be_patient(int socket, int seconds)
{
    struct timeval time = {.tv_sec = seconds};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

static bool is_same_user(int socket)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* ---- answering --------------------------------------------------------------------------- */

/* One packet that takes a descriptor along. */
static bool send_piece(int socket, const struct ga_vmm_piece *piece)
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
    return sendmsg(socket, &packet, MSG_NOSIGNAL) == (ssize_t)sizeof size;
}

static void send_pieces(int socket, const ga_vmm_pieces *pieces)
{
    head first = {.before = pieces->before, .count = (uint32_t)pieces->count};
    bool sent = send(socket, &first, sizeof first, MSG_NOSIGNAL) == (ssize_t)sizeof first;
    for (size_t i = 0; sent && i < pieces->count; i++) {
        sent = send_piece(socket, &pieces->list[i]);
    }
}

static void serve(int socket)
{
    uint64_t number;
    ga_vmm_pieces pieces = {0};
    be_patient(socket, ANSWER_SECONDS);
    if (is_same_user(socket) && recv(socket, &number, sizeof number, 0) == sizeof number) {
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
    for (;;) {
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
        bool random = getrandom(made.bytes, sizeof made.bytes, 0) == (ssize_t)sizeof made.bytes;
        int socket = random ? listen_at(&made) : -1;
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
    if (own.socket >= 0) {
        close(own.socket);
        own.socket = -1;
    }
}

/* ---- asking ------------------------------------------------------------------------------- */

static int connect_to(const ga_cuda_name *name)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int made = make_socket();
    if (made < 0) {
        ga_fail(GA_ERR_MEMORY, "no socket: %s", strerror(errno));
        return -1;
    }
    be_patient(made, ASK_SECONDS);
    if (connect(made, (struct sockaddr *)&address, size) != 0) {
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

/* -1: there was none in the packet. */
static int descriptor_in(struct msghdr *packet)
{
    int fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(packet); c; c = CMSG_NXTHDR(packet, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
            c->cmsg_len == CMSG_LEN(sizeof fd)) {
            memcpy(&fd, CMSG_DATA(c), sizeof fd);
        }
    }
    return fd;
}

static bool take_piece(int socket, struct ga_vmm_piece *out)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec data = {&out->size, sizeof out->size};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = sizeof control.room};
    ssize_t got = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
    out->fd = got < 0 ? -1 : descriptor_in(&packet);
    return got == (ssize_t)sizeof out->size && out->fd >= 0;
}

static ga_status take_list(int socket, uint32_t count, ga_vmm_pieces *out)
{
    out->list = ga_libc.calloc(count, sizeof *out->list);
    if (!out->list) {
        return ga_fail(GA_ERR_MEMORY, "no memory to list %u pieces", count);
    }
    while (out->count < count) {
        struct ga_vmm_piece *piece = &out->list[out->count];
        bool taken = take_piece(socket, piece);
        out->count += piece->fd >= 0;
        if (!taken) {
            ga_vmm_pieces_drop(out);
            return ga_fail(GA_ERR_MEMORY, "of %u pieces not all came", count);
        }
    }
    return GA_OK;
}

static ga_status take_answer(int socket, uint64_t number, ga_vmm_pieces *out)
{
    head first;
    bool told = send(socket, &number, sizeof number, MSG_NOSIGNAL) == (ssize_t)sizeof number &&
                recv(socket, &first, sizeof first, 0) == (ssize_t)sizeof first;
    if (!told || !first.count || first.count > GA_VMM_PIECES) {
        return ga_fail(GA_ERR_POINTER, "the process that has had the memory has it no more");
    }
    out->before = first.before;
    return take_list(socket, first.count, out);
}

ga_status ga_cuda_handover_ask(const ga_cuda_name *name, uint64_t number, ga_vmm_pieces *out)
{
    *out = (ga_vmm_pieces){0};
    int socket = connect_to(name);
    if (socket < 0) {
        return GA_ERR_POINTER;
    }
    ga_status status = take_answer(socket, number, out);
    close(socket);
    return status;
}
