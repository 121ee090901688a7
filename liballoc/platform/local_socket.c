/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  sockets of sequenced packets. A path is tested, taken over and removed under a lock,
 *            which ends with its process: flock() of a file beside it
 * INVARIANT  both ends have the same effective user; each checks the other (SO_PEERCRED). The
 *            lock's file belongs to the user, who alone can open it, and so no other user can hold
 *            the lock
 * PROGRESS   waits are polls with a deadline
 */
#include "local_socket.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_SUFFIX ".gpualloc-lock"

enum {
    BACKLOG = 4096,  /* connections that wait for accept4(); the kernel lowers it to its limit */
    FADE_MS = 1000,  /* that a name may stay after the end of its listener */
    LOCK_MS = 10000, /* that another process of the user may hold the lock of a path, */
    END_MS = 1000,   /* and when the name ends */
    LOCK_NAME_BYTES = GA_LOCAL_NAME_BYTES + sizeof "." LOCK_SUFFIX,
    RETRY_US = 1000,    /* between attempts where there is no event to wait for */
    MAX_DESCRIPTORS = 2 /* in one packet: CMSG_SPACE() pads the room for one to two */
};

int64_t ga_local_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* ---- names -------------------------------------------------------------------------- */

static bool is_path(const char *name)
{
    return name[0] != '@';
}

ga_status ga_local_check_name(const char *name)
{
    if (!name || !name[0] || (!is_path(name) && !name[1])) {
        return ga_fail(GA_ERR_ARGUMENT, "no name; expected a path, or @ and a text");
    }
    size_t length = strnlen(name, GA_LOCAL_NAME_BYTES);
    return length < GA_LOCAL_NAME_BYTES
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT,
                         "the name %.20s... is too long: expected at most %d bytes", name,
                         GA_LOCAL_NAME_BYTES - 1);
}

/* An abstract name begins with a zero byte and has no final one. */
static socklen_t address_of(const char *name, struct sockaddr_un *out)
{
    size_t length = strlen(name);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, name, length);
    out->sun_path[0] = is_path(name) ? name[0] : 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + is_path(name));
}

static ga_status another_users(const char *name, uid_t user)
{
    return ga_fail(GA_ERR_ARGUMENT, "%s belongs to user %u; expected this process's user, %u", name,
                   (unsigned)user, (unsigned)geteuid());
}

static ga_status no_socket(void)
{
    return ga_fail(GA_ERR_MEMORY, "cannot open a socket: %s", strerror(errno));
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static bool get_peer(int socket, struct ucred *out)
{
    socklen_t size = sizeof *out;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, out, &size) == 0;
}

/* ---- listening ---------------------------------------------------------------------- */

/* The file beside a path: "folder/.name.gpualloc-lock". */
static void name_lock(const char *path, char name[LOCK_NAME_BYTES])
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path + 1) : 0;
    snprintf(name, LOCK_NAME_BYTES, "%.*s.%s" LOCK_SUFFIX, folder, path, path + folder);
}

/* Another user may have made the file, where all users can write. */
static ga_status open_lock(const char *name, int *fd)
{
    struct stat file = {.st_uid = geteuid()};
    *fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, S_IRUSR | S_IWUSR);
    int error = errno;
    bool is_known = *fd >= 0 ? fstat(*fd, &file) == 0 : lstat(name, &file) == 0;
    bool is_foreign = is_known && file.st_uid != geteuid();
    bool is_shared = file.st_nlink > 1 || file.st_mode & (S_IRWXG | S_IRWXO);
    if (*fd >= 0 && !is_foreign && !is_shared) {
        return GA_OK;
    }
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return is_foreign  ? another_users(name, file.st_uid)
           : is_shared ? ga_fail(GA_ERR_ARGUMENT,
                                 "%s can be opened by other users: expected a file of mode 600 "
                                 "with one name, or none",
                                 name)
                       : ga_fail(GA_ERR_IO, "cannot open %s: %s", name, strerror(error));
}

/* True if the file has its name still. The one that held the lock has removed it otherwise. */
static bool is_named(int fd, const char *name)
{
    struct stat own, named;
    return fstat(fd, &own) == 0 && lstat(name, &named) == 0 && own.st_dev == named.st_dev &&
           own.st_ino == named.st_ino;
}

static ga_status try_lock(const char *name, int *fd, bool *is_busy)
{
    *is_busy = false;
    ga_status status = open_lock(name, fd);
    if (status != GA_OK) {
        return status;
    }
    int error = flock(*fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error || !is_named(*fd, name)) {
        *is_busy = !error || error == EWOULDBLOCK || error == EINTR;
        close(*fd);
        *fd = -1;
        return ga_fail(GA_ERR_IO, "cannot lock %s: %s", name,
                       *is_busy ? "another process of this user holds the lock" : strerror(error));
    }
    return GA_OK;
}

