/* SPDX-License-Identifier: MIT
 *
 * Turns a layer's options, as written in the spec, into values of the backend's option table.
 */
#ifndef GPUALLOC_RUNTIME_OPTIONS_H
#define GPUALLOC_RUNTIME_OPTIONS_H

#include "spec.h"

#include <gpualloc/backend.h>

/* Fill `values[i]`, and `texts[i]` with the text that it came from, for each row of the backend's
 * table: from the layer, else the row's default. Both point into the layer and the table.
 * GA_ERR_SPEC names the backend, the option, its value and the expected form. Thread safe. */
ga_status ga_options_resolve(const ga_backend *backend, const ga_spec_layer *layer,
                             ga_value *values, const char **texts);

/* Check a backend's table: names, types, bounds, and that every default parses. GA_ERR_ARGUMENT. */
ga_status ga_options_check(const ga_backend *backend);

/* "size", "bool", "integer", "enum" or "string". */
const char *ga_option_type_text(ga_option_type type);

#endif
