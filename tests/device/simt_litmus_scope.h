/* SPDX-License-Identifier: MIT
 *
 * The litmus tests' bodies for one scope; included for each, with SCOPED(name) defined, by
 * simt_litmus.h.
 */

GA_SIMT void SCOPED(litmus_publish)(uint32_t by, uint32_t *flag)
{
    switch (by) {
    case PUBLISH_STORE:
        SCOPED(ga_store_release)(flag, 1u);
        break;
    case PUBLISH_EXCHANGE:
        (void)SCOPED(ga_exchange_release)(flag, 1u);
        break;
    case PUBLISH_OR:
        (void)SCOPED(ga_or_release)(flag, 1u);
        break;
    case PUBLISH_AND:
        (void)SCOPED(ga_and_release)(flag, 1u);
        break;
    case PUBLISH_ADD:
        (void)SCOPED(ga_add_release)(flag, 1u);
        break;
    case PUBLISH_CAS:
        (void)SCOPED(ga_cas_release)(flag, LITMUS_EMPTY, 1u);
        break;
    case PUBLISH_OR_ACQ_REL:
        (void)SCOPED(ga_or_acq_rel)(flag, 1u);
        break;
    case PUBLISH_CAS_ACQ_REL:
        (void)SCOPED(ga_cas_acq_rel)(flag, LITMUS_EMPTY, 1u);
        break;
    case PUBLISH_POST_OR:
        SCOPED(ga_post_or_release)(flag, 1u);
        break;
    case PUBLISH_POST_AND:
        SCOPED(ga_post_and_release)(flag, 1u);
        break;
    case PUBLISH_POST_ADD:
        SCOPED(ga_post_add_release)(flag, 1u);
        break;
    case PUBLISH_POST_AND_PUBLISHED:
        SCOPED(ga_post_and_published)(flag, 1u);
        break;
    default:
        SCOPED(ga_store_relaxed)(flag, 1u);
        break;
    }
}

/* The flag's value; no method of reading changes a published flag to LITMUS_EMPTY before it is
 * seen. */
GA_SIMT uint32_t SCOPED(litmus_look)(uint32_t by, uint32_t *flag)
{
    switch (by) {
    case LOOK_LOAD:
        return SCOPED(ga_load_acquire)(flag);
    case LOOK_EXCHANGE:
        return SCOPED(ga_exchange_acquire)(flag, LITMUS_EMPTY);
    case LOOK_OR:
        return SCOPED(ga_or_acquire)(flag, 0);
    case LOOK_AND:
        return SCOPED(ga_and_acquire)(flag, GA_ALL_BITS);
    case LOOK_ADD:
        return SCOPED(ga_add_acquire)(flag, 0);
    case LOOK_CAS:
        return SCOPED(ga_cas_acquire)(flag, 1u, 1u);
    case LOOK_OR_ACQ_REL:
        return SCOPED(ga_or_acq_rel)(flag, 0);
    case LOOK_CAS_ACQ_REL:
        return SCOPED(ga_cas_acq_rel)(flag, 1u, 1u);
    default:
        return SCOPED(ga_load_relaxed)(flag);
    }
}

GA_SIMT bool SCOPED(litmus_wait_ready)(const uint32_t *ready, uint32_t patience)
{
    /* relaxed: only shows the writer that the reader has filled its cache. */
    for (; patience && !SCOPED(ga_load_relaxed)(ready); patience--) {
        litmus_pause();
    }
    return patience != 0;
}

GA_SIMT bool SCOPED(litmus_wait_published)(uint32_t by, uint32_t *flag, uint32_t patience)
{
    for (; patience && SCOPED(litmus_look)(by, flag) == LITMUS_EMPTY; patience--) {
        litmus_pause();
    }
    return patience != 0;
}

/* ---- messages between two threads ---------------------------------------------------------- */

GA_SIMT uint32_t SCOPED(litmus_write)(litmus_cell *cell, litmus_edge edge, uint32_t index,
                                      uint32_t patience)
{
    if (!SCOPED(litmus_wait_ready)(&cell->ready, patience)) {
        return LITMUS_MISSED;
    }
    if (edge.data == DATA_RELAXED) {
        SCOPED(ga_store_relaxed)(&cell->data[0], index + 1u);
        SCOPED(ga_store_relaxed)(&cell->data[LITMUS_SECOND], ~index);
    } else {
        cell->data[0] = index + 1u;
        cell->data[LITMUS_SECOND] = ~index;
    }
    SCOPED(litmus_publish)(edge.publish, &cell->flag);
    return LITMUS_SEEN;
}

