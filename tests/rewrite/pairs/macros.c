#include <mpi.h>
#include <stdlib.h>

/* Macros, and the other functions that allocate. */
#include <string.h>

#define NEW(type)      ((type *)malloc(sizeof(type)))
#define CHECKED(value) ((value) ? (void)0 : abort())

int main(int argc, char **argv)
{
    int *a = NEW(int); /* the call is in the macro */
    int *b = (int *)calloc(4, sizeof(int));
    CHECKED(a);
    a = realloc(a, 8); /* no collective form */
    char *c = strdup("text");
    char *d = aligned_alloc(64, 64);
    free(a), free(b), free(c), free(d);
    return 0;
}
