/* SPDX-License-Identifier: MIT
 *
 * A program that never allocates.
 */
int main(void)
{
    return 0;
}
