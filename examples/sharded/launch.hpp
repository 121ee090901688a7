/* SPDX-License-Identifier: MIT
 *
 * The rank of a process that torchrun, mpirun or srun started, and NCCL's id, which rank 0 passes
 * to the others in a file. No CUDA here.
 */
#ifndef LAUNCH_HPP
#define LAUNCH_HPP

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

struct launched {
    long rank, ranks;
    long local; /* among the ranks of this host */
};

[[noreturn]] static void complain(const char *what, const char *why)
{
    fprintf(stderr, "table: %s: %s\n", what, why);
    exit(1);
}

/* The number in a variable, from 0 to `most`. A variable that is not set: `otherwise`. */
static long launch_number(const char *name, long most, long otherwise)
{
    const char *text = getenv(name);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : otherwise;
    if (text && (end == text || *end || number < 0 || number > most)) {
        std::string why =
            std::string(text) + ": expected a number from 0 to " + std::to_string(most);
        complain(name, why.c_str());
    }
    return number;
}

/* From the first launcher whose rank and number of ranks are set. Slurm's are last, because other
 * launchers run in its jobs; without any the program is alone. */
static launched launch_find(void)
{
    static const char *const NAMES[][3] = {
        {"RANK", "WORLD_SIZE", "LOCAL_RANK"}, /* torchrun */
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}, /* MPICH, Intel MPI */
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};
    launched of = {0, 1, 0};
    for (auto &name : NAMES) {
        if (getenv(name[0]) && getenv(name[1])) {
            of.ranks = launch_number(name[1], 1 << 20, 1);
            of.rank = launch_number(name[0], of.ranks - 1, 0);
            of.local = launch_number(name[2], of.ranks - 1, of.rank);
            break;
        }
    }
    return of;
}

/* Rank 0: into a new file, which gets its name when it is complete. */
static void launch_publish(const std::string &file, const void *id, size_t bytes)
{
    std::string part = file + ".part";
    FILE *out = fopen(part.c_str(), "wb");
    if (!out || fwrite(id, 1, bytes, out) != bytes || fclose(out)) {
        complain(part.c_str(), "cannot be written");
    }
    if (link(part.c_str(), file.c_str())) {
        complain(file.c_str(), "cannot be made: expected that there is no such file yet");
    }
    unlink(part.c_str());
}

/* Other ranks: waits for the file, at most a minute. */
static void launch_fetch(const std::string &file, void *id, size_t bytes)
{
    for (int i = 0; i < 6000; i++, usleep(10000)) {
        FILE *in = fopen(file.c_str(), "rb");
        size_t got = in ? fread(id, 1, bytes, in) : 0;
        if (in) {
            fclose(in);
        }
        if (got == bytes) {
            return;
        }
    }
    complain(file.c_str(), "not there after a minute: expected that rank 0 writes it");
}

#endif
