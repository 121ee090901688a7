/* SPDX-License-Identifier: MIT
 *
 * Traces of device memory that bench-arena-device replays: generators, checks and text.
 */
#include "arena/trace.h"

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

typedef void generator(trace *t, uint64_t seed, uint64_t budget);

static generator *const generators[] = {trace_make_torch, trace_make_rmm};

enum {
    GENERATORS = sizeof generators / sizeof *generators
};

static void assert_good(trace *t)
{
    char why[TRACE_WHY] = "";
    cr_assert(trace_check(t, why), "%s", why);
}

static void assert_bad(trace *t, const char *part)
{
    char why[TRACE_WHY] = "";
    cr_assert_not(trace_check(t, why), "expected \"%s\"", part);
    cr_assert_not_null(strstr(why, part), "\"%s\" is not in \"%s\"", part, why);
}

static bool same(const trace *a, const trace *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        const trace_op *x = &a->ops[i], *y = &b->ops[i];
        if (x->kind != y->kind || x->size != y->size || x->block != y->block ||
            x->stream != y->stream || x->other != y->other) {
            return false;
        }
    }
    return true;
}

/* ---- generators -------------------------------------------------------------------------- */

Test(bench_trace, are_what_their_seed_says)
{
    for (unsigned i = 0; i < GENERATORS; i++) {
        trace first = {0}, again = {0}, other = {0};
        generators[i](&first, 7, 4 * GIB);
        generators[i](&again, 7, 4 * GIB);
        generators[i](&other, 8, 4 * GIB);
        cr_assert(same(&first, &again), "generator %u", i);
        cr_assert_not(same(&first, &other), "generator %u", i);
        trace_clear(&first);
        trace_clear(&again);
        trace_clear(&other);
    }
}

/* An independent count, without trace_check(): every free is of a live block, all blocks are freed
 * at the end, and the peak matches. */
static void recount(const trace *t)
{
    uint64_t *sizes = calloc(t->blocks, sizeof *sizes);
    uint64_t live = 0, peak = 0;
    size_t calls = 0;
    for (size_t i = 0; i < t->count; i++) {
        const trace_op *op = &t->ops[i];
        if (op->kind == TRACE_ALLOC) {
            cr_assert_eq(sizes[op->block], 0, "operation %zu gets a live block", i);
            cr_assert_gt(op->size, 0);
            sizes[op->block] = op->size;
            live += op->size;
            calls++;
        } else if (op->kind == TRACE_FREE) {
            cr_assert_gt(sizes[op->block], 0, "operation %zu frees what is not live", i);
            live -= sizes[op->block];
            sizes[op->block] = 0;
            calls++;
        }
        cr_assert_lt(op->stream, t->streams);
        peak = live > peak ? live : peak;
    }
    cr_assert_eq(live, 0);
    cr_assert_eq(peak, t->peak);
    cr_assert_eq(calls, t->calls);
    free(sizes);
}

static size_t count_kind(const trace *t, trace_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++) {
        count += t->ops[i].kind == kind;
    }
    return count;
}

Test(bench_trace, keep_their_live_sets_and_budgets)
{
    for (unsigned i = 0; i < GENERATORS; i++) {
        for (uint64_t budget = 48 * GIB; budget >= 16 * MIB; budget /= 4) {
            for (uint64_t seed = 1; seed <= 3; seed++) {
                trace t = {0};
                generators[i](&t, seed, budget);
                assert_good(&t);
                recount(&t);
                cr_assert_leq(t.peak, budget + 4096, "generator %u: %" PRIu64 " of %" PRIu64, i,
                              t.peak, budget);
                cr_assert_gt(t.peak, budget / 8, "generator %u: %" PRIu64 " of %" PRIu64, i, t.peak,
                             budget);
                cr_assert_gt(t.calls, 8000, "generator %u", i);
                cr_assert_gt(count_kind(&t, TRACE_WAIT), 5);
                cr_assert_gt(count_kind(&t, TRACE_SYNC), 5);
                cr_assert_eq(t.streams, i ? 4 : 2);
                trace_clear(&t);
            }
        }
    }
}

static uint64_t extreme_size(const trace *t, bool max)
{
    uint64_t found = max ? 0 : UINT64_MAX;
    for (size_t i = 0; i < t->count; i++) {
        uint64_t size = t->ops[i].size;
        if (t->ops[i].kind == TRACE_ALLOC && (max ? size > found : size < found)) {
            found = size;
        }
    }
    return found;
}

Test(bench_trace, of_queries_are_of_all_sizes)
{
    trace t = {0};
    trace_make_rmm(&t, 1, 48 * GIB);
    cr_assert_eq(extreme_size(&t, false), 256);
    cr_assert_eq(extreme_size(&t, true), 2 * GIB);
    trace_clear(&t);
}

Test(bench_trace, of_training_free_in_reverse_order)
{
    trace t = {0};
    size_t reversed = 0, frees = 0;
    uint32_t last = 0;
    trace_make_torch(&t, 1, 48 * GIB);
    for (size_t i = 0; i < t.count; i++) {
        if (t.ops[i].kind == TRACE_FREE) {
            reversed += t.ops[i].block < last;
            frees++;
            last = t.ops[i].block;
        }
    }
    cr_assert_gt(reversed, frees / 4, "%zu of %zu", reversed, frees);
    trace_clear(&t);
}

