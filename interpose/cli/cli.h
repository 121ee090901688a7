/* SPDX-License-Identifier: MIT
 *
 * The commands of `gpualloc`. Each parses its own arguments (argv[0] is "gpualloc NAME") with argp,
 * which exits with GA_CLI_USAGE if they are invalid, and returns an exit status.
 */
#ifndef INTERPOSE_CLI_CLI_H
#define INTERPOSE_CLI_CLI_H

enum {
    GA_CLI_OK = 0,
    GA_CLI_FAILED = 1, /* valid arguments, but the command failed */
    GA_CLI_USAGE = 2
};

int ga_cmd_bench(int argc, char **argv);
int ga_cmd_bench_coalesce(int argc, char **argv); /* argv[0] is "gpualloc bench coalesce" */
int ga_cmd_check(int argc, char **argv);
int ga_cmd_compare(int argc, char **argv);
int ga_cmd_env(int argc, char **argv);
int ga_cmd_list(int argc, char **argv);
int ga_cmd_replay(int argc, char **argv);
int ga_cmd_rewrite(int argc, char **argv);
int ga_cmd_run(int argc, char **argv);
int ga_cmd_trace(int argc, char **argv);

#endif
