/* SPDX-License-Identifier: MIT
 *
 * Other names for the domains of hazard pointers, so that a program can have them with a planted
 * bug beside the library's.
 */
#ifndef GPUALLOC_TESTS_STRESS_RECLAIM_APART_H
#define GPUALLOC_TESTS_STRESS_RECLAIM_APART_H

#define ga_domain_close        apart_domain_close
#define ga_domain_drain        apart_domain_drain
#define ga_domain_get_stats    apart_domain_get_stats
#define ga_domain_join         apart_domain_join
#define ga_domain_leave        apart_domain_leave
#define ga_domain_open         apart_domain_open
#define ga_domain_force_close  apart_domain_force_close
#define ga_fences_join         apart_fences_join
#define ga_fences_change       apart_fences_change
#define ga_fences_changed      apart_fences_changed
#define ga_hazard_reserve      apart_hazard_reserve
#define ga_hazard_retire       apart_hazard_retire
#define ga_hazard_retire_to    apart_hazard_retire_to
#define ga_member_join_closing apart_member_join_closing
#define ga_member_leave_closed apart_member_leave_closed
#define ga_member_free         apart_member_free
#define ga_member_give_up      apart_member_give_up
#define ga_member_join         apart_member_join
#define ga_member_make         apart_member_make
#define ga_member_orphan       apart_member_orphan
#define ga_member_self         apart_member_self
#define ga_member_claim        apart_member_claim
#define ga_memberships         apart_memberships
#define ga_scan                apart_scan
#define ga_scan_all            apart_scan_all
#define ga_scan_free_all       apart_scan_free_all
#define ga_scan_heavy_fence    apart_scan_heavy_fence
#define ga_scan_can_free       apart_scan_can_free
#define ga_scan_load_slot      apart_scan_load_slot

#endif
