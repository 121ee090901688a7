/* SPDX-License-Identifier: MIT */
int two(int x);

static int helper(int x)
{
    (void)x;
    return x;
}

int two(int x)
{
    return helper(x);
}
