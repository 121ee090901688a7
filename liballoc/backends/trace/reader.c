/* SPDX-License-Identifier: MIT
 *
 * The file is read with stdio and not mapped, so that pipes work too, and a file that another
 * process truncates ends early instead of raising SIGBUS.
 */
#include "reader.h"

#include "../../platform/log.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFER_BYTES = 1 << 18,
    DATA_OFFSET_MAX = 1 << 20, /* bytes; at least a page of every system */
    ALIGN_LOG2_MAX = 63
};

struct ga_trace_reader {
    FILE *file;
    char *path;
    ga_trace_header header;
    ga_trace_record record;
    uint64_t data_bytes; /* bytes read after data_offset */
    uint64_t cut_bytes;
    uint64_t damaged;
    bool ended;
};

/* ---- the header ---------------------------------------------------------------------------- */

static ga_status check_layout(const char *path, const ga_trace_header *header)
{
    bool stacks = header->abi == GA_TRACE_STACKS_ABI;
    size_t each = stacks ? sizeof(ga_trace_record) : GA_TRACE_PLAIN_BYTES;
    if (header->record_size != each) {
        return ga_fail(GA_ERR_IO, "\"%.300s\": damaged header: record_size: expected %zu, got %u",
                       path, each, header->record_size);
    }
    if (stacks && (!header->depth || header->depth > GA_TRACE_DEPTH_MAX)) {
        return ga_fail(GA_ERR_IO, "\"%.300s\": damaged header: depth: expected 1 to %u, got %u",
                       path, GA_TRACE_DEPTH_MAX, header->depth);
    }
    if (header->data_offset < sizeof *header || header->data_offset > DATA_OFFSET_MAX) {
        return ga_fail(GA_ERR_IO,
                       "\"%.300s\": damaged header: data_offset: expected %zu to %d, got %u", path,
                       sizeof *header, DATA_OFFSET_MAX, header->data_offset);
    }
    if (!header->chunk_bytes || header->chunk_bytes % each) {
        return ga_fail(
            GA_ERR_IO,
            "\"%.300s\": damaged header: chunk_bytes: expected a multiple of %zu, got %u", path,
            each, header->chunk_bytes);
    }
    return GA_OK;
}

static ga_status check_header(const char *path, const ga_trace_header *header, size_t length)
{
    size_t magic = length < sizeof header->magic ? length : sizeof header->magic;
    if (length == 0) {
        return ga_fail(GA_ERR_IO, "\"%.300s\": expected a trace file, got an empty one", path);
    }
    if (memcmp(header->magic, GA_TRACE_MAGIC, magic) != 0) {
        return ga_fail(GA_ERR_IO, "\"%.300s\": expected a trace file, which begins with \"%s\"",
                       path, GA_TRACE_MAGIC);
    }
    if (length < sizeof *header) {
        return ga_fail(GA_ERR_IO,
                       "\"%.300s\": a trace file cut short: expected a header of %zu bytes, "
                       "got %zu",
                       path, sizeof *header, length);
    }
    if (header->abi != GA_TRACE_ABI && header->abi != GA_TRACE_STACKS_ABI) {
        return ga_fail(GA_ERR_ABI,
                       "\"%.300s\": a trace of ABI version %u: expected version %u or %u", path,
                       header->abi, GA_TRACE_ABI, GA_TRACE_STACKS_ABI);
    }
    return check_layout(path, header);
}

static ga_status cannot_read(const char *path)
{
    return ga_fail(GA_ERR_IO, "\"%.300s\": cannot be read: %s", path, strerror(errno));
}

/* The file may end after the header if nothing was recorded. */
static void skip_to_data(ga_trace_reader *reader)
{
    char gap[4096];
    size_t left = reader->header.data_offset - sizeof reader->header;
    size_t got = 1;
    while (left > 0 && got > 0) {
        got = fread(gap, 1, left < sizeof gap ? left : sizeof gap, reader->file);
        reader->cut_bytes += got;
        left -= got;
    }
    reader->ended = left > 0;
    reader->cut_bytes = reader->ended ? reader->cut_bytes : 0;
}

