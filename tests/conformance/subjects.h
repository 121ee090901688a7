/* SPDX-License-Identifier: MIT
 *
 * The subjects: every registered backend at every place that it serves and this machine has. A
 * backend is here by existing; subjects.c only knows those that need options to open, and those
 * that a driver made of host memory can serve, which are tested on any machine.
 *
 *     CASE(name) { ... uses `heap` ... }
 *
 * is a test of each subject in a process of its own, with its heap open.
 */
#ifndef GPUALLOC_TESTS_CONFORMANCE_SUBJECTS_H
#define GPUALLOC_TESTS_CONFORMANCE_SUBJECTS_H

#include "support/expect.h"

#include <criterion/parameterized.h>

typedef struct subject {
    char name[64];  /* of the backend */
    char spec[256]; /* "%s" stands for the path of a file to write */
    ga_place place;
    bool stood_in;  /* on a device made of host memory, tests/support/vmm_driver.h */
    bool refuses;   /* serves no request */
    bool over_libc; /* takes its memory from the C library */
    bool can_tell;  /* knows its own blocks from other pointers */
} subject;

struct criterion_test_params subjects_all(void);

/* The heap of the running case; true if the test can read and write its blocks here. */
extern ga_heap *heap;
extern bool touchable;
extern size_t natural_align;

void subject_open(const subject *s);

/* Frees nothing: a case must free all its blocks, and this is checked. */
void subject_close(const subject *s);

/* Allocate a block, or fail. */
void *take(const subject *s, size_t size);

/* The sentence of the last failure begins with the name of a backend in the subject's spec. */
void expect_sentence(const subject *s);

#define CASE(title)                                                                                \
    static void title(const subject *s);                                                           \
    ParameterizedTestParameters(conformance, title)                                                \
    {                                                                                              \
        return subjects_all();                                                                     \
    }                                                                                              \
    ParameterizedTest(subject *of, conformance, title, .timeout = 120)                             \
    {                                                                                              \
        subject_open(of);                                                                          \
        title(of);                                                                                 \
        subject_close(of);                                                                         \
    }                                                                                              \
    static void title(const subject *s)

#endif
