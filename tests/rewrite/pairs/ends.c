#include <mpi.h>
#include <stdlib.h>

/* Trap 6: the ends of main. */
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
    switch (argc) {
    case 1:
        return result();
    case 2:
        exit(1);
    }
    free(p);
}
