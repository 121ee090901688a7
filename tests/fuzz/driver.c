/* SPDX-License-Identifier: MIT
 *
 * A fuzz target as a plain program: every seed, then RUNS mutations of seeds. A run depends only on
 * its number and the printed seed, so that a failure can be repeated.
 *
 * usage: PROGRAM [RUNS [SEED]]
 *        PROGRAM --write-seeds FOLDER        as libFuzzer's first inputs
 */
#include "fuzz.h"

#include "support/random.h"

#include <err.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum {
    DEFAULT_RUNS = 100000,
    MUTATIONS_MAX = 8
};

typedef struct input {
    uint8_t bytes[FUZZ_INPUT_MAX];
    size_t size;
} input;

static uint64_t random_state;
static size_t seeds;

static size_t below(size_t bound)
{
    return random_below(&random_state, bound);
}

/* ---- mutations ------------------------------------------------------------------------------ */

/* Make room for `size` bytes at `at`, as far as there is any; the caller fills it. Returns the
 * number of bytes. */
static size_t open_gap(input *in, size_t at, size_t size)
{
    size_t room = sizeof in->bytes - in->size;
    size = size < room ? size : room;
    memmove(in->bytes + at + size, in->bytes + at, in->size - at);
    in->size += size;
    return size;
}

static void close_gap(input *in, size_t at, size_t size)
{
    memmove(in->bytes + at, in->bytes + at + size, in->size - at - size);
    in->size -= size;
}

static void insert_token(input *in)
{
    size_t count = 0;
    while (fuzz_tokens[count]) {
        count++;
    }
    const char *token = fuzz_tokens[below(count)];
    size_t at = below(in->size + 1);
    memcpy(in->bytes + at, token, open_gap(in, at, strlen(token)));
}

static void repeat_byte(input *in)
{
    size_t at = below(in->size + 1);
    size_t times = below(below(8) ? 8 : 10000);
    int byte = at < in->size ? in->bytes[at] : (int)below(256);
    memset(in->bytes + at, byte, open_gap(in, at, times));
}

static void copy_part(input *in)
{
    uint8_t part[512];
    size_t from = below(in->size);
    size_t max = in->size - from < sizeof part ? in->size - from : sizeof part;
    size_t size = 1 + below(max);
    size_t to = below(in->size + 1);
    memcpy(part, in->bytes + from, size);
    memcpy(in->bytes + to, part, open_gap(in, to, size));
}

static void set_number(input *in)
{
    static const uint64_t numbers[] = {0,          1,          47,         48,
                                       0x7fffffff, 0x80000000, UINT32_MAX, UINT64_MAX};
    uint64_t number = numbers[below(sizeof numbers / sizeof *numbers)];
    size_t size = (size_t)1 << below(4);
    if (in->size >= size) {
        memcpy(in->bytes + below(in->size - size + 1), &number, size);
    }
}

static void mutate(input *in)
{
    size_t choice = below(7);
    if (choice == 0 || in->size == 0) {
        insert_token(in);
    } else if (choice == 1) {
        repeat_byte(in);
    } else if (choice == 2) {
        copy_part(in);
    } else if (choice == 3) {
        set_number(in);
    } else if (choice == 4) {
        in->bytes[below(in->size)] ^= (uint8_t)(1u << below(8));
    } else if (choice == 5) {
        in->bytes[below(in->size)] = (uint8_t)below(256);
    } else {
        size_t at = below(in->size);
        close_gap(in, at, 1 + below(in->size - at));
    }
}

/* The start of one seed and the end of another, or one whole. */
static void choose(input *in)
{
    static input other;
    in->size = fuzz_seed(below(seeds), in->bytes);
    if (below(4) == 0) {
        other.size = fuzz_seed(below(seeds), other.bytes);
        in->size = below(in->size + 1);
        size_t from = below(other.size + 1);
        size_t size = open_gap(in, in->size, other.size - from);
        memcpy(in->bytes + in->size - size, other.bytes + from, size);
    }
}

/* ---- the program ---------------------------------------------------------------------------- */

static void run_seeds(void)
{
    static input in;
    LLVMFuzzerTestOneInput(in.bytes, 0);
    while ((in.size = fuzz_seed(seeds, in.bytes)) > 0) {
        LLVMFuzzerTestOneInput(in.bytes, in.size);
        seeds++;
    }
}

static void run_mutations(unsigned long runs)
{
    static input in;
    for (unsigned long i = 0; i < runs; i++) {
        choose(&in);
        for (size_t n = 1 + below(MUTATIONS_MAX); n > 0; n--) {
            mutate(&in);
        }
        LLVMFuzzerTestOneInput(in.bytes, in.size);
    }
}

static int write_seeds(const char *folder)
{
    static input in;
    char path[4096];
    for (size_t i = 0; (in.size = fuzz_seed(i, in.bytes)) > 0; i++) {
        snprintf(path, sizeof path, "%s/seed-%02zu", folder, i);
        FILE *file = fopen(path, "wbe");
        if (!file || fwrite(in.bytes, 1, in.size, file) != in.size || fclose(file) != 0) {
            err(1, "cannot write %s", path);
        }
    }
    return 0;
}

static unsigned long number_of(const char *text)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (end == text || *end) {
        errx(2, "expected a number, got \"%s\"", text);
    }
    return number;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write-seeds") == 0) {
        return write_seeds(argv[2]);
    }
    unsigned long runs = argc > 1 ? number_of(argv[1]) : DEFAULT_RUNS;
    random_state = argc > 2 ? number_of(argv[2]) : (uint64_t)time(NULL);
    printf("%lu runs from the seed %lu\n", runs, (unsigned long)random_state);
    fflush(stdout);
    run_seeds();
    run_mutations(runs);
    return 0;
}
