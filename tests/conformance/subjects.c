/* SPDX-License-Identifier: MIT
 *
 * The list of subjects, and opening and closing them.
 */
#include "subjects.h"

#include "support/scene.h"
#include "support/vmm_driver.h"

#include <gpualloc/backend.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SUBJECTS_MAX = 64
};

/* Backends that do not open, or not with anything to test, by their name alone. */
static const struct {
    const char *name, *spec;
    bool refuses;
} with_options[] = {
    {"dl", "dl:libmimalloc.so.2", false},
    {"dl", "dl:libtcmalloc_minimal.so.4", false},
    {"trace", "trace:file=\"%s\"", false},
    {"fail", "fail:nth=0", false},
    {"null", "null", true},
    {"slab", "slab", false},
    {"slab", "slab:unit=1K", false},
    {"slab", "slab:unit=512,addressing=light,capacity=4M", false},
    {"slab", "slab:check=full", false},
    {"hazard", "hazard", false},
    {"hazard", "hazard:batch=1/slab:check=full", false},
    {"hazard", "hazard:batch=3,fences=seq_cst", false},
};

/* On a device that is made of host memory. */
static const struct {
    ga_place place;
    const char *spec;
} stood_in[] = {
    {GA_PLACE_DEVICE, "managed"},
    {GA_PLACE_DEVICE, "pinned"},
    {GA_PLACE_DEVICE, "vmm"},
    {GA_PLACE_DEVICE, "vmm:free=now,chunk=2M,limit=512M"},
    {GA_PLACE_KERNEL, "slab:unit=classes,capacity=64M,limit=512M/vmm"},
};

static subject all[SUBJECTS_MAX];
static size_t count;
static char absent[1024]; /* subjects that are not tested on this machine, with the reasons */

ga_heap *heap;
bool touchable;
size_t natural_align;

static ga_status open_heap(const subject *s)
{
    char spec[512];
    if (s->stood_in) {
        vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW});
    }
    const char *mark = strstr(s->spec, "%s");
    int head = mark ? (int)(mark - s->spec) : (int)strlen(s->spec);
    snprintf(spec, sizeof spec, "%.*s%s%s", head, s->spec, mark ? scene_path("file") : "",
             mark ? mark + 2 : "");
    return ga_heap_open(&heap, s->place, 0, spec);
}

/* ---- the list ----------------------------------------------------------------------------- */

/* Returns true for a subject that may be absent: a library that is not installed, a device. All
 * others must open. */
static bool may_lack(const subject *s, ga_status status)
{
    return status == GA_ERR_LIBRARY || (s->place == GA_PLACE_DEVICE && status == GA_ERR_DEVICE);
}

/* In a child, so that the tests' own parent loads no library or driver. A subject that fails for
 * another reason counts as present, and its cases fail. */
static int is_absent(void *context)
{
    const subject *s = context;
    scene_enter_folder();
    ga_status status = open_heap(s);
    bool lacking = may_lack(s, status);
    if (status == GA_OK) {
        ga_heap_close(heap);
    }
    scene_leave_folder();
    return lacking;
}

static void add_place(const ga_backend *backend, const char *spec, bool refuses, ga_place place)
{
    subject s = {.place = place, .refuses = refuses};
    if (!(backend->places & GA_PLACE_BIT(place)) || count == SUBJECTS_MAX) {
        return;
    }
    snprintf(s.name, sizeof s.name, "%s", backend->name);
    snprintf(s.spec, sizeof s.spec, "%s", spec);
    if (scene_in_child(is_absent, &s) == 0) {
        all[count++] = s;
        return;
    }
    size_t length = strlen(absent);
    snprintf(absent + length, sizeof absent - length, "%s%s (%s)", length ? ", " : "", s.spec,
             ga_place_text(place));
}

static void add_stood_in(void)
{
    for (size_t i = 0; i < sizeof stood_in / sizeof *stood_in && count < SUBJECTS_MAX; i++) {
        subject *s = &all[count++];
        const char *spec = stood_in[i].spec;
        *s = (subject){.place = stood_in[i].place, .stood_in = true};
        snprintf(s->name, sizeof s->name, "%.*s", (int)strcspn(spec, ":"), spec);
        snprintf(s->spec, sizeof s->spec, "%s", spec);
    }
}

static void add(const ga_backend *backend, const char *spec, bool refuses)
{
    add_place(backend, spec, refuses, GA_PLACE_HOST);
    add_place(backend, spec, refuses, GA_PLACE_DEVICE);
}

static void add_backend(const ga_backend *backend)
{
    bool known = false;
    for (size_t i = 0; i < sizeof with_options / sizeof *with_options; i++) {
        if (strcmp(with_options[i].name, backend->name) == 0) {
            add(backend, with_options[i].spec, with_options[i].refuses);
            known = true;
        }
    }
    if (!known) {
        add(backend, backend->name, false);
    }
}

static void list_once(void)
{
    const ga_backend *backend;
    if (count) {
        return;
    }
    for (size_t i = 0; (backend = ga_backend_at(i)); i++) {
        add_backend(backend);
    }
    add_stood_in();
}

struct criterion_test_params subjects_all(void)
{
    list_once();
    return cr_make_param_array(subject, all, count);
}

Test(conformance, everybody_is_here)
{
    list_once();
    cr_assert_gt(count, 4);
    if (*absent) {
        cr_skip_test("not on this machine: %s", absent);
    }
}

/* ---- one subject -------------------------------------------------------------------------- */

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

void subject_open(const subject *s)
{
    scene_enter_folder();
    cr_assert_eq(open_heap(s), GA_OK, "%s: %s", s->spec, ga_error_text());
    touchable = s->place == GA_PLACE_HOST || s->stood_in;
    natural_align = s->place == GA_PLACE_DEVICE ? 256 : 16;
    bool over_libc = ends_with(ga_heap_spec(heap), "system");
    ((subject *)s)->over_libc = over_libc;
    ((subject *)s)->can_tell = !over_libc || begins_with(s->spec, "slab");
}

void subject_close(const subject *s)
{
    ga_stats stats;
    assert_ok(ga_heap_stats(heap, &stats));
    cr_assert_eq(stats.live_blocks, 0, "%s: %" PRIu64 " blocks left", s->spec, stats.live_blocks);
    cr_assert_eq(stats.live_bytes, 0, "%s: %" PRIu64 " bytes left", s->spec, stats.live_bytes);
    assert_ok(ga_heap_close(heap));
    if (s->stood_in) {
        vmm_driver_counts left = vmm_driver_count();
        cr_assert(!left.ranges && !left.mappings && !left.handles, "%s: something is left",
                  s->spec);
        vmm_driver_stop();
    }
    scene_leave_folder();
}

void *take(const subject *s, size_t size)
{
    void *block = NULL;
    ga_status status = ga_alloc(heap, size, 0, &block);
    cr_assert_eq(status, GA_OK, "%s: %zu bytes: %s", s->spec, size, ga_error_text());
    return block;
}

void expect_sentence(const subject *s)
{
    const char *sentence = ga_error_text();
    size_t name = strcspn(sentence, ":");
    char layer[64];
    snprintf(layer, sizeof layer, "%.*s", (int)name, sentence);
    cr_assert(sentence[name] == ':' && strstr(ga_heap_spec(heap), layer), "%s: \"%s\"", s->spec,
              sentence);
}