/* Two processes that find the same stale path must not both remove it: the second would remove the
 * first one's new socket. */
static ga_status lock_path(const char *path, int64_t end, int *lock)
{
    char name[LOCK_NAME_BYTES];
    bool is_busy = false;
    *lock = -1;
    ga_status status = ga_local_check_name(path);
    if (status != GA_OK || !is_path(path)) {
        return status;
    }
    name_lock(path, name);
    status = try_lock(name, lock, &is_busy);
    while (is_busy && ga_local_now() < end) {
        usleep(RETRY_US);
        status = try_lock(name, lock, &is_busy);
    }
    return status;
}

ga_status ga_local_lock(const char *path, int *lock)
{
    return lock_path(path, ga_local_now() + LOCK_MS, lock);
}

/* A child of fork() may have a copy of the descriptor, so unlock before closing it. The file goes
 * while it is locked, if it is one of these and empty. */
void ga_local_unlock(const char *path, int lock)
{
    char name[LOCK_NAME_BYTES];
    struct stat file;
    if (lock < 0) {
        return;
    }
    name_lock(path, name);
    if (fstat(lock, &file) == 0 && S_ISREG(file.st_mode) && file.st_size == 0) {
        unlink(name);
    }
    flock(lock, LOCK_UN);
    close(lock);
}

static ga_status taken(const char *name, int probe)
{
    struct ucred peer;
    return probe >= 0 && get_peer(probe, &peer)
               ? ga_fail(GA_ERR_IO, "%s is in use by process %d", name, (int)peer.pid)
               : ga_fail(GA_ERR_IO, "%s is in use by another process", name);
}

/* Remove the socket of a process that has ended. */
static ga_status remove_stale(const char *path)
{
    struct stat file;
    struct sockaddr_un address;
    socklen_t size = address_of(path, &address);
    if (lstat(path, &file) != 0) {
        return GA_OK;
    }
    if (!S_ISSOCK(file.st_mode)) {
        return ga_fail(GA_ERR_ARGUMENT, "%s exists and is not a socket", path);
    }
    if (file.st_uid != geteuid()) {
        return another_users(path, file.st_uid);
    }
    int probe = open_socket();
    if (probe < 0) {
        return no_socket();
    }
    bool lives = connect(probe, (struct sockaddr *)&address, size) == 0 || errno != ECONNREFUSED;
    ga_status status = lives ? taken(path, probe) : GA_OK;
    close(probe);
    if (!lives && unlink(path) != 0) {
        return ga_fail(GA_ERR_IO, "cannot remove %s, whose process has ended: %s", path,
                       strerror(errno));
    }
    return status;
}

/* Linux takes the mode of the path from the socket. */
static bool bind_socket(ga_local_listener *listener)
{
    struct stat file;
    struct sockaddr_un address;
    socklen_t size = address_of(listener->name, &address);
    if (fchmod(listener->socket, S_IRUSR | S_IWUSR) != 0 ||
        bind(listener->socket, (struct sockaddr *)&address, size) != 0 ||
        listen(listener->socket, BACKLOG) != 0) {
        return false;
    }
    if (is_path(listener->name) && lstat(listener->name, &file) == 0) {
        listener->device = file.st_dev;
        listener->number = file.st_ino;
    }
    return true;
}

/* True if a process still has the socket of an abstract name, but does not listen: a child of a
 * fork() in the moment before its handlers, or exec, have closed it. */
static bool is_fading(const char *name)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int probe = open_socket();
    bool fades = probe >= 0 && connect(probe, (struct sockaddr *)&address, size) != 0 &&
                 errno == ECONNREFUSED;
    if (probe >= 0) {
        close(probe);
    }
    return fades;
}

static ga_status open_listener(ga_local_listener *listener, bool *is_busy)
{
    listener->socket = open_socket();
    if (listener->socket < 0) {
        return no_socket();
    }
    if (bind_socket(listener)) {
        return GA_OK;
    }
    int error = errno;
    close(listener->socket);
    listener->socket = -1;
    *is_busy = error == EADDRINUSE && !is_path(listener->name) && is_fading(listener->name);
    return error == EADDRINUSE
               ? taken(listener->name, -1)
               : ga_fail(GA_ERR_IO, "cannot listen at %s: %s", listener->name, strerror(error));
}

ga_status ga_local_listen_now(const char *name, ga_local_listener *out, bool *is_busy)
{
    *out = (ga_local_listener){.socket = -1};
    *is_busy = false;
    ga_status status = ga_local_check_name(name);
    if (status != GA_OK) {
        return status;
    }
    memcpy(out->name, name, strlen(name) + 1);
    status = is_path(name) ? remove_stale(name) : GA_OK;
    return status == GA_OK ? open_listener(out, is_busy) : status;
}

