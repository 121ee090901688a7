/* SPDX-License-Identifier: MIT
 *
 * The memory of the numbers of meetings: a file without a name, whose descriptor rank 0 hands to
 * the others over a socket. So none is left when processes are killed.
 *
 * PROGRESS   waits end at a time that the caller gives: a rank may be gone.
 */
#include "nccl.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void name_socket(uint64_t name, char out[GA_LOCAL_NAME_BYTES])
{
    snprintf(out, GA_LOCAL_NAME_BYTES, "@gpualloc-nccl-%016" PRIx64, name);
}

bool ga_nccl_offer_numbers(nccl_offer *offer, uint64_t name, uint64_t bytes)
{
    char socket[GA_LOCAL_NAME_BYTES];
    offer->file = memfd_create("gpualloc-nccl", MFD_CLOEXEC);
    name_socket(name, socket);
    return offer->file >= 0 && ftruncate(offer->file, (off_t)bytes) == 0 &&
           ga_local_listen(socket, &offer->listener) == GA_OK;
}

static bool hand_to_one(const nccl_offer *offer, uint64_t bytes, int64_t end)
{
    ga_local_peer peer = {ga_local_accept(&offer->listener, end), -1, end};
    bool sent = peer.socket >= 0 && ga_local_send(&peer, &bytes, sizeof bytes, offer->file);
    if (peer.socket >= 0) {
        close(peer.socket);
    }
    return sent;
}

bool ga_nccl_hand_numbers(const nccl_offer *offer, uint32_t others, uint64_t bytes, int64_t end)
{
    bool good = true;
    for (uint32_t i = 0; good && i < others; i++) {
        good = hand_to_one(offer, bytes, end);
    }
    return good;
}

bool ga_nccl_fetch_numbers(nccl_offer *offer, uint64_t name, uint64_t bytes, int64_t end)
{
    char socket[GA_LOCAL_NAME_BYTES];
    ga_local_peer peer = {-1, -1, end};
    uint64_t offered = 0;
    name_socket(name, socket);
    if (ga_local_connect(socket, &peer) != GA_OK) {
        return false;
    }
    bool got = ga_local_receive(&peer, &offered, sizeof offered, &offer->file);
    close(peer.socket);
    return got && offer->file >= 0 && offered == bytes;
}

void ga_nccl_end_offer(nccl_offer *offer)
{
    ga_local_close(&offer->listener);
    if (offer->file >= 0) {
        close(offer->file);
        offer->file = -1;
    }
}
