/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of matrices: files with a given text, and matrices as text.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_MATRIX_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_MATRIX_SCENE_H

#include <gpualloc/matrix.h>

#include "expect.h"
#include "scene.h"

#include <stdio.h>

/* The file "m.mtx" of the scene's folder, with this text. */
static inline const char *matrix_file(const char *text)
{
    const char *path = scene_path("m.mtx");
    scene_write_file(path, text, strlen(text));
    return path;
}

static inline double matrix_value(const ga_csr *m, uint64_t at)
{
    return m->type == GA_FLOAT32 ? (double)((const float *)m->values)[at]
                                 : ((const double *)m->values)[at];
}

/* "2x3: 0,1=5 1,2=-1" for a matrix with two entries; cut to the room. */
static inline const char *matrix_text(const ga_csr *m)
{
    static char room[4096];
    size_t length = (size_t)snprintf(room, sizeof room, "%llux%llu:", (unsigned long long)m->rows,
                                     (unsigned long long)m->columns);
    for (uint64_t row = 0; row < m->rows; row++) {
        for (uint64_t i = m->offsets[row]; i < m->offsets[row + 1]; i++) {
            if (length < sizeof room) {
                length +=
                    (size_t)snprintf(room + length, sizeof room - length, " %llu,%u=%.9g",
                                     (unsigned long long)row, m->indices[i], matrix_value(m, i));
            }
        }
    }
    return room;
}

#endif
