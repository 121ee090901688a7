/* SPDX-License-Identifier: MIT
 *
 * Workloads `brim` and `holes`: fill a card, free memory in holes, and search for the largest block
 * that can then be allocated. Reported as a fraction of the freed bytes.
 */
#include "client.h"
#include "device.h"

#include "../device/name.h"
#include "../runner/clock.h"

#include <gpualloc/backend.h>

#include <stdlib.h>

enum {
    FINEST = 2 << 20, /* bytes that a bisection may end with, or 1/256 of the freed bytes */
    TIMES = 3         /* the larger block of `holes` is this multiple of the smaller one */
};

typedef struct field {
    client *client;
    uint64_t sizes[2]; /* of blocks with even and with odd numbers */
    void **blocks;
    size_t count, room;
    uint64_t held;  /* bytes of the blocks */
    uint64_t freed; /* bytes that were freed */
} field;

static uint64_t size_of(const field *f, size_t number)
{
    return f->sizes[number % 2];
}

/* Arrays for the largest number of blocks that the card can hold. */
static ga_status open_books(field *f, uint64_t card)
{
    f->room = card / f->sizes[0] + 2;
    f->blocks = calloc(f->room, sizeof *f->blocks);
    return f->blocks ? GA_OK : ga_fail(GA_ERR_MEMORY, "no memory for %zu pointers", f->room);
}

/* Allocate until `most` bytes would be exceeded or the card is full, which is not a failure. */
static ga_status fill(field *f, uint64_t most)
{
    while (f->held + size_of(f, f->count) <= most && f->count < f->room) {
        uint64_t size = size_of(f, f->count);
        ga_status status = client_get(f->client, size, 0, &f->blocks[f->count]);
        if (status != GA_OK) {
            return status == GA_ERR_MEMORY && f->count > 1 ? GA_OK : status;
        }
        f->count++;
        f->held += size;
    }
    return GA_OK;
}

/* Free every second block from `first` on. */
static ga_status give_back(field *f, size_t first)
{
    ga_status status = GA_OK;
    f->freed = 0;
    for (size_t i = first; i < f->count && status == GA_OK; i += 2) {
        status = client_give(f->client, f->blocks[i], 0);
        f->freed += size_of(f, i);
    }
    return status == GA_OK ? client_settle(f->client) : status;
}

/* Whether a block of that size can be allocated; it is freed at once. */
static ga_status ask(field *f, uint64_t size, bool *had)
{
    void *block;
    ga_status status = client_get(f->client, size, 0, &block);
    *had = status == GA_OK;
    if (status != GA_OK) {
        return status == GA_ERR_MEMORY ? GA_OK : status;
    }
    status = client_settle(f->client);
    status = status == GA_OK ? client_give(f->client, block, 0) : status;
    return status == GA_OK ? client_settle(f->client) : status;
}

/* The largest block, by bisection between a size that succeeded and one that failed. */
static ga_status bisect(field *f, uint64_t *largest)
{
    uint64_t low = 0, high = f->freed;
    uint64_t finest = f->freed / 256 > FINEST ? f->freed / 256 : FINEST;
    ga_status status = GA_OK;
    while (status == GA_OK && high - low > finest) {
        uint64_t middle = low + (high - low) / 2;
        bool had;
        status = ask(f, middle, &had);
        low = had ? middle : low;
        high = had ? high : middle;
    }
    *largest = low;
    return status;
}

static ga_status ask_all(field *f, double *microseconds, uint64_t *largest)
{
    void *block;
    uint64_t start = ga_bench_now();
    ga_status status = client_get(f->client, f->freed, 0, &block);
    *microseconds = (double)(ga_bench_now() - start) / 1e3;
    *largest = f->freed;
    if (status == GA_ERR_MEMORY) {
        return bisect(f, largest);
    }
    status = status == GA_OK ? client_give(f->client, block, 0) : status;
    return status == GA_OK ? client_settle(f->client) : status;
}

/* Fill `percent` of the card; 0: until it is full. */
static ga_status measure(field *f, uint64_t card, uint64_t percent, double *values)
{
    uint64_t largest;
    uint64_t start = ga_bench_now();
    ga_status status = fill(f, percent ? card / 100 * percent : UINT64_MAX);
    uint64_t filled = ga_bench_now();
    status = status == GA_OK ? give_back(f, 0) : status;
    if (status != GA_OK) {
        return status;
    }
    values[2] = (double)f->freed / (1 << 30);
    values[3] = (double)f->held / (double)card;
    values[4] = (double)(filled - start) / 1e3 / (double)f->count;
    status = ask_all(f, &values[1], &largest);
    values[0] = (double)largest / (double)f->freed;
    return status == GA_OK ? give_back(f, 1) : status;
}

static ga_status run_with(const ga_bench_case *run, uint64_t large, uint64_t percent,
                          ga_bench_report *report)
{
    client c;
    uint64_t card;
    field f = {.client = &c, .sizes = {run->size, large}};
    ga_status status = client_enter(&c, run->heap, arena_set.card);
    if (status != GA_OK) {
        return status;
    }
    ga_bench_name_device(ga_heap_device(run->heap), report);
    status = client_free_bytes(&c, &card);
    status = status == GA_OK ? open_books(&f, card) : status;
    status = status == GA_OK ? measure(&f, card, percent, report->values) : status;
    client_leave(&c);
    free(f.blocks);
    return status;
}

static ga_status run_brim(const ga_bench_case *run, ga_bench_report *report)
{
    return run_with(run, run->size, 0, report);
}

static ga_status run_holes(const ga_bench_case *run, ga_bench_report *report)
{
    return run_with(run, TIMES * run->size, 90, report);
}

static const ga_bench_metric metrics[] = {
    {.name = "largest", .unit = "of freed", .more_is_better = true},
    {.name = "ask-all", .unit = "us"},
    {.name = "freed", .unit = "GiB", .more_is_better = true},
    {.name = "filled", .unit = "of card", .more_is_better = true},
    {.name = "fill-block", .unit = "us"},
};

const ga_bench_workload arena_brim = {
    .name = "brim",
    .help =
        "the card full of blocks of one size, every second one freed: the largest block that can "
        "be had, and the time to be given, or refused, all of the freed bytes",
    .place = GA_PLACE_DEVICE,
    .one_thread = true,
    .sizes = (const size_t[]){8 << 20, 0},
    .metric_count = sizeof metrics / sizeof *metrics,
    .metrics = metrics,
    .run = run_brim,
};

const ga_bench_workload arena_holes = {
    .name = "holes",
    .help =
        "90 % of the card full of blocks of this size and of three times it in turn, all of this "
        "size freed: the same",
    .place = GA_PLACE_DEVICE,
    .one_thread = true,
    .sizes = (const size_t[]){8 << 20, 24 << 20, 512 << 10, 0},
    .metric_count = sizeof metrics / sizeof *metrics,
    .metrics = metrics,
    .run = run_holes,
};
