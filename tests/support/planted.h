/* SPDX-License-Identifier: MIT
 *
 * Included before the code under test (-include), where GA_PLANTED(name) is then 1 for one name
 * (liballoc/simt/planted.h). With -DGA_PLANTED_BUG=NAME that name is fixed. Without, the program
 * reads it from GA_PLANTED_BUG in its environment when it starts, and no bug is planted if that is
 * not set; GA_PLANTED() is then 0 in each #if.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_PLANTED_H
#define GPUALLOC_TESTS_SUPPORT_PLANTED_H

#include "planted_names.h" /* made by meson: GA_PLANTED_ID_..., from 1 on */

#ifdef GA_PLANTED_BUG
#define GA_PLANTED_ID(name)    GA_PLANTED_ID_##name
#define GA_PLANTED_FIXED(name) GA_PLANTED_ID(name)
#define GA_PLANTED(name)       (GA_PLANTED_ID_##name == GA_PLANTED_FIXED(GA_PLANTED_BUG))
#define GA_PLANTED_ANY         1
#else
extern int ga_planted; /* constant from before main() */
#define GA_PLANTED(name) (ga_planted == GA_PLANTED_ID_##name)
#define GA_PLANTED_ANY   (ga_planted != 0)
#endif

#endif
