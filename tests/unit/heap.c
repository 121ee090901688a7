/* SPDX-License-Identifier: MIT
 *
 * Opening and closing: which backends a spec opens, the reasons for refusals, and text behind a
 * spec.
 */
#include <gpualloc/backend.h>

#include "runtime/registry.h"
#include "support/expect.h"
#include "support/probe.h"
#include "support/scene.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ga_heap *heap;

static ga_status open_host(const char *spec)
{
    return ga_heap_open(&heap, GA_PLACE_HOST, 0, spec);
}

static void open_probe(const char *spec)
{
    if (!ga_registry_find("probe")) {
        assert_ok(ga_backend_register(&probe_backend));
    }
    assert_ok(open_host(spec));
}

/* The end of the sentence on an unknown backend: their names depend on the build. */
static const char *known(void)
{
    static char text[512];
    const ga_backend *b;
    strcpy(text, "; known: ");
    for (size_t i = 0; (b = ga_backend_at(i)); i++) {
        strcat(strcat(text, i ? ", " : ""), b->name);
    }
    return text;
}

static void expect_unknown(ga_status status, const char *beginning)
{
    char expected[1024];
    snprintf(expected, sizeof expected, "%s%s", beginning, known());
    assert_fails(status, GA_ERR_SPEC, expected);
    cr_assert_null(heap);
}

/* ---- arguments ---------------------------------------------------------------------------- */

#define ARGUMENTS "ga_heap_open: expected a place from 0 to 2 and a device from 0, got "

Test(heap, arguments_out_of_range)
{
    heap = (ga_heap *)&heap;
    assert_fails(ga_heap_open(&heap, GA_PLACE_COUNT, 0, "system"), GA_ERR_ARGUMENT,
                 ARGUMENTS "3 and 0");
    cr_assert_null(heap);
    assert_fails(ga_heap_open(&heap, (ga_place)-1, 0, "system"), GA_ERR_ARGUMENT,
                 ARGUMENTS "-1 and 0");
    assert_fails(ga_heap_open(&heap, GA_PLACE_HOST, -1, "system"), GA_ERR_ARGUMENT,
                 ARGUMENTS "0 and -1");
    cr_assert_eq(ga_heap_open(NULL, GA_PLACE_HOST, 0, "system"), GA_ERR_ARGUMENT);
}

Test(heap, closing_nothing_is_nothing)
{
    assert_ok(ga_heap_close(NULL));
}

Test(heap, tells_what_it_is)
{
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 3, "null"));
    cr_assert_eq(ga_heap_place(heap), GA_PLACE_HOST);
    cr_assert_eq(ga_heap_device(heap), 3);
    cr_assert_str_eq(ga_heap_spec(heap), "null");
    assert_ok(ga_heap_close(heap));
}

/* ---- specs that open nothing -------------------------------------------------------------- */

Test(heap, unknown_backends)
{
    heap = (ga_heap *)&heap;
    expect_unknown(open_host("foo"), "unknown backend \"foo\"");
    expect_unknown(open_host("fail/foo"), "unknown backend \"foo\"");
    expect_unknown(open_host("System"), "unknown backend \"System\"");
}

Test(heap, malformed_specs)
{
    assert_fails(open_host(""), GA_ERR_SPEC,
                 "spec: column 1: expected the name of a backend, got the end");
    assert_fails(open_host("system/"), GA_ERR_SPEC,
                 "spec: column 8: expected the name of a backend, got the end");
    assert_fails(open_host("fail:nth=\"1"), GA_ERR_SPEC,
                 "spec: column 10: expected a closing \" for this one");
}

Test(heap, bad_options)
{
    assert_fails(open_host("system:x=1"), GA_ERR_SPEC, "system: unknown option \"x\"; it has none");
    assert_fails(open_host("fail:nth=-1"), GA_ERR_SPEC,
                 "fail: nth: expected an integer from 0 to 9223372036854775807, got \"-1\"");
    assert_fails(open_host("fail:often"), GA_ERR_SPEC,
                 "fail: unknown option \"often\"; expected one of: nth, every");
    assert_fails(open_host("trace/null"), GA_ERR_SPEC,
                 "trace: file: expected a value: where to write; %p is the process id");
    assert_fails(open_host("dl"), GA_ERR_SPEC,
                 "dl: path: expected a value: the library: a file, or a name that the dynamic "
                 "linker finds");
}

