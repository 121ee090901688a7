/* SPDX-License-Identifier: MIT
 *
 * A domain changes from asymmetric fences to sequentially consistent protection while its members
 * run, because the kernel refuses a membarrier that it granted before: the process has entered a
 * sandbox since.
 *
 * STRUCTURE  domain->fence_mode and each member's hazards.fence_mode hold a fence mode
 *            (ga_hazard_fence_mode). It goes from ASYMMETRIC to UNCONFIRMED, once, and from there
 *            to SEQ_CST. A member without a thread may stay ASYMMETRIC until a thread joins.
 *
 * INVARIANT  A member with a thread is SEQ_CST only once all slots that the thread set while it was
 *            ASYMMETRIC are visible to others, and all that it sets from then on are ordered by its
 *            own RP1. A domain is SEQ_CST only once each member is, or has no thread.
 *
 * ORDER      RC1 announces the change to a member. RC2 (the thread itself) or RC6 (a scan for it)
 *            confirms it, and RC3 acquires that. RC4, RC5: the domain's mode. RC7: the member's
 *            thread.
 *
 *            Setting a slot is RP1 (a store to the slot), then a load of the mode; RP2 follows. Let
 *            F be a full fence in the member's thread, after RC1. If F comes before the load of the
 *            mode, the mode is no longer ASYMMETRIC, and RP1 is repeated, seq_cst, before RP2. If F
 *            comes after the load, it comes after RP1, and the slot is visible from F on. In both
 *            cases RS2, after F, sees the slot, or RP2 sees that the object was unlinked before
 *            RS1. F is one of: an interrupt of every processor that runs the process; the fence of
 *            a thread that goes to wait in the kernel; RP1, seq_cst, of a later set.
 *
 *            A thread that joins stores its id (RC7) and then loads the domain's mode (RC5). A scan
 *            stores the mode (RC4) and then loads ids (RC7). All are seq_cst, so the thread finds
 *            the new mode, or the scan finds the thread.
 *
 * PROGRESS   No call waits. Until all members are known to have changed, scans free nothing.
 */
#include <gpualloc/backend.h>

#include "../platform/log.h"
#include "../platform/membarrier.h"
#include "../platform/thread.h"
#include "state.h"

#include <errno.h>
#include <string.h>

static void warn_once(int error)
{
    static bool warned;
    /* relaxed: only a line in the log depends on it. */
    if (!__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED)) {
        ga_log(GA_LOG_WARN,
               "hazard pointers: the kernel refuses membarrier(2) (%s), which it granted before; "
               "readers use fences of their own from now on",
               strerror(error));
    }
}

static ga_member *head_of(ga_domain *domain)
{
    /* RH2: seq_cst. Pairs with RH1 (member.c): a member that is not found yet takes over the new
     * mode when its thread joins. */
    return __atomic_load_n(&domain->head, __ATOMIC_SEQ_CST);
}

static bool change_mode(uint32_t *mode, uint32_t from, uint32_t to)
{
    /* RC1, RC4, RC6: seq_cst. Pairs with RC3, RC5 and RC7 as ORDER says. */
    return __atomic_compare_exchange_n(mode, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

void ga_fences_change(ga_domain *domain)
{
    int error = errno;
    if (change_mode(&domain->fence_mode, GA_HAZARD_ASYMMETRIC, GA_HAZARD_UNCONFIRMED)) {
        for (ga_member *member = head_of(domain); member; member = member->next) {
            change_mode(&member->hazards.fence_mode, GA_HAZARD_ASYMMETRIC, GA_HAZARD_UNCONFIRMED);
        }
        warn_once(error);
    }
    errno = error;
}

void ga_fences_join(ga_member *member)
{
    if (ga_domain_fence_mode(member->domain) != GA_HAZARD_ASYMMETRIC) {
        ga_hazard_confirm(&member->hazards); /* its thread has set no slot yet */
    }
}

/* ---- whether all have changed -------------------------------------------------------------- */

static uint32_t thread_of(const ga_member *member)
{
    /* RC7: seq_cst. Pairs with the stores of ids (member.c): the slots that a thread set before it
     * left are visible, and a thread that joins later takes over the domain's mode. */
    return __atomic_load_n(&member->thread_id, __ATOMIC_SEQ_CST);
}

static uint32_t mode_of(const ga_member *member)
{
    /* RC3: acquire. Pairs with RC2 (gpualloc/reclaim.h) and RC6: slots that were set before are
     * visible. */
    return __atomic_load_n(&member->hazards.fence_mode, __ATOMIC_ACQUIRE);
}

static bool is_changed(ga_member *member)
{
    uint32_t mode = mode_of(member);
    uint32_t thread = thread_of(member);
    if (mode == GA_HAZARD_SEQ_CST || thread == 0) {
        return true;
    }
    /* ASYMMETRIC: ga_fences_change() in another thread has not reached this member yet. */
    if (mode == GA_HAZARD_ASYMMETRIC || (thread != ga_thread_id() && !ga_thread_waits(thread))) {
        return false;
    }
    change_mode(&member->hazards.fence_mode, GA_HAZARD_UNCONFIRMED, GA_HAZARD_SEQ_CST);
    return true;
}

static bool are_all_changed(ga_domain *domain)
{
    bool all = true;
    for (ga_member *member = head_of(domain); member; member = member->next) {
        all &= is_changed(member);
    }
    return all;
}

static bool are_all_announced(ga_domain *domain)
{
    for (ga_member *member = head_of(domain); member; member = member->next) {
        if (mode_of(member) == GA_HAZARD_ASYMMETRIC && thread_of(member) != 0) {
            return false;
        }
    }
    return true;
}

/* The interrupts are fences after RC1 in all threads whose change was announced before. */
static bool confirm_all(ga_domain *domain)
{
    if (!are_all_announced(domain) || !ga_membarrier.interrupt()) {
        return false;
    }
    for (ga_member *member = head_of(domain); member; member = member->next) {
        change_mode(&member->hazards.fence_mode, GA_HAZARD_UNCONFIRMED, GA_HAZARD_SEQ_CST);
    }
    return true;
}

bool ga_fences_changed(ga_domain *domain)
{
    int error = errno;
    bool changed = ga_domain_fence_mode(domain) == GA_HAZARD_SEQ_CST;
    if (!changed && (are_all_changed(domain) || confirm_all(domain))) {
        change_mode(&domain->fence_mode, GA_HAZARD_UNCONFIRMED, GA_HAZARD_SEQ_CST);
        changed = true;
    }
    errno = error;
    return changed;
}
