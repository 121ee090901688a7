/* SPDX-License-Identifier: MIT
 *
 * A model of growth under a running kernel (liballoc/growth/growth.h and pager.c): two tiles that
 * wait for steps, one pager, the mailbox between them. check_model explores all executions.
 *
 * MEMORY    Spin has sequential consistency only, so weaker orders are modelled. A store goes to
 *           the buffer of its process, and from there to memory at any later time, before or after
 *           the process's other stores; a release goes after all its earlier stores. A plain load
 *           may return the value at the process's last acquire, as the cache of a multiprocessor
 *           does, or any newer value; an atomic load returns the value in memory. A process sees
 *           its own stores at once.
 *
 * TIME      A refusal that is not final is old when a tile begins to wait, or not: both are tried.
 *           Patience ends only once the pager is dead, so that it cannot hide a hang.
 *
 *           Actions that no other process can see, or could as well see later, are one step: fewer
 *           states,
 *           no less
 *           found.
 *
 * CHECKED   Prepared steps are committed, used steps are prepared, and each step is prepared once.
 *           No tile is refused steps that were ready when the refusal was published, or that the
 *           limit permits. Each tile gets an answer, for any behaviour of the pager: no lost
 *           wake-up, no hang (weak fairness: a process that can run eventually runs).
 *
 * BUG       The rule, of those marked PLANTED(), that is broken. Each must be detected.
 */
#ifndef BUG
#define BUG 0
#endif
#define PLANTED(name) (BUG == name)
#ifndef MAY_REFUSE /* the pager, for lack of memory */
#define MAY_REFUSE 1
#endif
#ifndef MAY_DIE /* the pager, at any time */
#define MAY_DIE 0
#endif
#ifndef CALLS /* of a tile, if the first refusal is not final */
#define CALLS 2
#endif
#ifndef LIMIT
#define LIMIT 1
#endif

#define TILES   2
#define PAGER   2 /* the owner of the stores, besides the tiles */
#define AGENTS  3
#define STEPS   2
#define PENDING 7

/* Places in memory: atomics, then those that are read plainly. */
#define REQUEST  0
#define ANSWER   1
#define READY    2
#define REFUSAL  3
#define LOCK     4
#define OWN_REQUEST 5 /* ga_growth.request: written under the lock */
#define BACKED   6
#define PREPARED 8
#define PLACES   10
#define PLAIN    OWN_REQUEST

#define GRANTED    0
#define OUT_OF_IT  1 /* GA_GROWTH_LIMIT */
#define NO_MEMORY  2
#define GONE       3

/* A request, an answer. */
#define WORD(serial, steps, reason) ((serial) * 16 + (steps) * 4 + (reason))
#define SERIAL(word)                ((word) / 16)
#define STEPS_OF(word)              (((word) / 4) % 4)
#define REASON(word)                ((word) % 4)

/* A refusal: its number and its reason. A final one is the last. */
#define REFUSAL_WORD(number, reason) ((number) * 4 + (reason))
#define NUMBER(refusal)              ((refusal) / 4)
#define FINAL                  31

typedef store {
    byte place;
    byte value;
    bool release;
}

typedef agent {
    store pending[PENDING];
    byte count;
    byte seen[5]; /* the values of the plain locations at the process's last acquire */
}

byte memory[PLACES];
agent agents[AGENTS];

bool dead;     /* the pager */
byte answered; /* tiles that got an answer to all their requests */

/* The true values, for the checks. */
byte true_request;
byte refusals;
byte ready_at[32]; /* steps that were ready when the refusal of that number was made */
bool prepared[STEPS];

/* ---- loads and stores ------------------------------------------------------------------------ */

inline put(who, where, what, ordered)
{
    d_step {
        assert(agents[who].count < PENDING);
        agents[who].pending[agents[who].count].place = where;
        agents[who].pending[agents[who].count].value = what;
        agents[who].pending[agents[who].count].release = ordered;
        agents[who].count++
    }
}

/* `own`: the process's last store under way to the location, or PENDING. */
inline find_own(who, where)
{
    own = agents[who].count;
    do
    :: own > 0 && agents[who].pending[own - 1].place != where -> own--
    :: else -> break
    od;
    own = (own > 0 -> own - 1 : PENDING)
}

/* Part of a step. */
inline get(who, where, what)
{
    find_own(who, where);
    if
    :: own < PENDING -> what = agents[who].pending[own].value
    :: else -> what = memory[where]
    fi;
    own = 0
}

