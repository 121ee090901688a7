/* SPDX-License-Identifier: MIT
 *
 * The publisher's side of an arena in several processes.
 *
 *   ga_arena_publish -> ga_local_listen_now, a thread: serve -> answer -> begin_answer
 *                                                                  -> send_chunk, for each
 *   ga_arena_unpublish -> ga_local_shut_down, which ends the thread
 *
 * STRUCTURE  a list of the arenas that are or were published, for fork(); a thread for each that is
 * INVARIANT  an opening is counted before the opener gets the first chunk, and chunks are removed
 *            only while none is counted. So an opener has the chunks from the base on, all of them.
 * ORDER      locks: `changing`, then `lock`, then the publisher's arena. fork() waits for `lock`. A
 *            thread holds it while it has an arena locked or has a descriptor for an opener, so
 *            that a child inherits neither: the descriptor would keep the opening counted, or
 *            memory alive.
 * PROGRESS   an opening is served alone, within GA_JOIN_REQUEST_MS and GA_JOIN_ANSWER_MS. Nothing
 *            waits for an opener under `lock`: what cannot be sent at once is made once more.
 */
#include "sharing.h"

#include "../platform/entropy.h"
#include "../platform/forks.h"
#include "../platform/libc.h"
#include "../platform/log.h"

#include <gpualloc/backend.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ull; /* the type of %llu */

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER; /* publishing and its end */
static ga_forked_lock lock = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static ga_arena_sharing *publishers; /* guarded by `lock` */

/* ---- fork --------------------------------------------------------------------------- */

static void lock_publishers(void)
{
    ga_forked_lock_prepare(&lock);
}

static void unlock_publishers(void)
{
    ga_forked_lock_parent(&lock);
}

/* In the child of a fork an entry may be one that its parent was about to close. */
static void drop_exports(ga_arena_sharing *s, size_t first)
{
    for (size_t i = first; i < GA_ARENA_EXPORTS; i++) {
        int fd = s->exported[i];
        s->exported[i] = -1; /* first, so that no child closes another file */
        if (fd >= 0) {
            close(fd);
        }
    }
}

void ga_arena_drop_exports(ga_arena *arena, size_t first)
{
    if (arena->sharing) {
        drop_exports(arena->sharing, first);
    }
}

/* The threads exist in the parent only. If the child kept the descriptors, openers would connect to
 * a dead name, the arena would count as published after the parent's end, and its memory would stay
 * after the parent has given it back. */
static void forget_publishers(void)
{
    for (ga_arena_sharing *s = publishers; s; s = s->next) {
        drop_exports(s, 0);
        if (s->listener.socket >= 0) {
            close(s->listener.socket);
        }
        close(s->openers);
        s->listener.socket = s->openers = -1;
        s->id = 0; /* the arenas grow apart */
    }
    publishers = NULL;
    pthread_mutex_init(&changing, NULL);
    ga_forked_lock_child(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, lock_publishers, unlock_publishers, forget_publishers);
}

void ga_sharing_hold_forks(void)
{
    watch_forks();
    ga_forked_lock_use(&lock);
    pthread_mutex_lock(&lock.mutex);
}

void ga_sharing_release_forks(void)
{
    pthread_mutex_unlock(&lock.mutex);
}

/* ---- answering, in the thread ------------------------------------------------------- */

static void lock_both(ga_arena *arena)
{
    pthread_mutex_lock(&lock.mutex);
    pthread_mutex_lock(&arena->lock);
}

static void unlock_both(ga_arena *arena)
{
    pthread_mutex_unlock(&arena->lock);
    pthread_mutex_unlock(&lock.mutex);
}

/* The index of the chunk that begins at `offset`; the number of chunks if it is the end. */
static ga_status find_chunk(const ga_arena *arena, uint64_t offset, size_t *index)
{
    for (*index = 0; *index < arena->chunk_count; ++*index) {
        if (arena->chunks[*index].start >= offset) {
            break;
        }
    }
    uint64_t start =
        *index < arena->chunk_count ? arena->chunks[*index].start : ga_arena_end(arena);
    return start == offset
               ? GA_OK
               : ga_fail(GA_ERR_IO, "no chunk of the publisher begins at %llu", (ull)offset);
}

