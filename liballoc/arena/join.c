/* SPDX-License-Identifier: MIT
 *
 * The opener's side of an arena in several processes.
 *
 *   ga_arena_join -> ask -> receive_chunks -> ga_arena_import_chunk, for each
 *   ga_arena_update, the same for later chunks
 */
#include "sharing.h"

#include "../platform/libc.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ull; /* the type of %llu */

static ga_status no_answer(const char *name)
{
    return ga_fail(GA_ERR_IO, "the publisher of %s does not answer, or has ended meanwhile", name);
}

static ga_status no_descriptor(void)
{
    return ga_fail(GA_ERR_MEMORY, "a descriptor was not received: expected fewer open ones in this "
                                  "process (RLIMIT_NOFILE)");
}

/* Receive the answer of the publisher, and the descriptor for a new opening. */
static ga_status receive_answer(const ga_local_peer *peer, const char *name, ga_join_answer *answer,
                                int *openers)
{
    if (!ga_local_receive(peer, answer, sizeof *answer, openers)) {
        return no_answer(name);
    }
    if (answer->magic != GA_JOIN_MAGIC) {
        return ga_fail(GA_ERR_IO, "the process at %s publishes no arena that this version can open",
                       name);
    }
    answer->text[sizeof answer->text - 1] = 0;
    return answer->status == GA_OK ? GA_OK : ga_fail((ga_status)answer->status, "%s", answer->text);
}

/* On success the caller closes `peer->socket`, and `*openers` unless it is -1. */
static ga_status ask(const char *name, const ga_join_request *request, ga_local_peer *peer,
                     ga_join_answer *answer, int *openers)
{
    *openers = -1;
    *peer = (ga_local_peer){-1, -1, ga_local_now() + GA_JOIN_ANSWER_MS};
    ga_status status = ga_local_connect(name, peer);
    if (status != GA_OK) {
        return status;
    }
    status = ga_local_send(peer, request, sizeof *request, -1)
                 ? receive_answer(peer, name, answer, openers)
                 : no_answer(name);
    if (status != GA_OK) {
        close(peer->socket);
        if (*openers >= 0) {
            close(*openers);
        }
    }
    return status;
}

static ga_status take_chunk(ga_arena *arena, const ga_local_peer *peer, const char *name)
{
    ga_arena_share share = {.offset = ga_arena_end(arena), .fd = -1};
    if (ga_local_receive_now(peer, &share.size, sizeof share.size, &share.fd) != GA_LOCAL_DONE) {
        return no_answer(name); /* it was there to be received */
    }
    if (share.fd < 0) {
        return no_descriptor();
    }
    ga_status status = ga_arena_import_chunk(arena, &share);
    close(share.fd);
    return status;
}

static ga_status receive_chunk(ga_arena *arena, const ga_local_peer *peer, const char *name)
{
    if (!ga_local_wait_to_receive(peer)) {
        return no_answer(name);
    }
    ga_sharing_hold_forks();
    ga_status status = take_chunk(arena, peer, name);
    ga_sharing_release_forks();
    return status;
}

/* All or none. The caller holds the lock. */
static ga_status receive_chunks(ga_arena *arena, const ga_local_peer *peer, const char *name,
                                uint64_t count)
{
    uint64_t before = ga_arena_end(arena);
    ga_status status = GA_OK;
    for (uint64_t i = 0; status == GA_OK && i < count; i++) {
        status = receive_chunk(arena, peer, name);
    }
    if (status != GA_OK) {
        char why[512]; /* unmapping may set another error text */
        snprintf(why, sizeof why, "%s", ga_error_text());
        ga_arena_cut(arena, before);
        ga_fail(status, "%s", why);
    }
    ga_arena_set_backed(arena);
    return status;
}

/* ---- opening ------------------------------------------------------------------------ */

static ga_status make_arena(ga_arena **out, const ga_join_answer *answer, bool read_only)
{
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_SHARE_FD | (answer->flags & GA_ARENA_HUGE_PAGES),
                                .place = (ga_place)answer->place,
                                .reserve = answer->reserved};
    ga_status status = GA_OK;
    if (options.place == GA_PLACE_DEVICE) {
        status = ga_device_id_find(answer->device_id, answer->device, &options.device);
    }
    if (status == GA_OK) {
        status = ga_arena_open_guest(out, &options, read_only);
    }
    if (status == GA_ERR_MEMORY && answer->backed) { /* RLIMIT_AS, for example */
        options.reserve = answer->backed;
        status = ga_arena_open_guest(out, &options, read_only);
    }
    return status;
}

