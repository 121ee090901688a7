/* SPDX-License-Identifier: MIT
 *
 * Options of the driver's compiler of PTX.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_PTX_OPTIONS_H
#define GPUALLOC_INTERPOSE_CUDA_PTX_OPTIONS_H

enum {
    GA_PTX_OPTIONS_MOST = 62
};

/* As a program gives them. */
typedef struct ga_ptx_options {
    unsigned count;
    int *options; /* CU_JIT_* */
    void **values;
} ga_ptx_options;

typedef enum ga_ptx_option_kind {
    GA_PTX_OPTION_REPORT, /* of logs and times: the code does not depend on it */
    GA_PTX_OPTION_NUMBER, /* of 32 bits */
    GA_PTX_OPTION_OTHER   /* an address, or not known */
} ga_ptx_option_kind;

ga_ptx_option_kind ga_ptx_option_kind_of(int option);

#endif
