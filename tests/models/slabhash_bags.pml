/* SPDX-License-Identifier: MIT
 *
 * A model of a multimap that migrates (hashtables/slabhash/table/grow_tile.h), in the shape of
 * slabhash.pml: one bucket of the old version, of two slots and, once a thread has chained it, a
 * slab of one more; and the bucket of the new version that its pairs go to. All pairs are of one
 * key, each with a number of its own. Threads insert a pair or delete the first that they find,
 * TURNS times each, one counts them all, and all but the counting one help; one more only migrates
 * the table, at any time. A slot whose pair was deleted is FREE, and is filled again. Every step is
 * a read or a compare-and-swap of one word: the words of a slab are read one by one, its link
 * before its slots or after them.
 *
 * CHECKED   A pair is inserted once, and deleted at most once, by the compare-and-swap that deletes
 *           it. A count counts no pair twice, only pairs that were there at some moment of it, and
 *           each pair that stays. A delete that finds no pair has missed no pair that stayed. At
 *           the end the pairs that were inserted and not deleted are in the new bucket, each once.
 *
 * BUG       The rule, of those marked PLANTED(), that is broken. Each must be detected.
 */
#ifndef BUG
#define BUG 0
#endif
#define PLANTED(name) (BUG == name)
#ifndef TURNS
#define TURNS 2
#endif
#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef ROUNDS /* 0 or 1 */
#define ROUNDS 1
#endif

/* Words of places. Pair number n, from 1 to 6, is n + 1. SEALED_PLACE is FREE, frozen. */
#define EMPTY        0
#define FREE         1
#define FROZEN       8
#define SEALED_PLACE 9
#define IS_PAIR(w)   ((w) > FREE && (w) < FROZEN)
#define IS_FROZEN_PAIR(w) ((w) > SEALED_PLACE)
#define NUMBER(w)    (((w) & 7) - 1)
#define BIT(w)       (1 << NUMBER(w))

/* Links. */
#define NONE   0
#define SLAB   1
#define SEALED 2

/* Places: old 0 and 1, the chained slab's 2; new from 4 on. */
#define NEW     4
#define PLACES  9
#define NOWHERE 15
byte word[PLACES];
byte link, last; /* of the old bucket; of the slab chained to it */
bool open, moving;
byte there;   /* a bit for each pair that was inserted and not deleted */
byte since;   /* those that were there at some moment since the round began */
byte numbers; /* numbers given to pairs so far */
byte done;

/* ---- moving ---------------------------------------------------------------------------------- */

/* `i` is the place. */
inline freeze_place()
{
    do
    :: atomic { word[i] == EMPTY ->
        if
        :: !PLANTED(empty_slot_not_sealed) -> word[i] = SEALED_PLACE
        :: else
        fi; break }
    :: atomic { word[i] == FREE ->
        if
        :: !PLANTED(free_slot_not_sealed) -> word[i] = SEALED_PLACE
        :: else
        fi; break }
    :: atomic { IS_PAIR(word[i]) ->
        if
        :: !PLANTED(pair_not_frozen) -> word[i] = word[i] + FROZEN
        :: else
        fi; break }
    :: atomic { word[i] >= FROZEN -> break }
    od
}

/* `w` is the pair at `i`, `to` the next place. */
inline bring()
{
    atomic {
        w = word[i];
        if
        :: IS_FROZEN_PAIR(w) -> w = w - FROZEN
        :: IS_PAIR(w) && PLANTED(pair_not_frozen)
        :: else -> w = EMPTY
        fi
    };
    if
    :: w != EMPTY ->
        atomic {
            do
            :: PLANTED(migrated_to_any_slot) && to < PLACES - 1 && word[to] != EMPTY -> to++
            :: else -> break
            od;
            if
            :: word[to] == EMPTY || PLANTED(migrate_by_store) -> word[to] = w
            :: else
            fi;
            to++
        }
    :: else
    fi;
    w = 0
}

