/* SPDX-License-Identifier: MIT */
__attribute__((weak, constructor)) void begin(void)
{
}
