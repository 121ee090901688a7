/* SPDX-License-Identifier: MIT */
int one(int x);

static int helper(int x)
{
    (void)x;
    return 5;
}

int one(int x)
{
    return helper(x);
}
