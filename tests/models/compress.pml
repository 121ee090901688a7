/* SPDX-License-Identifier: MIT
 *
 * A model of going up to the parent (hashtables/lfht/compress.h; lfht-reclamation-2022 §4.4.2):
 * hash node P, whose parent is G. The climber has removed a child of P and continues with P, for
 * which it needs G; it protects P. Another thread removes P, and a third removes G, once P is out.
 * G is freed if no slot protects it. The climber accesses G first, as Algorithm 7 does (the map
 * checks before whether P is empty, which is a second guard). Steps are in one order; for store
 * buffers see reclaim.pml.
 *
 * CHECKED   No thread accesses G once it is freed. G is freed if no thread needs it.
 *
 * MUTANT    1 `above` stays as it is; 2 it is made NULL after P was detached; 3 the climber does
 *           not validate. Each must be detected.
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
    wanted = above; /* LA2 */
    if
    :: wanted ->
        slot = true;
        if
        :: MUTANT == 3 || above -> assert(!freed) /* LA3, and it continues with the parent */
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
        :: MUTANT != 1 && MUTANT != 2 -> above = false /* LA1 */
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
        :: slot -> skip /* it is protected: the next scan frees it */
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
