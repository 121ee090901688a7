/* SPDX-License-Identifier: MIT
 *
 * A model of two buckets of a slab hash that become one (hashtables/slabhash/table/grow_tile.h), in the
 * shape of slabhash.pml: two buckets of the old version, the sources, of two slots each and, once a
 * thread has chained it, a slab of one more; and the bucket of the new version that the pairs of
 * both go to. Each source has a key of its own that a thread inserts and deletes, TURNS times;
 * another thread searches for one of the keys, and the threads that change keys help; one more only
 * migrates the table, at any time. check_model explores all executions. Every step is a read or a
 * compare-and-swap of one word: the words of a slab are read one by one, its link before its slots
 * or after them.
 *
 * MOVING    Each source is frozen, from its first slot to the SEALED end. Only then are pairs
 *           migrated, those of the first source before those of the second, each to the slot after
 *           the previous one; only then is the new bucket OPEN.
 *
 * CHECKED   `value` is a key's value: it changes with the compare-and-swap that changes the table,
 *           which must find that value. A call that changes nothing returns a value that its key
 *           had at some moment during the call. At the end each key is there once, with its value,
 *           or not at all; a third one, which no thread changes, is still there.
 *
 * STALE     As in slabhash.pml: a thread may have an old snapshot until it meets a frozen pair or
 *           end, in either source.
 *
 * BUG       The rule, of those marked PLANTED(), that is broken. Each must be detected.
 */
#ifndef BUG
#define BUG 0
#endif
#define PLANTED(name) (BUG == name)
#ifndef TURNS
#define TURNS 1
#endif
#ifndef WRITERS /* 1, of the second source, or 2 */
#define WRITERS 2
#endif
#ifndef STALE
#define STALE 0
#endif
#ifndef SEARCHES /* 0 or 1 */
#define SEARCHES 0
#endif

/* Words of places. A pair of key k, 0 or 1, with value v, 1 or 2, is v + 1 + 2 * k. */
#define EMPTY   0
#define DELETED 1
#define OTHER   6 /* of the third key */
#define FROZEN  8
#define PAIR(k, v) ((v) + 1 + 2 * (k))
#define PLAIN(w)   ((w) & 7)
#define IS_PAIR_OF(k, w) (PLAIN(w) == PAIR(k, 1) || PLAIN(w) == PAIR(k, 2))
#define VALUE(k, w)      (PLAIN(w) - 1 - 2 * (k))

/* Links. */
#define NONE   0
#define SLAB   1
#define SEALED 2

/* Slots: a source's are OLD(k) and the next, and its slab's the third; the new bucket's from NEW
 * on. */
#define OLD(k)  (3 * (k))
#define NEW     6
#define PLACES  12
#define NOWHERE 15
byte word[PLACES];
byte link[2], last[2]; /* of a source; of the slab chained to it */
bool open, moving;
byte value[2];
byte had[3]; /* of each writer's key, and the searcher's: a bit for each value since its call began */
byte sought; /* the searcher's key */
byte done;

inline becomes(k, v)
{
    value[k] = v;
    had[k] = had[k] | (1 << v);
    if
    :: SEARCHES && sought == k -> had[2] = had[2] | (1 << v)
    :: else
    fi
}

/* Check the result `v` of a call that has changed nothing. */
inline answers(v)
{
    assert(had[me] & (1 << (v)))
}

/* ---- moving ---------------------------------------------------------------------------------- */

inline freeze_place(p)
{
    do
    :: atomic { word[p] == EMPTY -> word[p] = DELETED; break }
    :: atomic { word[p] > DELETED && word[p] < FROZEN -> word[p] = word[p] + FROZEN; break }
    :: atomic { (word[p] == DELETED || word[p] >= FROZEN) -> break }
    od
}

/* A source, to its end. */
inline freeze(s)
{
    freeze_place(OLD(s));
    freeze_place(OLD(s) + 1);
    atomic {
        if
        :: link[s] == NONE -> link[s] = SEALED
        :: else
        fi;
        e = link[s]
    };
    if
    :: e == SLAB -> freeze_place(OLD(s) + 2); last[s] = SEALED
    :: else
    fi;
    e = 0
}

/* `to` is the next place. */
inline bring_place(p)
{
    w = (word[p] > DELETED -> PLAIN(word[p]) : EMPTY);
    if
    :: w != EMPTY ->
        atomic {
            if
            :: word[to] == EMPTY -> word[to] = w
            :: else
            fi;
            to++
        }
    :: else
    fi;
    w = 0
}

inline bring(s)
{
    bring_place(OLD(s));
    bring_place(OLD(s) + 1);
    if
    :: link[s] == SLAB -> bring_place(OLD(s) + 2)
    :: else
    fi
}

inline help()
{
    if
    :: open
    :: else ->
        freeze(0);
        if
        :: !PLANTED(only_first_source_frozen) -> freeze(1)
        :: else
        fi;
        to = NEW;
        bring(0);
        if
        :: PLANTED(sources_overlap) -> to = NEW
        :: PLANTED(bucket_opened_early) -> open = true
        :: else
        fi;
        bring(1);
        open = true
    fi;
    to = 0
}

/* ---- looking --------------------------------------------------------------------------------- */

/* The pair read from a slot. If it has the key, `found` is the slot. */
inline note(k, p)
{
    w = word[p];
    if
    :: IS_PAIR_OF(k, w) -> found = p; seen = w
    :: w == EMPTY && p < spot -> spot = p
    :: else
    fi;
    w = 0
}

