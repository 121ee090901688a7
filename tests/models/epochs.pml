/* SPDX-License-Identifier: MIT
 *
 * A model of epochs of tiles (liballoc/reclaim/epoch_tile.h) as a table uses them that moves while
 * kernels run (hashtables/slabhash/grow_turn_tile.h): splits, merges and compactions are all the same
 * here, a newer stage in place of an older one (slabhash.pml has what happens in between). Stages stand in a
 * ring of two places, of which one is free for the next but one once its stage was given back. Tiles enter on a
 * stripe each, read which stage is `now`, use it, look again, and leave or enter anew; one thread moves the
 * table on, and two close epochs, wait for them, and give stages back. check_model explores all that can happen.
 *
 * MEMORY    Every step is one atomic or load. What `now` was a tile may see late: any value from the one
 *           that it has seen, or that came to it with what it acquired, to the newest. A stripe hands on what
 *           who turned it last had seen, and so does the word of steps.
 *
 * CHECKED   What a tile uses was not given back since it entered. One at a time closes an epoch. In the
 *           end all stages but the last are given back.
 *
 * MUTANT    1 to enter acquires nothing; 2 to turn a stripe hands nothing on; 3 to enter is to see the side and
 *           then to count; 4 a stripe is not turned; 5 a tile that looks again for stages enters no new epoch, though others
 *           wait for it no more; 6 two close at once; 7 what is taken out while the epoch is closed counts as
 *           taken out before; 8 an epoch is closed before the one before has drained; 9 who closes counts
 *           one stripe alone; 10 who makes a step acquires nothing of who made the one before. Each must be found.
 */
#ifndef MUTANT
#define MUTANT 0
#endif
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
#define STAGES 3 /* that there will be */
#define RING    2

#define OPEN     0
#define CLOSING  1
#define DRAINING 2
#define DRAINED  3

/* Of a stripe: the side that is entered, who came to it since, what who turned it had seen, and who has
 * left each side, ever. */
bool side[STRIPES];
byte came[STRIPES], told[STRIPES];
byte left[4]; /* of stripe s, side i: 2 s + i */
byte away[2];
byte step;    /* S, modulo 8 */
byte handed;  /* what who made the last step had seen */
byte cut;     /* whose the epochs are: stages before are given back next */

byte now;          /* the stage that pairs are in, or move from */
byte gone;         /* stages before were given back */
byte place[RING];  /* the stage that stands there, + 1; 0: none */
byte done;

#define STANDS(s) (place[(s) % RING] == (s) + 1)

/* ---- tiles ------------------------------------------------------------------------------------ */

inline enter()
{
    if
    :: MUTANT == 3 -> pin = side[me]; came[me]++
    :: else ->
        atomic {
            pin = side[me];
            came[me]++;
            if
            :: told[me] > seen && MUTANT != 1 -> seen = told[me]
            :: else
            fi
        }
    fi
}

inline leave()
{
    left[2 * me + pin]++
}

/* `seen` is what the tile reads of `now`. */
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
        :: true -> read_now() /* what it used before it does not use again */
        :: side[me] != pin ->
            if
            :: MUTANT == 5 -> leave(); atomic { pin = side[me]; came[me]++ }
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

/* ---- who moves the table: the next stage, in a place that is free ------------------------------- */

proctype mover()
{
    do
    :: now < STAGES - 1 ->
        gone + RING > now + 1;              /* else he comes back later */
        place[(now + 1) % RING] = now + 2;
        now++
    :: else -> break
    od;
    done++
}

/* ---- who gives stages back ---------------------------------------------------------------------- */

#define CLOSES (step >> 2) /* which side */

inline acquire_step()
{
    if
    :: handed > seen && MUTANT != 10 -> seen = handed
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
    :: MUTANT == 6 && step % 4 == OPEN -> step = (step + 1) % 8; ok = true
    :: MUTANT != 6 ->
        atomic {
            if
            :: step % 4 == OPEN -> step = (step + 1) % 8; ok = true; acquire_step()
            :: MUTANT == 8 && step % 4 == DRAINING -> step = (step + 3) % 8; ok = true
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
            :: MUTANT == 4 && i == 1
            :: else ->
                atomic {
                    sum = sum + (MUTANT == 9 && i > 0 -> 0 : came[i]);
                    came[i] = 0;
                    side[i] = 1 - CLOSES;
                    if
                    :: MUTANT != 2 -> told[i] = seen
                    :: else
                    fi
                }
            fi;
            i++
        :: else -> break
        od;
        if
        :: MUTANT == 7 -> cut = now
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

/* Until all is given back. */
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
