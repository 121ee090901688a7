/* SPDX-License-Identifier: MIT
 *
 * Parses a spec into layers and options, with names and values as written.
 *
 *   spec   = layer *("/" layer)
 *   layer  = name [":" option *("," option)]
 *   option = key "=" value / key
 *   value  = 1*(any character but / , : " and white space) / DQUOTE *(any, \" or \\) DQUOTE
 *
 * If the backend of the last layer has an option for bare text (`dl:/usr/lib/libx.so`), and the
 * rest of the spec does not begin with a key and "=", the rest becomes that option's value.
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
    const char *value; /* NULL for a bare key */
} ga_spec_option;

typedef struct ga_spec_layer {
    const char *name;
    size_t option_count;
    ga_spec_option options[GA_SPEC_OPTIONS];
} ga_spec_layer;

typedef struct ga_spec {
    size_t layer_count;
    ga_spec_layer layers[GA_SPEC_LAYERS]; /* the heap's own first, then its parents */
    char text[GA_SPEC_LENGTH];            /* the names and values, each with a NUL */
} ga_spec;

/* The name of the backend's option for bare text; NULL if it has none or is unknown. */
typedef const char *ga_spec_bare_fn(const char *backend);

/* Parse `text`, which is copied into `out`. GA_ERR_SPEC names the column (from 1) and the expected
 * input. */
ga_status ga_spec_parse(ga_spec *out, const char *text, ga_spec_bare_fn *bare_option);

/* Whether a value must be quoted in a spec. */
bool ga_spec_needs_quotes(const char *value);

#endif
