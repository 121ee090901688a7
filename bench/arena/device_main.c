/* SPDX-License-Identifier: MIT
 *
 * The program, apart from what it does, which the tests run as well.
 */
#include "device.h"

int main(int argc, char **argv)
{
    return arena_device_main(argc, argv);
}