inline help()
{
    if
    :: open
    :: else ->
        to = NEW;
        if
        :: PLANTED(bucket_opened_early) -> open = true
        :: else
        fi;
        i = 0;
        freeze_place();
        i = 1;
        freeze_place();
        atomic {
            if
            :: link == NONE && !PLANTED(last_link_not_sealed) -> link = SEALED
            :: else
            fi;
            e = link
        };
        if
        :: e == SLAB ->
            i = 2;
            freeze_place();
            last = SEALED
        :: else
        fi;
        i = 0;
        bring();
        i = 1;
        bring();
        if
        :: e == SLAB -> i = 2; bring()
        :: else
        fi;
        open = true
    fi;
    atomic { i = 0; e = 0; to = 0 }
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Read slot `p`. `found` is the slot of the first pair, preferring one that is not frozen; `spot`
 * is the first vacant slot. Their contents and all pairs are recorded. */
inline read_place(p)
{
    atomic {
        w = word[p];
        if
        :: IS_PAIR(w) || IS_FROZEN_PAIR(w) ->
            assert(!(all & BIT(w)));
            all = all | BIT(w);
            if
            :: found == NOWHERE || (IS_PAIR(w) && IS_FROZEN_PAIR(seen)) -> found = p; seen = w
            :: else
            fi
        :: w <= FREE && spot == NOWHERE -> spot = p; vacant = w
        :: else
        fi;
        w = 0
    }
}

/* Read all of a version. `e` is the link at its end; `at_slab`: that is the slab's. */
inline look(newer)
{
    atomic { found = NOWHERE; spot = NOWHERE; e = NONE; at_slab = false; all = 0 };
    if
    :: newer ->
        i = NEW;
        do
        :: i < PLACES -> atomic { read_place(i); i++ }
        :: else -> break
        od;
        i = 0
    :: else ->
        if
        :: true -> e = link; read_place(0); read_place(1)
        :: true -> read_place(0); read_place(1); e = link
        :: true -> read_place(1); read_place(0); e = link
        fi;
        if
        :: e == SLAB ->
            if
            :: true -> e = last; read_place(2)
            :: true -> read_place(2); e = last
            fi;
            at_slab = true
        :: else
        fi
    fi
}

/* ---- a thread that changes pairs --------------------------------------------------------------- */

#define INSERT 0
#define DELETE 1

/* `ok`: the slot was vacant, as seen, and has pair `mine` now. */
inline put_in()
{
    atomic {
        ok = word[spot] == vacant;
        if
        :: ok -> word[spot] = mine; there = there | BIT(mine); since = since | BIT(mine)
        :: else
        fi
    }
}

/* `ok`: the pair was there, as seen, and is deleted now. */
inline take_out()
{
    atomic {
        ok = word[found] == seen;
        if
        :: ok ->
            assert(there & BIT(seen));
            there = there & ~BIT(seen);
            word[found] = (PLANTED(deleted_slot_emptied) -> EMPTY : FREE)
        :: else
        fi
    }
}

/* The old bucket is full: chain a slab that has the pair. */
inline chain()
{
    atomic {
        if
        :: link == NONE ->
            link = SLAB;
            word[2] = mine;
            there = there | BIT(mine);
            since = since | BIT(mine);
            finished = true
        :: else
        fi
    }
}

proctype writer()
{
    byte i, w, to, e, found, spot, seen, vacant, all, mine, what, began, turn;
    bool at_slab, newer, ok, finished;
    do
    :: turn < TURNS ->
        atomic {
            began = there;
            finished = false;
            if
            :: what = INSERT; numbers++; mine = numbers + 1
            :: what = DELETE
            fi
        };
        do
        :: !finished ->
            newer = moving;
            if
            :: newer && !PLANTED(pending_bucket_changed) -> help()
            :: else
            fi;
            look(newer);
            if
            :: what == DELETE && found == NOWHERE ->
                atomic { assert(!(began & there)); finished = true }
            :: what == DELETE && found != NOWHERE && IS_PAIR(seen) -> take_out(); finished = ok
            :: what == DELETE && found != NOWHERE && IS_FROZEN_PAIR(seen) ->
                if
                :: PLANTED(frozen_pair_is_absent) ->
                    atomic { assert(!(began & there)); finished = true }
                :: else -> assert(moving) /* they have moved */
                fi
            :: what == INSERT && spot != NOWHERE -> put_in(); finished = ok
            :: what == INSERT && spot == NOWHERE ->
                assert(!newer);
                if
                :: e == SEALED -> assert(moving)
                :: e == NONE && !at_slab -> chain()
                :: e == NONE && at_slab -> finished = true /* there is no room in the model */
                :: else /* another thread chained it */
                fi
            fi;
            atomic {
                found = 0; spot = 0; seen = 0; vacant = 0; all = 0; e = 0;
                at_slab = false; ok = false; newer = false
            }
        :: else -> break
        od;
        atomic { what = 0; mine = 0; began = 0; turn++ }
    :: else -> break
    od;
    done++
}

/* ---- a round that counts them all ---------------------------------------------------------------- */

proctype counter()
{
    byte i, w, e, found, spot, seen, vacant, all, began;
    bool at_slab, newer;
    atomic { began = there; since = there; newer = moving };
    if
    :: newer && (open || PLANTED(pending_bucket_counted)) && !PLANTED(new_bucket_not_counted) ->
        look(true)
    :: else -> look(false)
    fi;
    atomic {
        assert(!(all & ~since));
        assert(!(began & there & ~all))
    };
    done++
}

/* ---- the migrating thread: it may stop anywhere, and continue at the end ------------------ */

proctype mover()
{
    byte i, w, to, e;
    moving = true;
    help();
    done++
}

init
{
    byte i, all;
    atomic {
        numbers = 1;
        there = 2;
        if
        :: word[0] = 2
        :: word[0] = FREE; word[1] = 2
        :: word[0] = 2; word[1] = FREE
        :: word[0] = 2; word[1] = 3; numbers = 2; there = 6
        fi;
        run writer();
        if
        :: WRITERS > 1 -> run writer()
        :: else
        fi;
        if
        :: ROUNDS -> run counter()
        :: else
        fi;
        run mover()
    };
    done == WRITERS + ROUNDS + 1;
    d_step {
        i = NEW;
        do
        :: i < PLACES ->
            if
            :: IS_PAIR(word[i]) -> assert(!(all & BIT(word[i]))); all = all | BIT(word[i])
            :: else
            fi;
            i++
        :: else -> break
        od;
        assert(all == there)
    }
}
