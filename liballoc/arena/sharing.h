/* SPDX-License-Identifier: MIT
 *
 * An arena in several processes: the publisher's and the openers' part of its state, and the
 * packets between them.
 *
 *   opener                                 publisher, in a thread of the listener
 *     ga_join_request          ->            serve
 *                              <-            ga_join_answer, with a descriptor to be counted by
 *                              <-            for each chunk its size, with its descriptor
 */
#ifndef GPUALLOC_ARENA_SHARING_H
#define GPUALLOC_ARENA_SHARING_H

#include "../platform/local_socket.h"
#include "openers.h"
#include "state.h"

enum {
    GA_JOIN_MAGIC = 0x47414a31, /* of the protocol's version, too */
    GA_JOIN_REQUEST_MS = 1000,  /* that the publisher waits for a request */
    GA_JOIN_ANSWER_MS = 10000,  /* that an opening may take in all, on each side */
    GA_ARENA_EXPORTS = 64
};

struct ga_arena_sharing {
    ga_opener kind;
    int openers; /* this process's descriptor; -1: none */
    uint64_t id; /* of the arena, in all its publications by one process */
    char name[GA_LOCAL_NAME_BYTES];
    /* The publisher's: */
    ga_arena *arena;
    ga_local_listener listener; /* socket -1: not published */
    pthread_t thread;
    /* Descriptors of the first chunks of a device's arena, kept for openers; -1: none. They are
     * here and not in the list of chunks, so that the child of a fork finds them. */
    int exported[GA_ARENA_EXPORTS];
    uint64_t last_number;   /* of an opening */
    ga_arena_sharing *next; /* published */
};

typedef struct ga_join_request {
    uint32_t magic;
    uint32_t kind; /* ga_opener */
    uint64_t id;   /* 0: a new opening; else of the arena that was opened */
    uint64_t from; /* bytes that the opener has mapped already */
} ga_join_request;

typedef struct ga_join_answer {
    uint32_t magic;
    uint32_t status; /* ga_status; the members below `text` are 0 unless it is GA_OK */
    char text[200];  /* the error */
    uint32_t place, flags;
    int32_t device;              /* the publisher's ordinal */
    unsigned char device_id[16]; /* all 0: unknown */
    uint64_t id;
    uint64_t reserved, backed; /* bytes */
    uint64_t chunks;           /* that follow, each its uint64_t size */
} ga_join_answer;

/* GA_ERR_UNSUPPORTED: the arena was opened by ga_arena_join(), so its publisher changes it. */
ga_status ga_arena_check_own(const ga_arena *arena);

/* As above, and GA_ERR_UNSUPPORTED while another process has the arena open. Under the lock. */
ga_status ga_arena_check_alone(const ga_arena *arena);

/* Release arena->sharing, once no memory is mapped any more. Not published. */
void ga_arena_end_sharing(ga_arena *arena);

/* Let fork() wait while this thread has a descriptor that no child may inherit, because it would
 * keep memory alive until the child's end. Nothing in between may wait for another process. */
void ga_sharing_hold_forks(void);
void ga_sharing_release_forks(void);

/* The identity of a device, which its ordinal is not: CUDA_VISIBLE_DEVICES may differ between
 * processes. All 0 if the driver does not know it. */
ga_status ga_device_id_get(int device, unsigned char id[16]);

/* The ordinal of that device in this process; `ordinal` if the identity is all 0.
 * GA_ERR_DEVICE: it is not visible here. */
ga_status ga_device_id_find(const unsigned char id[16], int ordinal, int *out);

#endif
