/* SPDX-License-Identifier: MIT
 *
 * The lock-free hash trie map beside liburcu's, with the workloads of lfht-reclamation-2022 §5.1:
 *
 *     bench-lfht [--keys LOG2] [--threads N,N] [--rounds N] [--heap SPEC]
 *
 * insert   keys into an empty map
 * hit      lookups of keys that are there
 * miss     lookups of keys that are not
 * mix      a quarter inserts, a quarter removals, half lookups of what is there; in a filled map
 * remove   all keys out of a filled map
 *
 * 2^LOG2 keys and as many calls, shared by the threads; keys are scattered. Each measurement is a
 * child. In a round every map has its turn, each round beginning with another one. The figure is
 * the median over the rounds, in millions of calls a second, then the lowest and the highest;
 * "times" is the ratio to the first map of the table, the median of the same rounds. Every answer
 * is checked.
 */
#include "subjects.h"

#include "commit.h"

#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    COUNTS_MOST = 16,
    ROUNDS_MOST = 101,
    SUBJECTS_MOST = 16,
    THREADS_MOST = 256
};

typedef enum workload {
    INSERT = 0,
    HIT,
    MISS,
    MIX,
    REMOVE,
    WORKLOADS
} workload;

static const char *const workload_names[] = {"insert", "hit", "miss", "mix", "remove"};

typedef struct settings {
    unsigned log2, rounds, counts, threads[COUNTS_MOST];
    const char *heap;
} settings;

static double rates[WORKLOADS][SUBJECTS_MOST][ROUNDS_MOST];

/* ---- a measurement -------------------------------------------------------------------------- */

typedef struct team {
    const subject *subject;
    void *map;
    workload load;
    uint64_t keys;
    unsigned threads;
    pthread_barrier_t together;
    uint64_t wrong; /* relaxed: answers that are not what they must be, a sum */
} team;

typedef struct member {
    team *team;
    unsigned number;
} member;

