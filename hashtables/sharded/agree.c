/* SPDX-License-Identifier: MIT
 *
 * All ranks learn whether each of them can go on, and how many requests there are. A
 * rank that failed still takes part, so that no other one waits for it.
 */
#include "sharded.h"

#include <stdio.h>
#include <string.h>

enum {
    PADS_SHIFT = 32 /* pads are in the upper half of a word of counts */
};

ga_status ga_sharded_check(const ga_slabhash_sharded *table)
{
    if (!table) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no sharded table: expected one that is open");
    }
    return table->is_broken ? ga_fail(GA_ERR_DEVICE,
                                      "slabhash: rank %u: an exchange of this sharded table "
                                      "failed: expected calls for its own shard only",
                                      table->exchange.rank)
                            : GA_OK;
}

ga_status ga_sharded_break(ga_slabhash_sharded *table, ga_status status)
{
    if (status != GA_OK && !table->is_broken) {
        table->is_broken = true;
        if (table->exchange.abort) {
            table->exchange.abort(table->exchange.context);
        }
    }
    return status;
}

/* The parts' counts of requests of each rank for each other one. */
static ga_status exchange_counts(ga_slabhash_sharded *table, void *stream)
{
    const ga_exchange *exchange = &table->exchange;
    uint32_t parts = 1u << table->division.parts_log;
    uint64_t bytes = parts * sizeof(uint32_t);
    ga_status status = exchange->begin(exchange->context);
    for (uint32_t rank = 0; status == GA_OK && rank < exchange->ranks; rank++) {
        if (rank != exchange->rank) {
            status = exchange->send(exchange->context, table->counts + (uint64_t)rank * parts,
                                    bytes, rank, stream);
            status = status ? status
                            : exchange->receive(exchange->context,
                                                table->counts_of_others + (uint64_t)rank * parts,
                                                bytes, rank, stream);
        }
    }
    return status ? status : exchange->end(exchange->context, stream);
}

static uint64_t bins_of(const ga_slabhash_sharded *table)
{
    return (uint64_t)table->division.ranks << table->division.parts_log;
}

/* The words of the counts of few ranks, each of which has a row. */
static uint64_t matrix_words(const ga_slabhash_sharded *table, bool counts)
{
    bool are_few = table->division.ranks <= GA_SHARDED_FEW;
    return counts && are_few ? table->division.ranks * bins_of(table) : 0;
}

/* The row of this rank; those of others are 0. */
static ga_status put_matrix(ga_slabhash_sharded *table, uint64_t words, void *stream)
{
    uint64_t bins = bins_of(table);
    uint64_t *row = table->host->matrix + table->exchange.rank * bins;
    memset(table->host->matrix, 0, words * sizeof *row);
    for (uint64_t i = 0; i < bins; i++) {
        row[i] = table->host->own_counts[i] | (uint64_t)table->host->own_pads[i] << PADS_SHIFT;
    }
    return table->engine->put(table, table->matrix, table->host->matrix, words * sizeof *row,
                              stream);
}

/* The counts of all ranks for this one's parts. */
static void read_matrix(ga_slabhash_sharded *table)
{
    uint64_t bins = bins_of(table);
    uint32_t parts = 1u << table->division.parts_log;
    uint64_t first = (uint64_t)table->exchange.rank * parts;
    for (uint32_t rank = 0; rank < table->division.ranks; rank++) {
        for (uint32_t part = 0; part < parts; part++) {
            uint64_t word = table->host->matrix[rank * bins + first + part];
            table->host->other_counts[rank * parts + part] = (uint32_t)word;
            table->host->other_pads[rank * parts + part] = (uint32_t)(word >> PADS_SHIFT);
        }
    }
}

/* Enqueues an agreement. */
static ga_status agree(ga_slabhash_sharded *table, bool counts)
{
    const ga_sharded_engine *engine = table->engine;
    ga_sharded_copies *host = table->host;
    void *stream = table->exchange_stream;
    uint64_t matrix = matrix_words(table, counts);
    bool sends = counts && !matrix;
    ga_status status = engine->put(table, table->words, host->agreed, sizeof host->agreed, stream);
    status = status || !matrix ? status : put_matrix(table, matrix, stream);
    status = status ? status
                    : table->exchange.largest(table->exchange.context, table->words,
                                              (uint32_t)(GA_SHARDED_WORDS + matrix), stream);
    status = status || !sends ? status : exchange_counts(table, stream);
    status = status ? status
                    : engine->get(table, host->agreed, table->words, sizeof host->agreed, stream);
    status = status || !matrix ? status
                               : engine->get(table, host->matrix, table->matrix,
                                             matrix * sizeof *host->matrix, stream);
    return status || !sends ? status
                            : engine->get(table, host->other_counts, table->counts_of_others,
                                          bins_of(table) * sizeof *host->other_counts, stream);
}

ga_status ga_sharded_begin_agreement(ga_slabhash_sharded *table, bool counts)
{
    ga_status status = ga_sharded_check(table);
    return ga_sharded_break(table, status ? status : agree(table, counts));
}

ga_status ga_sharded_end_agreement(ga_slabhash_sharded *table, bool counts)
{
    ga_status status = table->exchange.wait(table->exchange.context, table->exchange_stream);
    if (status == GA_OK && matrix_words(table, counts)) {
        read_matrix(table);
    }
    return ga_sharded_break(table, status);
}

ga_status ga_sharded_agree(ga_slabhash_sharded *table, bool counts)
{
    ga_status status = ga_sharded_begin_agreement(table, counts);
    return status ? status : ga_sharded_end_agreement(table, counts);
}

ga_status ga_sharded_agree_later(ga_slabhash_sharded *table)
{
    return ga_sharded_break(table, agree(table, false));
}

ga_status ga_sharded_agreed(const ga_slabhash_sharded *table, ga_status status)
{
    uint64_t agreed = table->host->agreed[GA_SHARDED_STATUS];
    return status || !agreed
               ? status
               : ga_fail((ga_status)agreed,
                         "slabhash: rank %u: the call failed on another rank, which has the reason",
                         table->exchange.rank);
}

ga_status ga_sharded_agree_status(ga_slabhash_sharded *table, ga_status status)
{
    char reason[256];
    snprintf(reason, sizeof reason, "%s", ga_error_text());
    memset(table->host->agreed, 0, sizeof table->host->agreed);
    table->host->agreed[GA_SHARDED_STATUS] = status;
    ga_status agreed = ga_sharded_agree(table, false);
    return status   ? ga_fail(status, "%s", reason)
           : agreed ? agreed
                    : ga_sharded_agreed(table, GA_OK);
}
