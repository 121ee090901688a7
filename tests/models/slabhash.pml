/* SPDX-License-Identifier: MIT
 *
 * A model of a slab hash that migrates (hashtables/slabhash/table/grow_tile.h): one bucket of the old
 * version, of two slots and, once a thread has chained it, a slab of one more; and the bucket of
 * the new version that its pairs go to. It makes no difference here whether the table doubles,
 * halves or keeps its size: a bucket leaves out pairs that belong elsewhere, and one with two
 * sources takes one after the other. Threads insert, replace and remove one key, TURNS times each,
 * one searches, and all but the searcher help; one more only migrates the table, at any time.
 * check_model explores all executions. Every step is a read or a compare-and-swap of one word: the
 * words of a slab are read one by one, its link before its slots or after them.
 *
 * CHECKED   `value` is the key's value: it changes with the compare-and-swap that changes the
 *           table, which must find that value. A call that changes nothing returns a value that the
 *           key had at some moment during the call. At the end the key is there once, with its
 *           value, or not at all; another key is still there.
 *
 * BUG       The rule, of those marked PLANTED(), that is broken. Each must be detected.
 *
 * STALE     As in hashtables/slabhash/kernel_growth/resize_tile.h: a thread may have an old snapshot long
 *           after there is a newer version, and refreshes it only when it meets a frozen pair, or
 *           the SEALED end.
 */
#ifndef STALE
#define STALE 0
#endif
#ifndef BUG
#define BUG 0
#endif
#define PLANTED(name) (BUG == name)
#ifndef TURNS
#define TURNS 2
#endif
#ifndef WRITERS /* 1 or 2 */
#define WRITERS 1
#endif
#ifndef SEARCHES /* 0 or 1 */
#define SEARCHES 1
#endif

/* Words of places. A pair of the key is PAIR + its value, 1 to 3. */
#define EMPTY   0
#define DELETED 1
#define PAIR    1
#define OTHER   5 /* of the other key */
#define FROZEN  8
#define IS_PAIR(w) ((w) > PAIR && (w) <= PAIR + 3)
#define IS_FROZEN_PAIR(w) ((w) > PAIR + FROZEN && (w) <= PAIR + 3 + FROZEN)

/* Links. */
#define NONE   0
#define SLAB   1
#define SEALED 2

/* Places: old 0 and 1, the chained slab's 2; new from 4 on. */
#define NEW    4
#define PLACES 10
#define NOWHERE 15
byte word[PLACES];
byte link, last;     /* of the old bucket; of the slab chained to it */
bool open, moving;
byte value;
byte had[WRITERS + 1]; /* a bit for each value that the key has had since a call began */
byte done;

inline becomes(v)
{
    value = v;
    had[0] = had[0] | (1 << v);
    had[1] = had[1] | (1 << v);
    had[WRITERS] = had[WRITERS] | (1 << v)
}

