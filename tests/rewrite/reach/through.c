/* SPDX-License-Identifier: MIT */
#include "through.h"

int main(void)
{
    outer(); /* callgraph and flow: pattern knows one level of calls */
    return 0;
}
