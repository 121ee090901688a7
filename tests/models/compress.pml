/* SPDX-License-Identifier: MIT
 *
 * A model of going up to the parent (hashtables/lfht/compress.h; lfht-reclamation-2022 §4.4.2):
 * hash node P, whose parent is G. The climber has taken a child out of P and goes on with P, for
 * which it wants G; it has P protected. Meanwhile another thread takes P out, and a third G, once P
 * is out; G is freed where no slot holds it. The climber touches G first, as Algorithm 7 does (the
 * map looks whether P is empty before, which guards it once more). Steps are in one order; for
 * store buffers see reclaim.pml.
 *
 * CHECKED   Nobody touches G once it is freed. It is freed where nobody wants it.
 *
 * MUTANT    1 `above` stays as it is; 2 it is made NULL after P was detached; 3 the climber does
 *           not look again. Each must be found.
 */
#ifndef MUTANT
#define MUTANT 0
#endif

bool above = true;      /* P's leads to G; else NULL */
bool p_out, g_out;      /* detached */
bool slot;              /* the climber's holds G */
bool freed;             /* G */
byte finished;          /* threads */

proctype climber()
{
    bool wanted;
    wanted = above; /* A2 */
    if
    :: wanted ->
        slot = true;
        if
        :: MUTANT == 3 || above -> assert(!freed) /* A3, and it goes up */
        :: MUTANT != 3 && !above -> skip
        fi;
        slot = false
    :: else -> skip
    fi;
    finished++
}

/* Takes P out, or finds that it is not empty any more. */
proctype detacher()
{
    if
    :: true ->
        if
        :: MUTANT != 1 && MUTANT != 2 -> above = false /* A1 */
        :: else -> skip
        fi;
        p_out = true;
        if
        :: MUTANT == 2 -> above = false
        :: else -> skip
        fi
    :: true -> skip
    fi;
    finished++
}

/* Takes G out, retires it, and scans; once P is out, or never. */
proctype collector()
{
    if
    :: p_out ->
        g_out = true;
        if
        :: !slot -> freed = true
        :: slot -> skip /* it is kept: the next scan frees it */
        fi
    :: finished >= 1 && !p_out -> skip
    fi;
    finished++
}

init
{
    atomic {
        run climber();
        run detacher();
        run collector()
    }
    finished == 3;
    assert(!freed || g_out)
}