/* Key number i; splitmix64, so all are different. */
static uint64_t key_of(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Numbers below `keys` are there at the start, but for INSERT. */
static bool one_call(const team *t, uint64_t i)
{
    const subject *s = t->subject;
    switch (t->load) {
    case INSERT:
        return s->insert(t->map, key_of(i));
    case HIT:
        return s->lookup(t->map, key_of(i));
    case MISS:
        return !s->lookup(t->map, key_of(t->keys + i));
    case MIX:
        switch (i % 4) {
        case 0:
            return s->insert(t->map, key_of(t->keys + i));
        case 1:
            return s->remove(t->map, key_of(i));
        default:
            return s->lookup(t->map, key_of(i));
        }
    default:
        return s->remove(t->map, key_of(i));
    }
}

static void *run(void *context)
{
    const member *m = context;
    team *t = m->team;
    uint64_t first = t->keys * m->number / t->threads;
    uint64_t last = t->keys * (m->number + 1) / t->threads;
    uint64_t wrong = 0;
    t->subject->enter();
    for (uint64_t i = first; t->load != INSERT && i < last; i++) {
        wrong += !t->subject->insert(t->map, key_of(i));
    }
    pthread_barrier_wait(&t->together);
    for (uint64_t i = first; i < last; i++) {
        wrong += !one_call(t, i);
    }
    pthread_barrier_wait(&t->together);
    t->subject->leave();
    __atomic_fetch_add(&t->wrong, wrong, __ATOMIC_RELAXED); /* relaxed: a sum */
    return NULL;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Millions of calls a second. */
static double measure(team *t, const char *heap)
{
    pthread_t threads[THREADS_MOST];
    member members[THREADS_MOST];
    t->map = t->subject->open(t->subject, heap, t->keys);
    pthread_barrier_init(&t->together, NULL, t->threads + 1);
    for (unsigned i = 0; i < t->threads; i++) {
        members[i] = (member){t, i};
        if (pthread_create(&threads[i], NULL, run, &members[i])) {
            err(1, "a thread");
        }
    }
    pthread_barrier_wait(&t->together);
    double begin = now();
    pthread_barrier_wait(&t->together);
    double seconds = now() - begin;
    for (unsigned i = 0; i < t->threads; i++) {
        pthread_join(threads[i], NULL);
    }
    if (t->wrong) {
        errx(1, "%s, %s: %llu wrong answers", t->subject->name, workload_names[t->load],
             (unsigned long long)t->wrong);
    }
    t->subject->close(t->map);
    return (double)t->keys / seconds * 1e-6;
}

/* The same in a child. */
static double ask(team *t, const char *heap)
{
    int ends[2], status;
    double rate = 0;
    if (pipe(ends)) {
        err(1, "a pipe");
    }
    pid_t pid = fork();
    if (pid == 0) {
        rate = measure(t, heap);
        _exit(write(ends[1], &rate, sizeof rate) != (ssize_t)sizeof rate);
    }
    close(ends[1]);
    bool well = pid > 0 && read(ends[0], &rate, sizeof rate) == (ssize_t)sizeof rate;
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status || !well) {
        errx(1, "%s, %s: no measurement", t->subject->name, workload_names[t->load]);
    }
    return rate;
}

/* ---- rounds --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void print(workload load, size_t which, const settings *s)
{
    double ratios[ROUNDS_MOST], own[ROUNDS_MOST];
    for (unsigned i = 0; i < s->rounds; i++) {
        own[i] = rates[load][which][i];
        ratios[i] = own[i] / rates[load][0][i];
    }
    double middle = median(own, s->rounds);
    printf("%-7s %-14s %8.2f %8.2f %8.2f %7.2f\n", workload_names[load], subjects[which].name,
           middle, own[0], own[s->rounds - 1], median(ratios, s->rounds));
}

static void run_all(const settings *s, unsigned threads)
{
    for (unsigned round = 0; round < s->rounds; round++) {
        for (size_t i = 0; i < subject_count * WORKLOADS; i++) {
            size_t which = (i / WORKLOADS + round) % subject_count;
            team t = {.subject = &subjects[which],
                      .load = (workload)(i % WORKLOADS),
                      .keys = UINT64_C(1) << s->log2,
                      .threads = threads};
            rates[t.load][which][round] = ask(&t, s->heap);
        }
    }
    printf("\n2^%u keys, %u threads, nodes of ours from %s, %u rounds, commit %s\n", s->log2,
           threads, s->heap, s->rounds, GA_BENCH_COMMIT);
    printf("%-7s %-14s %8s %8s %8s %7s\n", "", "", "M/s", "lowest", "highest", "times");
    for (unsigned load = 0; load < WORKLOADS; load++) {
        for (size_t which = 0; which < subject_count; which++) {
            print((workload)load, which, s);
        }
    }
    fflush(stdout);
}

/* ---- arguments ------------------------------------------------------------------------------ */

static unsigned number(const char *option, const char *text, unsigned most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < 1 || value > most) {
        errx(2, "%s: expected a number from 1 to %u, got \"%s\"", option, most, text);
    }
    return (unsigned)value;
}

static void numbers(settings *s, char *list)
{
    s->counts = 0;
    for (char *save, *text = strtok_r(list, ",", &save); text; text = strtok_r(NULL, ",", &save)) {
        if (s->counts == COUNTS_MOST) {
            errx(2, "--threads: expected at most %d numbers", COUNTS_MOST);
        }
        s->threads[s->counts++] = number("--threads", text, THREADS_MOST);
    }
}

static settings read_arguments(int argc, char **argv)
{
    settings s = {.log2 = 22, .rounds = 5, .counts = 1, .threads = {1}, .heap = "system"};
    for (int i = 1; i < argc; i += 2) {
        char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--keys") == 0) {
            s.log2 = number("--keys", value, 30);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            s.rounds = number("--rounds", value, ROUNDS_MOST);
        } else if (strcmp(argv[i], "--threads") == 0) {
            numbers(&s, value);
        } else if (strcmp(argv[i], "--heap") == 0 && *value) {
            s.heap = value;
        } else {
            errx(2,
                 "unknown argument \"%s\"; usage: bench-lfht [--keys LOG2] [--threads N,N] "
                 "[--rounds N] [--heap SPEC]",
                 argv[i]);
        }
    }
    return s;
}

int main(int argc, char **argv)
{
    settings s = read_arguments(argc, argv);
    for (unsigned i = 0; i < s.counts; i++) {
        run_all(&s, s.threads[i]);
    }
    return 0;
}
