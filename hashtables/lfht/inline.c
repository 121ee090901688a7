/* SPDX-License-Identifier: MIT
 *
 * INLINE: a hash trie whose buckets are lines that hold the pairs themselves. lines.h says what a
 * line is, trail.h how a thread goes through them, rebuild.h how nodes grow and shrink,
 * inline_calls.h, inline_put.h and inline_batch.h have the calls.
 *
 * STRUCTURE  A pair is put in by three steps: a lane of its line is claimed, the pair is written,
 *            the lane becomes a part of the hash. A value is replaced by the same: the last step
 *            frees the old pair's lane as well. A pair is taken out by one, which frees its lane.
 *
 * INVARIANT  The swap that puts a pair in expects the word by which the line was searched: so no
 *            key is in a line twice.
 *
 * ORDER      lines.h.
 *
 * PROGRESS   A call is repeated where the line's word has changed, which another call's progress
 *            did, or one of seven claims.
 */
#include "inline_batch.h"

const lfht_variant ga_lfht_inline = {.put = put_key,
                                     .remove = remove_key,
                                     .lookup = lookup,
                                     .lookup_batch = lookup_batch,
                                     .insert_batch = insert_batch,
                                     .do_batch = do_batch,
                                     .each = each,
                                     .make_root = make_root,
                                     .clear_root = clear_root,
                                     .fill_root = fill_root,
                                     .hazards = LFHT_POINTERS,
                                     .slots = BATCH_SLOT_FIRST + 2 * GLANCE_WIDTH,
                                     .root_keys = LINE_ROOT_KEYS,
                                     .chunk = LFHT_CHUNK_MOST,
                                     .chain = LINE_PAIRS,
                                     .most = LINE_PAIRS,
                                     .batch_bytes = BATCH_BYTES,
                                     .shrinks = true,
                                     .name = "INLINE"};
