/* SPDX-License-Identifier: MIT
 *
 * The trace reader on damaged files. It would catch reads past a buffer, headers that are believed
 * although they contradict themselves, records passed on that make no sense or are counted twice
 * or never, and complaints that are empty or cannot be printed.
 *
 * Each input is read three times: as a file, and as the records behind a good header of a trace
 * without call stacks and of one with them.
 */
#include "fuzz.h"

#include <backends/trace/reader.h>
#include <err.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *const fuzz_tokens[] = {
    "GATRACE", "\x01\x01\x01\x01", "\x7f\x7f\x7f\x7f", "\xff\xff\xff\xff\xff\xff\xff\xff", "\x30",
    NULL,
};

enum {
    DATA_OFFSET = 64,
    CHUNK_RECORDS = 8
};

static const ga_trace_header good_header = {
    .magic = GA_TRACE_MAGIC,
    .abi = GA_TRACE_ABI,
    .record_size = GA_TRACE_PLAIN_BYTES,
    .data_offset = DATA_OFFSET,
    .chunk_bytes = CHUNK_RECORDS * GA_TRACE_PLAIN_BYTES,
    .pid = 1,
    .start_ns = 1,
};

static const ga_trace_header stacks_header = {
    .magic = GA_TRACE_MAGIC,
    .abi = GA_TRACE_STACKS_ABI,
    .record_size = sizeof(ga_trace_record),
    .data_offset = DATA_OFFSET,
    .chunk_bytes = CHUNK_RECORDS * sizeof(ga_trace_record),
    .pid = 1,
    .depth = 16,
    .start_ns = 1,
};

/* ---- seeds --------------------------------------------------------------------------------- */

/* One record of each kind, then slots without one. */
static size_t put_records(uint8_t *room, size_t each)
{
    ga_trace_record records[2 * CHUNK_RECORDS] = {0};
    for (unsigned i = 1; i < GA_TRACE_OP_COUNT; i++) {
        records[i] = (ga_trace_record){
            .time_ns = i,
            .pointer = i == GA_TRACE_FAILED ? 0 : 16 * i,
            .previous = i == GA_TRACE_REALLOC ? 8 : 0,
            .size = 100,
            .thread = 7,
            .operation = (uint8_t)i,
            .stack = 1,
        };
    }
    for (unsigned i = GA_TRACE_STACK; i < GA_TRACE_KIND_COUNT; i++) {
        records[i] = (ga_trace_record){.operation = (uint8_t)i, .stack = i};
    }
    for (unsigned i = 0; i < 2 * CHUNK_RECORDS; i++) {
        memcpy(room + i * each, &records[i], each);
    }
    return 2 * CHUNK_RECORDS * each;
}

/* A header with one member changed; unchanged, with other bytes for the rest. */
static ga_trace_header header_of(size_t number)
{
    ga_trace_header header = good_header;
    uint32_t *const members[] = {&header.abi, &header.record_size, &header.data_offset,
                                 &header.chunk_bytes};
    static const uint32_t values[] = {0, 1, 39, 47, 49, 1u << 20, (1u << 20) + 1, UINT32_MAX};
    size_t count = sizeof values / sizeof *values;
    if (number < 4 * count) {
        *members[number / count] = values[number % count];
    }
    return header;
}

enum {
    HEADERS = 4 * 8 + 1, /* the last one as it should be */
    CUTS = 20
};

size_t fuzz_seed(size_t number, uint8_t room[FUZZ_INPUT_MAX])
{
    ga_trace_header header = header_of(number);
    memset(room, 0, DATA_OFFSET);
    memcpy(room, &header, sizeof header);
    size_t size = DATA_OFFSET + put_records(room + DATA_OFFSET, GA_TRACE_PLAIN_BYTES);
    if (number < HEADERS) {
        return size;
    }
    number -= HEADERS;
    if (number < CUTS) {
        return 1 + number * (size - 1) / CUTS;
    }
    memcpy(room, &stacks_header, sizeof stacks_header);
    size = DATA_OFFSET + put_records(room + DATA_OFFSET, sizeof(ga_trace_record));
    number -= CUTS;
    return number < CUTS ? 1 + number * (size - 1) / CUTS : 0;
}

/* ---- checks ------------------------------------------------------------------------------- */

