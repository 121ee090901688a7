/* SPDX-License-Identifier: MIT
 *
 * The options of the `slab` backend, and the size classes that they make.
 */
#include "backends/slab/settings.h"

#include "backends/slab/host/classes.h"
#include "backends/slab/slab.h"
#include "platform/machine.h"
#include "runtime/options.h"
#include "support/expect.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- options --------------------------------------------------------------------------------- */

static ga_status settings_of(ga_place place, const char *text, ga_slab_settings *settings)
{
    static ga_spec spec;
    static ga_value values[GA_SPEC_OPTIONS];
    static const char *texts[GA_SPEC_OPTIONS];
    assert_ok(ga_spec_parse(&spec, text, NULL));
    assert_ok(ga_options_resolve(&ga_slab_backend, &spec.layers[0], values, texts));
    ga_open_args args = {.place = place, .values = values};
    return ga_slab_settings_read(&args, settings);
}

static void expect_refused(ga_place place, const char *text, const char *sentence)
{
    ga_slab_settings settings;
    ga_slab_shape shape;
    ga_status status = settings_of(place, text, &settings);
    if (status == GA_OK) {
        status = ga_slab_settings_shape(&settings, settings.unit, &shape);
    }
    cr_assert_eq(status, GA_ERR_SPEC, "%s: status %d", text, (int)status);
    cr_assert_str_eq(ga_error_text(), sentence, "%s: got\n  %s\ninstead of\n  %s", text,
                     ga_error_text(), sentence);
}

Test(slab_settings, values_that_cannot_be)
{
    expect_refused(GA_PLACE_HOST, "slab:unit=0",
                   "slab: unit: expected a multiple of 16 from 16 to 65536, got 0");
    expect_refused(GA_PLACE_HOST, "slab:unit=24",
                   "slab: unit: expected a multiple of 16 from 16 to 65536, got 24");
    expect_refused(GA_PLACE_KERNEL, "slab:unit=80K",
                   "slab: unit: expected a multiple of 16 from 16 to 65536, got 81920");
    expect_refused(GA_PLACE_HOST, "slab:unit=5G",
                   "slab: unit: expected a multiple of 16 from 16 to 65536, got 4294967295");
    expect_refused(GA_PLACE_DEVICE, "slab:unit=128",
                   "slab: unit: expected a multiple of 256 for the place device, whose blocks are "
                   "aligned to that, got 128");
    expect_refused(GA_PLACE_KERNEL, "slab:unit=classes,max=4K",
                   "slab: max: expected elsewhere than in kernels, got 4096");
    expect_refused(GA_PLACE_KERNEL, "slab:unit=classes,addressing=light",
                   "slab: addressing: expected with one unit size only, but there are size "
                   "classes, got \"light\"");
    expect_refused(GA_PLACE_KERNEL, "slab:unit=classes,capacity=0",
                   "slab: capacity, limit: expected sizes above 0, got 0");
    expect_refused(GA_PLACE_HOST, "slab:max=8",
                   "slab: max: expected a size from 16 to 65536 bytes, got 8");
    expect_refused(GA_PLACE_HOST, "slab:max=1M",
                   "slab: max: expected a size from 16 to 65536 bytes, got 1048576");
    expect_refused(GA_PLACE_HOST, "slab:unit=128,blocks=3",
                   "slab: blocks: expected a power of two up to 2G, got 3");
    expect_refused(GA_PLACE_HOST, "slab:unit=16,limit=65G",
                   "slab: expected 1 to 4294966272 units of 16 bytes (32-bit addresses), got "
                   "4362076160");
    expect_refused(GA_PLACE_KERNEL, "slab:unit=128,blocks=32K",
                   "slab: blocks: expected at most 16384 memory blocks of units of 128 bytes in a "
                   "superblock, got 32768");
}

Test(slab_settings, values_that_do_not_go_together)
{
    expect_refused(
        GA_PLACE_HOST, "slab:unit=128,max=1K",
        "slab: max: expected with size classes only, but there is one unit size, got 1024");
    expect_refused(
        GA_PLACE_HOST, "slab:blocks=4",
        "slab: blocks: expected with one unit size only, but there are size classes, got 4");
    expect_refused(GA_PLACE_HOST, "slab:capacity=4M",
                   "slab: capacity: expected with one unit size only, but there are size classes, "
                   "got 4194304");
    expect_refused(GA_PLACE_HOST, "slab:addressing=light",
                   "slab: addressing: expected table for size classes, got \"light\"");
    expect_refused(GA_PLACE_HOST, "slab:unit=128,addressing=light",
                   "slab: capacity: expected a size above 0 for light addressing, got none");
    expect_refused(
        GA_PLACE_HOST, "slab:unit=128,addressing=light,capacity=1M,limit=2M",
        "slab: limit: expected without light addressing, where `capacity` is all there is, "
        "got 2097152");
    expect_refused(
        GA_PLACE_HOST, "slab:unit=128,capacity=4M,limit=2M",
        "slab: limit: expected a size above 0 and up from capacity (4194304), got 2097152");
    expect_refused(GA_PLACE_HOST, "slab:preset=paper,unit=64",
                   "slab: unit: expected to be left to preset=paper, got 64");
    expect_refused(GA_PLACE_HOST, "slab:preset=paper,addressing=table",
                   "slab: addressing: expected to be left to preset=paper, got \"table\"");
}

