/* SPDX-License-Identifier: MIT
 *
 * The trace recorder under threads that come and go, change between two traces and leave chunks to
 * each other: every record is in its file once, whole, and in its thread's order.
 */
#include "stress.h"

#include "support/scene.h"
#include "trace/reader.h"
#include "trace/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 8,
    WAVES = 400,
    NOTES = 500,
    TRACES = 2
};

static ga_recorder *traces[TRACES];
static const char *paths[TRACES];
static uint64_t noted[TRACES]; /* relaxed: counts, read once the threads have ended */
static unsigned wave;          /* written between waves */

/* A record's size says who wrote it and which of his it is: wave, thread, index. */
static uint64_t mark_of(size_t number, unsigned index)
{
    return ((uint64_t)wave * THREADS + number) * NOTES + index;
}

static void note_all(size_t number)
{
    unsigned count = number % 2 ? NOTES : 3; /* long ones, and many that end at once */
    for (unsigned i = 0; i < count; i++) {
        size_t which = (number + i / 50) % TRACES;
        ga_trace_record record = {
            .time_ns = ga_recorder_now(traces[which]),
            .pointer = 16,
            .size = mark_of(number, i),
            .operation = GA_TRACE_ALLOC,
        };
        ga_recorder_note(traces[which], &record);
        __atomic_fetch_add(&noted[which], 1, __ATOMIC_RELAXED);
    }
}

/* One trace: each mark at most once, times that rise within a thread's run. */
static void check(size_t which, bool *seen, size_t marks)
{
    ga_trace_reader *reader;
    const ga_trace_record *record;
    uint64_t count = 0;
    stress_need(ga_trace_reader_open(&reader, paths[which]) == GA_OK, "open the trace");
    while ((record = ga_trace_reader_next(reader))) {
        stress_need(record->operation == GA_TRACE_ALLOC && record->pointer == 16, "a torn record");
        stress_need(record->size < marks, "a mark nobody made");
        stress_need(!seen[record->size], "a record twice");
        seen[record->size] = true;
        count++;
    }
    stress_need(ga_trace_reader_damaged(reader) == 0, "damaged records");
    stress_need(ga_trace_reader_cut_bytes(reader) == 0, "a cut file");
    ga_trace_reader_close(reader);
    if (count != noted[which]) {
        fprintf(stderr, "trace %zu: %llu records of %llu\n", which, (unsigned long long)count,
                (unsigned long long)noted[which]);
        stress_need(false, "records are lost");
    }
}

int main(int argc, char **argv)
{
    scene_enter_folder();
    paths[0] = strdup(scene_path("a"));
    paths[1] = strdup(scene_path("b"));
    for (int i = 0; i < TRACES; i++) {
        stress_need(ga_recorder_open(&traces[i], paths[i]) == GA_OK, "open a recorder");
    }
    stress_begin(argc, argv);
    for (wave = 0; wave < WAVES && stress_goes_on(); wave++) {
        stress_threads(THREADS, note_all);
    }
    size_t marks = (size_t)WAVES * THREADS * NOTES;
    bool *seen = calloc(marks, sizeof *seen);
    for (size_t i = 0; i < TRACES; i++) {
        ga_recorder_close(traces[i]);
        check(i, seen, marks);
        free((char *)paths[i]);
    }
    free(seen);
    scene_leave_folder();
    return 0;
}