inline acquire(who)
{
    own = PLAIN;
    do
    :: own < PLACES -> agents[who].seen[own - PLAIN] = memory[own]; own++
    :: else -> break
    od;
    own = 0
}

inline load(who, where, what, acquires)
{
    d_step {
        get(who, where, what);
        if
        :: acquires -> acquire(who)
        :: else
        fi
    }
}

inline get_plain(who, where, what)
{
    atomic {
        find_own(who, where);
        if
        :: own < PENDING -> what = agents[who].pending[own].value
        :: own == PENDING -> what = memory[where]; agents[who].seen[where - PLAIN] = what
        :: own == PENDING && agents[who].seen[where - PLAIN] != memory[where] ->
            what = agents[who].seen[where - PLAIN]
        fi;
        own = 0
    }
}

/* A store leaves the buffer: after the process's earlier ones to that location, and a release after
 * all. */
proctype buffer(byte who)
{
    byte i, j;
end:
    do
    :: atomic {
        agents[who].count > 0 ->
        i = 0;
        do
        :: i + 1 < agents[who].count -> i++
        :: break
        od;
        if
        :: agents[who].pending[i].release -> i = 0
        :: else
        fi;
        j = 0;
        do
        :: j < i && agents[who].pending[j].place == agents[who].pending[i].place -> i = j
        :: j < i && agents[who].pending[j].place != agents[who].pending[i].place -> j++
        :: else -> break
        od;
        memory[agents[who].pending[i].place] = agents[who].pending[i].value;
        if
        :: agents[who].pending[i].place >= PLAIN ->
            agents[who].seen[agents[who].pending[i].place - PLAIN] = agents[who].pending[i].value
        :: else
        fi;
        do
        :: i + 1 < agents[who].count ->
            agents[who].pending[i].place = agents[who].pending[i + 1].place;
            agents[who].pending[i].value = agents[who].pending[i + 1].value;
            agents[who].pending[i].release = agents[who].pending[i + 1].release;
            i++
        :: else -> break
        od;
        agents[who].pending[i].place = 0;
        agents[who].pending[i].value = 0;
        agents[who].pending[i].release = false;
        agents[who].count--;
        i = 0;
        j = 0
       }
    od
}

/* ---- tiles: growth.h ------------------------------------------------------------------------- */

#define APPLIES(refusal) ((refusal) != 0 && NUMBER(refusal) > ignored)

inline post(who)
{
    assert(SERIAL(request) <= TILES * CALLS); /* about once a call: not again and again */
    true_request = WORD(SERIAL(request) + 1, want, GRANTED);
    put(who, OWN_REQUEST, true_request, false);
    put(who, REQUEST, true_request, false) /* GM3 */
}

inline refuse(who, why, number)
{
    get(who, READY, ready);
    ready_at[number] = ready;
    put(who, REFUSAL, REFUSAL_WORD(number, why), !PLANTED(refusal_store_relaxed)) /* GV1 */
}

inline next_refusal()
{
    refusals++;
    assert(refusals < FINAL)
}

inline speak(who)
{
    get_plain(who, OWN_REQUEST, request);
    assert(request == true_request);
    if
    :: SERIAL(answer) == SERIAL(request) || REASON(answer) == GONE ||
           PLANTED(old_answer_accepted) ->
        get(who, REFUSAL, refusal);
        if
        :: REASON(answer) == NO_MEMORY && refusal == 0 ->
            next_refusal();
            refuse(who, NO_MEMORY, refusals)
        :: REASON(answer) == OUT_OF_IT || REASON(answer) == GONE ->
            refuse(who, REASON(answer), FINAL)
        :: else ->
            if
            :: !APPLIES(refusal) &&
                   !(PLANTED(large_request_not_repeated) && STEPS_OF(request) >= want) ->
                put(who, REFUSAL, 0, false);
                post(who)
            :: else
            fi
        fi
    :: else ->
        if
        :: dead && !PLANTED(dead_pager_awaited) -> /* out of patience */
            next_refusal();
            refuse(who, GONE, refusals)
        :: else ->
            if
            :: STEPS_OF(request) < want -> post(who)
            :: else
            fi
        fi
    fi
}