static ga_status with_capacity(ga_place place, const char *options, uint64_t capacity)
{
    char text[128];
    ga_slab_settings settings;
    snprintf(text, sizeof text, "slab:unit=4K,%s,capacity=%" PRIu64, options, capacity);
    return settings_of(place, text, &settings);
}

/* The kernel would grant each superblock, because it checks each alone. A limit is no request for
 * memory. */
Test(slab_settings, capacities_that_the_machine_cannot_have)
{
    static const char *const options[] = {"limit=8T", "addressing=light"};
    uint64_t total = ga_machine_memory_total();
    char sentence[160];
    if (total > UINT64_C(4) << 40 || total < UINT64_C(2) << 30) {
        cr_skip_test("the kernel always overcommits, or the machine is small or large");
    }
    snprintf(sentence, sizeof sentence,
             "slab: capacity: expected at most %" PRIu64
             " bytes, this machine's memory and swap, got %" PRIu64,
             total, total + 1);
    for (size_t i = 0; i < 2; i++) {
        assert_fails(with_capacity(GA_PLACE_HOST, options[i], total + 1), GA_ERR_MEMORY, sentence);
        assert_ok(with_capacity(GA_PLACE_HOST, options[i], total));
        assert_ok(with_capacity(GA_PLACE_DEVICE, options[i], total + 1));
    }
}

Test(slab_settings, checks_in_kernels)
{
    ga_slab_settings settings;
    assert_ok(settings_of(GA_PLACE_KERNEL, "slab:unit=classes,check=full", &settings));
    cr_assert(settings.classes && settings.check);
    assert_ok(settings_of(GA_PLACE_KERNEL, "slab:unit=classes,check=off", &settings));
    cr_assert(settings.classes && !settings.check);
    assert_ok(settings_of(GA_PLACE_KERNEL, "slab:check=full", &settings));
    cr_assert(!settings.classes && settings.check);
}

Test(slab_settings, the_papers_preset)
{
    ga_slab_settings settings;
    ga_slab_shape shape;
    assert_ok(settings_of(GA_PLACE_KERNEL, "slab:preset=paper", &settings));
    assert_ok(ga_slab_settings_shape(&settings, settings.unit, &shape));
    cr_assert_eq(shape.unit, 128, "%u", shape.unit);
    cr_assert_eq(shape.super_bits, 8, "%u", shape.super_bits);
    cr_assert_eq(shape.supers, 32, "%u", shape.supers);
    cr_assert(shape.light);
    cr_assert_eq(ga_slab_settings_first(&settings, &shape), 32);
}

/* ---- size classes ---------------------------------------------------------------------------- */

static void check_classes(uint32_t granule, uint32_t max)
{
    static ga_slab_classes classes;
    ga_slab_classes_fill(&classes, granule, max);
    cr_assert_leq(classes.count, GA_SLAB_CLASSES, "%u", classes.count);
    cr_assert_geq(classes.max, max);
    for (size_t size = 0; size <= classes.max; size++) {
        uint32_t class = ga_slab_class_of(&classes, size);
        uint32_t unit = classes.unit[class];
        uint32_t below = class ? classes.unit[class - 1] : 0;
        cr_assert(unit >= size && (below < size || !class), "%zu bytes: class %u of %u bytes", size,
                  class, unit);
        cr_assert(unit % granule == 0 && (unit - below <= granule || unit - below <= unit / 4 + 1),
                  "%u behind %u", unit, below);
    }
}

Test(slab_settings, each_request_has_the_smallest_class)
{
    check_classes(16, 32 << 10);
    check_classes(16, 64 << 10);
    check_classes(16, 16);
    check_classes(16, 1000);
    check_classes(256, 32 << 10);
    check_classes(256, 64 << 10);
}

Test(slab_settings, aligned_classes)
{
    static ga_slab_classes classes;
    ga_slab_classes_fill(&classes, 16, 32 << 10);
    for (size_t align = 16; align <= 128 << 10; align *= 2) {
        uint32_t class = ga_slab_class_aligned(&classes, 100, align);
        bool served = align <= 32 << 10;
        cr_assert_eq(class != GA_SLAB_NO_CLASS, served, "alignment %zu", align);
        cr_assert(!served || (classes.unit[class] % align == 0 && classes.unit[class] >= 100));
    }
}
