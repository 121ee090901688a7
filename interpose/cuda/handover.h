/* SPDX-License-Identifier: MIT
 *
 * Memory is handed to other processes of the same user: each process that gives some away has a
 * socket of a random name, and a thread that answers there. A request names what it wants by a
 * number; the answer is sizes and file descriptors. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_HANDOVER_H
#define GPUALLOC_INTERPOSE_CUDA_HANDOVER_H

#include "../../liballoc/arena/vmm_share.h"

enum {
    GA_CUDA_NAME_BYTES = 16
};

/* Which process answers. */
typedef struct ga_cuda_name {
    unsigned char bytes[GA_CUDA_NAME_BYTES];
} ga_cuda_name;

/* Pieces of the caller's own; false: there is nothing of that number (any more). Called in the
 * thread that answers. */
typedef bool ga_cuda_find_pieces(uint64_t number, ga_vmm_pieces *out);

/* Begin to answer, once for a process; again, the same name. The caller does not call for this
 * process twice at once. GA_ERR_MEMORY: no socket, no thread. */
ga_status ga_cuda_handover_begin(ga_cuda_find_pieces *find, ga_cuda_name *name);

/* The name, if the process has begun. */
bool ga_cuda_handover_is_ours(const ga_cuda_name *name);

/* What another process has by that number; all of it is waited for 10 s at most, signals or not.
 *
 * GA_ERR_POINTER  no such process, not of this user, or nothing of that number
 * GA_ERR_MEMORY   no socket, or no room for the pieces */
ga_status ga_cuda_handover_ask(const ga_cuda_name *name, uint64_t number, ga_vmm_pieces *out);

/* In a child of fork(): the parent's thread is not here, and its socket is let go of, unless the
 * program has put something else in its place. */
void ga_cuda_handover_child(void);

/* For tests: 10 s are so many milliseconds, from the next question on. */
void ga_cuda_handover_patience(int milliseconds);

#endif
