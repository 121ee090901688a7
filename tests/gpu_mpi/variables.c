/* SPDX-License-Identifier: MIT
 *
 * Variables with static storage, of which each rank has its own: numbers, arrays, structures,
 * pointers, in functions, in macros, in sizeof, of another file, and tentative definitions.
 */
#include "variables.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TWICE(x) (2 * (x))
#define LIMIT    limit

struct point {
    double x, y;
};
static int counter = 5, *where, list[] = {3, 1, 2};
static double ratio = 3;
double table[2][3] = {{1, 2, 3}, {4, 5, 6}};
struct config {
    int n;
    char name[8];
} config = {4, "abc"};
static struct point points[2] = {{1, 2}};
static const char *const names[] = {"zero", "one"};
static const int step = 2;
static const char *title = "title";
int tentative;
int tentative;
static int limit = 9;
int (*chosen)(int);

static int next(void)
{
    static int calls = 0;
    calls++;
    return calls;
}

static int twice(int x)
{
    return TWICE(x) + LIMIT - 9;
}

int main(int argc, char **argv)
{
    int rank, n = argc > 1 ? atoi(argv[1]) : 4;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    counter += rank + (int)(sizeof(table) / sizeof table[0]) + n;
    where = &counter;
    *where += next() + next();
    list[1] = TWICE(counter);
    table[1][2] *= rank;
    points[1].y = ratio * rank;
    config.name[0] = (char)('a' + rank % 26);
    tentative = rank * step;
    chosen = rank % 2 ? twice : NULL;
    other_count += rank;
    MPI_Barrier(MPI_COMM_WORLD);
    printf("%d: %d %d %d %g %g %s %s %s %d %d %d %d\n", rank, counter, list[1], (int)sizeof list,
           table[1][2], points[1].y, config.name, names[rank % 2], title, tentative, next(),
           chosen ? chosen(config.n) : -1, count_others(rank));
    MPI_Finalize();
    return 0;
}
