/* SPDX-License-Identifier: MIT
 *
 * A library whose constructor registers fork handlers that allocate, before the first allocation of
 * the program.
 */
#include "fork_handlers.h"

__attribute__((constructor)) static void register_at_load(void)
{
    register_handlers();
}

void fork_handlers_library(void)
{
}
