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

const lfht_variant ga_lfht_inline = {.put = variant_put,
                                     .remove = variant_remove,
                                     .lookup = variant_lookup,
                                     .lookup_batch = variant_lookup_batch,
                                     .insert_batch = variant_insert_batch,
                                     .do_batch = variant_do_batch,
                                     .each = variant_each,
                                     .make_root = inline_make_root,
                                     .clear_root = inline_clear_root,
                                     .fill_root = inline_fill_root,
                                     .protection = LFHT_HAZARD_POINTERS,
                                     .slots = BATCH_SLOT_FIRST + 2 * BATCH_CURSORS,
                                     .keys_per_bucket = LINE_KEYS_PER_BUCKET,
                                     .chunk = LFHT_CHUNK_MOST,
                                     .chain = LINE_PAIRS,
                                     .chain_most = LINE_PAIRS,
                                     .batch_bytes = RETIRE_BATCH_BYTES,
                                     .shrinks = true,
                                     .name = "INLINE"};
