/* SPDX-License-Identifier: MIT
 *
 * The numbers of CU_JIT_*, which cuda.h has.
 */
#include "ptx_options.h"

enum {
    WALL_TIME = 2,
    ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    LOG_VERBOSE = 12,
    GLOBAL_SYMBOL_NAMES = 17, /* to _COUNT: arrays */
    GLOBAL_SYMBOL_COUNT = 19,
    REFERENCED_KERNEL_NAMES = 25, /* likewise */
    REFERENCED_VARIABLE_COUNT = 28,
    LAST_KNOWN = 34 /* SPLIT_COMPILE */
};

ga_ptx_option_kind ga_ptx_option_kind_of(int option)
{
    if ((option >= WALL_TIME && option <= ERROR_LOG_BUFFER_SIZE_BYTES) || option == LOG_VERBOSE) {
        return GA_PTX_OPTION_REPORT;
    }
    if (option < 0 || option > LAST_KNOWN ||
        (option >= GLOBAL_SYMBOL_NAMES && option <= GLOBAL_SYMBOL_COUNT) ||
        (option >= REFERENCED_KERNEL_NAMES && option <= REFERENCED_VARIABLE_COUNT)) {
        return GA_PTX_OPTION_OTHER;
    }
    return GA_PTX_OPTION_NUMBER;
}
