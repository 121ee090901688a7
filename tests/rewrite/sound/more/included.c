/* SPDX-License-Identifier: MIT */
#define BYTES (8)
#define bytes other
#include <included.h>
