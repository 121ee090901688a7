/* SPDX-License-Identifier: MIT
 *
 * Export of memory to other processes of the same user. Each exporting process has a socket with a
 * random name and a thread that answers requests there. A request names an export by its number;
 * the answer is sizes and file descriptors. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_HANDOVER_H
#define GPUALLOC_INTERPOSE_CUDA_HANDOVER_H

#include "../../liballoc/backends/vmm/share.h"

enum {
    GA_CUDA_SOCKET_NAME_BYTES = 16
};

/* The name of a process's socket. It identifies the process that answers. */
typedef struct ga_cuda_socket_name {
    unsigned char bytes[GA_CUDA_SOCKET_NAME_BYTES];
} ga_cuda_socket_name;

/* Find the memory exported under `number`; the caller owns `*out`. False: there is none, or no
 * longer. Called in the answering thread. */
typedef bool ga_cuda_find_pieces(uint64_t number, ga_vmm_pieces *out);

/* Start to answer requests, once per process; later calls return the same name. Calls must not
 * overlap. GA_ERR_MEMORY: no socket, or no thread. */
ga_status ga_cuda_handover_begin(ga_cuda_find_pieces *find, ga_cuda_socket_name *name);

/* True if `name` is this process's own socket. */
bool ga_cuda_handover_is_ours(const ga_cuda_socket_name *name);

/* Ask the process behind `name` for its export `number`. Waits at most 10 s in all, whether or not
 * signals arrive.
 *
 * GA_ERR_POINTER  no such process, another user's process, or no such export
 * GA_ERR_MEMORY   no socket, or no room for the pieces */
ga_status ga_cuda_handover_request(const ga_cuda_socket_name *name, uint64_t number,
                                   ga_vmm_pieces *out);

/* In a child of fork(): the answering thread exists in the parent only. Closes the child's copy of
 * the socket, unless the program has reused its descriptor. */
void ga_cuda_handover_child(void);

/* For tests: replace the 10 s limit, from the next request on. */
void ga_cuda_handover_set_timeout(int milliseconds);

#endif