bool ga_local_retry_listen(int64_t begin)
{
    usleep(RETRY_US);
    return ga_local_now() < begin + FADE_MS;
}

ga_status ga_local_listen(const char *name, ga_local_listener *out)
{
    int64_t begin = ga_local_now();
    int lock;
    bool is_busy;
    *out = (ga_local_listener){.socket = -1};
    ga_status status = ga_local_lock(name, &lock);
    if (status != GA_OK) {
        return status;
    }
    do {
        status = ga_local_listen_now(name, out, &is_busy);
    } while (is_busy && ga_local_retry_listen(begin));
    ga_local_unlock(name, lock);
    return status;
}

void ga_local_shut_down(const ga_local_listener *listener)
{
    shutdown(listener->socket, SHUT_RDWR);
}

void ga_local_remove(const ga_local_listener *listener)
{
    struct stat file;
    int lock;
    if (listener->socket < 0 || !is_path(listener->name)) {
        return;
    }
    /* at the worst two processes remove it */
    (void)lock_path(listener->name, ga_local_now() + END_MS, &lock);
    if (lstat(listener->name, &file) == 0 && file.st_dev == listener->device &&
        file.st_ino == listener->number) {
        unlink(listener->name);
    }
    ga_local_unlock(listener->name, lock);
}

void ga_local_close(ga_local_listener *listener)
{
    if (listener->socket >= 0) {
        close(listener->socket);
        listener->socket = -1;
    }
}

/* ---- packets ------------------------------------------------------------------------ */

/* Returns false at the end of the time, or if the listener is shut down. */
static bool wait_for(const ga_local_peer *peer, short events)
{
    struct pollfd both[] = {{.fd = peer->socket, .events = events}, {.fd = peer->listener}};
    int ready;
    do {
        int64_t left = peer->end - ga_local_now();
        ready = poll(both, 2, left > 0 ? (int)left : 0); /* ignores a descriptor of -1 */
    } while (ready < 0 && errno == EINTR);
    return ready > 0 && !both[1].revents;
}

bool ga_local_wait_to_send(const ga_local_peer *peer)
{
    return wait_for(peer, POLLOUT);
}

bool ga_local_wait_to_receive(const ga_local_peer *peer)
{
    return wait_for(peer, POLLIN);
}

bool ga_local_retry_send(const ga_local_peer *peer)
{
    usleep(RETRY_US); /* there may be no event to wait for: see is_busy() */
    return ga_local_now() < peer->end && wait_for(peer, POLLOUT);
}

/* ETOOMANYREFS: too many descriptors of this user are in packets. */
static bool is_busy(int error)
{
    return error == EAGAIN || error == EINTR || error == ETOOMANYREFS;
}

typedef union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
} control;

ga_local_result ga_local_send_now(const ga_local_peer *peer, const void *from, size_t size, int fd)
{
    control carried = {0};
    struct iovec data = {(void *)(uintptr_t)from, size};
    struct msghdr packet = {.msg_iov = &data, .msg_iovlen = 1};
    if (fd >= 0) {
        packet.msg_control = carried.room;
        packet.msg_controllen = sizeof carried.room;
        carried.header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&carried.header), &fd, sizeof fd);
    }
    ssize_t sent = sendmsg(peer->socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == (ssize_t)size        ? GA_LOCAL_DONE
           : sent < 0 && is_busy(errno) ? GA_LOCAL_LATER
                                        : GA_LOCAL_FAILED;
}

bool ga_local_send(const ga_local_peer *peer, const void *from, size_t size, int fd)
{
    ga_local_result result;
    do {
        result = ga_local_send_now(peer, from, size, fd);
    } while (result == GA_LOCAL_LATER && ga_local_retry_send(peer));
    return result == GA_LOCAL_DONE;
}