Test(heap, a_place_that_is_not_served)
{
    assert_fails(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "system"), GA_ERR_PLACE,
                 "system: serves the place host, not device");
    assert_fails(ga_heap_open(&heap, GA_PLACE_KERNEL, 0, "null"), GA_ERR_PLACE,
                 "null: serves the place host, device, not kernel");
    assert_fails(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "fail/system"), GA_ERR_PLACE,
                 "system: serves the place host, not device");
}

Test(heap, a_parent_where_none_is_allowed)
{
    assert_fails(open_host("system/null"), GA_ERR_SPEC,
                 "system: takes no parent, but the spec goes on after it");
    assert_fails(open_host("fail/null/null"), GA_ERR_SPEC,
                 "null: takes no parent, but the spec goes on after it");
}

/* Errors in any layer are found; neither the driver nor a library is needed. */
Test(heap, specs_that_are_checked)
{
    setenv("GPUALLOC_CUDA_DRIVER", "/nowhere/libcuda.so", 1);
    assert_ok(ga_heap_check(GA_PLACE_DEVICE, "slab/vmm:limit=1G"));
    assert_ok(ga_heap_check(GA_PLACE_HOST, "trace:file=x/dl:/nowhere/libx.so"));
    assert_fails(ga_heap_check(GA_PLACE_DEVICE, "slab/vmm:x=1/null"), GA_ERR_SPEC,
                 "vmm: takes no parent, but the spec goes on after it");
    assert_fails(ga_heap_check(GA_PLACE_HOST, "trace:file=x/system:x=1"), GA_ERR_SPEC,
                 "system: unknown option \"x\"; it has none");
    assert_fails(ga_heap_check(GA_PLACE_DEVICE, "fail/system"), GA_ERR_PLACE,
                 "system: serves the place host, not device");
    assert_fails(ga_heap_check(GA_PLACE_COUNT, "system"), GA_ERR_ARGUMENT,
                 "ga_heap_check: expected a place from 0 to 2 and a spec, got 3 and system");
    assert_fails(ga_heap_check(GA_PLACE_HOST, NULL), GA_ERR_ARGUMENT,
                 "ga_heap_check: expected a place from 0 to 2 and a spec, got 0 and NULL");
    expect_unknown(ga_heap_check(GA_PLACE_HOST, "trace:file=x/nothing"),
                   "unknown backend \"nothing\"");
}

Test(heap, libraries_that_cannot_be_used)
{
    assert_fails(open_host("dl:/nowhere/libx.so"), GA_ERR_LIBRARY,
                 "dl: path: cannot load \"/nowhere/libx.so\": /nowhere/libx.so: cannot open shared "
                 "object file: No such file or directory");
    assert_fails(open_host("dl:libm.so.6"), GA_ERR_LIBRARY,
                 "dl: path: \"libm.so.6\" defines no malloc; expected a malloc library");
    scene_enter_folder();
    const char *path = scene_path("text.so");
    scene_write_file(path,
                     "no library, but long enough for the header of one, which is 64 bytes "
                     "in length",
                     79);
    char spec[PATH_MAX + 8];
    snprintf(spec, sizeof spec, "dl:%s", path);
    cr_assert_eq(open_host(spec), GA_ERR_LIBRARY);
    cr_assert_not_null(strstr(ga_error_text(), "invalid ELF header"), "%s", ga_error_text());
    scene_leave_folder();
}

Test(heap, too_many_layers)
{
    char spec[200] = "fail:nth=0";
    for (int i = 0; i < 16; i++) {
        strcat(spec, "/fail");
    }
    assert_fails(open_host(spec), GA_ERR_SPEC, "spec: expected at most 16 layers");
}

/* ---- parents ------------------------------------------------------------------------------ */