inline read_place(k, p)
{
    atomic { note(k, p) }
}

/* Read all of a version. `e` is the link at its end; `at_slab`: that is the slab's. */
inline look(k, newer)
{
    atomic { found = NOWHERE; spot = NOWHERE; e = NONE; at_slab = false };
    if
    :: newer ->
        i = NEW;
        do
        :: i < PLACES && found == NOWHERE -> atomic { note(k, i); i++ }
        :: else -> break
        od;
        i = 0
    :: else ->
        if
        :: true -> e = link[k]; read_place(k, OLD(k) + 1); read_place(k, OLD(k))
        :: true -> read_place(k, OLD(k)); read_place(k, OLD(k) + 1); e = link[k]
        fi;
        if
        :: e == SLAB && found == NOWHERE ->
            if
            :: true -> e = last[k]; read_place(k, OLD(k) + 2)
            :: true -> read_place(k, OLD(k) + 2); e = last[k]
            fi;
            at_slab = true
        :: else
        fi
    fi
}

/* ---- a thread that changes its key ------------------------------------------------------------ */

/* `ok`: the slot held `before`, and holds `after` now, which makes the key's value `v`. */
inline swap(place, before, after, v)
{
    atomic {
        ok = word[place] == (before);
        if
        :: ok ->
            assert(value[me] == (IS_PAIR_OF(me, before) -> VALUE(me, before) : 0));
            word[place] = after;
            becomes(me, v)
        :: else
        fi
    }
}

/* It inserts the value 1; the initial value is 2. */
proctype writer(byte me)
{
    byte i, w, to, e, found, spot, seen, turn;
    bool at_slab, newer, ok, finished, inserts, knows;
    do
    :: turn < TURNS ->
        atomic {
            if
            :: STALE -> knows = moving
            :: true
            fi;
            had[me] = 1 << value[me];
            finished = false;
            if
            :: inserts = true
            :: inserts = false
            fi
        };
        do
        :: !finished ->
            newer = (STALE -> knows : moving);
            if
            :: newer -> help()
            :: else
            fi;
            look(me, newer);
            if
            :: found != NOWHERE && seen >= FROZEN ->
                atomic { assert(moving); knows = STALE } /* it has moved */
            :: found != NOWHERE && seen < FROZEN && inserts ->
                atomic { answers(VALUE(me, seen)); finished = true }
            :: found != NOWHERE && seen < FROZEN && !inserts ->
                swap(found, seen, DELETED, 0);
                finished = ok
            :: found == NOWHERE && !inserts ->
                if
                :: STALE && !newer && e == SEALED -> atomic { assert(moving); knows = true }
                :: else -> atomic { answers(0); finished = true }
                fi
            :: found == NOWHERE && inserts && spot != NOWHERE ->
                swap(spot, EMPTY, PAIR(me, 1), 1);
                finished = ok
            :: found == NOWHERE && inserts && spot == NOWHERE ->
                assert(!newer);
                if
                :: e == SEALED -> atomic { assert(moving); knows = STALE }
                :: e == NONE && !at_slab ->
                    atomic {
                        if
                        :: link[me] == NONE ->
                            assert(value[me] == 0);
                            link[me] = SLAB;
                            word[OLD(me) + 2] = PAIR(me, 1);
                            becomes(me, 1);
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
        turn++
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
        had[me] = 1 << value[sought];
        if
        :: !STALE || moving -> newer = moving
        :: STALE
        fi
    };
    if
    :: newer && open -> look(sought, true)
    :: else -> look(sought, false);
        if
        :: STALE && !newer && (found == NOWHERE -> e == SEALED : seen >= FROZEN) &&
               !PLANTED(stale_search_ends) ->
            assert(moving);
            if
            :: open -> look(sought, true)
            :: else -> look(sought, false)
            fi
        :: else
        fi
    fi;
    atomic {
        if
        :: found == NOWHERE -> answers(0)
        :: else -> answers(VALUE(sought, seen)) /* frozen or not */
        fi
    };
    done++
}

/* ---- the migrating thread: it may stop anywhere, and continue at the end ------------------ */

proctype mover()
{
    byte w, to, e;
    moving = true;
    help();
    done++
}

init
{
    byte i, others;
    byte count[2];
    atomic {
        if
        :: word[OLD(0)] = OTHER
        :: word[OLD(0)] = PAIR(0, 2); word[OLD(0) + 1] = OTHER; value[0] = 2
        fi;
        if
        :: word[OLD(1)] = DELETED; word[OLD(1) + 1] = DELETED
        :: word[OLD(1)] = DELETED
        :: word[OLD(1)] = PAIR(1, 2); value[1] = 2
        fi;
        if
        :: SEARCHES -> sought = 0
        :: SEARCHES -> sought = 1
        :: else
        fi;
        if
        :: WRITERS > 1 -> run writer(0)
        :: else
        fi;
        run writer(1);
        if
        :: SEARCHES -> run searcher(2)
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
            :: IS_PAIR_OF(0, word[i]) -> count[0]++; assert(VALUE(0, word[i]) == value[0])
            :: IS_PAIR_OF(1, word[i]) -> count[1]++; assert(VALUE(1, word[i]) == value[1])
            :: else
            fi;
            others = others + (word[i] == OTHER -> 1 : 0);
            i++
        :: else -> break
        od;
        assert(count[0] == (value[0] -> 1 : 0));
        assert(count[1] == (value[1] -> 1 : 0));
        assert(others == 1)
    }
}