/* The packet's descriptor; -1: it has none, or more than one, which are all closed. */
static int extract_descriptor(struct msghdr *packet)
{
    int found[MAX_DESCRIPTORS];
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(packet); c; c = CMSG_NXTHDR(packet, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            size_t bytes = c->cmsg_len - CMSG_LEN(0);
            memcpy(found + count, CMSG_DATA(c), bytes); /* the room limits the total */
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

ga_local_result ga_local_receive_now(const ga_local_peer *peer, void *out, size_t size, int *fd)
{
    control carried;
    struct iovec data = {out, size};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = carried.room,
                            .msg_controllen = sizeof carried.room};
    ssize_t received = recvmsg(peer->socket, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    bool is_later = received < 0 && is_busy(errno);
    int got = received < 0 ? -1 : extract_descriptor(&packet);
    bool whole = received == (ssize_t)size && !(packet.msg_flags & MSG_TRUNC);
    if (got >= 0 && (!whole || !fd)) {
        close(got);
        got = -1;
    }
    if (fd) {
        *fd = got;
    }
    return whole ? GA_LOCAL_DONE : is_later ? GA_LOCAL_LATER : GA_LOCAL_FAILED;
}

bool ga_local_receive(const ga_local_peer *peer, void *out, size_t size, int *fd)
{
    ga_local_result result;
    do {
        result = ga_local_receive_now(peer, out, size, fd);
    } while (result == GA_LOCAL_LATER && wait_for(peer, POLLIN));
    return result == GA_LOCAL_DONE;
}

/* ---- connections -------------------------------------------------------------------- */

static bool is_same_user(int socket)
{
    struct ucred peer;
    return get_peer(socket, &peer) && peer.uid == geteuid();
}

/* The error may pass: a process short of descriptors or memory, for example. */
static bool is_transient(int error)
{
    return error == EINTR || error == EAGAIN || error == ECONNABORTED || error == EMFILE ||
           error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/* The rest of the time until `end`, for poll(2). */
static int wait_ms(int64_t end)
{
    int64_t left = end - ga_local_now();
    return end == GA_LOCAL_NO_END ? -1 : left <= 0 ? 0 : left < INT_MAX ? (int)left : INT_MAX;
}

int ga_local_accept(const ga_local_listener *listener, int64_t end)
{
    struct pollfd one = {.fd = listener->socket, .events = POLLIN};
    for (;;) {
        int ready = poll(&one, 1, wait_ms(end));
        if (ready > 0 && one.revents & (POLLHUP | POLLERR | POLLNVAL)) {
            return -1;
        }
        int socket = ready > 0 ? accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (socket >= 0 && is_same_user(socket)) {
            return socket;
        }
        if (socket >= 0) {
            close(socket);
        } else if (ready > 0 && !is_transient(errno)) {
            return -1;
        } else if (ready > 0 && errno != EINTR && errno != EAGAIN) {
            usleep(10 * RETRY_US); /* until the process closes a descriptor */
        }
        if (end != GA_LOCAL_NO_END && ga_local_now() >= end) {
            return -1;
        }
    }
}

static ga_status refused_path(const char *path)
{
    struct stat file;
    if (lstat(path, &file) != 0) {
        return ga_fail(GA_ERR_IO, "no process listens at %s: no such file", path);
    }
    if (!S_ISSOCK(file.st_mode)) {
        return ga_fail(GA_ERR_ARGUMENT, "%s is not a socket", path);
    }
    return ga_fail(GA_ERR_IO, "no process listens at %s: the one that did has ended", path);
}

static ga_status refused(const char *name, int error)
{
    struct stat file;
    if (is_path(name) && (error == ECONNREFUSED || error == ENOENT)) {
        return refused_path(name);
    }
    if (error == ECONNREFUSED) {
        return ga_fail(GA_ERR_IO, "no process listens at %s: it has ended, or has not begun", name);
    }
    if (is_path(name) && error == EACCES && lstat(name, &file) == 0 && file.st_uid != geteuid()) {
        return another_users(name, file.st_uid);
    }
    if (error == EPROTOTYPE) {
        return ga_fail(GA_ERR_ARGUMENT, "%s is another program's socket", name);
    }
    return error == EAGAIN ? ga_fail(GA_ERR_IO, "the process at %s does not answer", name)
                           : ga_fail(GA_ERR_IO, "cannot connect to %s: %s", name, strerror(error));
}

/* connect(2) to a full backlog fails with EAGAIN and has no event to wait for, so retry. */
static int connect_retry(const char *name, const ga_local_peer *peer)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    while (connect(peer->socket, (struct sockaddr *)&address, size) != 0) {
        if ((errno != EAGAIN && errno != EINTR) || ga_local_now() >= peer->end) {
            return errno;
        }
        usleep(RETRY_US);
    }
    return 0;
}

static ga_status check_user(const char *name, int socket)
{
    struct ucred peer = {.uid = (uid_t)-1};
    return get_peer(socket, &peer) && peer.uid == geteuid() ? GA_OK : another_users(name, peer.uid);
}

ga_status ga_local_connect(const char *name, ga_local_peer *peer)
{
    ga_status status = ga_local_check_name(name);
    if (status != GA_OK) {
        return status;
    }
    peer->socket = open_socket();
    if (peer->socket < 0) {
        return no_socket();
    }
    int error = connect_retry(name, peer);
    status = error ? refused(name, error) : check_user(name, peer->socket);
    if (status != GA_OK) {
        close(peer->socket);
        peer->socket = -1;
    }
    return status;
}
