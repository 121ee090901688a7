#include <mpi.h>
#include <stdlib.h>

/* The ends of main. */
static void usage(void)
{
    exit(2);
}

static int result(void)
{
    void *p = malloc(8);
    free(p);
    return p != NULL;
}

int main(int argc, char **argv)
{
    void *p = malloc(8);
    if (argc > 3)
        return 1;
    if (argc > 2)
        usage();
    if (argc > 4)
        free(p), exit(3); /* a part of an expression has no place for a statement */
    if (argc > 5)
        return result(), 4;
    switch (argc) {
    case 1:
        return result();
    case 2:
        exit(1);
    }
    free(p);
}
