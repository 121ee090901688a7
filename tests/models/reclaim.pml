/* SPDX-License-Identifier: MIT
 *
 * A model of hazard pointers (gpualloc/reclaim.h and liballoc/reclaim/scan.c): readers protect the
 * object of a cell, read it, copy its protection to another slot and clear; one writer replaces the
 * object in the cell, retires and scans. check_model explores all executions.
 *
 * MEMORY    Spin has sequential consistency only, so weaker orders are modelled. A store goes to
 *           the buffer of its process, and from there to memory at any later time: a release after
 *           all earlier stores, any other store after the earlier ones to its location. A process
 *           sees its own stores at once. A load that is made too early or too late is a planted bug:
 *           read_before_validated, read_after_clear.
 *
 * BARRIERS  A light fence waits until the process's buffer is empty. A heavy fence (membarrier)
 *           makes one in every thread while it lasts: in the writer first, then in the readers, in
 *           any order. SHARED: another member makes it, and the writer frees the objects for which
 *           it took a ticket before.
 *
 * CHECKED   An object that a reader reads between validating and clearing has not been freed. (The
 *           writer retires and frees each object again and again, so that addresses come back.)
 *
 * BUG       The rule, of those marked PLANTED(), that is broken. Each must be detected.
 */
#ifndef BUG
#define BUG 0
#endif
#define PLANTED(name) (BUG == name)
#ifndef SEQ_CST /* else there are membarriers */
#define SEQ_CST 0
#endif
#ifndef SHARED
#define SHARED 0
#endif
#ifndef CALLS /* of the other member: its heavy fences */
#define CALLS 1
#endif
#ifndef TURNS /* of the writer */
#define TURNS 2
#endif

#ifndef READERS
#define READERS 2
#endif
#define WRITER  2 /* the owner of the stores, besides the readers */
#define AGENTS  3
#define OBJECTS 3
#define NOTHING 3 /* the content of a clear slot */
#define PENDING 4

/* Places in memory. */
#define CELL              0
#define SLOT(reader, number) (1 + 2 * (reader) + (number))
#define PLACES            5

/* States of an object. */
#define FREE    0
#define LIVE    1 /* or about to be unlinked */
#define RETIRED 2

typedef store {
    byte place;
    byte value;
    bool release;
}

typedef agent {
    store pending[PENDING];
    byte count
}

byte memory[PLACES];
agent agents[AGENTS];
byte state[OBJECTS];
byte begun, over; /* membarriers, by number */

/* ---- stores ---------------------------------------------------------------------------------- */

inline put(who, where, what, ordered)
{
    atomic {
        agents[who].count < PENDING;
        agents[who].pending[agents[who].count].place = where;
        agents[who].pending[agents[who].count].value = what;
        agents[who].pending[agents[who].count].release = ordered;
        agents[who].count++
    }
}

inline fence(who)
{
    agents[who].count == 0
}

/* A store leaves the buffer. */
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
        do
        :: i + 1 < agents[who].count ->
            agents[who].pending[i].place = agents[who].pending[i + 1].place;
            agents[who].pending[i].value = agents[who].pending[i + 1].value;
            agents[who].pending[i].release = agents[who].pending[i + 1].release;
            i++
        :: else -> break
        od;
        agents[who].count--;
        agents[who].pending[agents[who].count].place = 0;
        agents[who].pending[agents[who].count].value = 0;
        agents[who].pending[agents[who].count].release = false;
        i = 0;
        j = 0
       }
    od
}

/* ---- readers: gpualloc/reclaim.h ------------------------------------------------------------- */

#define LOOK(object) assert(state[object] != FREE)

/* A reader begins anew once all its earlier stores are in memory: stores of an earlier round can do
 * no more than those of this one. */
proctype reader(byte me)
{
    byte object = NOTHING;
    bool found;
    byte last;
end:
    do
    :: atomic {
        agents[me].count == 0;
        object = memory[CELL] /* a guess */
       };
       if
       :: PLANTED(read_before_validated) ->
           found = (state[object] != FREE) /* it is read before RP2 */
       :: else
       fi;
       put(me, SLOT(me, 0), object, !PLANTED(slots_relaxed)); /* RP1 */
       if
       :: SEQ_CST && !PLANTED(reader_not_fenced) -> fence(me)
       :: else
       fi;
       if
       :: atomic {
           memory[CELL] == object || PLANTED(not_validated) -> /* RP2 */
           if
           :: PLANTED(read_before_validated) -> assert(found)
           :: else -> LOOK(object)
           fi
          };
          if
          :: true -> /* copy the protection */
              put(me, SLOT(me, 1), object, !PLANTED(slots_relaxed));
              atomic { put(me, SLOT(me, 0), NOTHING, !PLANTED(slots_relaxed)); last = 1 }
          :: true
          fi;
          atomic {
              if
              :: !PLANTED(read_after_clear) -> LOOK(object)
              :: else
              fi;
              put(me, SLOT(me, last), NOTHING, !PLANTED(slots_relaxed)) /* RP4 */
          };
          if
          :: PLANTED(read_after_clear) -> LOOK(object) /* later than RP4 */
          :: else
          fi
       :: atomic { memory[CELL] != object && !PLANTED(not_validated) -> skip }
       fi;
       atomic { object = NOTHING; found = false; last = 0 }
    od
}

/* ---- the writer: scan.c ---------------------------------------------------------------------- */

inline heavy_fence()
{
    if
    :: !PLANTED(unlink_not_visible) -> fence(WRITER)
    :: else
    fi;
    if
    :: !SEQ_CST -> /* at any time each */
        if
        :: fence(0); fence(1)
        :: fence(1); fence(0)
        fi
    :: else
    fi
}

