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
 * BUG       The rule, of those marked PLANTED(), that is broken. Each must be detected.
 */
#ifndef BUG
#define BUG 0
#endif
#define PLANTED(name) (BUG == name)

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
        :: PLANTED(not_validated) || above ->
            assert(!freed) /* LA3, and it continues with the parent */
        :: !PLANTED(not_validated) && !above -> skip
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
        :: !PLANTED(above_kept) && !PLANTED(above_cleared_late) -> above = false /* LA1 */
        :: else -> skip
        fi;
        p_out = true;
        if
        :: PLANTED(above_cleared_late) -> above = false
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
