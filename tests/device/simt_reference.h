/* SPDX-License-Identifier: MIT
 *
 * Inputs for the functions of the vocabulary, and the expected results: plain functions that share
 * no line with the vocabulary. And the functions as the C compiler compiles them. For C and CUDA.
 */
#ifndef TESTS_DEVICE_SIMT_REFERENCE_H
#define TESTS_DEVICE_SIMT_REFERENCE_H

#include "simt_atomics.h"
#include "simt_words.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const char *const simt_word_names[SIMT_WORDS];
extern const char *const simt_atomic_names[SIMT_ATOMICS];

/* Random inputs with many edges among them, for a tile of the lanes `here` (not empty). */
void simt_make_input(uint64_t *seed, uint32_t here, simt_input *in);
void simt_make_atomic_input(uint64_t *seed, simt_atomic_input *in);

/* Fill `out`. */
void simt_expect(const simt_input *in, bool gaps, simt_output *out);
void simt_expect_atomics(const simt_atomic_input *in, simt_atomic_output *out);

/* The results of the vocabulary's CPU side; a tile of 4, 8, 16 or 32 lanes. */
void simt_cpu_words(uint32_t width, simt_input *in, simt_output *out);
void simt_cpu_atomics(const simt_atomic_input *in, simt_atomic_output *out);

/* The first difference, as a sentence in `text`; false where there is none. */
bool simt_differs(const simt_input *in, const simt_output *expected, const simt_output *got,
                  char *text, size_t size);
bool simt_atomics_differ(const simt_atomic_input *in, const simt_atomic_output *expected,
                         const simt_atomic_output *got, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
