/* SPDX-License-Identifier: MIT
 *
 * Suggestions for words that are misspelt.
 */
#ifndef INTERPOSE_CLI_SUGGEST_H
#define INTERPOSE_CLI_SUGGEST_H

#include <argp.h>
#include <stddef.h>

enum {
    GA_SUGGEST_NEAR = 2 /* the largest distance of a suggestion */
};

/* The edit distance of two words: letters inserted, deleted or changed, and neighbours swapped.
 * Above GA_SUGGEST_NEAR if a word is longer than any of ours. */
size_t ga_suggest_distance(const char *a, const char *b);

/* Prints that a word is unknown, as the beginning of a line that the caller ends. */
void ga_suggest_unknown(const char *program, const char *kind, const char *word);

/* As argp_parse(). If a long option is unknown and resembles a known one, the message names that
 * one, and the program ends. */
void ga_suggest_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input);

#endif
