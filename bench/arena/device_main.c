/* SPDX-License-Identifier: MIT
 *
 * main() of bench-arena-device. The tests link the other files without it.
 */
#include "device.h"

int main(int argc, char **argv)
{
    return arena_device_main(argc, argv);
}
