/* SPDX-License-Identifier: MIT
 *
 * The places of the header count once.
 */
#include "through.h"

int main(void)
{
    outer();
    return 0;
}