/* Check the result `v` of a call that has changed nothing. */
inline answers(v)
{
    assert(had[me] & (1 << (v)))
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* `i` is the place. */
inline freeze_place()
{
    do
    :: atomic { word[i] == EMPTY ->
        if
        :: !PLANTED(empty_slot_not_sealed) -> word[i] = DELETED
        :: else
        fi; break }
    :: atomic { (IS_PAIR(word[i]) || word[i] == OTHER) ->
        if
        :: !PLANTED(pair_not_frozen) -> word[i] = word[i] + FROZEN
        :: else
        fi; break }
    :: atomic { (word[i] == DELETED || word[i] >= FROZEN) -> break }
    od
}

/* `w` is the pair at `i`, `to` the next slot. */
inline bring()
{
    atomic {
        w = word[i];
        if
        :: w >= FROZEN -> w = w - FROZEN
        :: w < FROZEN && !(PLANTED(pair_not_frozen) && w > DELETED) -> w = EMPTY
        :: else
        fi
    };
    if
    :: w != EMPTY ->
        atomic {
            do
            :: PLANTED(migrated_to_any_slot) && word[to] != EMPTY -> to++
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

/* `w` is the pair read from slot `i`. If it has the key, `found` is the slot. */
inline note()
{
    if
    :: IS_PAIR(w) || IS_FROZEN_PAIR(w) -> found = i; seen = w
    :: w == EMPTY && spot == NOWHERE -> spot = i
    :: else
    fi;
    w = 0
}

inline read_place(p)
{
    atomic { i = p; w = word[p]; note() }
}

/* Read all of a version. `e` is the link at its end; `at_slab`: that is the slab's. */
inline look(newer)
{
    atomic { found = NOWHERE; spot = NOWHERE; e = NONE; at_slab = false };
    if
    :: newer ->
        i = NEW;
        do
        :: i < PLACES && found == NOWHERE -> atomic { w = word[i]; note(); i++ }
        :: else -> break
        od
    :: else ->
        if
        :: true -> e = link; read_place(1); read_place(0);
            /* the first of its empty places */
            atomic {
                if
                :: spot == 1 && word[0] == EMPTY -> spot = 0
                :: else
                fi
            }
        :: true -> read_place(0); read_place(1); e = link
        fi;
        if
        :: e == SLAB && found == NOWHERE ->
            if
            :: true -> e = last; read_place(2)
            :: true -> read_place(2); e = last
            fi;
            at_slab = true
        :: else
        fi
    fi;
    i = 0
}

/* ---- a thread that changes the key ------------------------------------------------------------ */

#define INSERT  0
#define REPLACE 1
#define REMOVE  2

/* `ok`: the slot held `before`, and holds `after` now, which makes the key's value `v`. */
inline swap(place, before, after, v)
{
    atomic {
        ok = word[place] == (before);
        if
        :: ok ->
            assert(value == (IS_PAIR(before) -> (before) - PAIR : 0));
            word[place] = after;
            becomes(v)
        :: else
        fi
    }
}

proctype writer(byte me)
{
    byte i, w, to, e, found, spot, seen, what, mine, turn;
    bool at_slab, newer, ok, finished, knows;
    do
    :: turn < TURNS ->
        atomic {
            if
            :: STALE -> knows = moving
            :: true
            fi;
            had[me] = 1 << value;
            mine = me + 1;
            finished = false;
            if
            :: what = INSERT
            :: what = REPLACE
            :: what = REMOVE
            fi
        };
        do
        :: !finished ->
            newer = (STALE -> knows : moving);
            if
            :: newer && !PLANTED(pending_bucket_changed) -> help()
            :: else
            fi;
            look(newer);
            if
            :: found != NOWHERE && seen >= FROZEN ->
                if
                :: PLANTED(frozen_key_is_absent) && what == REMOVE ->
                    atomic { answers(0); finished = true }
                :: else -> atomic { assert(moving); knows = STALE } /* it has moved */
                fi
            :: found != NOWHERE && seen < FROZEN ->
                if
                :: what == INSERT -> atomic { answers(seen - PAIR); finished = true }
                :: what == REPLACE -> swap(found, seen, PAIR + mine, mine); finished = ok
                :: what == REMOVE -> swap(found, seen, DELETED, 0); finished = ok
                fi
            :: found == NOWHERE && what == REMOVE ->
                if
                :: STALE && !newer && e == SEALED && !PLANTED(stale_removal_ends) ->
                    atomic { assert(moving); knows = true }
                :: else -> atomic { answers(0); finished = true }
                fi
            :: found == NOWHERE && what != REMOVE && spot != NOWHERE ->
                swap(spot, EMPTY, PAIR + mine, mine); finished = ok
            :: found == NOWHERE && what != REMOVE && spot == NOWHERE ->
                assert(!newer);
                if
                :: e == SEALED -> atomic { assert(moving); knows = STALE }
                :: e == NONE && !at_slab ->
                    atomic {
                        if
                        :: link == NONE ->
                            assert(value == 0);
                            link = SLAB;
                            word[2] = PAIR + mine;
                            becomes(mine);
                            finished = true
                        :: else
                        fi
                    }
                :: e == NONE && at_slab -> finished = true /* there is no room in the model */
                :: else /* another thread chained it */
                fi
            fi;
            atomic { found = 0; spot = 0; seen = 0; e = 0; at_slab = false; ok = false; newer = false }
        :: else -> break
        od;
        atomic { what = 0; turn++ }
    :: else -> break
    od;
    done++
}

/* ---- a search -------------------------------------------------------------------------------- */

/* A pair that it finds frozen was not frozen when the call began, or was not changed since. */
proctype searcher(byte me)
{
    byte i, w, e, found, spot, seen;
    bool at_slab, newer;
    atomic {
        had[me] = 1 << value;
        if
        :: !STALE || moving -> newer = moving
        :: STALE
        fi
    };
    if
    :: newer && (open || PLANTED(pending_bucket_searched)) && !PLANTED(new_bucket_not_searched) ->
        look(true)
    :: else -> look(false);
        if
        :: STALE && !newer && (found == NOWHERE -> e == SEALED : seen >= FROZEN) &&
               !PLANTED(stale_search_ends) ->
            assert(moving);
            if
            :: open -> look(true)
            :: else -> look(false)
            fi
        :: else
        fi
    fi;
    atomic {
        if
        :: found == NOWHERE -> answers(0)
        :: else -> answers((seen & 7) - PAIR) /* frozen or not */
        fi
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
    byte i, count, others;
    atomic {
        if
        :: word[0] = OTHER
        :: word[0] = DELETED; word[1] = OTHER
        :: word[0] = PAIR + 3; word[1] = OTHER; value = 3
        :: word[0] = OTHER; word[1] = PAIR + 3; value = 3
        fi;
        run writer(0);
        if
        :: WRITERS > 1 -> run writer(1)
        :: else
        fi;
        if
        :: SEARCHES -> run searcher(WRITERS)
        :: else
        fi;
        run mover()
    };
    done == WRITERS + SEARCHES + 1;
    d_step {
        i = NEW;
        do
        :: i < PLACES ->
            if
            :: IS_PAIR(word[i]) -> count++; assert(word[i] - PAIR == value)
            :: else
            fi;
            others = others + (word[i] == OTHER -> 1 : 0);
            i++
        :: else -> break
        od;
        assert(count == (value -> 1 : 0));
        assert(others == 1)
    }
}
