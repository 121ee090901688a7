/* SPDX-License-Identifier: MIT
 *
 * A model of epochs of tiles (liballoc/reclaim/epoch_tile.h) as used by a table that migrates while
 * kernels run (hashtables/slabhash/kernel_growth/resize_tile.h). Splits, merges and compactions do not differ
 * here: a newer version replaces an older one (slabhash.pml models the steps in between). Versions
 * are in a ring of two entries. An entry can be reused once its version has been freed. Each tile
 * enters on a stripe, reads the version `now`, uses it, reads it again, and leaves or enters anew.
 * One thread migrates the table, and two close epochs, wait for them to drain, and free versions.
 * check_model explores all executions.
 *
 * MEMORY    Every step is one atomic or load. A tile may see `now` late: any value from the last
 *           one that it has read or acquired to the newest. A stripe carries the values seen by the
 *           thread that switched it last, and so does the word of steps.
 *
 * CHECKED   No version that a tile uses was freed since the tile entered. One thread at a time
 *           closes an epoch. At the end all versions but the last are freed.
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

#ifndef TILES /* 1 or 2 */
#define TILES 2
#endif
#ifndef FREERS /* 1 or 2 */
#define FREERS 1
#endif

#define STRIPES 2
#define STAGES 3 /* versions in all */
#define RING    2

#define OPEN     0
#define CLOSING  1
#define DRAINING 2
#define DRAINED  3

/* Of a stripe: the side that tiles enter, the entries since it was switched, the values seen by the
 * thread that switched it, and the exits from each side so far. */
bool side[STRIPES];
byte came[STRIPES], told[STRIPES];
byte left[4]; /* of stripe s, side i: 2 s + i */
byte away[2];
byte step;    /* S, modulo 8 */
byte handed;  /* values seen by the thread that made the last step */
byte cut;     /* of the thread that owns the epochs: versions before this one are freed next */

byte now;          /* the version that pairs are in, or migrate from */
byte gone;         /* versions before this one were freed */
byte place[RING];  /* the version in each entry, + 1; 0: none */
byte done;

#define STANDS(s) (place[(s) % RING] == (s) + 1)

/* ---- tiles ------------------------------------------------------------------------------------ */

inline enter()
{
    if
    :: PLANTED(enter_not_atomic) -> pin = side[me]; came[me]++
    :: else ->
        atomic {
            pin = side[me];
            came[me]++;
            if
            :: told[me] > seen && !PLANTED(enter_relaxed) -> seen = told[me]
            :: else
            fi
        }
    fi
}

inline leave()
{
    left[2 * me + pin]++
}

/* `seen` is the value of `now` that the tile reads. */
inline read_now()
{
    atomic {
        do
        :: seen < now -> seen++
        :: break
        od
    }
}

proctype tile(byte me)
{
    byte seen, turn;
    bool pin;
    enter();
    read_now();
    do
    :: turn < TURNS ->
        assert(STANDS(seen)); /* a use */
        if
        :: true -> read_now() /* it does not use the older version again */
        :: side[me] != pin ->
            if
            :: PLANTED(same_epoch_reread) -> leave(); atomic { pin = side[me]; came[me]++ }
            :: else -> leave(); enter(); read_now()
            fi
        fi;
        turn++
    :: else -> break
    od;
    assert(STANDS(seen));
    leave();
    done++
}

/* ---- the migrating thread: the next version, in a free entry ------------------------------ */

proctype mover()
{
    do
    :: now < STAGES - 1 ->
        gone + RING > now + 1;              /* otherwise it retries later */
        place[(now + 1) % RING] = now + 2;
        now++
    :: else -> break
    od;
    done++
}

/* ---- the threads that free versions ------------------------------------------------------- */

#define CLOSES (step >> 2) /* which side */

inline acquire_step()
{
    if
    :: handed > seen && !PLANTED(step_relaxed) -> seen = handed
    :: else
    fi
}

inline step_on()
{
    atomic { step = (step + 1) % 8; handed = seen }
}

inline close_epoch()
{
    ok = false;
    if
    :: PLANTED(step_not_atomic) && step % 4 == OPEN -> step = (step + 1) % 8; ok = true
    :: !PLANTED(step_not_atomic) ->
        atomic {
            if
            :: step % 4 == OPEN -> step = (step + 1) % 8; ok = true; acquire_step()
            :: PLANTED(closed_before_drained) && step % 4 == DRAINING ->
                step = (step + 3) % 8; ok = true
            :: else
            fi
        }
    :: else
    fi;
    if
    :: ok ->
        assert(step % 4 == CLOSING);
        read_now();
        cut = seen;
        i = 0;
        sum = 0;
        do
        :: i < STRIPES ->
            if
            :: PLANTED(stripe_not_closed) && i == 1
            :: else ->
                atomic {
                    sum = sum + (PLANTED(only_first_stripe_counted) && i > 0 -> 0 : came[i]);
                    came[i] = 0;
                    side[i] = 1 - CLOSES;
                    if
                    :: !PLANTED(close_relaxed) -> told[i] = seen
                    :: else
                    fi
                }
            fi;
            i++
        :: else -> break
        od;
        if
        :: PLANTED(unlinked_while_draining) -> cut = now
        :: else
        fi;
        away[CLOSES] = away[CLOSES] + sum;
        step_on()
    :: else
    fi;
    atomic { i = 0; sum = 0; ok = false }
}

inline give_back()
{
    was = step;
    if
    :: was % 4 == DRAINING ->
        sum = left[was >> 2];
        sum = sum + left[2 + (was >> 2)];
        atomic {
            ok = sum == away[was >> 2] && step == was;
            if
            :: ok -> step = (step + 1) % 8; acquire_step()
            :: else
            fi
        };
        if
        :: ok ->
            do
            :: gone < cut ->
                assert(STANDS(gone));
                place[gone % RING] = 0;
                gone++
            :: else -> break
            od;
            step_on()
        :: else
        fi
    :: else
    fi;
    atomic { was = 0; sum = 0; ok = false }
}

/* Until all versions are freed. */
proctype freer()
{
    byte seen, i, sum, was;
    bool ok;
    do
    :: gone < STAGES - 1 && step % 4 == OPEN && seen <= now -> close_epoch()
    :: gone < STAGES - 1 && step % 4 == DRAINING -> give_back()
    :: gone == STAGES - 1 -> break
    od;
    done++
}

init
{
    atomic {
        place[0] = 1;
        run tile(0);
        if
        :: TILES > 1 -> run tile(1)
        :: else
        fi;
        run mover();
        run freer();
        if
        :: FREERS > 1 -> run freer()
        :: else
        fi
    };
    done == TILES + 1 + FREERS;
    assert(now == STAGES - 1 && STANDS(now))
}
