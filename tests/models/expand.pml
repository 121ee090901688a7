/* SPDX-License-Identifier: MIT
 *
 * A model of an expansion with removals (hashtables/lfht/expand.h): a chain of two leaves that
 * moves into a new hash node, where both fall into one bucket. Two threads help, at any time; one
 * removes a leaf, and helps if it has to; one looks up the other leaf. check_model explores all
 * executions. Every step is a read or a compare-and-swap of one word, in one order, as the map's
 * words guarantee (LW1, LW2).
 *
 * CHECKED   A removed leaf is never inserted again: a later lookup would reach a retired leaf (the
 *           delegation problem, lfht-reclamation-2022 §4.4.3). It is removed once. The lookup finds
 *           its leaf. At the end the bucket leads to the new node, and the new node only to the
 *           leaf that was not removed.
 *
 * BUG       The rule, of those marked PLANTED(), that is broken. Each must be detected.
 */
#ifndef BUG
#define BUG 0
#endif
#define PLANTED(name) (BUG == name)
#ifndef VICTIM /* the leaf that is removed: 0 the first, 1 the last of the chain */
#define VICTIM 0
#endif
#define WANTED (1 - VICTIM)

/* The targets of a word: a leaf, the old hash node's end, the new hash node. */
#define OLD 2
#define NEW 3

/* A word: where to; the leaf's level; GONE of a leaf, FRESH of a bucket. */
#define WORD(to, level, tag) ((to) + 4 * (level) + 8 * (tag))
#define TO(word)             ((word) & 3)
#define LEVEL(word)          (((word) >> 2) & 1)
#define TAG(word)            (((word) >> 3) & 1)
#if PLANTED(buckets_not_fresh)
#define FRESH 0
#else
#define FRESH 1
#endif
#if PLANTED(level_not_in_word)
#define BELOW 0
#else
#define BELOW 1
#endif

/* Locations: the `next` of leaves 0 and 1, the old bucket, the new one. */
#define OLD_BUCKET 2
#define NEW_BUCKET 3
byte word[4];
bool out[2];    /* the leaf has been removed from its chain */
byte finished;  /* threads */

#define IS_LEAF(w) (TO(w) < OLD)

/* `ok`: the word was `seen`, and is `wanted` now. A removed leaf is never linked again. */
inline swap(place, seen, wanted)
{
    d_step {
        ok = word[place] == (seen);
        if
        :: ok ->
            word[place] = (wanted);
            assert(!(place == NEW_BUCKET && IS_LEAF(wanted)) || !out[TO(wanted) & 1]);
        :: else -> skip
        fi
    }
}

/* Take the leaf, which is GONE, out, where the place leads to it. */
inline unlink(place, seen, leaf, gone)
{
    d_step {
        ok = word[place] == (seen);
        if
        :: ok ->
            word[place] = WORD(TO(gone), LEVEL(seen), 0);
            assert(!out[leaf]);
            out[leaf] = true;
        :: else -> skip
        fi
    }
}

/* expand_help(): once through the chain, as far as possible. */
inline help()
{
    n = 0;
    place = OLD_BUCKET;
    w = word[OLD_BUCKET];
    moved = false;
    /* chain_read() */
    do
    :: !IS_LEAF(w) || n == 2 || moved -> break
    :: else ->
        leaf = TO(w);
        next = word[leaf];
        if
        :: TAG(next) && LEVEL(next) == 0 ->
            unlink(place, w, leaf, next);
            if
            :: ok -> w = WORD(TO(next), LEVEL(w), 0)
            :: else -> n = 0; w = OLD; moved = false
            fi
        :: TAG(next) && LEVEL(next) == 1 -> n = 0; w = OLD
        :: else ->
            chain[n] = leaf;
            n++;
            moved = LEVEL(next) == 1 && BELOW == 1 || TO(next) == NEW;
            place = leaf;
            w = next
        fi
    od;
    if
    :: !moved -> n = 0
    :: else -> skip
    fi;
    do
    :: n == 0 -> break
    :: else ->
        n--;
        leaf = chain[n];
        place = (n == 1 -> chain[0] : OLD_BUCKET);
        w = word[place];
        if
        :: TO(w) != leaf || (place < OLD_BUCKET && (TAG(w) || LEVEL(w) == 1)) -> break
        :: else -> skip
        fi;
        /* expand_aim_leaf() */
        next = word[leaf];
        if
        :: LEVEL(next) == 0 ->
            first = word[NEW_BUCKET];
            if
            :: TO(next) != NEW -> break
            :: else -> skip
            fi;
            if
            :: !PLANTED(not_validated) && word[place] != w -> break
            :: else -> skip
            fi;
            swap(leaf, next, WORD(TO(first), BELOW, 0));
            next = word[leaf]
        :: else -> skip
        fi;
        if
        :: LEVEL(next) != BELOW || TAG(next) -> break
        :: else -> skip
        fi;
        /* expand_push_leaf() */
        first = word[NEW_BUCKET];
        if
        :: !PLANTED(not_validated) && word[place] != w -> break
        :: else -> skip
        fi;
        if
        :: TO(first) != leaf -> swap(NEW_BUCKET, first, WORD(leaf, 0, FRESH))
        :: else -> skip
        fi;
        /* expand_cut_leaf() */
        swap(place, w, WORD(NEW, 0, 0))
    od
}