/* `openers`: a descriptor for a new opening; else -1. */
static ga_status begin_answer(ga_arena_sharing *s, const ga_join_request *request, size_t *first,
                              int *openers, ga_join_answer *answer)
{
    const ga_arena *arena = s->arena;
    *openers = -1;
    if (request->kind != GA_OPENER_READER && request->kind != GA_OPENER_WRITER) {
        return ga_fail(GA_ERR_ARGUMENT, "access %u: expected reading or writing", request->kind);
    }
    if (request->id && request->id != s->id) {
        return ga_fail(GA_ERR_IO, "the publisher has ended, and %s names another arena now",
                       s->name);
    }
    ga_status status = find_chunk(arena, request->from, first);
    if (status == GA_OK && !ga_arena_on_host(arena)) {
        status = ga_device_id_get(arena->space.device, answer->device_id);
    }
    if (status == GA_OK && !request->id) {
        status = ga_openers_add(s->openers, request->kind, ++s->last_number, openers);
    }
    answer->place = ga_arena_on_host(arena) ? GA_PLACE_HOST : GA_PLACE_DEVICE;
    answer->flags = arena->space.flags;
    answer->device = arena->space.device;
    answer->id = s->id;
    answer->reserved = arena->reserved;
    answer->backed = ga_arena_end(arena);
    answer->chunks = arena->chunk_count - *first;
    return status;
}

/* To export a chunk takes the driver longer than all else in an opening, and so does the close of
 * its last descriptor. So the descriptors of the first chunks are kept; `*kept`. */
static ga_status export_device_chunk(ga_arena *arena, size_t index, int *fd, bool *kept)
{
    int *exported = index < GA_ARENA_EXPORTS ? &arena->sharing->exported[index] : NULL;
    ga_arena_share share = {.fd = exported ? *exported : -1};
    ga_status status =
        share.fd >= 0 ? GA_OK : ga_space_export(&arena->space, arena->chunks[index].handle, &share);
    *fd = share.fd;
    *kept = status == GA_OK && exported;
    if (*kept) {
        *exported = share.fd;
    }
    return status;
}

static ga_status export_host_chunk(const ga_arena *arena, size_t index, ga_opener kind, int *fd)
{
    ga_arena_share share = {.fd = -1};
    ga_status status = ga_space_export(&arena->space, arena->chunks[index].handle, &share);
    *fd = share.fd;
    if (status == GA_OK && kind == GA_OPENER_READER) {
        status = ga_openers_reopen(share.fd, fd); /* cannot be mapped for writing */
        close(share.fd);
    }
    return status;
}

/* Returns an error only if the chunk cannot be exported. */
static ga_status export_and_send(ga_arena *arena, const ga_local_peer *peer, size_t index,
                                 ga_opener kind, ga_local_result *sent)
{
    int fd;
    bool kept = false;
    if (index >= arena->chunk_count) { /* the opener has ended, and the arena was shrunk */
        return ga_fail(GA_ERR_ARGUMENT, "no chunk %zu", index);
    }
    ga_status status = ga_arena_on_host(arena) ? export_host_chunk(arena, index, kind, &fd)
                                               : export_device_chunk(arena, index, &fd, &kept);
    if (status == GA_OK) {
        uint64_t size = arena->chunks[index].size;
        *sent = ga_local_send_now(peer, &size, sizeof size, fd);
        if (!kept) {
            close(fd);
        }
    }
    return status;
}

static ga_local_result try_chunk(ga_arena_sharing *s, const ga_local_peer *peer, size_t index,
                                 ga_opener kind)
{
    ga_local_result sent = GA_LOCAL_FAILED;
    lock_both(s->arena);
    ga_status status = export_and_send(s->arena, peer, index, kind, &sent);
    unlock_both(s->arena);
    if (status != GA_OK) {
        ga_log(GA_LOG_WARN, "arena: published as %s: a chunk is not sent: %s", s->name,
               ga_error_text());
    }
    return sent;
}

static bool send_chunk(ga_arena_sharing *s, const ga_local_peer *peer, size_t index, ga_opener kind)
{
    ga_local_result sent = GA_LOCAL_LATER;
    bool waits = ga_local_wait_to_send(peer);
    while (sent == GA_LOCAL_LATER && waits) {
        sent = try_chunk(s, peer, index, kind);
        waits = sent == GA_LOCAL_LATER && ga_local_retry_send(peer);
    }
    return sent == GA_LOCAL_DONE;
}

static ga_local_result try_answer(ga_arena_sharing *s, const ga_local_peer *peer,
                                  const ga_join_request *request, size_t *first,
                                  ga_join_answer *answer)
{
    int openers;
    lock_both(s->arena);
    answer->status = begin_answer(s, request, first, &openers, answer);
    if (answer->status != GA_OK) {
        answer->chunks = 0;
        snprintf(answer->text, sizeof answer->text, "%s", ga_error_text());
    }
    ga_local_result sent = ga_local_send_now(peer, answer, sizeof *answer, openers);
    if (openers >= 0) {
        close(openers); /* the packet has it, or the opening is not counted */
    }
    unlock_both(s->arena);
    return sent;
}