GA_SIMT uint32_t SCOPED(litmus_read)(litmus_cell *cell, litmus_edge edge, uint32_t index,
                                     uint32_t patience, uint32_t *got)
{
    uint32_t before = litmus_warm(&cell->data[0]) | litmus_warm(&cell->data[LITMUS_SECOND]);
    SCOPED(ga_store_relaxed)(&cell->ready, before == LITMUS_NEVER ? 2u : 1u);
    if (!SCOPED(litmus_wait_published)(edge.look, &cell->flag, patience)) {
        return LITMUS_MISSED;
    }
    if (edge.data == DATA_RELAXED) {
        got[0] = SCOPED(ga_load_relaxed)(&cell->data[0]);
        got[1] = SCOPED(ga_load_relaxed)(&cell->data[LITMUS_SECOND]);
    } else if (edge.data == DATA_CACHED) {
        got[0] = litmus_cached(&cell->data[0]);
        got[1] = litmus_cached(&cell->data[LITMUS_SECOND]);
    } else {
        got[0] = cell->data[0];
        got[1] = cell->data[LITMUS_SECOND];
    }
    return got[0] == index + 1u && got[1] == ~index ? LITMUS_SEEN : LITMUS_LATE;
}

/* One side of message `index`. Returns true if it arrived. */
GA_SIMT bool SCOPED(litmus_message)(litmus_cell *cells, litmus_edge edge, bool writes,
                                    uint32_t index, uint32_t patience, litmus_result *result)
{
    uint32_t expected[2] = {index + 1u, ~index};
    uint32_t got[2] = {0, 0};
    if (writes) {
        return SCOPED(litmus_write)(cells + index, edge, index, patience) != LITMUS_MISSED;
    }
    uint32_t outcome = SCOPED(litmus_read)(cells + index, edge, index, patience, got);
    litmus_count(result, outcome, index, expected, got);
    return outcome != LITMUS_MISSED;
}

/* ---- messages between two tiles -------------------------------------------------------------- */

/* Each lane writes a line; the leader publishes them all. */
GA_SIMT bool SCOPED(litmus_tile_write)(ga_tile tile, litmus_board *board, litmus_edge edge,
                                       uint32_t index, uint32_t patience)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes ready = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        bool is = SCOPED(litmus_wait_ready)(&board->ready, patience);
        ga_lane_write(&ready, own, is ? 1u : 0u);
    }
    ga_tile_sync(tile);
    if (!ga_lanes_get(tile, ready, leader)) {
        return false;
    }
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        board->data[own][0] = index + own + 1u;
    }
    if (edge.publish == PUBLISH_POST_AND_PUBLISHED) {
        SCOPED(ga_tile_publish)(tile);
    } else {
        ga_tile_sync(tile);
    }
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        (void)own;
        SCOPED(litmus_publish)(edge.publish, &board->flag);
    }
    return true;
}

/* The leader sees the publication; then each lane reads another lane's line. */
GA_SIMT uint32_t SCOPED(litmus_tile_read)(ga_tile tile, litmus_board *board, litmus_edge edge,
                                          uint32_t index, uint32_t patience, ga_lanes *late)
{
    uint32_t lanes = ga_tile_lanes(tile);
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes seen = ga_lanes_all(0);
    GA_EACH_LANE(tile, lanes, own)
    {
        ga_lane_write(late, own, litmus_warm(board->data[litmus_next_lane(lanes, own)]));
    }
    bool any = ga_lanes_any(tile, *late); /* none: nothing is written yet */
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        SCOPED(ga_store_relaxed)(&board->ready, any ? 2u : 1u);
        bool is = SCOPED(litmus_wait_published)(edge.look, &board->flag, patience);
        ga_lane_write(&seen, own, is ? 1u : 0u);
    }
    ga_tile_sync(tile);
    if (!ga_lanes_get(tile, seen, leader)) {
        return LITMUS_MISSED;
    }
    GA_EACH_LANE(tile, lanes, own)
    {
        uint32_t next = litmus_next_lane(lanes, own);
        const uint32_t *word = board->data[next];
        uint32_t got = edge.data == DATA_CACHED ? litmus_cached(word) : *word;
        ga_lane_write(late, own, got != index + next + 1u ? 1u : 0u);
    }
    return ga_lanes_any(tile, *late) ? LITMUS_LATE : LITMUS_SEEN;
}

/* One side of message `index`; if it is late, `got` is the mask of the lanes that saw it. */
GA_SIMT bool SCOPED(litmus_tile_message)(ga_tile tile, litmus_board *boards, litmus_edge edge,
                                         bool writes, uint32_t index, uint32_t patience,
                                         litmus_result *result)
{
    ga_lanes late = ga_lanes_all(0);
    if (writes) {
        return SCOPED(litmus_tile_write)(tile, boards + index, edge, index, patience);
    }
    uint32_t outcome = SCOPED(litmus_tile_read)(tile, boards + index, edge, index, patience, &late);
    uint32_t expected[2] = {0, ga_tile_lanes(tile)};
    uint32_t got[2] = {ga_lanes_nonzero(tile, late), ga_tile_lanes(tile)};
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        litmus_count(result, outcome, index, expected, got);
    }
    return outcome != LITMUS_MISSED;
}

