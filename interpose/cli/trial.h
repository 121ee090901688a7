/* SPDX-License-Identifier: MIT
 *
 * Tries out what `gpualloc run` was told, before the program starts: a mistake shows here with
 * its exit status, and not as a line among the program's own.
 */
#ifndef INTERPOSE_CLI_TRIAL_H
#define INTERPOSE_CLI_TRIAL_H

#include <gpualloc/gpualloc.h>

/* Whether a host heap of this spec opens. One that would write a file is only looked up, backends
 * and options. */
ga_status ga_trial_host(const char *spec);

/* Whether the text is a spec. Its backends may be the program's own. */
ga_status ga_trial_syntax(const char *spec);

/* Whether statistics can be appended to the file; makes it where it does not exist. */
ga_status ga_trial_stats_file(const char *path);

/* Whether a trace can be written to the file. An older trace is removed; anything else that is in
 * the way is an error. */
ga_status ga_trial_trace_file(const char *path);

#endif