inline read_slot(place)
{
    atomic {
        if
        :: memory[place] != NOTHING -> seen = seen | (1 << memory[place])
        :: else
        fi
    }
}

inline read_slots()
{
    if
    :: !PLANTED(slots_read_downwards) ->
        read_slot(SLOT(0, 0)); read_slot(SLOT(0, 1)); read_slot(SLOT(1, 0)); read_slot(SLOT(1, 1))
    :: else ->
        read_slot(SLOT(0, 1)); read_slot(SLOT(0, 0)); read_slot(SLOT(1, 1)); read_slot(SLOT(1, 0))
    fi
}

inline take_retired()
{
    d_step {
        object = 0;
        do
        :: object < OBJECTS ->
            list = (state[object] == RETIRED -> list | (1 << object) : list);
            object++
        :: else -> break
        od;
        object = 0
    }
}

inline free_unprotected()
{
    d_step {
        marked = marked & (seen | ~list);
        object = 0;
        do
        :: object < OBJECTS ->
            state[object] = ((list & ~seen) & (1 << object) -> FREE : state[object]);
            object++
        :: else -> break
        od;
        object = 0;
        list = 0;
        seen = 0
    }
}

inline unlink()
{
    /* a free object replaces the one in the cell */
    atomic {
        if
        :: state[0] == FREE -> fresh = 0
        :: state[1] == FREE -> fresh = 1
        :: state[2] == FREE -> fresh = 2
        fi;
        state[fresh] = LIVE
    };
    put(WRITER, CELL, fresh, true);
    atomic { state[linked] = RETIRED; linked = fresh; fresh = 0 }
}

/* ---- membarriers that are shared: scan.c ----------------------------------------------------- */

inline mark()
{
    if
    :: !PLANTED(ticket_before_unlink) -> fence(WRITER) /* RM1 */
    :: else
    fi;
    atomic { take_retired(); marked = list; list = 0; number = begun }
}

#define IS_OVER ((over > number) || (PLANTED(unfinished_fence_counted) && begun > number) || \
                 (PLANTED(earlier_fence_counted) && over > 0))

inline share()
{
    if
    :: PLANTED(slots_read_early) -> read_slots()
    :: else
    fi;
    if
    :: IS_OVER -> /* RM4 */
        if
        :: !PLANTED(slots_read_early) -> read_slots() /* RS2 */
        :: else
        fi;
        if
        :: PLANTED(objects_behind_ticket_freed) -> take_retired()
        :: else -> list = marked
        fi;
        free_unprotected()
    :: else -> seen = 0
    fi
}

/* The other member: it has no objects to free. */
proctype other()
{
    byte number, call, fenced;
    do
    :: call < CALLS ->
        atomic { begun++; number = begun }; /* RM2 */
        if
        :: PLANTED(fence_ended_early) -> over = number
        :: else
        fi;
        do /* RS1: at some time each */
        :: atomic { !(fenced & 1) && agents[0].count == 0 -> fenced = fenced | 1 }
        :: atomic { !(fenced & 2) && agents[1].count == 0 -> fenced = fenced | 2 }
        :: atomic { !(fenced & 4) && agents[WRITER].count == 0 -> fenced = fenced | 4 }
        :: fenced == 7 -> break
        od;
        atomic { over = number; fenced = 0; number = 0; call++ } /* RM3 */
    :: else -> break
    od
}

proctype writer()
{
    byte linked, fresh, object, list, seen, turn, marked, number;
    do
    :: turn < TURNS ->
        if
        :: state[0] == FREE || state[1] == FREE || state[2] == FREE ->
            if
            :: PLANTED(retired_before_unlinked) -> /* and the scan begins before it is unlinked */
                atomic { state[linked] = RETIRED; take_retired(); state[linked] = LIVE };
                heavy_fence(); read_slots();
                unlink();
                free_unprotected()
            :: else -> unlink(); turn++
            fi
        :: else
        fi;
        if
        :: SHARED ->
            do
            :: true -> mark()
            :: true -> share()
            :: true -> break
            od
        :: !SHARED -> /* a batch is full */
            take_retired();
            if
            :: PLANTED(no_heavy_fence)
            :: PLANTED(slots_read_before_fence) -> read_slots(); heavy_fence()
            :: !PLANTED(no_heavy_fence) && !PLANTED(slots_read_before_fence) ->
                heavy_fence() /* RS1 */
            fi;
            if
            :: PLANTED(late_objects_freed) &&
                   (state[0] == FREE || state[1] == FREE || state[2] == FREE) ->
                read_slots();
                unlink(); /* as a reclaim function does; the object is freed with the others */
                take_retired()
            :: else ->
                if
                :: !PLANTED(slots_read_before_fence) -> read_slots() /* RS2 */
                :: else
                fi
            fi;
            free_unprotected()
        :: true
        fi
    :: else -> break
    od
}

init
{
    atomic {
        memory[SLOT(0, 0)] = NOTHING;
        memory[SLOT(0, 1)] = NOTHING;
        memory[SLOT(1, 0)] = NOTHING;
        memory[SLOT(1, 1)] = NOTHING;
        state[0] = LIVE;
        run buffer(0);
        run buffer(1);
        run buffer(WRITER);
        run reader(0);
        if
        :: READERS == 2 -> run reader(1)
        :: else
        fi;
        run writer();
        if
        :: SHARED -> run other()
        :: else
        fi
    }
}
