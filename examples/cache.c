/* SPDX-License-Identifier: MIT
 *
 * A cache of records by name, which threads read while others replace and remove them. The map's
 * values are pointers to records, and a domain of hazard pointers frees a record once no thread
 * reads it. The map's keys are hashes of the names: names as keys would have to stay readable until
 * the map is closed, while a record takes its name with it. A record of another name with an equal
 * hash counts as absent.
 *
 *   cc cache.c $(pkg-config --cflags --libs gpualloc) -pthread -o cache
 *   ./cache 4 100000        threads, and calls of each
 */
#include <gpualloc/lfht.h>
#include <gpualloc/reclaim.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAMES = 16,
    THREADS_MAX = 256
};

typedef struct record {
    char name[32];
    long value;
    long check; /* ~value, as long as the record is not freed */
} record;

static ga_lfht *map;
static ga_domain *domain;
static ga_lfht *reads; /* by name: how often it was found */
static long calls;

static void require(ga_status status)
{
    if (status != GA_OK) {
        fprintf(stderr, "cache: %s\n", ga_error_text());
        exit(1);
    }
}

/* FNV-1a, with the bits mixed: the map uses the upper ones first. */
static uint64_t key_of(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++) {
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    }
    return (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
}

static void free_record(void *context, void *object)
{
    record *old = object;
    (void)context;
    old->check = old->value; /* a reader that has it still would notice */
    free(old);
}

/* The record of the name, protected in slot 0 until ga_hazard_clear(), or NULL. The first look-up
 * only guesses: the record may be freed at once. The second one, behind the fence, finds it in the
 * map after the slot was set, so it is not freed until the slot is cleared. */
static record *find(const ga_hazards *mine, const char *name)
{
    uint64_t key = key_of(name);
    ga_lfht_found found, again;
    require(ga_lfht_lookup(map, key, &found));
    while (found.found) {
        record *it = (record *)(uintptr_t)found.value;
        ga_hazard_set(mine, 0, it);
        ga_hazard_fence(mine);
        require(ga_lfht_lookup(map, key, &again));
        if (again.found && again.value == found.value) {
            return strcmp(it->name, name) == 0 ? it : NULL;
        }
        found = again;
    }
    return NULL;
}

/* What was in the map is no longer there: retire it. */
static void retire(ga_hazards *mine, ga_lfht_found was)
{
    if (was.found) {
        record *old = (record *)(uintptr_t)was.value;
        require(ga_hazard_retire(mine, old, sizeof *old, free_record, NULL));
    }
}

static void put(ga_hazards *mine, const char *name, long value)
{
    ga_lfht_found was;
    record *it = calloc(1, sizeof *it);
    if (!it) {
        fputs("cache: no memory\n", stderr);
        exit(1);
    }
    snprintf(it->name, sizeof it->name, "%s", name);
    it->value = value;
    it->check = ~value;
    require(ga_hazard_reserve(mine, 1)); /* before the record is replaced: nothing has changed */
    require(ga_lfht_upsert(map, key_of(name), (uintptr_t)it, &was));
    retire(mine, was);
}

static void drop(ga_hazards *mine, const char *name)
{
    ga_lfht_found was;
    require(ga_hazard_reserve(mine, 1));
    require(ga_lfht_remove(map, key_of(name), &was));
    retire(mine, was);
}

/* Add one to a count, as lfht.h says at ga_lfht_compare_replace(). */
static void count(uint64_t key)
{
    ga_lfht_found was;
    bool done = false;
    require(ga_lfht_lookup(reads, key, &was));
    while (!done) {
        uint64_t old = was.value;
        if (was.found) {
            require(ga_lfht_compare_replace(reads, key, old, old + 1, &was));
            done = was.found && was.value == old;
        } else {
            require(ga_lfht_insert(reads, key, 1, &was));
            done = !was.found;
        }
    }
}

/* Returns the number of records that it found. */
static void *work(void *argument)
{
    unsigned random = (unsigned)(uintptr_t)argument;
    uintptr_t found = 0;
    ga_hazards *mine;
    require(ga_domain_join(domain, &mine));
    for (long i = 0; i < calls; i++) {
        char name[32];
        random = random * 1103515245 + 12345;
        snprintf(name, sizeof name, "name %u", (random >> 8) % NAMES);
        if (random >> 28 == 0) {
            drop(mine, name);
        } else if (random >> 28 < 4) {
            put(mine, name, i);
        } else {
            record *it = find(mine, name);
            sched_yield(); /* for others to replace it */
            if (it && (it->check != ~it->value || strcmp(it->name, name) != 0)) {
                fprintf(stderr, "cache: \"%s\" was freed under its reader\n", name);
                exit(1);
            }
            ga_hazard_clear(mine, 0);
            if (it) {
                found++;
                count(key_of(name));
            }
        }
    }
    return (void *)found;
}

static bool add(void *sum, uint64_t key, uint64_t value)
{
    (void)key;
    *(uint64_t *)sum += value;
    return true;
}

static bool release(void *context, uint64_t key, uint64_t value)
{
    (void)context;
    (void)key;
    free((void *)(uintptr_t)value);
    return true;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS_MAX];
    long count_of = argc > 1 ? atol(argv[1]) : 4;
    uint64_t found = 0, counted = 0;
    ga_domain_options often = {.options_size = sizeof often, .batch = 8}; /* the default is fast */
    calls = argc > 2 ? atol(argv[2]) : 100000;
    if (count_of < 1 || count_of > THREADS_MAX) {
        fprintf(stderr, "cache: expected 1 to %d threads\n", THREADS_MAX);
        return 1;
    }
    require(ga_domain_open(&domain, &often));
    require(ga_lfht_open(&map, NULL));
    require(ga_lfht_open(&reads, NULL));
    for (long i = 0; i < count_of; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i * 7919 + 1))) {
            fputs("cache: no thread\n", stderr);
            return 1;
        }
    }
    for (long i = 0; i < count_of; i++) {
        void *part;
        pthread_join(threads[i], &part);
        found += (uintptr_t)part;
    }
    require(ga_lfht_each(reads, add, &counted));
    printf("%llu records found, %llu counted\n", (unsigned long long)found,
           (unsigned long long)counted);
    require(ga_domain_close(domain)); /* frees what is retired */
    require(ga_lfht_each(map, release, NULL));
    require(ga_lfht_close(map));
    require(ga_lfht_close(reads));
    return found == counted ? 0 : 1;
}
