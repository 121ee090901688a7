/* SPDX-License-Identifier: MIT
 *
 * Host threads that take the pieces of a product in order, each with scratch memory of its own.
 *
 * STRUCTURE  `next_piece` hands out the pieces. The calling thread is one of the threads.
 *
 * INVARIANT  Each piece is begun once, and every earlier piece before it.
 *
 * ORDER      All accesses here are relaxed, because the pieces are independent and the caller joins
 *            the threads. The threads of a growing product make room under a lock (rows.c).
 *
 * PROGRESS   A thread that fails stores `failed`, and each thread reads it before it takes a piece.
 */
#include "job.h"

#include "platform/libc.h"

#include "simt/atomic.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

enum {
    WINDOW_LEAST = 1 << 10 /* columns */
};

/* ---- scratch memory ---------------------------------------------------------------------- */

/* Replaces a block of `had` elements by one of `want`, with the first `kept` elements. */
static bool resize(ga_spgemm_job *job, void *block, uint64_t had, uint64_t kept, uint64_t want,
                   size_t element)
{
    void *old, *new = want > SIZE_MAX / element ? NULL : ga_libc.malloc(want * element);
    if (!new) {
        return false;
    }
    memcpy(&old, block, sizeof old);
    if (kept) {
        memcpy(new, old, kept * element);
    }
    ga_libc.free(old);
    memcpy(block, &new, sizeof new); /* `block` is a pointer to a pointer of some type */
    /* relaxed: a sum, read when the threads have ended */
    ga_post_add64_relaxed(&job->scratch_bytes, (want - had) * element);
    return true;
}

bool ga_spgemm_scratch_set(ga_spgemm_job *job, ga_spgemm_scratch *s)
{
    uint64_t columns = job->b->columns, words = ga_spgemm_columns_words(columns);
    if (!s->set.level[0] && columns <= GA_SPGEMM_COLUMNS_MOST) {
        uint64_t *memory = ga_libc.calloc(words, sizeof *memory);
        if (memory) {
            s->set = ga_spgemm_columns_of(memory, columns);
            /* relaxed: a sum, read when the threads have ended */
            ga_post_add64_relaxed(&job->scratch_bytes, words * sizeof *memory);
        }
    }
    return s->set.level[0] != NULL;
}

bool ga_spgemm_scratch_window(ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t columns)
{
    size_t value = ga_value_size(job->a->type);
    uint64_t width = s->width ? s->width : WINDOW_LEAST;
    while (width < columns) {
        width *= 2;
    }
    if (width > s->width) {
        if (!resize(job, &s->window, s->width, 0, width, value) ||
            !resize(job, &s->stamps, s->width, 0, width, sizeof *s->stamps)) {
            return false;
        }
        memset(s->stamps, 0, width * sizeof *s->stamps);
        s->stamp = 0;
        s->width = width;
    }
    return true;
}

bool ga_spgemm_scratch_table(ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t slots)
{
    size_t value = ga_value_size(job->a->type);
    if (slots <= s->slots) {
        return true;
    }
    if (slots > UINT32_MAX || !resize(job, &s->keys, s->slots, 0, slots, sizeof *s->keys) ||
        !resize(job, &s->used, s->slots, 0, slots, sizeof *s->used) ||
        !resize(job, &s->sorted, s->slots, 0, slots, sizeof *s->sorted) ||
        !resize(job, &s->sums, s->slots, 0, slots, value)) {
        return false;
    }
    memset(s->keys, 0xff, slots * sizeof *s->keys); /* GA_SPGEMM_EMPTY */
    memset(s->sums, 0, slots * value);
    s->slots = slots;
    s->count = 0;
    return true;
}

bool ga_spgemm_scratch_room(ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t kept,
                            uint64_t entries)
{
    uint64_t room = s->room ? s->room : GA_SPGEMM_PIECE;
    while (room < entries) {
        room *= 2;
    }
    if (room > s->room) {
        if (!resize(job, &s->indices, s->room, kept, room, sizeof *s->indices) ||
            !resize(job, &s->values, s->room, kept, room, ga_value_size(job->a->type))) {
            return false;
        }
        s->room = room;
    }
    return true;
}

static void scratch_free(ga_spgemm_scratch *s)
{
    ga_libc.free(s->set.level[0]);
    ga_libc.free(s->window);
    ga_libc.free(s->stamps);
    ga_libc.free(s->keys);
    ga_libc.free(s->used);
    ga_libc.free(s->sums);
    ga_libc.free(s->sorted);
    ga_libc.free(s->indices);
    ga_libc.free(s->values);
}

bool ga_spgemm_fail(ga_spgemm_job *job, uint64_t piece, ga_spgemm_failure failure)
{
    ga_cas64_relaxed(&job->failed, 0, 2 * piece + failure); /* relaxed: a flag; the first stays */
    return false;
}

/* ---- threads ------------------------------------------------------------------------------ */

static void *work(void *context)
{
    ga_spgemm_job *job = context;
    ga_spgemm_scratch scratch = {0};
    /* relaxed, both: the pieces are independent, and the results are read after a join */
    while (!ga_load64_relaxed(&job->failed)) {
        uint64_t piece = ga_add64_relaxed(&job->next_piece, 1);
        if (piece >= job->piece_count || !job->pass(job, &scratch, piece)) {
            break;
        }
    }
    scratch_free(&scratch);
    return NULL;
}

/* Threads to run, the caller included. */
static uint32_t thread_count(const ga_spgemm_job *job)
{
    cpu_set_t processors;
    uint32_t count = job->options->threads;
    if (!count) {
        count = sched_getaffinity(0, sizeof processors, &processors) == 0
                    ? (uint32_t)CPU_COUNT(&processors)
                    : 1;
    }
    count = count < GA_SPGEMM_THREADS_MAX ? count : GA_SPGEMM_THREADS_MAX;
    return count < job->piece_count ? count : job->piece_count ? (uint32_t)job->piece_count : 1;
}

static ga_status report_failure(const ga_spgemm_job *job)
{
    const uint64_t *rows = job->pieces + (job->failed - 1) / 2;
    return ga_fail(GA_ERR_MEMORY, "spgemm: %s for rows %llu to %llu of %llu",
                   job->failed % 2 ? "no scratch memory" : "the vectors have no room",
                   (unsigned long long)rows[0], (unsigned long long)rows[1] - 1,
                   (unsigned long long)job->a->rows);
}

/* Starts up to `count` threads, which serve no signals of the program. Returns their number. */
static uint32_t start(ga_spgemm_job *job, pthread_t *threads, uint32_t count)
{
    sigset_t all, before;
    uint32_t started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count && pthread_create(threads + started, NULL, work, job) == 0) {
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* If a thread cannot be started, the others do its work. */
ga_status ga_spgemm_run_pieces(ga_spgemm_job *job, ga_spgemm_pass *pass)
{
    uint32_t count = thread_count(job);
    pthread_t *others = ga_libc.calloc(count, sizeof *others);
    job->pass = pass;
    job->next_piece = 0;
    job->scratch_bytes = 0;
    uint32_t started = others ? start(job, others, count - 1) : 0;
    work(job);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(others[i], NULL);
    }
    ga_libc.free(others);
    if (job->report->threads <= started) {
        job->report->threads = started + 1;
    }
    return job->failed ? report_failure(job) : GA_OK;
}
