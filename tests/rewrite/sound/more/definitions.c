/* SPDX-License-Identifier: MIT */
int defined = 3, changed, weak = 1;

void change(int to)
{
    changed = to;
}