#define LOCALS                                                                                     \
    byte n, place, w, leaf, next, first;                                                           \
    byte chain[2];                                                                                 \
    bool ok, moved

proctype helper()
{
    LOCALS;
    help();
    finished++
}

/* Remove VICTIM: from the old chain while it stays there, otherwise from the new one. */
proctype remover()
{
    LOCALS;
    byte bucket, level;
again:
    bucket = OLD_BUCKET;
    level = 0;
    w = word[OLD_BUCKET];
    if
    :: TO(w) == NEW ->
        bucket = NEW_BUCKET;
        level = 1;
        w = word[NEW_BUCKET]
    :: else -> skip
    fi;
    place = bucket;
    do
    :: !IS_LEAF(w) -> break
    :: else ->
        leaf = TO(w);
        next = word[leaf];
        if
        :: leaf == VICTIM && !TAG(next) && LEVEL(next) == level * BELOW &&
               (level == 1 || TO(next) != NEW || PLANTED(moving_leaf_removed)) ->
            swap(leaf, next, WORD(TO(next), LEVEL(next), 1));
            if
            :: ok -> goto gone
            :: else -> goto again
            fi
        :: else -> skip
        fi;
        place = leaf;
        w = next
    od;
    if
    :: level == 0 -> help() /* it leaves the old chain */
    :: else -> skip /* it is being moved, or was not there yet: retry */
    fi;
    goto again;
gone:
    next = word[VICTIM];
    w = word[place];
    if
    :: TO(w) == VICTIM && !(place < OLD_BUCKET && TAG(w)) -> unlink(place, w, VICTIM, next)
    :: else -> skip
    fi;
    /* unlink_removed(): if the leaf is not removed yet, another thread is removing it, or this one
     * does. */
    do
    :: out[VICTIM] -> break
    :: else ->
        w = word[OLD_BUCKET];
        place = OLD_BUCKET;
        if
        :: TO(w) == NEW ->
            w = word[NEW_BUCKET];
            place = NEW_BUCKET
        :: else -> skip
        fi;
        if
        :: TO(w) == WANTED ->
            place = WANTED;
            w = word[WANTED]
        :: else -> skip
        fi;
        if
        :: TO(w) == VICTIM && !(place < OLD_BUCKET && TAG(w)) -> unlink(place, w, VICTIM, next)
        :: else -> skip
        fi
    od;
    finished++
}

/* Looks up WANTED, which no thread removes. */
proctype reader()
{
    byte w, next, leaf;
    bool below;
    w = word[OLD_BUCKET];
    do
    :: IS_LEAF(w) && TO(w) == WANTED -> break
    :: IS_LEAF(w) && TO(w) != WANTED ->
        leaf = TO(w);
        w = word[leaf]
    :: TO(w) == NEW && !below ->
        below = true;
        w = word[NEW_BUCKET]
    :: else -> assert(false) /* it is lost */
    od;
    finished++
}

init
{
    atomic {
        word[OLD_BUCKET] = WORD(0, 0, 0);
        word[0] = WORD(1, 0, 0);
        word[1] = WORD(NEW, 0, 0);
        word[NEW_BUCKET] = WORD(NEW, 0, FRESH);
        run helper();
        run helper();
        run remover();
        run reader()
    }
    finished == 4;
    /* The next thread finishes the remaining steps: then the chain must be complete. */
    LOCALS;
    do
    :: TO(word[OLD_BUCKET]) == NEW -> break
    :: else -> help()
    od;
    assert(TO(word[NEW_BUCKET]) == WANTED);
    assert(TO(word[WANTED]) == NEW && LEVEL(word[WANTED]) == BELOW && !TAG(word[WANTED]))
}
