/* SPDX-License-Identifier: MIT
 *
 * `gpualloc rewrite`: runs the program of that name, which is there where Clang's development files
 * were found when gpualloc was built (interpose/rewrite).
 */
#include "cli.h"

#include "paths.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int ga_cmd_rewrite(int argc, char **argv)
{
    ga_path program;
    (void)argc;
    if (ga_rewrite_program_find(&program) != GA_OK) {
        fprintf(stderr, "gpualloc rewrite: %s\n", ga_error_text());
        return GA_CLI_FAILED;
    }
    execv(program.text, argv);
    fprintf(stderr, "gpualloc rewrite: %s: %s\n", program.text, strerror(errno));
    return GA_CLI_FAILED;
}
