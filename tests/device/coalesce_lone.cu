/* SPDX-License-Identifier: MIT
 *
 * A lone tile on the GPU compared with a tile on the CPU: positions of payloads, and every header
 * after each step.
 */
#include "coalesce_gpu.h"

static __device__ void note_headers(bool wants, char *payload, uint64_t *headers, uint32_t lane)
{
    __syncwarp();
    headers[lane] = wants ? ga_segment_read_relaxed(payload) : 0;
    __syncwarp();
}

/* A warp for each script. The lanes that take part are named, so that no compiler parts them. */
static __global__ void play_kernel(ga_kernel_heap heap, const coalesce_script *scripts,
                                   coalesce_outcome *outcomes)
{
    const coalesce_script *script = scripts + blockIdx.x;
    coalesce_outcome *outcome = outcomes + blockIdx.x;
    uint32_t lane = threadIdx.x;
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    view.form = script->form;
    ga_wide payload = ga_wide_all(0);
    bool wants = script->wanting >> lane & 1u;
    if (wants) {
        payload = ga_coalesce_claim(view, ga_tile_among(script->wanting), script->wanting,
                                    ga_wide_all(script->sizes[lane]));
    }
    __syncwarp();
    char *mine = (char *)ga_wide_read(payload, lane);
    char *first = (char *)ga_wide_get(ga_tile_of(32), payload, ga_bits_lowest(script->wanting));
    outcome->place[lane] = wants ? (uint64_t)(mine - first) : 0;
    note_headers(wants, mine, outcome->headers[0], lane);
    for (uint32_t step = 0; step < COALESCE_STEPS; step++) {
        uint32_t giving = script->giving[step];
        if (giving >> lane & 1u) {
            ga_coalesce_free_lanes(view, ga_tile_among(giving), giving, payload);
        }
        note_headers(wants, mine, outcome->headers[step + 1], lane);
    }
    uint32_t left = script->wanting;
    for (uint32_t step = 0; step < COALESCE_STEPS; step++) {
        left &= ~script->giving[step];
    }
    if (left >> lane & 1u) {
        ga_coalesce_free_lanes(view, ga_tile_among(left), left, payload);
    }
}

static void compare(const coalesce_script *script, const coalesce_outcome *got)
{
    coalesce_outcome expected;
    coalesce_expect(script, &expected);
    for (uint32_t lane = 0; lane < 32; lane++) {
        if (got->place[lane] != expected.place[lane]) {
            FAIL("form %u, lanes 0x%x: lane %u at %llu, got %llu", script->form, script->wanting,
                 lane, (unsigned long long)expected.place[lane],
                 (unsigned long long)got->place[lane]);
            return;
        }
        for (uint32_t step = 0; step <= COALESCE_STEPS; step++) {
            uint64_t header = expected.headers[step][lane];
            if (got->headers[step][lane] != header) {
                FAIL("form %u, lanes 0x%x: header 0x%llx of lane %u after %u steps, got 0x%llx",
                     script->form, script->wanting, (unsigned long long)header, lane, step,
                     (unsigned long long)got->headers[step][lane]);
                return;
            }
        }
    }
}

static void a_lone_tile_does_as_on_the_cpu(int device)
{
    uint32_t count = suite.quick ? 200 : 5000;
    coalesce_test_heap heap;
    REQUIRE(coalesce_open(&heap, device, "coalesce:header=auto/cuda"));
    coalesce_script *scripts = (coalesce_script *)calloc(count, sizeof *scripts);
    coalesce_outcome *got = (coalesce_outcome *)calloc(count, sizeof *got);
    void *scripts_there = suite_memory(count * sizeof *scripts);
    void *got_there = suite_memory(count * sizeof *got);
    uint64_t seed = 3;
    for (uint32_t i = 0; i < count; i++) {
        coalesce_make_script(&seed, scripts + i);
    }
    CUDA_DONE(cudaMemcpy(scripts_there, scripts, count * sizeof *scripts, cudaMemcpyHostToDevice));
    play_kernel<<<count, 32>>>(heap.view, (coalesce_script *)scripts_there,
                               (coalesce_outcome *)got_there);
    KERNELS_DONE();
    CUDA_DONE(cudaMemcpy(got, got_there, count * sizeof *got, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < count; i++) {
        compare(scripts + i, got + i);
    }
    cudaFree(scripts_there);
    cudaFree(got_there);
    free(scripts);
    free(got);
    coalesce_close(&heap);
}

const test_case coalesce_lone_cases[] = {
    {"a lone tile does as on the CPU", a_lone_tile_does_as_on_the_cpu},
};
const size_t coalesce_lone_case_count = sizeof coalesce_lone_cases / sizeof *coalesce_lone_cases;
