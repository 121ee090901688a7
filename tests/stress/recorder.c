/* SPDX-License-Identifier: MIT
 *
 * The trace recorder under threads that come and go, change between two traces and leave chunks to
 * each other. It would catch a record that is lost, is in the file twice or is torn between two
 * writers of one chunk, a chunk that two threads use, and records out of order.
 *
 * A record's pointer is its writer's number and its place among the writer's records: each such
 * pair must be in its file once. Each round is a child, so that memory that the recorder never
 * frees ends with it.
 */
#include "stress.h"

#include "support/scene.h"

#include <backends/trace/reader.h>
#include <backends/trace/recorder.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TRACES = 2,
    THREADS = 8,
    LIVES = 3, /* times that a thread ends and another one begins */
    WRITERS = THREADS * LIVES,
    LONG = 6000, /* records of every other writer: more than a chunk's 4096 */
    SHORT = 3,   /* of the other writers: many chunks are released at once */
    CHILD_SECONDS = 60
};

static const char *paths[TRACES];
static size_t life;

/* ---- writing ------------------------------------------------------------------------------ */

static size_t records_of(size_t writer)
{
    return writer % 2 ? LONG : SHORT;
}

static size_t trace_of(size_t writer, size_t place)
{
    return (writer + place / 500) % TRACES;
}

static ga_trace_record record_of(size_t writer, size_t place)
{
    uint64_t value = (uint64_t)(writer + 1) << 32 | place;
    return (ga_trace_record){
        .pointer = value,
        .size = value % 977,
        .operation = (uint8_t)(place % 2 ? GA_TRACE_FREE : GA_TRACE_ALLOC),
        .align_log2 = (uint8_t)(writer % 64),
        .place = GA_PLACE_HOST,
        .device = (int8_t)(place % 100),
    };
}

/* Each writer joins the traces by their names, as heaps do that are opened in different threads. */
static void note_all(size_t number)
{
    ga_recorder *recorders[TRACES];
    size_t writer = life * THREADS + number;
    for (size_t i = 0; i < TRACES; i++) {
        NEED(ga_recorder_open(&recorders[i], paths[i], GA_RECORDER_BATCH, 0) == GA_OK);
    }
    for (size_t place = 0; place < records_of(writer); place++) {
        ga_recorder *recorder = recorders[trace_of(writer, place)];
        ga_trace_record record = record_of(writer, place);
        record.time_ns = ga_recorder_now(recorder);
        ga_recorder_note(recorder, &record);
    }
    for (size_t i = 0; i < TRACES; i++) {
        ga_recorder_close(recorders[i]);
    }
}

/* ---- reading ------------------------------------------------------------------------------ */

static bool seen[WRITERS][LONG];
static uint64_t times[WRITERS][LONG];
static uint32_t threads[WRITERS];

static void check_record(const ga_trace_record *record, size_t trace)
{
    size_t writer = (size_t)(record->pointer >> 32) - 1;
    size_t place = (uint32_t)record->pointer;
    NEED(writer < WRITERS && place < records_of(writer) && trace_of(writer, place) == trace);
    NEED(!seen[writer][place]);
    ga_trace_record wanted = record_of(writer, place);
    NEED(record->size == wanted.size && record->operation == wanted.operation);
    NEED(record->align_log2 == wanted.align_log2 && record->device == wanted.device);
    NEED(record->previous == 0 && record->stream == 0 && record->place == GA_PLACE_HOST);
    NEED(!threads[writer] || threads[writer] == record->thread);
    seen[writer][place] = true;
    threads[writer] = record->thread;
    times[writer][place] = record->time_ns;
}

static void check_trace(size_t trace)
{
    ga_trace_reader *reader;
    const ga_trace_record *record;
    NEED(ga_trace_reader_open(&reader, paths[trace]) == GA_OK);
    while ((record = ga_trace_reader_next(reader))) {
        check_record(record, trace);
    }
    NEED(ga_trace_reader_damaged(reader) == 0 && !ga_trace_reader_cut(reader));
    ga_trace_reader_close(reader);
}

/* No record is missing, and the times of a writer's records in one trace rise with their index, by
 * which readers sort. */
static void check_writer(size_t writer)
{
    uint64_t last[TRACES] = {0};
    for (size_t place = 0; place < records_of(writer); place++) {
        size_t trace = trace_of(writer, place);
        NEED(seen[writer][place]);
        NEED(times[writer][place] >= last[trace]);
        last[trace] = times[writer][place];
    }
}

static int one_round(void *unused)
{
    (void)unused;
    alarm(CHILD_SECONDS);
    for (life = 0; life < LIVES; life++) {
        stress_threads(THREADS, note_all);
    }
    for (size_t i = 0; i < TRACES; i++) {
        check_trace(i);
    }
    for (size_t i = 0; i < WRITERS; i++) {
        check_writer(i);
    }
    return 0;
}

int main(int argc, char **argv)
{
    unsigned rounds = 0;
    scene_enter_folder();
    paths[0] = scene_path("a");
    paths[1] = scene_path("b");
    stress_begin(argc, argv);
    for (; stress_goes_on(); rounds++) {
        NEED(scene_in_child(one_round, NULL) == 0);
        for (size_t i = 0; i < TRACES; i++) {
            NEED(unlink(paths[i]) == 0);
        }
    }
    scene_leave_folder();
    printf("recorder: %u rounds of %d writers\n", rounds, WRITERS);
    return 0;
}