/* ---- checks ------------------------------------------------------------------------------ */

Test(bench_trace, that_are_wrong_are_found_out)
{
    trace t = {0};
    assert_bad(&t, "gets no block");
    uint32_t block = trace_alloc(&t, 100, 0);
    assert_bad(&t, "100 bytes are never freed");
    trace_free(&t, block, 0);
    assert_good(&t);
    cr_assert_eq(t.peak, 100);
    trace_free(&t, block, 0);
    assert_bad(&t, "operation 3 frees a block that is not live");
    trace_clear(&t);
    trace_alloc(&t, 0, 0);
    assert_bad(&t, "bad size");
    trace_clear(&t);
    trace_alloc(&t, 100, 0);
    t.ops[0].block = t.blocks = 0;
    trace_alloc(&t, 100, 0);
    assert_bad(&t, "operation 2 gets a block that is live");
    trace_clear(&t);
}

/* A wait before the block was allocated does not count, and neither does a wait in the other
 * direction. */
Test(bench_trace, free_elsewhere_only_after_a_wait)
{
    trace t = {0};
    trace_wait(&t, 1, 0);
    uint32_t block = trace_alloc(&t, 1, 0);
    trace_wait(&t, 0, 1);
    size_t place = t.count;
    trace_wait(&t, 1, 0);
    trace_free(&t, block, 1);
    assert_good(&t);
    t.ops[place].stream = 0;
    t.ops[place].other = 1;
    assert_bad(&t, "has not waited");
    trace_clear(&t);
}

/* Any free of a trace that is left out, or said twice, is found. */
Test(bench_trace, with_one_free_more_or_less_are_found_out)
{
    for (unsigned i = 0; i < GENERATORS; i++) {
        trace t = {0};
        char why[TRACE_WHY];
        generators[i](&t, 1, GIB);
        for (size_t at = 0; at < t.count; at += 97) {
            trace_op kept = t.ops[at];
            if (kept.kind == TRACE_FREE) {
                t.ops[at] = (trace_op){.kind = TRACE_SYNC};
                cr_assert_not(trace_check(&t, why));
                t.ops[at] = kept;
                trace_free(&t, kept.block, kept.stream);
                cr_assert_not(trace_check(&t, why));
                t.count--;
            }
        }
        assert_good(&t);
        trace_clear(&t);
    }
}

/* ---- text -------------------------------------------------------------------------------- */

static bool read_text(trace *t, const char *text, char why[TRACE_WHY])
{
    FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    bool good = trace_read(t, file, why);
    fclose(file);
    return good;
}

Test(bench_trace, are_the_same_once_written_and_read)
{
    for (unsigned i = 0; i < GENERATORS; i++) {
        trace made = {0}, back = {0};
        char *text = NULL, why[TRACE_WHY] = "";
        size_t length;
        FILE *file = open_memstream(&text, &length);
        generators[i](&made, 3, GIB);
        cr_assert(trace_write(&made, file));
        fclose(file);
        cr_assert(read_text(&back, text, why), "%s", why);
        cr_assert(same(&made, &back));
        assert_good(&back);
        assert_good(&made);
        cr_assert_eq(back.peak, made.peak);
        cr_assert_eq(back.blocks, made.blocks);
        free(text);
        trace_clear(&made);
        trace_clear(&back);
    }
}

/* Comments, blank lines, tabs; a number that is used again; no new line at the end. */
Test(bench_trace, are_read_as_people_write_them)
{
    trace t = {0};
    char why[TRACE_WHY] = "";
    cr_assert(read_text(&t,
                        "# two blocks\n\n a 5 4096 0 # the first\nf\t5 0\n"
                        "a 5 17 7\nw 0 7\nf 5 0\r\ns 0",
                        why),
              "%s", why);
    assert_good(&t);
    cr_assert_eq(t.count, 6);
    cr_assert_eq(t.calls, 4);
    cr_assert_eq(t.peak, 4096);
    cr_assert_eq(t.blocks, 6);
    cr_assert_eq(t.streams, 8);
    trace_clear(&t);
}

Test(bench_trace, of_bad_text_are_refused)
{
    static const char *const bad[] = {
        "b 1",
        "a 1 2",
        "a 1 2 3 4",
        "a 1 2 8",
        "a 1 0 0",
        "a -1 2 0",
        "a x 2 0",
        "a1 2 0",
        "a 16777216 2 0",
        "a 1 9223372036854775808 0",
        "a 1 99999999999999999999 0",
        "f 0 0",
        "f 0",
        "w 0",
        "w 0 8",
        "s",
        "s 0 0",
        "s 18446744073709551616",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        trace t = {0};
        char text[64], why[TRACE_WHY] = "";
        snprintf(text, sizeof text, "s 0\n%s\ns 0\n", bad[i]);
        cr_assert_not(read_text(&t, text, why), "%s", bad[i]);
        cr_assert_not_null(strstr(why, "line 2: expected"), "%s: %s", bad[i], why);
        trace_clear(&t);
    }
}
