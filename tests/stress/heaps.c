/* SPDX-License-Identifier: MIT
 *
 * Threads that open, use, count, trace and close heaps of their own while they share another one.
 */
#include "stress.h"

#include "support/model.h"
#include "support/random.h"
#include "support/sanitized.h"
#include "support/scene.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <string.h>

enum {
    THREADS = 6
};

static ga_heap *shared;
static char trace[256];

/* Not jemalloc under the thread sanitizer, which does not see how its blocks change hands. */
static const char *const specs[] = {"system", "fail:nth=0/fail:nth=0/system", trace,
                                    UNDER_TSAN ? "system" : "jemalloc"};

static void use(ga_heap *heap, uint64_t seed, size_t operations)
{
    model m;
    model_begin(&m, heap, seed, 1 << 14);
    if (!model_run(&m, operations) || !model_end(&m)) {
        stress_need(false, m.trouble);
    }
}

static void ask(ga_heap *heap)
{
    char text[4096];
    ga_stats stats;
    stress_need(ga_heap_stats(heap, &stats) == GA_OK, "stats");
    stress_need(ga_heap_stats_json(heap, text, sizeof text) == strlen(text), "stats as JSON");
    stress_need(ga_backend_at(0) != NULL && ga_backend_at(1000) == NULL, "the registry");
}

static void open_and_close(size_t number)
{
    uint64_t random = number;
    while (stress_goes_on()) {
        const char *spec = specs[random_below(&random, sizeof specs / sizeof *specs)];
        ga_heap *own = NULL;
        if (ga_heap_open(&own, GA_PLACE_HOST, 0, spec) != GA_OK) {
            stress_need(strcmp(spec, "jemalloc") == 0, spec); /* not in every build */
            continue;
        }
        use(own, random_next(&random), 200);
        use(shared, random_next(&random), 200);
        ask(own);
        ask(shared);
        stress_need(ga_heap_close(own) == GA_OK, "close");
        stress_need(ga_heap_open(&own, GA_PLACE_HOST, 0, "fail:nth=x") == GA_ERR_SPEC, "bad spec");
    }
}

int main(int argc, char **argv)
{
    ga_stats stats;
    scene_enter_folder();
    snprintf(trace, sizeof trace, "trace:file=\"%s\"/system", scene_path("t"));
    shared = stress_open("system");
    stress_begin(argc, argv);
    stress_threads(THREADS, open_and_close);
    stress_need(ga_heap_stats(shared, &stats) == GA_OK, "stats");
    stress_need(stats.live_blocks == 0 && stats.live_bytes == 0, "all given back");
    stress_need(stats.allocs == stats.frees && stats.allocs > 0, "all counted");
    ga_heap_close(shared);
    scene_leave_folder();
    return 0;
}
