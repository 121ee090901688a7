/* SPDX-License-Identifier: MIT
 *
 * Results as JSON, by jansson.
 */
#include "result.h"

#include "machine.h"

#include <jansson.h>
#include <math.h>

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

bool ga_bench_result_write(FILE *stream, const ga_bench_result *result, const char *date)
{
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:s, s:s?, s:I, s:I, s:s, s:s, s:o, s:o, s:s, s:o, s:s, s:s}",
                  "bench", result->bench, "place", result->place, "spec", result->spec, "device",
                  result->device, "driver", result->driver, "threads", (json_int_t)result->threads,
                  "size", (json_int_t)result->size, "metric", result->metric->name, "unit",
                  result->metric->unit, "value", real_or_null(result->value), "spread",
                  real_or_null(result->spread), "baseline", result->baseline, "ratio",
                  real_or_null(result->ratio), "date", date, "commit", ga_bench_commit());
    if (line && result->extra) {
        json_object_update(line, result->extra);
    }
    bool written = line && json_dumpf(line, stream, JSON_COMPACT | JSON_REAL_PRECISION(6)) == 0 &&
                   fputc('\n', stream) != EOF && fflush(stream) == 0;
    json_decref(line);
    return written;
}