Test(heap, a_required_parent_is_system)
{
    assert_ok(open_host("fail"));
    cr_assert_str_eq(ga_heap_spec(heap), "fail:nth=1,every=no/system");
    assert_ok(ga_heap_close(heap));
}

Test(heap, an_optional_parent_is_none)
{
    open_probe("probe");
    cr_assert_null(probe_parent);
    assert_ok(ga_heap_close(heap));
    open_probe("probe/null");
    cr_assert_str_eq(ga_heap_spec(probe_parent), "null");
    assert_ok(ga_heap_close(heap));
}

Test(heap, parents_open_first_and_close_last)
{
    open_probe("probe:tag=1/probe:tag=2/probe:tag=3");
    assert_ok(ga_heap_close(heap));
    cr_assert_str_eq(probe_story, "o3 o2 o1 c1 c2 c3", "%s", probe_story);
}

Test(heap, a_failed_open_closes_what_it_opened)
{
    open_probe("probe");
    assert_ok(ga_heap_close(heap));
    probe_story[0] = '\0';
    assert_fails(open_host("probe:tag=1/probe:fail/probe:tag=3"), GA_ERR_MEMORY,
                 "probe: told to fail");
    cr_assert_null(heap);
    cr_assert_str_eq(probe_story, "o3 c3", "%s", probe_story);
    probe_story[0] = '\0';
    assert_fails_with(open_host("probe:number=10/probe:tag=2"), GA_ERR_SPEC, "probe: number: ");
    cr_assert_str_eq(probe_story, "o2 c2", "%s", probe_story);
}

/* Names and places are wrong before anything is opened. */
Test(heap, everything_is_looked_up_first)
{
    open_probe("probe");
    assert_ok(ga_heap_close(heap));
    probe_story[0] = '\0';
    cr_assert_eq(open_host("probe/probe/foo"), GA_ERR_SPEC);
    cr_assert_eq(open_host("probe/system/null"), GA_ERR_SPEC);
    cr_assert_str_eq(probe_story, "");
}

static ga_place device_below(ga_place place)
{
    (void)place;
    return GA_PLACE_DEVICE;
}

Test(heap, a_backend_chooses_the_place_of_its_parent)
{
    static ga_backend over_device;
    over_device = probe_backend;
    over_device.name = "over";
    over_device.parent_place = device_below;
    assert_ok(ga_backend_register(&over_device));
    assert_ok(open_host("over/null"));
    cr_assert_eq(ga_heap_place(heap), GA_PLACE_HOST);
    cr_assert_eq(ga_heap_place(probe_parent), GA_PLACE_DEVICE);
    assert_ok(ga_heap_close(heap));
    assert_fails(open_host("over/system"), GA_ERR_PLACE,
                 "system: serves the place host, not device");
}

Test(heap, options_reach_the_backend)
{
    open_probe("probe:size=3M,flag,number=9,choice=blue,tag=\"a/b\"");
    cr_assert_eq(probe_values[PROBE_SIZE].size, 3 << 20);
    cr_assert(probe_values[PROBE_FLAG].flag);
    cr_assert_eq(probe_values[PROBE_NUMBER].integer, 9);
    cr_assert_eq(probe_values[PROBE_CHOICE].choice, 2);
    cr_assert_str_eq(probe_values[PROBE_TAG].text, "a/b");
    assert_ok(ga_heap_close(heap));
}

/* ---- the text in force -------------------------------------------------------------------- */

static void expect_text(const char *spec, const char *expected)
{
    open_probe(spec);
    cr_assert_str_eq(ga_heap_spec(heap), expected, "%s: got %s", spec, ga_heap_spec(heap));
    ga_heap *first = heap;
    assert_ok(open_host(ga_heap_spec(first)));
    cr_assert_str_eq(ga_heap_spec(heap), expected, "read back: %s", ga_heap_spec(heap));
    assert_ok(ga_heap_close(heap));
    assert_ok(ga_heap_close(first));
}

#define REST ",size=4K,flag=no,number=1,choice=red,fail=no"