/* The first packet, for which the socket has room. */
static bool send_answer(ga_arena_sharing *s, const ga_local_peer *peer,
                        const ga_join_request *request, size_t *first, ga_join_answer *answer)
{
    ga_local_result sent = try_answer(s, peer, request, first, answer);
    while (sent == GA_LOCAL_LATER && ga_local_retry_send(peer)) {
        sent = try_answer(s, peer, request, first, answer);
    }
    return sent == GA_LOCAL_DONE;
}

static void answer_request(ga_arena_sharing *s, const ga_local_peer *peer,
                           const ga_join_request *request)
{
    ga_join_answer answer = {.magic = GA_JOIN_MAGIC};
    size_t first = 0;
    bool sent = send_answer(s, peer, request, &first, &answer);
    for (uint64_t i = 0; sent && i < answer.chunks; i++) {
        sent = send_chunk(s, peer, first + i, (ga_opener)request->kind);
    }
}

static void *serve(void *context)
{
    ga_arena_sharing *s = context;
    for (;;) {
        ga_join_request request;
        ga_local_peer peer = {ga_local_accept(&s->listener, GA_LOCAL_NO_END), s->listener.socket,
                              0};
        if (peer.socket < 0) {
            return NULL;
        }
        peer.end = ga_local_now() + GA_JOIN_REQUEST_MS;
        if (ga_local_receive(&peer, &request, sizeof request, NULL) &&
            request.magic == GA_JOIN_MAGIC) {
            peer.end = ga_local_now() + GA_JOIN_ANSWER_MS;
            answer_request(s, &peer, &request);
        }
        close(peer.socket);
    }
}

/* ---- publishing --------------------------------------------------------------------- */

/* Signals go to the program's own threads. */
static ga_status start_thread(ga_arena_sharing *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&s->thread, NULL, serve, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? ga_fail(GA_ERR_MEMORY, "cannot start a thread: %s", strerror(error)) : GA_OK;
}

/* Needs no lock of the arena, which ga_arena_update() of an opened one holds when it takes `lock`:
 * arena->sharing is set under `lock`, or before ga_arena_join() returns. */
static ga_status check_publishable(const ga_arena *arena)
{
    const ga_arena_sharing *s = arena->sharing;
    if (s && s->kind != GA_OPENER_PUBLISHER) {
        return ga_fail(GA_ERR_UNSUPPORTED, "it was opened from its publisher's process");
    }
    if (s && s->listener.socket >= 0) {
        return ga_fail(GA_ERR_ARGUMENT, "it is published already, as %s", s->name);
    }
    return arena->space.flags & GA_ARENA_SHARE_FD
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED, "it was made without GA_ARENA_SHARE_FD");
}

static ga_status make_sharing(ga_arena *arena)
{
    ga_arena_sharing *s = arena->sharing ? arena->sharing : ga_libc.calloc(1, sizeof *s);
    if (!s) {
        return ga_fail(GA_ERR_MEMORY, "no memory to publish it");
    }
    if (!arena->sharing) {
        *s = (ga_arena_sharing){.arena = arena, .openers = -1, .listener.socket = -1};
        memset(s->exported, -1, sizeof s->exported);
        arena->sharing = s;
    }
    if (s->openers >= 0) { /* published before */
        return GA_OK;
    }
    ga_status status = ga_openers_create(&s->openers);
    if (status == GA_OK) {
        s->id = ga_entropy() | 1; /* not 0 */
        s->next = publishers;
        publishers = s;
    }
    return status;
}

static ga_status start(ga_arena_sharing *s)
{
    memcpy(s->name, s->listener.name, sizeof s->name);
    ga_status status = ga_openers_publish(s->openers, true);
    if (status == GA_OK) {
        status = start_thread(s);
    }
    if (status != GA_OK) {
        ga_openers_publish(s->openers, false);
    }
    return status;
}

/* `is_busy`: to be tried once more. */
static ga_status try_listen(ga_arena *arena, const char *name, bool *is_busy)
{
    *is_busy = false;
    ga_sharing_hold_forks();
    ga_status status = check_publishable(arena);
    if (status == GA_OK) {
        pthread_mutex_lock(&arena->lock);
        status = make_sharing(arena);
        pthread_mutex_unlock(&arena->lock);
    }
    if (status == GA_OK) {
        status = ga_local_listen_now(name, &arena->sharing->listener, is_busy);
    }
    ga_sharing_release_forks();
    return status;
}