static void check_header(const ga_trace_header *header)
{
    FUZZ_NEED(memcmp(header->magic, GA_TRACE_MAGIC, sizeof header->magic) == 0);
    bool stacks = header->abi == GA_TRACE_STACKS_ABI;
    FUZZ_NEED(stacks || header->abi == GA_TRACE_ABI);
    FUZZ_NEED(header->record_size == (stacks ? sizeof(ga_trace_record) : GA_TRACE_PLAIN_BYTES));
    FUZZ_NEED(stacks ? header->depth && header->depth <= GA_TRACE_DEPTH_MAX : !header->depth);
    FUZZ_NEED(header->data_offset >= sizeof *header);
    FUZZ_NEED(header->chunk_bytes && header->chunk_bytes % header->record_size == 0);
}

static void check_record(const ga_trace_header *header, const ga_trace_record *record)
{
    bool refused = record->operation == GA_TRACE_FAILED;
    if (record->operation >= GA_TRACE_OP_COUNT) {
        FUZZ_NEED(header->depth && record->operation < GA_TRACE_KIND_COUNT && record->stack);
        FUZZ_NEED(record->part * GA_TRACE_PART_BYTES < GA_TRACE_DEFINITION_MAX);
        return;
    }
    FUZZ_NEED(header->depth || (!record->stack && !record->part));
    FUZZ_NEED(record->operation > GA_TRACE_NONE && record->operation < GA_TRACE_OP_COUNT);
    FUZZ_NEED(record->place < GA_PLACE_COUNT && record->align_log2 < 64);
    FUZZ_NEED(refused == (record->pointer == 0));
    FUZZ_NEED(!record->previous || record->operation == GA_TRACE_REALLOC);
}

/* The number of written slots of the file, with any contents. */
static uint64_t written_slots(const uint8_t *data, size_t size, size_t offset, size_t each)
{
    uint64_t count = 0;
    ga_trace_record record;
    for (; offset <= size && size - offset >= each; offset += each) {
        memcpy(&record, data + offset, each);
        count += record.operation != GA_TRACE_NONE;
    }
    return count;
}

static bool is_cut(size_t size, const ga_trace_header *header)
{
    if (size < header->data_offset) { /* nothing behind the header: nothing was recorded */
        return size > sizeof *header;
    }
    return (size - header->data_offset) % header->chunk_bytes != 0;
}

static void check_contents(ga_trace_reader *reader, const uint8_t *data, size_t size)
{
    const ga_trace_header *header = ga_trace_reader_header(reader);
    const ga_trace_record *record;
    uint64_t count = 0;
    FUZZ_NEED(size >= sizeof *header);
    check_header(header);
    while ((record = ga_trace_reader_next(reader))) {
        check_record(header, record);
        count++;
    }
    FUZZ_NEED(!ga_trace_reader_next(reader));
    FUZZ_NEED(count + ga_trace_reader_damaged(reader) ==
              written_slots(data, size, header->data_offset, header->record_size));
    FUZZ_NEED(ga_trace_reader_cut(reader) == is_cut(size, header));
    FUZZ_NEED(ga_trace_reader_cut_bytes(reader) < size);
}

/* ---- the target ---------------------------------------------------------------------------- */

/* A file without a name in any folder: nothing is left behind by an abort. */
static const char *file_with(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("trace", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size) {
        err(1, "cannot write a file to read");
    }
    return path;
}

static void read_file(const uint8_t *data, size_t size)
{
    ga_trace_reader *reader;
    ga_status status = ga_trace_reader_open(&reader, file_with(data, size));
    if (status == GA_OK) {
        check_contents(reader, data, size);
        ga_trace_reader_close(reader);
        return;
    }
    FUZZ_NEED(!reader && (status == GA_ERR_IO || status == GA_ERR_ABI));
    fuzz_check_sentence();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *behind = calloc(1, DATA_OFFSET + size);
    FUZZ_NEED(behind);
    memcpy(behind, &good_header, sizeof good_header);
    if (size) {
        memcpy(behind + DATA_OFFSET, data, size);
    }
    read_file(data, size);
    read_file(behind, DATA_OFFSET + size);
    memcpy(behind, &stacks_header, sizeof stacks_header);
    read_file(behind, DATA_OFFSET + size);
    free(behind);
    return 0;
}
