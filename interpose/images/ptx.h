/* SPDX-License-Identifier: MIT
 *
 * A look at PTX.
 */
#ifndef GPUALLOC_INTERPOSE_IMAGES_PTX_H
#define GPUALLOC_INTERPOSE_IMAGES_PTX_H

#include "image.h"

/* The functions of GA_CALLS_* that the text declares as external: `.extern .func ... malloc`. A
 * declaration in a comment counts, which costs a link and changes nothing. */
unsigned ga_ptx_calls(ga_image ptx);

#endif