static ga_status listen_at(ga_arena *arena, const char *name)
{
    int64_t begin = ga_local_now();
    int path_lock;
    bool is_busy;
    ga_status status = ga_local_lock(name, &path_lock);
    if (status != GA_OK) {
        return status;
    }
    do {
        status = try_listen(arena, name, &is_busy);
    } while (is_busy && ga_local_retry_listen(begin));
    ga_local_unlock(name, path_lock);
    return status;
}

/* The path goes while other processes may wait for its lock; the socket under `lock`. */
static void end_listening(ga_arena_sharing *s)
{
    ga_local_remove(&s->listener);
    pthread_mutex_lock(&lock.mutex);
    ga_openers_publish(s->openers, false);
    ga_local_close(&s->listener);
    pthread_mutex_unlock(&lock.mutex);
}

static ga_status publish(ga_arena *arena, const char *name)
{
    ga_status status = listen_at(arena, name);
    if (status != GA_OK) {
        return status;
    }
    ga_sharing_hold_forks();
    status = start(arena->sharing);
    ga_sharing_release_forks();
    if (status != GA_OK) {
        end_listening(arena->sharing);
    }
    return status;
}

ga_status ga_arena_publish(ga_arena *arena, const char *name)
{
    if (!arena) {
        return ga_arena_missing();
    }
    pthread_mutex_lock(&changing);
    ga_status status = publish(arena, name);
    pthread_mutex_unlock(&changing);
    return ga_arena_prefix_error(status);
}

/* ---- its end ------------------------------------------------------------------------ */

/* Once the thread has ended, no opening is added. */
static void stop(ga_arena_sharing *s)
{
    ga_local_shut_down(&s->listener);
    pthread_join(s->thread, NULL);
    end_listening(s);
}

void ga_arena_unpublish(ga_arena *arena)
{
    pthread_mutex_lock(&changing);
    if (arena && arena->sharing && arena->sharing->listener.socket >= 0) {
        stop(arena->sharing);
    }
    pthread_mutex_unlock(&changing);
}

static void remove_publisher(const ga_arena_sharing *s)
{
    ga_arena_sharing **link = &publishers;
    pthread_mutex_lock(&lock.mutex);
    while (*link && *link != s) {
        link = &(*link)->next;
    }
    if (*link) { /* not in a child of fork() */
        *link = s->next;
    }
    pthread_mutex_unlock(&lock.mutex);
}

void ga_arena_end_sharing(ga_arena *arena)
{
    ga_arena_sharing *s = arena->sharing;
    if (!s) {
        return;
    }
    if (s->kind == GA_OPENER_PUBLISHER) {
        remove_publisher(s);
        drop_exports(s, 0); /* of chunks that were not released: the context is gone */
    }
    if (s->openers >= 0) {
        close(s->openers);
    }
    ga_libc.free(s);
    arena->sharing = NULL;
}

/* ---- questions ---------------------------------------------------------------------- */

ga_status ga_arena_check_own(const ga_arena *arena)
{
    const ga_arena_sharing *s = arena->sharing;
    return !s || s->kind == GA_OPENER_PUBLISHER
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "arena: it is published as %s: its publisher alone changes its size",
                         s->name);
}

ga_status ga_arena_check_alone(const ga_arena *arena)
{
    ga_arena_openers openers = {0};
    const ga_arena_sharing *s = arena->sharing;
    ga_status status = ga_arena_check_own(arena);
    if (status == GA_OK && s && s->openers >= 0) {
        status = ga_arena_prefix_error(ga_openers_count(s->openers, s->kind, &openers));
    }
    uint64_t count = openers.readers + openers.writers;
    return status == GA_OK && count
               ? ga_fail(GA_ERR_UNSUPPORTED,
                         "arena: it is open %llu times elsewhere; expected no opening", (ull)count)
               : status;
}

static ga_status count_openers(const ga_arena *arena, ga_arena_openers *out)
{
    const ga_arena_sharing *s = arena->sharing;
    ga_status status = s && s->openers >= 0 ? ga_openers_count(s->openers, s->kind, out) : GA_OK;
    out->published |= s && s->listener.socket >= 0; /* by this process, whose lock is not counted */
    return status;
}

ga_status ga_arena_count_openers(ga_arena *arena, ga_arena_openers *out)
{
    if (!arena || !out) {
        return ga_arena_missing();
    }
    *out = (ga_arena_openers){0};
    pthread_mutex_lock(&arena->lock);
    ga_status status = count_openers(arena, out);
    pthread_mutex_unlock(&arena->lock);
    return ga_arena_prefix_error(status);
}
