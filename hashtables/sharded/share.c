/* SPDX-License-Identifier: MIT
 *
 * Every rank learns a record of every other one.
 */
#include "sharded.h"

#include "platform/cuda_driver.h"
#include "platform/entropy.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint64_t process;

static void draw_process(void)
{
    process = ga_entropy();
}

/* After a fork it differs by the process id. */
uint64_t ga_slabhash_sharded_process(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_process);
    return (process ^ (uint64_t)getpid()) & INT64_MAX;
}

static ga_status agree(ga_slabhash_sharded *table, ga_status failed)
{
    uint64_t *agreed = table->host->agreed;
    agreed[GA_SHARDED_STATUS] = failed;
    ga_status status = ga_sharded_agree(table, false);
    return status ? status : ga_sharded_agreed(table, failed);
}

/* An exchange finds the largest numbers. So in each round a rank puts words of its record where all
 * others have zeros. */
static ga_status share_words(ga_slabhash_sharded *table, const uint32_t *own, uint32_t *all,
                             uint32_t words)
{
    enum {
        AT_ONCE = GA_SHARDED_WORDS - 1
    };
    uint64_t *agreed = table->host->agreed;
    uint64_t first_own = (uint64_t)table->exchange.rank * words;
    uint64_t count = (uint64_t)table->exchange.ranks * words;
    for (uint64_t first = 0; first < count; first += AT_ONCE) {
        memset(agreed, 0, sizeof table->host->agreed);
        for (uint64_t i = first; i < first + AT_ONCE && i < count; i++) {
            bool is_own = i >= first_own && i - first_own < words;
            agreed[1 + i - first] = is_own ? own[i - first_own] : 0;
        }
        ga_status status = agree(table, GA_OK);
        if (status != GA_OK) {
            return status;
        }
        for (uint64_t i = first; i < first + AT_ONCE && i < count; i++) {
            all[i] = (uint32_t)agreed[1 + i - first];
        }
    }
    return GA_OK;
}

static ga_status share(ga_slabhash_sharded *table, ga_status failed, const void *own, void *all,
                       uint32_t bytes, bool *one_process)
{
    uint64_t *agreed = table->host->agreed;
    uint64_t number = ga_slabhash_sharded_process();
    memset(agreed, 0, sizeof table->host->agreed);
    agreed[GA_SHARDED_FORM] = number;
    agreed[GA_SHARDED_NOT_FORM] = ga_sharded_not(number);
    ga_status status = agree(table, failed);
    if (status != GA_OK) {
        return status;
    }
    *one_process =
        agreed[GA_SHARDED_FORM] == number && agreed[GA_SHARDED_NOT_FORM] == ga_sharded_not(number);
    return share_words(table, own, all, bytes / sizeof(uint32_t));
}

uint32_t ga_slabhash_sharded_ranks(const ga_slabhash_sharded *table, uint32_t *rank)
{
    if (rank) {
        *rank = table->exchange.rank;
    }
    return table->exchange.ranks;
}

int ga_slabhash_sharded_device(const ga_slabhash_sharded *table)
{
    return table->exchange.device;
}

ga_status ga_slabhash_sharded_share(ga_slabhash_sharded *table, ga_status failed, const void *own,
                                    void *all, uint32_t bytes, bool *one_process)
{
    ga_cuda_scope scope;
    char reason[256];
    snprintf(reason, sizeof reason, "%s", ga_error_text());
    ga_status status = ga_sharded_check(table);
    if (status == GA_OK && !failed && bytes % sizeof(uint32_t)) { /* the others learn of it */
        failed = ga_fail(GA_ERR_ARGUMENT, "slabhash: records of %u bytes: expected a multiple of 4",
                         bytes);
        snprintf(reason, sizeof reason, "%s", ga_error_text());
    }
    status = status ? status : table->engine->enter(table, &scope);
    if (status == GA_OK) {
        status = share(table, failed, own, all, bytes, one_process);
        table->engine->leave(&scope);
    }
    return failed ? ga_fail(failed, "%s", reason) : status;
}