/* ---- slots owned by one thread after the other, as SlabAlloc's units ---------------------- */

/* Take slot `slot` if it is free: bit `slot` of the bitmap; read it, write it, free it. Both its
 * words count its owners. Without `ordered` nothing is guaranteed. */
GA_SIMT bool SCOPED(litmus_own)(uint32_t *bitmap, litmus_cell *slots, uint32_t slot, bool ordered,
                                litmus_result *result)
{
    uint32_t bit = 1u << (slot & 31u);
    uint32_t *word = bitmap + slot / 32u;
    uint32_t *first = &slots[slot].data[0];
    uint32_t *second = &slots[slot].data[LITMUS_SECOND];
    uint32_t taken = ordered ? SCOPED(ga_or_acquire)(word, bit) : SCOPED(ga_or_relaxed)(word, bit);
    if (taken & bit) {
        return false;
    }
    uint32_t got[2] = {ordered ? *first : litmus_cached(first),
                       ordered ? *second : litmus_cached(second)};
    *first = got[0] + 1u;
    *second = got[1] + 1u;
    if (ordered) {
        SCOPED(ga_post_and_release)(word, ~bit);
    } else {
        SCOPED(ga_post_and_relaxed)(word, ~bit);
    }
    litmus_count(result, got[0] == got[1] ? LITMUS_SEEN : LITMUS_LATE, slot, got, got);
    return true;
}

/* ---- two threads that alternate ----------------------------------------------------------- */

/* The turns `first`, first + 2, ... below `turns`: a thread in its turn finds all words written by
 * the other, and writes them. The flag begins at 0, as all words do. Returns the number of own
 * turns that came. */
GA_SIMT uint32_t SCOPED(litmus_turns)(litmus_cell *cell, uint32_t first, uint32_t turns,
                                      uint32_t patience, litmus_result *result)
{
    uint32_t had = 0;
    for (uint32_t turn = first; turn < turns; turn += 2u) {
        uint32_t left = patience;
        for (; left && SCOPED(ga_load_acquire)(&cell->flag) != turn; left--) {
            litmus_pause();
        }
        if (!left) {
            return had;
        }
        had++;
        for (uint32_t i = 0; i < LITMUS_WORDS; i++) {
            uint32_t expected[2] = {turn, i};
            uint32_t got[2] = {cell->data[i], i};
            if (got[0] != turn) {
                litmus_count(result, LITMUS_LATE, turn, expected, got);
            }
            cell->data[i] = turn + 1u;
        }
        SCOPED(ga_store_release)(&cell->flag, turn + 1u);
    }
    return had;
}

/* ---- no change is lost, and no two get the same ---------------------------------------------- */

/* Run by thread `number` (below 4096) of the group. */
GA_SIMT void SCOPED(litmus_race)(litmus_race_words *words, uint32_t number,
                                 litmus_race_answers *answers)
{
    uint32_t bit = 1u << (number / 4u % 32u);
    uint32_t place = number / 128u;
    answers->add = SCOPED(ga_add_relaxed)(&words->add, 1u);
    answers->exchange = SCOPED(ga_exchange_relaxed)(&words->exchange, number + 1u);
    answers->add64 = SCOPED(ga_add64_relaxed)(&words->add64, UINT64_C(1) << 32);
    answers->exchange64 = SCOPED(ga_exchange64_relaxed)(&words->exchange64, number + UINT64_C(1));
    SCOPED(ga_post_add_relaxed)(&words->post_add, 1u);
    if (!(SCOPED(ga_or_relaxed)(&words->set[place], bit) & bit)) {
        SCOPED(ga_post_add_relaxed)(&words->won_or, 1u);
    }
    if (SCOPED(ga_and_relaxed)(&words->cleared[place], ~bit) & bit) {
        SCOPED(ga_post_add_relaxed)(&words->won_and, 1u);
    }
    uint32_t seen = SCOPED(ga_load_relaxed)(&words->cas);
    for (uint32_t left = 1u << 20; left; left--) {
        uint32_t before = SCOPED(ga_cas_relaxed)(&words->cas, seen, seen + 1u);
        if (before == seen) {
            return;
        }
        seen = before;
    }
    SCOPED(ga_post_add_relaxed)(&words->gave_up, 1u);
}