Test(heap, the_text_in_force_reads_back)
{
    expect_text("system", "system");
    expect_text("fail:every", "fail:nth=1,every=yes/system");
    expect_text("fail:every=on/null", "fail:nth=1,every=on/null");
    expect_text("probe", "probe:tag=\"\"" REST);
    expect_text("probe:tag=x", "probe:tag=x" REST);
    expect_text("probe:tag=\"a b\"", "probe:tag=\"a b\"" REST);
    expect_text("probe:tag=\"/,:\"/system", "probe:tag=\"/,:\"" REST "/system");
    expect_text("probe:tag=\"\\\"\\\\\"", "probe:tag=\"\\\"\\\\\"" REST);
    expect_text("probe:tag=\\", "probe:tag=\\" REST);
    expect_text("fail:nth=0/probe/fail:nth=0",
                "fail:nth=0,every=no/probe:tag=\"\"" REST "/fail:nth=0,every=no/system");
}

Test(heap, the_text_of_bare_text_reads_back)
{
    if (open_host("dl:libtcmalloc_minimal.so.4") != GA_OK) {
        cr_skip_test("no libtcmalloc_minimal.so.4 on this machine");
    }
    assert_ok(ga_heap_close(heap));
    expect_text("dl:libtcmalloc_minimal.so.4", "dl:path=libtcmalloc_minimal.so.4");
}

/* ---- heaps side by side ------------------------------------------------------------------- */

Test(heap, backends_live_side_by_side)
{
    enum {
        HEAPS = 6
    };
    static const char *const specs[HEAPS] = {
        "system", "probe", "fail:nth=0/probe", "jemalloc", "fail:nth=0/jemalloc", "system"};
    ga_heap *heaps[HEAPS];
    unsigned char *blocks[HEAPS];
    open_probe("null");
    assert_ok(ga_heap_close(heap));
    bool jemalloc = ga_registry_find("jemalloc") != NULL;
    for (int i = 0; i < HEAPS; i++) {
        const char *spec = strstr(specs[i], "jemalloc") && !jemalloc ? "probe" : specs[i];
        assert_ok(ga_heap_open(&heaps[i], GA_PLACE_HOST, 0, spec));
        assert_ok(ga_alloc(heaps[i], 1000, 0, (void **)&blocks[i]));
        memset(blocks[i], i, 1000);
    }
    for (int i = 0; i < HEAPS; i++) {
        ga_stats stats;
        assert_ok(ga_heap_stats(heaps[i], &stats));
        cr_assert_eq(stats.allocs, 1, "%s", specs[i]);
        cr_assert_eq(blocks[i][0], i, "%s", specs[i]);
        cr_assert_eq(blocks[i][999], i, "%s", specs[i]);
        assert_ok(ga_free(heaps[i], blocks[i]));
        assert_ok(ga_heap_close(heaps[i]));
    }
}

Test(heap, blocks_still_held_are_reported)
{
    void *blocks[2];
    open_probe("probe:tag=t");
    assert_ok(ga_alloc(heap, 100, 0, &blocks[0]));
    assert_ok(ga_alloc(heap, 50, 0, &blocks[1]));
    scene_capture_begin();
    assert_ok(ga_heap_close(heap));
    cr_assert_str_eq(scene_capture_end(), "gpualloc: probe:tag=t" REST
                                          ": closed with 2 blocks of 150 bytes still held\n");
    for (int i = 0; i < 2; i++) {
        probe_backend.free(NULL, blocks[i]);
    }
}

Test(heap, nothing_held_is_not_reported)
{
    void *block;
    open_probe("probe");
    assert_ok(ga_alloc(heap, 100, 0, &block));
    assert_ok(ga_free(heap, block));
    scene_capture_begin();
    assert_ok(ga_heap_close(heap));
    cr_assert_str_eq(scene_capture_end(), "");
}

/* A thousand heaps opened and closed leak nothing, which the address sanitizer checks. */
Test(heap, many_heaps)
{
    for (int i = 0; i < 1000; i++) {
        assert_ok(open_host("fail:nth=1/fail:nth=2/system"));
        assert_ok(ga_heap_close(heap));
    }
}
