#ifndef PARAMETERS_H
#define PARAMETERS_H

#include <stdlib.h>

void none(void);
void any();
void declared(int n);
void none_by_pointer(void);

static inline void in_header(int n)
{
    free(malloc(n));
}

#endif
