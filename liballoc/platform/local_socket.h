/* SPDX-License-Identifier: MIT
 *
 * Sockets between processes of one user on this machine, for packets that may carry a file
 * descriptor. A name is "@text" (abstract: it ends with its process) or a path in the file system
 * (it stays when its process is killed; the next ga_local_listen() takes it over).
 *
 * Functions with a status set an error text without a prefix. All waits end at a time of the
 * monotonic clock, whether or not signals arrive. Thread safe, except calls on one listener.
 */
#ifndef GPUALLOC_PLATFORM_LOCAL_SOCKET_H
#define GPUALLOC_PLATFORM_LOCAL_SOCKET_H

#include <gpualloc/gpualloc.h>

#include <sys/types.h>
#include <sys/un.h>

enum {
    GA_LOCAL_NAME_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path) /* with the final zero */
};

typedef struct ga_local_listener {
    int socket; /* -1: none */
    char name[GA_LOCAL_NAME_BYTES];
    dev_t device; /* of the path, so that ga_local_close() removes no other file */
    ino_t number;
} ga_local_listener;

/* A connection. A wait also ends when `listener` (-1: none) is shut down. */
typedef struct ga_local_peer {
    int socket;
    int listener;
    int64_t end; /* ms of the monotonic clock: the end of all waits */
} ga_local_peer;

/* Milliseconds of the monotonic clock. */
int64_t ga_local_now(void);

/* GA_ERR_ARGUMENT: NULL, empty or too long. */
ga_status ga_local_check_name(const char *name);

/* Lock a path, so that no other process of this user takes it over or removes it. Waits. The lock
 * ends with the process. Does nothing to an abstract name.
 *
 * GA_ERR_ARGUMENT  the name is invalid, or the lock's file belongs to another user
 * GA_ERR_IO        it cannot be made, or another process of this user holds the lock for 10 s */
ga_status ga_local_lock(const char *name, int *lock);
void ga_local_unlock(const char *name, int lock);

/* Listen at a name, for this user alone, with its lock held. Does not wait. `is_busy`: after an
 * error, the name is about to become free.
 *
 * GA_ERR_ARGUMENT  the name is invalid, or its path is another user's or is not a socket
 * GA_ERR_IO        a process listens there, or the path cannot be made
 * GA_ERR_MEMORY    no descriptor */
ga_status ga_local_listen_now(const char *name, ga_local_listener *out, bool *is_busy);

/* Wait a little, for a name that is busy. False: too long since `begin`, a time of
 * ga_local_now(). */
bool ga_local_retry_listen(int64_t begin);

/* All of these. Errors of ga_local_lock() and ga_local_listen_now(). */
ga_status ga_local_listen(const char *name, ga_local_listener *out);

/* Wait until `end` for a connection of a process of this user; others are closed. The caller closes
 * the descriptor. -1: the listener was shut down, or the time is over. */
#define GA_LOCAL_NO_END INT64_MAX
int ga_local_accept(const ga_local_listener *listener, int64_t end);

/* End ga_local_accept() and the waits of peers with this listener, now and in future. */
void ga_local_shut_down(const ga_local_listener *listener);

/* Remove the path, which takes its lock if it is free within 1 s; and close the socket. */
void ga_local_remove(const ga_local_listener *listener);
void ga_local_close(ga_local_listener *listener);

/* Connect to a process of this user, as long as `peer->end` allows. The caller closes
 * `peer->socket`.
 *
 * GA_ERR_ARGUMENT  the name is invalid, or it is another user's or another program's
 * GA_ERR_IO        no process listens there, or it does not answer
 * GA_ERR_MEMORY    no descriptor */
ga_status ga_local_connect(const char *name, ga_local_peer *peer);

/* Wait until a packet can be sent, or received, without a wait. */
bool ga_local_wait_to_send(const ga_local_peer *peer);
bool ga_local_wait_to_receive(const ga_local_peer *peer);

/* Wait a little, and until a packet can be sent: after GA_LOCAL_LATER. */
bool ga_local_retry_send(const ga_local_peer *peer);

typedef enum ga_local_result {
    GA_LOCAL_DONE,
    GA_LOCAL_LATER, /* the call would have had to wait */
    GA_LOCAL_FAILED
} ga_local_result;

/* Send or receive one packet of exactly `size` bytes, without a wait. `fd`: the descriptor that it
 * carries; -1: none. The receiver owns the descriptor, and gets -1 if there is none or the packet
 * is not received. */
ga_local_result ga_local_send_now(const ga_local_peer *peer, const void *from, size_t size, int fd);
ga_local_result ga_local_receive_now(const ga_local_peer *peer, void *out, size_t size, int *fd);

/* Likewise, with a wait. False: no such packet within the time. */
bool ga_local_send(const ga_local_peer *peer, const void *from, size_t size, int fd);
bool ga_local_receive(const ga_local_peer *peer, void *out, size_t size, int *fd);

#endif
