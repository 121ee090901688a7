/* SPDX-License-Identifier: MIT
 *
 * bench-lfht: `gpualloc bench lfht` with others' maps beside ours, where they were installed when
 * this was built: liburcu, TBB, libcds.
 */
#include "command.h"

int main(int argc, char **argv)
{
    static const ga_bench_peers *const peers[] = {
#ifdef BENCH_URCU
        &ga_bench_peers_urcu,
#endif
#ifdef BENCH_TBB
        &ga_bench_peers_tbb,
#endif
#ifdef BENCH_CDS
        &ga_bench_peers_cds,
#endif
        NULL};
    return ga_bench_lfht_command(argc, argv, "bench-lfht", peers);
}
