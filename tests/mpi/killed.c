/* SPDX-License-Identifier: MIT
 *
 * The last rank is killed in the middle of batches. The others' call returns a status within the
 * time limit, so does the next one at once, and each can read its shard.
 *
 *   mpirun -n RANKS killed FOLDER
 *
 * A rank that goes on writes FOLDER/rank.N as its last action, with "held", or the line that did
 * not hold. mpirun's exit status says nothing, because it is that of the rank that was killed.
 */
#include <gpualloc/slabhash_mpi.h>

#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    KEYS = 20000,    /* of a rank in a batch */
    BATCHES = 50000, /* more than there is time for */
    SECONDS = 5,     /* time limit of an exchange */
    MARGIN = 10,     /* seconds, on a busy machine */
    KILLED_AFTER = 1 /* second of batches */
};

static int rank, ranks;
static const char *folder;
static double waited;    /* seconds in the call that failed */
static char reason[256]; /* its sentence */
static uint32_t keys[KEYS], values[KEYS], found[KEYS];

/* Ends the process: MPI_Finalize() would wait for the rank that is gone. */
static void end(const char *what)
{
    char path[256], text[512];
    snprintf(path, sizeof path, "%s/rank.%d", folder, rank);
    snprintf(text, sizeof text, "%s.part", path);
    FILE *out = fopen(text, "w");
    if (out) {
        fprintf(out, "%s (%.1f s: %s)\n", what, waited, reason);
        fclose(out);
        rename(text, path);
    }
    _exit(0);
}

#define STRING_OF(number) #number
#define LINE_OF(number)   STRING_OF(number)
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            end("line " LINE_OF(__LINE__) ": not so: " #condition);                                \
        }                                                                                          \
    } while (0)

static uint32_t value_of(uint32_t key)
{
    return ~key;
}

static ga_slabhash_batch batch_of(uint32_t number)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = (number * (uint32_t)ranks + (uint32_t)rank) * KEYS + i;
        values[i] = value_of(keys[i]);
    }
    return (ga_slabhash_batch){
        .count = KEYS, .keys = keys, .values = values, .op = GA_SLABHASH_INSERT};
}

static ga_slabhash_sharded *open_table(void)
{
    ga_exchange exchange;
    ga_slabhash_sharded *table = NULL;
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = GA_SLABHASH_MAP32, .buckets = 1 << 20};
    CHECK(ga_exchange_mpi(&exchange, MPI_COMM_WORLD, SECONDS) == GA_OK);
    CHECK(ga_slabhash_sharded_open_host(&table, &exchange, &options, NULL) == GA_OK);
    return table;
}

/* Keys of this rank's complete batches, of which it is the owner, are in its shard. */
static void read_shard(ga_slabhash_sharded *table, uint32_t batches)
{
    uint64_t read = 0;
    for (uint32_t number = 0; number < batches; number++) {
        ga_slabhash_batch batch = batch_of(number);
        batch.op = GA_SLABHASH_SEARCH;
        batch.values = NULL;
        batch.found = found;
        CHECK(ga_slabhash_run(ga_slabhash_sharded_table(table), &batch, NULL) == GA_OK);
        for (uint32_t i = 0; i < KEYS; i++) {
            bool is_own = ga_slabhash_sharded_owner(table, keys[i]) == (uint32_t)rank;
            CHECK(found[i] == (is_own ? values[i] : 0));
            read += is_own;
        }
    }
    CHECK(read > 0);
}

/* The call has left the default. */
static void check_handler(MPI_Comm comm)
{
    MPI_Errhandler handler;
    CHECK(MPI_Comm_get_errhandler(comm, &handler) == MPI_SUCCESS);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    CHECK(MPI_Errhandler_free(&handler) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    double start = 0;
    ga_status status = GA_OK;
    uint32_t number = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    folder = argc > 1 ? argv[1] : ".";
    ga_slabhash_sharded *table = open_table();
    if (rank == ranks - 1) { /* no handler: it ends the process */
        setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {KILLED_AFTER, 0}}, NULL);
    }
    for (; status == GA_OK && number < BATCHES; number++) {
        ga_slabhash_batch batch = batch_of(number);
        start = MPI_Wtime();
        status = ga_slabhash_sharded_run(table, &batch, NULL, NULL);
    }
    waited = MPI_Wtime() - start;
    snprintf(reason, sizeof reason, "%s", ga_error_text());
    CHECK(rank != ranks - 1);
    CHECK(status == GA_ERR_DEVICE);
    check_handler(MPI_COMM_WORLD);
    check_handler(MPI_COMM_SELF);
    CHECK(waited < SECONDS + MARGIN);
    start = MPI_Wtime();
    CHECK(ga_slabhash_sharded_run(table, NULL, NULL, NULL) == GA_ERR_DEVICE);
    CHECK(MPI_Wtime() - start < 1);
    read_shard(table, number - 1);
    CHECK(ga_slabhash_sharded_close(table) == GA_OK);
    end("held");
}
