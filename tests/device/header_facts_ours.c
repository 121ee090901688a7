/* SPDX-License-Identifier: MIT
 *
 * The facts as our declarations have them.
 */
#include "../../liballoc/platform/cuda_types.h"
#include "header_facts.h"

#ifdef CUDA_VERSION
#error "this file is to see our own declarations"
#endif

#define VALUE(fact) (long)(fact),

const long header_facts_ours[] = {HEADER_FACTS(VALUE)};
