/* SPDX-License-Identifier: MIT */
#ifndef TEST_VARIABLES_H
#define TEST_VARIABLES_H

extern int other_count;

int count_others(int more);

#endif
