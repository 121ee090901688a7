/* SPDX-License-Identifier: MIT */
static int value(int argc)
{
    return BYTES;
}

int bytes(int argc)
{
    return value(argc);
}
