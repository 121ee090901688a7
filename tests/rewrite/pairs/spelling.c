/* SPDX-License-Identifier: MIT
 *
 * Macros where an argument or a parameter would be written: such calls and functions stay as they
 * are. Comments and line breaks do not matter.
 */
#include <mpi.h>
#include <stdlib.h>

#define EMPTY
#define VOID        void
#define PARAMETERS  int n
#define EIGHT       8
#define ARGUMENT(x) x
#define CLOSE       8)
#define LEAVE   return
#define BOTH(x) make_one(), x

static void *make_one(void)
{
    return malloc(8);
}

static void *make_none(EMPTY)
{
    return malloc(8);
}

static void *make_void(VOID)
{
    return malloc(8);
}

static void *make_by_macro(PARAMETERS)
{
    return malloc(n);
}

static void *make_avoid(/* to avoid
                            a void */
                        void /* void */)
{
    return malloc(8);
}

static void *make_directive(
#ifdef NOTHING
    int n
#else
    void
#endif
)
{
    return malloc(8);
}

static int leave_early(int n)
{
    if (n > 3) {
        LEAVE 1;
    }
    if (n > 2)
        exit(2);
    (void)(n > 1 ? exit(1) : (void)0);
    return 0;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    make_one();
    make_one(EMPTY);
    make_one(/* nothing */
    );
    make_one(
#ifdef NOTHING
        7
#endif
    );
    ARGUMENT(make_one());
    make_none();
    make_void();
    make_by_macro(EIGHT);
    make_avoid();
    make_directive();
    malloc(EIGHT EMPTY);
    malloc(8 // eight
    );
    malloc(CLOSE;
    leave_early(argc);
    MPI_Finalize();
    if (argc > 7) {
        LEAVE 7;
    }
    if (argc > 6)
        return BOTH(6);
    return make_one(), 5;
}
