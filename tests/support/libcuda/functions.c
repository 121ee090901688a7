/* SPDX-License-Identifier: MIT
 *
 * Symbols for the functions of vmm_driver. Weak: functions that the hook table names, or that
 * captures or pools affect, are defined elsewhere.
 */
#include "libcuda.h"

#include <string.h>

#define EXPORT(name, symbol, parameters)                                                           \
    __attribute__((visibility("default"), weak))                                                   \
    stand_in_function stand_in_weak_##name __asm__(symbol);                                        \
    CUresult stand_in_weak_##name(stand_in_word a, stand_in_word b, stand_in_word c,               \
                                  stand_in_word d, stand_in_word e, stand_in_word f)               \
    {                                                                                              \
        bool early =                                                                               \
            strncmp(#name, "cuGetError", 10) == 0 || strcmp(#name, "cuDriverGetVersion") == 0;     \
        CUresult refusal = stand_in_arrive(!early);                                                \
        stand_in_function *real;                                                                   \
        memcpy(&real, &stand_in_table.name, sizeof real);                                          \
        return refusal == CUDA_SUCCESS ? real(a, b, c, d, e, f) : refusal;                         \
    }

GA_CUDA_FUNCTIONS(EXPORT)