static ga_status read_header(ga_trace_reader *reader)
{
    setvbuf(reader->file, NULL, _IOFBF, BUFFER_BYTES);
    size_t length = fread(&reader->header, 1, sizeof reader->header, reader->file);
    if (ferror(reader->file)) {
        return cannot_read(reader->path);
    }
    ga_status status = check_header(reader->path, &reader->header, length);
    if (reader->header.abi == GA_TRACE_ABI) {
        reader->header.depth = 0; /* without a meaning in that version */
    }
    if (status == GA_OK) {
        skip_to_data(reader);
    }
    return status;
}

/* ---- records ------------------------------------------------------------------------------- */

static bool read_record(ga_trace_reader *reader)
{
    if (reader->ended) {
        return false;
    }
    size_t each = reader->header.record_size;
    size_t length = fread(&reader->record, 1, each, reader->file);
    reader->data_bytes += length;
    if (length == each) {
        return true;
    }
    if (ferror(reader->file)) {
        ga_log(GA_LOG_ERROR, "\"%.300s\": cannot be read further: %s", reader->path,
               strerror(errno));
    }
    reader->cut_bytes = length;
    reader->ended = true;
    return false;
}

static bool is_valid_part(const ga_trace_record *record)
{
    return record->operation < GA_TRACE_KIND_COUNT && !record->align_log2 && !record->place &&
           !record->device && record->stack && record->time_ns <= INT64_MAX &&
           record->part < (GA_TRACE_DEFINITION_MAX - 1) / GA_TRACE_PART_BYTES + 1;
}

static bool is_valid(const ga_trace_reader *reader, const ga_trace_record *record)
{
    bool refused = record->operation == GA_TRACE_FAILED;
    if (record->operation >= GA_TRACE_OP_COUNT) {
        return reader->header.abi == GA_TRACE_STACKS_ABI && is_valid_part(record);
    }
    return !record->part && refused == !record->pointer && record->time_ns <= INT64_MAX &&
           (!record->previous || record->operation == GA_TRACE_REALLOC) &&
           (refused || record->size <= PTRDIFF_MAX) && record->align_log2 <= ALIGN_LOG2_MAX &&
           record->place < GA_PLACE_COUNT;
}

/* ---- the interface ------------------------------------------------------------------------- */

static ga_status reader_new(ga_trace_reader **out, const char *path)
{
    ga_trace_reader *reader = calloc(1, sizeof *reader);
    *out = reader;
    if (!reader || !(reader->path = strdup(path))) {
        return ga_fail(GA_ERR_MEMORY, "\"%.300s\": no memory to read it", path);
    }
    reader->file = fopen(path, "rbe");
    return reader->file ? read_header(reader) : cannot_read(path);
}

ga_status ga_trace_reader_open(ga_trace_reader **out, const char *path)
{
    ga_trace_reader *reader;
    ga_status status = reader_new(&reader, path);
    if (status != GA_OK) {
        ga_trace_reader_close(reader);
        reader = NULL;
    }
    *out = reader;
    return status;
}

void ga_trace_reader_close(ga_trace_reader *reader)
{
    if (!reader) {
        return;
    }
    if (reader->file) {
        fclose(reader->file);
    }
    free(reader->path);
    free(reader);
}

const ga_trace_header *ga_trace_reader_header(const ga_trace_reader *reader)
{
    return &reader->header;
}

const ga_trace_record *ga_trace_reader_next(ga_trace_reader *reader)
{
    while (read_record(reader)) {
        if (reader->record.operation == GA_TRACE_NONE) {
            continue;
        }
        if (is_valid(reader, &reader->record)) {
            return &reader->record;
        }
        reader->damaged++;
    }
    return NULL;
}

uint64_t ga_trace_reader_damaged(const ga_trace_reader *reader)
{
    return reader->damaged;
}

uint64_t ga_trace_reader_cut_bytes(const ga_trace_reader *reader)
{
    return reader->cut_bytes;
}

bool ga_trace_reader_cut(const ga_trace_reader *reader)
{
    return reader->cut_bytes > 0 ||
           (reader->ended && reader->data_bytes % reader->header.chunk_bytes);
}
