/* SPDX-License-Identifier: MIT
 *
 * INLINE: a hash trie whose buckets are lines that hold the pairs themselves. Here are its rules
 * and its table of functions. lines.h defines a line; path.h has paths and cursor.h cursors, the
 * two ways to a line; rebuild.h has the growing and shrinking of nodes; inline_calls.h,
 * inline_put.h and inline_batch.h have the calls.
 *
 * Call tree. A fast path uses a cursor and fails if a word has changed, or is frozen or deep, or if
 * nodes have to change; the slow path then starts at the root, with a path:
 *
 *     variant_lookup                      the thread has hazard slots, no callbacks, no counting
 *     |- cursor_run -> cursor_step        fast path
 *     |- lookup_general -> cursor_run     callbacks, counting, or the thread's first call
 *     `- lookup_slow                      path_search, then path_read until that validates
 *     variant_put
 *     |- put_fast                         cursor_to_line, line_search
 *     |  `- put_fast_write                put_claim_cell, then put_publish
 *     `- put_slow                         path_search, then by the location:
 *        |- put_in_line -> put_once -> put_pair
 *        |  |- put_claim_cell, put_publish
 *        |  |- make_room                  no free cell: expand the line or rebuild the node, retry
 *        |  |- rebuild_subtree            the version is exhausted, retry
 *        |  `- rebuild_help               the line is frozen: finish that rebuild, retry
 *        `- put_at_link
 *           |- put_at_null_link           a new node with one pair
 *           `- deep_replace               a copy of the deep node
 *     variant_remove
 *     |- remove_fast                      cursor_to_line, line_search, one swap
 *     |  `- compress_after_remove         the line is empty now: compress_if_empty, with a path
 *     `- remove_slow                      path_search, then by the location:
 *        |- remove_from_line              one swap, then compress_if_empty
 *        `- remove_from_deep              deep_replace, then compress_if_empty
 *
 * STRUCTURE  A pair is inserted in three steps: a cell of its line is claimed, the pair is written,
 *            the cell's tag becomes a part of the hash. A value is replaced in the same way; the
 *            last step also frees the cell of the old pair. A pair is removed in one step, which
 *            frees its cell.
 *
 * INVARIANT  The swap that publishes a pair expects the word by which the line was searched, so no
 *            key is in a line twice.
 *
 * ORDER      lines.h.
 *
 * PROGRESS   A call is repeated if the line's word has changed. Another call's progress did that,
 *            or one of at most seven claims.
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
                                     .chunk = LFHT_CHUNK_MAX,
                                     .chain = LINE_PAIRS,
                                     .chain_max = LINE_PAIRS,
                                     .batch_bytes = RETIRE_BATCH_BYTES,
                                     .shrinks = true,
                                     .name = "INLINE"};