inline look(who)
{
    load(who, ANSWER, answer, !PLANTED(answer_load_relaxed)); /* GM2 */
    atomic {
    get(who, READY, step);
    do
    :: step < STEPS_OF(answer) ->
        get_plain(who, BACKED + step, value);
        assert(value);
        assert(!prepared[step]);
        prepared[step] = true;
        put(who, PREPARED + step, 1, false);
        put(who, READY, step + 1, !PLANTED(ready_store_relaxed)); /* GR1 */
        step++
    :: else -> break
    od;
    step = 0;
    if
    :: STEPS_OF(answer) < want -> speak(who)
    :: else
    fi;
    if
    :: PLANTED(lock_kept_when_refused) && REASON(answer) != GRANTED
    :: else -> put(who, LOCK, 0, !PLANTED(unlock_relaxed)) /* GT2 */
    fi;
    ready = 0; refusal = 0; answer = 0; request = 0; value = 0
    }
}

inline try_lock(who)
{
    atomic {
        find_own(who, LOCK);
        if
        :: own == PENDING && memory[LOCK] == 0 -> /* GT1 */
            memory[LOCK] = 1;
            acquire(who);
            has_lock = true
        :: else -> has_lock = false
        fi;
        own = 0
    }
}

inline look_around(who)
{
    if
    :: PLANTED(refusal_loaded_after_ready) ->
        load(who, READY, ready, true); load(who, REFUSAL, refusal, true)
    :: else ->
        load(who, REFUSAL, refusal, true); /* GV2 */
        load(who, READY, ready, !PLANTED(ready_load_relaxed)) /* GR2 */
    fi
}

inline use(who)
{
    do
    :: step < want ->
        get_plain(who, PREPARED + step, value);
        assert(value);
        step++
    :: else -> break
    od;
    step = 0
}

/* Waits until `want` steps are there. */
proctype tile(byte me; byte want)
{
    byte ready, refusal, answer, request, step, value, own;
    byte ignored; /* refusals up to that were old when it began */
    bool second, has_lock;
again:
    load(me, REFUSAL, refusal, false);
    if
    :: refusal != 0 && NUMBER(refusal) != FINAL -> ignored = NUMBER(refusal)
    :: true
    fi;
    do
    :: look_around(me);
        if
        :: atomic { ready >= want -> use(me); break }
        :: atomic { ready < want && APPLIES(refusal) ->
            assert(want > ready_at[NUMBER(refusal)]);
            assert(REASON(refusal) != OUT_OF_IT || want > LIMIT);
            ready = 0;
            if
            :: REASON(refusal) == OUT_OF_IT || second || CALLS == 1 -> break
            :: else -> second = true; refusal = 0; goto again
            fi }
        :: atomic { ready < want && !APPLIES(refusal) -> ready = 0; refusal = 0 }; try_lock(me)
        fi;
        if
        :: has_lock -> has_lock = false; look(me)
        :: else
        fi
    od;
    atomic { ready = 0; refusal = 0; value = 0; ignored = 0; second = false; answered++ }
}

/* ---- the pager ------------------------------------------------------------------------------- */

/* Commits up to the limit; refuses for lack of memory once, at any point. It may die, and say
 * goodbye before that. */
active proctype pager()
{
    byte served, backed, wanted, reach, reason, request;
    bool failed;
end:
    do
    :: SERIAL(memory[REQUEST]) != served ->
        atomic {
        request = memory[REQUEST]; /* GM4 */
        served = SERIAL(request);
        wanted = STEPS_OF(request);
        reason = GRANTED;
        reach = wanted;
        if
        :: wanted > LIMIT -> reason = OUT_OF_IT; reach = LIMIT
        :: wanted <= LIMIT
        :: MAY_REFUSE && !failed && wanted > backed ->
            failed = true;
            reason = NO_MEMORY;
            reach = backed;
            do
            :: reach + 1 < wanted && reach < LIMIT -> reach++
            :: break
            od
        fi;
        do
        :: backed < reach -> put(PAGER, BACKED + backed, 1, false); backed++
        :: else -> break
        od;
        put(PAGER, ANSWER, WORD(served, backed, reason), !PLANTED(answer_store_relaxed)); /* GM1 */
        request = 0; wanted = 0; reach = 0; reason = 0
        }
    :: MAY_DIE -> dead = true; break
    :: MAY_DIE ->
        put(PAGER, ANSWER, WORD(served, backed, GONE), true);
        dead = true;
        break
    od
}

init
{
    atomic {
        run buffer(0);
        run buffer(1);
        run buffer(PAGER);
        if
        :: run tile(0, 1)
        :: run tile(0, 2)
        fi;
        run tile(1, 2)
    }
}

ltl each_is_answered { <> (answered == TILES) }
