/* SPDX-License-Identifier: MIT
 *
 * The text of a spec taken apart into layers and options, names and values as written.
 *
 *   spec   = layer *("/" layer)
 *   layer  = name [":" option *("," option)]
 *   option = key "=" value / key
 *   value  = 1*(any character but / , : " and white space) / DQUOTE *(any, \" or \\) DQUOTE
 *
 * The last layer also takes the bare rest of the text as the value of one option, if its backend
 * has such an option (`dl:/usr/lib/libx.so`) and the text does not begin with a key and "=".
 */
#ifndef GPUALLOC_RUNTIME_SPEC_H
#define GPUALLOC_RUNTIME_SPEC_H

#include <gpualloc/gpualloc.h>

enum {
    GA_SPEC_LAYERS = 16,
    GA_SPEC_OPTIONS = 32,  /* for each layer */
    GA_SPEC_LENGTH = 8192, /* bytes of text */
};

typedef struct ga_spec_option {
    const char *key;
    const char *value; /* NULL where only the key stands */
} ga_spec_option;

typedef struct ga_spec_layer {
    const char *name;
    size_t option_count;
    ga_spec_option options[GA_SPEC_OPTIONS];
} ga_spec_layer;

typedef struct ga_spec {
    size_t layer_count;
    ga_spec_layer layers[GA_SPEC_LAYERS]; /* the heap's own first, its parents behind it */
    char text[GA_SPEC_LENGTH];            /* where the names and values stand */
} ga_spec;

/* The name of the option that takes bare text, for the backend of that name; NULL for none and
 * for an unknown backend. */
typedef const char *ga_spec_bare_fn(const char *backend);

/* GA_ERR_SPEC with the column (from 1) and what was expected. */
ga_status ga_spec_parse(ga_spec *out, const char *text, ga_spec_bare_fn *bare_option);

/* Whether a value must be quoted to be read back. */
bool ga_spec_needs_quotes(const char *value);

#endif
