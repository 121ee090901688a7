/* SPDX-License-Identifier: MIT
 *
 * The kernels of sparse products and sharded tables.
 */
#include "cuda.h"

#include "kernels.h"

#include "../../hashtables/sharded/all_kernel.cuh"
#include "../../hashtables/sharded/sort_kernel.cuh"
#include "device/spgemm_service.cuh"

#include <tuple>
#include <utility>

namespace
{

/* Not a kernel of the library: half of the threads miss a barrier. */
void emulated_diverge()
{
    if (threadIdx.x < 32u) {
        __syncthreads();
    }
    __syncthreads();
}

/* Call a kernel with a copy of its parameters, as cuLaunchKernel() takes them. */
template <typename... P, size_t... I>
void call(void (*kernel)(P...), void **parameters, std::index_sequence<I...>)
{
    kernel(*(typename std::remove_const<P>::type *)parameters[I]...);
}

template <typename... P> void call_all(void (*kernel)(P...), void **parameters)
{
    call(kernel, parameters, std::make_index_sequence<sizeof...(P)>());
}

#define KERNEL(name)                                                                               \
    {                                                                                              \
#name, [](const emulated_kernel *k) { call_all(name, k->parameters); }                     \
    }

const struct {
    const char *name;
    void (*run)(const emulated_kernel *kernel);
} kernels[] = {
    KERNEL(ga_spgemm_check_kernel),         KERNEL(ga_spgemm_bound_kernel),
    KERNEL(ga_spgemm_estimate_kernel),      KERNEL(ga_spgemm_span_kernel),
    KERNEL(ga_spgemm_cut_kernel),           KERNEL(ga_spgemm_rows_kernel_f64),
    KERNEL(ga_spgemm_rows_kernel_f32),      KERNEL(ga_spgemm_scan_kernel),
    KERNEL(ga_spgemm_gaps_kernel),          KERNEL(ga_spgemm_dot_kernel_f64),
    KERNEL(ga_spgemm_dot_kernel_f32),       KERNEL(ga_spgemm_dot_round_kernel_f64),
    KERNEL(ga_spgemm_dot_round_kernel_f32), KERNEL(ga_spgemm_round_kernel_f64),
    KERNEL(ga_spgemm_round_kernel_f32),     KERNEL(ga_spgemm_rounds_kernel_f64),
    KERNEL(ga_spgemm_rounds_kernel_f32),    KERNEL(ga_spgemm_gather_kernel),
    KERNEL(ga_sharded_combine_kernel),      KERNEL(ga_sharded_count_kernel),
    KERNEL(ga_sharded_pad_kernel),          KERNEL(ga_sharded_sort_kernel),
    KERNEL(ga_sharded_sort_wide_kernel),    KERNEL(ga_sharded_gather_wide_kernel),
    KERNEL(ga_sharded_gather_kernel),       KERNEL(ga_sharded_order_kernel),
    KERNEL(ga_sharded_move_kernel),         KERNEL(emulated_diverge),
};

} // namespace

bool emulated_launch(const char *name, unsigned blocks, unsigned threads, unsigned shared,
                     void **parameters)
{
    for (const auto &kernel : kernels) {
        if (strcmp(kernel.name, name) == 0) {
            emulated_kernel launch = {name, kernel.run, parameters, blocks, threads, shared};
            emulated_run(&launch);
            return true;
        }
    }
    return false;
}