static ga_status set_sharing(ga_arena *arena, const char *name, ga_opener kind, uint64_t id,
                             int openers)
{
    ga_arena_sharing *s = ga_libc.calloc(1, sizeof *s);
    if (!s) {
        close(openers);
        return ga_fail(GA_ERR_MEMORY, "no memory to open it");
    }
    *s = (ga_arena_sharing){.kind = kind, .openers = openers, .id = id, .listener.socket = -1};
    memset(s->exported, -1, sizeof s->exported);
    memcpy(s->name, name, strlen(name) + 1); /* checked by ga_local_connect() */
    arena->sharing = s;
    return GA_OK;
}

static ga_status open_answered(ga_arena **out, const char *name, ga_opener kind,
                               const ga_local_peer *peer, const ga_join_answer *answer, int openers)
{
    ga_status status = openers >= 0 ? GA_OK : no_descriptor();
    if (status == GA_OK) {
        status = make_arena(out, answer, kind == GA_OPENER_READER);
        if (status != GA_OK) {
            close(openers);
        }
    }
    if (status != GA_OK) {
        return status;
    }
    status = set_sharing(*out, name, kind, answer->id, openers);
    if (status == GA_OK) {
        status = receive_chunks(*out, peer, name, answer->chunks);
    }
    if (status != GA_OK) {
        ga_arena_close(*out);
        *out = NULL;
    }
    return status;
}

static ga_status join(ga_arena **out, const char *name, ga_opener kind)
{
    ga_local_peer peer;
    ga_join_answer answer;
    ga_join_request request = {.magic = GA_JOIN_MAGIC, .kind = kind};
    int openers;
    ga_status status = ask(name, &request, &peer, &answer, &openers);
    if (status == GA_OK) {
        status = open_answered(out, name, kind, &peer, &answer, openers);
        close(peer.socket);
    }
    return status;
}

ga_status ga_arena_join(ga_arena **out, const char *name, ga_arena_access access)
{
    if (!out) {
        return ga_arena_missing();
    }
    *out = NULL;
    if (access != GA_ARENA_READ && access != GA_ARENA_READ_WRITE) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "arena: access %d: expected GA_ARENA_READ or GA_ARENA_READ_WRITE",
                       (int)access);
    }
    return ga_arena_prefix_error(
        join(out, name, access == GA_ARENA_READ ? GA_OPENER_READER : GA_OPENER_WRITER));
}

/* ---- growth since ------------------------------------------------------------------- */

static ga_status receive_growth(ga_arena *arena, const ga_local_peer *peer,
                                const ga_join_answer *answer)
{
    ga_status status = GA_OK;
    if (answer->reserved > arena->reserved) {
        status = ga_arena_extend_to(arena, answer->reserved);
    }
    return status == GA_OK ? receive_chunks(arena, peer, arena->sharing->name, answer->chunks)
                           : status;
}

static ga_status update(ga_arena *arena)
{
    ga_local_peer peer;
    ga_join_answer answer;
    const ga_arena_sharing *s = arena->sharing;
    int openers;
    if (!s || s->kind == GA_OPENER_PUBLISHER) {
        return ga_fail(GA_ERR_ARGUMENT, "it was not opened by ga_arena_join()");
    }
    ga_join_request request = {
        .magic = GA_JOIN_MAGIC, .kind = s->kind, .id = s->id, .from = ga_arena_end(arena)};
    ga_status status = ask(s->name, &request, &peer, &answer, &openers);
    if (status == GA_OK) {
        status = receive_growth(arena, &peer, &answer);
        close(peer.socket);
    }
    return status;
}

ga_status ga_arena_update(ga_arena *arena)
{
    if (!arena) {
        return ga_arena_missing();
    }
    pthread_mutex_lock(&arena->lock);
    ga_status status = update(arena);
    pthread_mutex_unlock(&arena->lock);
    return ga_arena_prefix_error(status);
}
