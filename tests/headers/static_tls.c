/* SPDX-License-Identifier: MIT
 *
 * A library whose thread-local variables take static storage, of which there is little for what is
 * loaded late: the first libraries that do so leave less to the next.
 */
__attribute__((visibility("default"))) char *storage(void);

static _Thread_local char bytes[300] __attribute__((tls_model("initial-exec")));

char *storage(void)
{
    bytes[0] = 1;
    return bytes;
}
