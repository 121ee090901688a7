/* SPDX-License-Identifier: MIT */
#include "suggest.h"

#include "cli.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORD_LENGTH = 16 /* longer than the name of any command or option */
};

/* ---- words --------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t ga_suggest_distance(const char *a, const char *b)
{
    size_t steps[WORD_LENGTH][WORD_LENGTH];
    if (strlen(a) >= WORD_LENGTH || strlen(b) >= WORD_LENGTH) {
        return GA_SUGGEST_NEAR + 1;
    }
    for (size_t i = 0; i <= strlen(a); i++) {
        for (size_t j = 0; j <= strlen(b); j++) {
            if (i == 0 || j == 0) {
                steps[i][j] = i + j;
                continue;
            }
            size_t change = steps[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            size_t shift = least(steps[i - 1][j], steps[i][j - 1]) + 1;
            steps[i][j] = least(change, shift);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                steps[i][j] = least(steps[i][j], steps[i - 2][j - 2] + 1);
            }
        }
    }
    return steps[strlen(a)][strlen(b)];
}

void ga_suggest_unknown(const char *program, const char *kind, const char *word)
{
    fprintf(stderr, "%s: unknown %s \"", program, kind);
    for (; *word; word++) { /* do not let a terminal interpret it */
        fputc(iscntrl((unsigned char)*word) ? '?' : *word, stderr);
    }
    fputs("\"; ", stderr);
}

/* ---- options ------------------------------------------------------------------------------- */

typedef struct search {
    char name[WORD_LENGTH];
    const struct argp_option *found; /* the option, or one that the name abbreviates */
    const struct argp_option *nearest;
    size_t distance; /* of the nearest */
} search;

static void compare(search *s, const struct argp_option *option)
{
    size_t length = strlen(s->name);
    size_t far = ga_suggest_distance(s->name, option->name);
    if (far == 0 || (!s->found && strncmp(option->name, s->name, length) == 0)) {
        s->found = option;
    }
    if (far < s->distance && 2 * far <= length) { /* half of a short word is another one */
        s->distance = far;
        s->nearest = option;
    }
}

static void look(search *s, const struct argp *argp)
{
    const struct argp_option *option = argp->options;
    for (; option && (option->name || option->doc); option++) {
        if (option->name) {
            compare(s, option);
        }
    }
    for (const struct argp_child *child = argp->children; child && child->argp; child++) {
        look(s, child->argp);
    }
}

/* Look for the option of an argument that begins with "--". */
static search find(const struct argp *argp, const char *argument)
{
    static const struct argp_option standard[] = {
        {.name = "help"}, {.name = "usage"}, {.name = "version"}, {0}};
    static const struct argp of_argp = {.options = standard};
    search s = {.distance = GA_SUGGEST_NEAR + 1};
    if (strcspn(argument + 2, "=") < sizeof s.name) {
        memcpy(s.name, argument + 2, strcspn(argument + 2, "="));
        look(&s, argp);
        look(&s, &of_argp);
    }
    return s;
}

static bool has_value_behind(const struct argp_option *option, const char *argument)
{
    return option && option->arg && !(option->flags & OPTION_ARG_OPTIONAL) &&
           !strchr(argument, '=');
}

void ga_suggest_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        bool is_option = strncmp(argv[i], "--", 2) == 0;
        if (!is_option && *argv[i] != '-' && (flags & ARGP_IN_ORDER)) {
            break; /* the program, whose options follow */
        }
        search s = {.found = NULL};
        if (is_option) {
            s = find(argp, argv[i]);
        }
        if (!s.found && s.nearest) {
            ga_suggest_unknown(argv[0], "option", argv[i]);
            fprintf(stderr, "did you mean \"--%s\"?\n", s.nearest->name);
            exit(GA_CLI_USAGE);
        }
        i += has_value_behind(s.found, argv[i]);
    }
    argp_parse(argp, argc, argv, flags, NULL, input);
}
