/* SPDX-License-Identifier: MIT
 *
 * Atomics by many threads at once: no change is lost, and no two threads get equal results; for
 * each scope.
 */
#include "simt_gpu.h"
#include "simt_litmus.h"

typedef void (*race_kernel)(litmus_race_words *, litmus_race_answers *, uint32_t);

#define DEFINE_RACE(name, suffix)                                                                  \
    static __global__ void race_##name(litmus_race_words *words, litmus_race_answers *answers,     \
                                       uint32_t unit)                                              \
    {                                                                                              \
        uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;                                   \
        litmus_race##suffix(words + thread / unit, thread % unit, answers + thread);               \
    }
DEFINE_RACE(block, _block)
DEFINE_RACE(device, )
DEFINE_RACE(system, _system)

static int compare_answers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The results are 0 to n - 1, each once. */
static void check_distinct(const char *name, uint64_t *answers, uint32_t n)
{
    qsort(answers, n, sizeof *answers, compare_answers);
    for (uint32_t i = 0; i < n; i++) {
        if (answers[i] != i) {
            FAIL("%s: each answer once, got %llu as number %u", name,
                 (unsigned long long)answers[i], i);
            return;
        }
    }
}

static void check_answers(const litmus_race_words *words, const litmus_race_answers *answers,
                          uint32_t n)
{
    uint64_t *all = (uint64_t *)malloc((n + 1u) * 4u * sizeof *all);
    uint64_t *lists[4] = {all, all + (n + 1u), all + 2u * (n + 1u), all + 3u * (n + 1u)};
    for (uint32_t i = 0; i < n; i++) {
        lists[0][i] = answers[i].add;
        lists[1][i] = answers[i].add64 >> 32;
        lists[2][i] = answers[i].exchange;
        lists[3][i] = answers[i].exchange64;
    }
    lists[0][n] = words->add; /* the result that the next thread would get */
    lists[1][n] = words->add64 >> 32;
    lists[2][n] = words->exchange;
    lists[3][n] = words->exchange64;
    check_distinct("add", lists[0], n + 1u);
    check_distinct("add64", lists[1], n + 1u);
    check_distinct("exchange", lists[2], n + 1u);
    check_distinct("exchange64", lists[3], n + 1u);
    free(all);
}

static void check_counts(const litmus_race_words *words, uint32_t n)
{
    if (words->cas != n || words->post_add != n || words->gave_up) {
        FAIL("%u changes by cas and by post_add, got %u and %u; %u gave up", n, words->cas,
             words->post_add, words->gave_up);
    }
    if (words->won_or != n / 4u || words->won_and != n / 4u) {
        FAIL("one winner of each of %u bits, got %u by or and %u by and", n / 4u, words->won_or,
             words->won_and);
    }
}

/* `groups` of `unit` threads. */
static void race_in(race_kernel kernel, uint32_t groups, uint32_t unit, uint32_t threads)
{
    litmus_race_words *words = (litmus_race_words *)calloc(groups, sizeof *words);
    litmus_race_answers *answers = (litmus_race_answers *)calloc(groups * unit, sizeof *answers);
    size_t size = groups * sizeof *words;
    size_t answers_size = groups * unit * sizeof *answers;
    litmus_race_words *d_words = (litmus_race_words *)suite_memory(size);
    litmus_race_answers *d_answers = (litmus_race_answers *)suite_memory(answers_size);
    for (uint32_t i = 0; i < groups; i++) {
        memset(words[i].cleared, 0xff, sizeof words[i].cleared);
    }
    if (d_words && d_answers &&
        CUDA_DONE(cudaMemcpy(d_words, words, size, cudaMemcpyHostToDevice))) {
        kernel<<<groups * unit / threads, threads>>>(d_words, d_answers, unit);
        if (CUDA_DONE(cudaMemcpy(words, d_words, size, cudaMemcpyDeviceToHost)) &&
            CUDA_DONE(cudaMemcpy(answers, d_answers, answers_size, cudaMemcpyDeviceToHost))) {
            for (uint32_t i = 0; i < groups; i++) {
                check_answers(&words[i], answers + i * unit, unit);
                check_counts(&words[i], unit);
            }
        }
    }
    cudaFree(d_words);
    cudaFree(d_answers);
    free(words);
    free(answers);
}

/* Every other thread raises both words; `raised` counts the threads that have raised any, and its
 * next word says whether there is a 128-bit swap. */
static __global__ void race_of_widths(uint64_t *words, uint32_t *raised)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (litmus_raise(words, thread % 2u)) {
        ga_post_add_relaxed(raised, 1u); /* relaxed: read after the kernel */
    }
    raised[1] = GA_HAS_CAS128;
}

/* Changes of 64 bits and of 128 are atomic for each other. */
static void race_in_widths(uint32_t n)
{
    uint64_t words[2] = {0, 0};
    uint32_t raised[2] = {0, 0};
    uint64_t *d_words = (uint64_t *)suite_memory(sizeof words);
    uint32_t *d_raised = (uint32_t *)suite_memory(sizeof raised);
    if (d_words && d_raised) {
        race_of_widths<<<n / 128u, 128>>>(d_words, d_raised);
        if (CUDA_DONE(cudaMemcpy(words, d_words, sizeof words, cudaMemcpyDeviceToHost)) &&
            CUDA_DONE(cudaMemcpy(raised, d_raised, sizeof raised, cudaMemcpyDeviceToHost)) &&
            raised[1] && (raised[0] != n || words[0] != n || words[1] != n / 2u)) {
            FAIL("%u words raised, half of them with another: got %llu and %llu, by %u threads", n,
                 (unsigned long long)words[0], (unsigned long long)words[1], raised[0]);
        }
    }
    cudaFree(d_words);
    cudaFree(d_raised);
}

void simt_races(int device)
{
    (void)device;
    race_in(race_block, 64, 1024, 1024);
    race_in(race_device, 8, 4096, 128);
    race_in(race_system, 8, 4096, 128);
    race_in_widths(4096);
}
