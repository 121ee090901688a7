/* SPDX-License-Identifier: MIT
 *
 * Functions of C's library that CUDA does not have in kernels. Macros below replace the names,
 * because the host's functions have them.
 */
#ifndef GPUALLOC_GPU_MPI_LIBC_H
#define GPUALLOC_GPU_MPI_LIBC_H

#include "world.h"

/* Before the macros below, which would change what they declare. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* With a status other than 0 the whole program ends, as under mpirun, unless the rank has called
 * MPI_Finalize(). */
GA_MPI_CALL void ga_mpi_exit(int status)
{
    if (status && !ga_mpi_own()->finalized) {
        printf("gpualloc: rank %u: exit with status %d\n", ga_mpi_number(), status);
        ga_mpi_abort(status);
    }
    ga_mpi_note_status((uint32_t)status & 0xffu);
    ga_mpi_end_thread();
}

GA_MPI_CALL void ga_mpi_abort_program(void)
{
    printf("gpualloc: rank %u: abort\n", ga_mpi_number());
    ga_mpi_abort(128 + 6); /* as a shell says it of SIGABRT */
}

GA_MPI_CALL void ga_mpi_fail_assertion(const char *condition, const char *file, unsigned line)
{
    printf("gpualloc: rank %u: %s:%u: assertion failed: %s\n", ga_mpi_number(), file, line,
           condition);
    ga_mpi_abort(128 + 6);
}

/* Microseconds, as CLOCKS_PER_SEC says. */
GA_MPI_CALL clock_t ga_mpi_clock(void)
{
    return (clock_t)(ga_clock_ns() / 1000);
}

GA_MPI_CALL long ga_mpi_atol(const char *text)
{
    long value = 0;
    while (*text == ' ' || (*text >= '\t' && *text <= '\r')) {
        text++;
    }
    bool negative = *text == '-';
    text += *text == '-' || *text == '+' ? 1 : 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        value = value * 10 + (*text - '0');
    }
    return negative ? -value : value;
}

GA_MPI_CALL size_t ga_mpi_strlen(const char *text)
{
    size_t length = 0;
    while (text[length]) {
        length++;
    }
    return length;
}

GA_MPI_CALL int ga_mpi_strncmp(const char *a, const char *b, size_t most)
{
    for (size_t i = 0; i < most; i++) {
        int difference = (unsigned char)a[i] - (unsigned char)b[i];
        if (difference || !a[i]) {
            return difference;
        }
    }
    return 0;
}

GA_MPI_CALL int ga_mpi_memcmp(const void *a, const void *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        int difference = ((const unsigned char *)a)[i] - ((const unsigned char *)b)[i];
        if (difference) {
            return difference;
        }
    }
    return 0;
}

GA_MPI_CALL void *ga_mpi_memmove(void *to, const void *from, size_t bytes)
{
    char *t = (char *)to;
    const char *f = (const char *)from;
    for (size_t i = 0; i < bytes; i++) {
        size_t at = t < f ? i : bytes - 1 - i;
        t[at] = f[at];
    }
    return to;
}

GA_MPI_CALL char *ga_mpi_strcpy(char *to, const char *from)
{
    for (size_t i = 0; (to[i] = from[i]); i++) {
    }
    return to;
}

GA_MPI_CALL char *ga_mpi_strcat(char *to, const char *from)
{
    ga_mpi_strcpy(to + ga_mpi_strlen(to), from);
    return to;
}

/* A generator for each rank, with the constants of the C standard's example. */
GA_MPI_CALL int ga_mpi_rand(void)
{
    uint32_t *state = &ga_mpi_own()->random;
    uint32_t bits = 0;
    for (int part = 0; part < 3; part++) { /* the low bits have short periods */
        *state = *state * 1103515245u + 12345u;
        bits = bits << 11 | (*state >> 16 & 0x7ffu);
    }
    return (int)(bits & 0x7fffffffu);
}

GA_MPI_CALL void ga_mpi_srand(unsigned seed)
{
    ga_mpi_own()->random = seed;
}

#undef RAND_MAX
#define RAND_MAX 0x7fffffff

#undef strcmp
#undef strncmp
#undef strcpy
#undef strcat
/* assert() calls this, and assert.h declares it once, above. */
#define __assert_fail(condition, file, line, function) ga_mpi_fail_assertion(condition, file, line)
#define abort()                                        ga_mpi_abort_program()
#define atoi(text)                                     ((int)ga_mpi_atol(text))
#define atol(text)                                     ga_mpi_atol(text)
#define clock()                                        ga_mpi_clock()
#define exit(status)                                   ga_mpi_exit(status)
#define fflush(stream)                                 ((void)0)
#define fprintf(stream, ...)                           printf(__VA_ARGS__)
#define memcmp(a, b, bytes)                            ga_mpi_memcmp(a, b, bytes)
#define memmove(to, from, bytes)                       ga_mpi_memmove(to, from, bytes)
#define putchar(c)                                     printf("%c", c)
#define puts(text)                                     printf("%s\n", text)
#define rand()                                         ga_mpi_rand()
#define srand(seed)                                    ga_mpi_srand(seed)
#define strcat(to, from)                               ga_mpi_strcat(to, from)
#define strcmp(a, b)                                   ga_mpi_strncmp(a, b, (size_t)-1)
#define strcpy(to, from)                               ga_mpi_strcpy(to, from)
#define strlen(text)                                   ga_mpi_strlen(text)
#define strncmp(a, b, most)                            ga_mpi_strncmp(a, b, most)

/* A keyword of C alone. */
#define restrict __restrict__

#endif
