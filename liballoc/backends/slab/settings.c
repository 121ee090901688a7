/* SPDX-License-Identifier: MIT
 *
 * From option values to shapes.
 */
#include "settings.h"

#include "../../platform/machine.h"

enum {
    UNIT = 0,
    MAX,
    CHECK,
    PRESET,
    ADDRESSING,
    BLOCKS,
    CAPACITY,
    LIMIT,
    KEEP
};

enum {
    PRESET_NONE = 0,
    PRESET_PAPER
};

enum {
    ADDRESSING_AUTO = 0,
    ADDRESSING_LIGHT,
    ADDRESSING_TABLE
};

enum {
    DEFAULT_UNIT = 128,
    DEFAULT_MAX = 32 << 10,
    DEVICE_ALIGN = 256,
    DEFAULT_SUPER = 4 << 20, /* bytes of a superblock, unless a memory block is larger */
    PAPER_BLOCK_BITS = 8,
    UNIT_BITS = 32
};

/* slab-hash-2018, §V: 32 superblocks of 256 memory blocks of 1024 units of 128 bytes. */
static const uint64_t PAPER_CAPACITY = UINT64_C(32) * 256 * 1024 * DEFAULT_UNIT;
static const uint64_t DEFAULT_LIMIT = UINT64_C(16) << 30;
static const uint64_t KERNEL_CAPACITY = UINT64_C(256) << 20;
static const uint64_t DEFAULT_KEEP = UINT64_C(16) << 20;
static const uint64_t MACHINE_CHECK_BYTES = UINT64_C(1) << 30; /* the check reads files */

/* Over a parent that grows under kernels: the initial size, the limit, and the largest superblock
 * by default. */
static const uint64_t GROWING_CAPACITY = UINT64_C(64) << 20;
static const uint64_t GROWING_LIMIT = UINT64_C(1) << 40;
static const uint64_t GROWING_SUPER = UINT64_C(64) << 20;
enum {
    GROWING_STEPS = 1024 /* for more steps than this, superblocks are larger, up to GROWING_SUPER */
};

/* Values of a size option that are words. */
static const uint64_t AUTO = UINT64_MAX;
static const uint64_t CLASSES = UINT64_MAX - 1;
static const uint64_t ALL = UINT64_MAX - 1;

static const char *const automatic[] = {"auto", NULL};
static const char *const keep_words[] = {"auto", "all", NULL};
static const char *const unit_words[] = {"auto", "classes", NULL};
static const char *const check_choices[] = {"off", "full", NULL};
static const char *const preset_choices[] = {
    [PRESET_NONE] = "none", [PRESET_PAPER] = "paper", NULL};
static const char *const addressing_choices[] = {
    [ADDRESSING_AUTO] = "auto", [ADDRESSING_LIGHT] = "light", [ADDRESSING_TABLE] = "table", NULL};

const ga_option ga_slab_options[GA_SLAB_OPTIONS] = {
    [UNIT] = {.name = "unit",
              .type = GA_OPTION_SIZE,
              .fallback = "auto",
              .help =
                  "bytes of a unit, a multiple of 16, on a device of 256, up to 64K; classes: "
                  "all sizes, in kernels up to the heap's limit; auto: classes; 128 with preset, "
                  "and in kernels with addressing or blocks or where the parent does not grow "
                  "under them",
              .choices = unit_words},
    [MAX] = {.name = "max",
             .type = GA_OPTION_SIZE,
             .fallback = "auto",
             .help = "size classes on host and device: largest request that gets a unit, up to "
                     "64K; auto: 32K",
             .choices = automatic},
    [CHECK] = {.name = "check",
               .type = GA_OPTION_ENUM,
               .fallback = "off",
               .help =
                   "full: find double frees, frees of no unit, and writes to free units, the last "
                   "not with unit=classes in kernels",
               .choices = check_choices},
    [PRESET] = {.name = "preset",
                .type = GA_OPTION_ENUM,
                .fallback = "none",
                .help = "paper: 1G of units of 128 bytes, 256 blocks, light, as in slab-hash-2018",
                .choices = preset_choices,
                .expert = true},
    [ADDRESSING] =
        {.name = "addressing",
         .type = GA_OPTION_ENUM,
         .fallback = "auto",
         .help = "light: one array of `capacity`; table: superblocks as needed; auto: table, in "
                 "kernels light where a capacity and no limit is given, or the parent grows under "
                 "them",
         .choices = addressing_choices,
         .expert = true},
    [BLOCKS] = {.name = "blocks",
                .type = GA_OPTION_SIZE,
                .fallback = "auto",
                .help =
                    "memory blocks of 1024 units in a superblock; auto: as many as make about 4M",
                .choices = automatic,
                .expert = true},
    [CAPACITY] =
        {.name = "capacity",
         .type = GA_OPTION_SIZE,
         .fallback = "auto",
         .help = "bytes of units to allocate when the heap opens, on host and device of units of "
                 "one size; auto: none, in kernels 256M, or 64M where it grows under them",
         .choices = automatic},
    [LIMIT] =
        {.name = "limit",
         .type = GA_OPTION_SIZE,
         .fallback = "auto",
         .help =
             "bytes: the most of each unit size, in kernels of all size classes together, which "
             "sets the size of the tables; auto: 16G; of one unit size that grows under kernels, "
             "1T or 2^32 units; of size classes in kernels, the device's memory where they grow, "
             "else the capacity",
         .choices = automatic},
    [KEEP] = {.name = "keep",
              .type = GA_OPTION_SIZE,
              .fallback = "auto",
              .help =
                  "host, device: bytes that may be empty, besides a quarter of the bytes in use, "
                  "before pages are returned to the system, or superblocks to the parent, which "
                  "waits for the device; all: only a trim returns them; auto: 16M, with a "
                  "capacity and on a device all",
              .choices = keep_words},
};

/* ---- single options ------------------------------------------------------------------------ */

static uint64_t size_or(const ga_open_args *args, int option, uint64_t fallback)
{
    uint64_t size = args->values[option].size;
    return size == AUTO ? fallback : size;
}

static bool is_given(const ga_open_args *args, int option)
{
    return args->values[option].size != AUTO;
}

static uint32_t in_32_bits(uint64_t size)
{
    return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

static ga_status fail_unexpected(const ga_open_args *args, int option, const char *why)
{
    const ga_option *o = &ga_slab_options[option];
    uint64_t size = args->values[option].size;
    const char *word = o->type == GA_OPTION_ENUM ? o->choices[args->values[option].choice]
                       : size >= ALL             ? o->choices[UINT64_MAX - size]
                                                 : NULL;
    return word ? ga_fail(GA_ERR_SPEC, "slab: %s: %s, got \"%s\"", o->name, why, word)
                : ga_fail(GA_ERR_SPEC, "slab: %s: %s, got %llu", o->name, why,
                          (unsigned long long)size);
}

/* True if no option is set that only units of one size have. In kernels, size classes are the
 * default only over a parent that grows under them. */
static bool defaults_to_classes(const ga_open_args *args)
{
    bool kernel = args->place == GA_PLACE_KERNEL;
    bool single = args->values[PRESET].choice ||
                  (kernel && (args->values[ADDRESSING].choice || is_given(args, BLOCKS)));
    return !single && (!kernel || ga_growing_open(args->parent, NULL) == GA_OK);
}

static ga_status read_unit(const ga_open_args *args, ga_slab_settings *s)
{
    uint64_t unit = args->values[UNIT].size;
    s->classes = unit == CLASSES || (unit == AUTO && defaults_to_classes(args));
    s->unit = unit >= CLASSES ? DEFAULT_UNIT : in_32_bits(unit);
    ga_slab_shape shape = {.unit = s->unit, .supers = 1, .light = true};
    ga_status status = ga_slab_shape_check(&shape);
    if (status == GA_OK && args->place == GA_PLACE_DEVICE && !s->classes &&
        s->unit % DEVICE_ALIGN) {
        return ga_fail(
            GA_ERR_SPEC,
            "slab: unit: expected a multiple of %d for the place device, whose blocks are "
            "aligned to that, got %u",
            DEVICE_ALIGN, s->unit);
    }
    return status;
}

static ga_status read_max(const ga_open_args *args, ga_slab_settings *s)
{
    uint64_t max = size_or(args, MAX, DEFAULT_MAX);
    if (is_given(args, MAX) && !s->classes) {
        return fail_unexpected(args, MAX,
                               "expected with size classes only, but there is one unit size");
    }
    if (max < GA_SLAB_UNIT_MIN || max > GA_SLAB_UNIT_MAX) {
        return ga_fail(GA_ERR_SPEC, "slab: max: expected a size from %d to %d bytes, got %llu",
                       GA_SLAB_UNIT_MIN, GA_SLAB_UNIT_MAX, (unsigned long long)max);
    }
    s->max = (uint32_t)max;
    return GA_OK;
}

static ga_status read_blocks(const ga_open_args *args, ga_slab_settings *s)
{
    uint64_t blocks = size_or(args, BLOCKS, 1);
    s->block_bits = -1;
    if (is_given(args, BLOCKS)) {
        if (!blocks || blocks & (blocks - 1) || blocks > UINT32_MAX) {
            return ga_fail(GA_ERR_SPEC, "slab: blocks: expected a power of two up to 2G, got %llu",
                           (unsigned long long)blocks);
        }
        s->block_bits = __builtin_ctzll(blocks);
    }
    return s->block_bits >= 0 && s->classes
               ? fail_unexpected(args, BLOCKS,
                                 "expected with one unit size only, but there are size classes")
               : GA_OK;
}

/* For a parent whose memory grows under kernels: the heap grows from `capacity` to `limit`. */
static ga_status read_growing(const ga_open_args *args, ga_slab_settings *s)
{
    uint64_t reach = ga_slab_reach(s->unit);
    s->light = s->grows = true;
    s->limit = size_or(args, LIMIT, GROWING_LIMIT < reach ? GROWING_LIMIT : reach);
    s->capacity =
        size_or(args, CAPACITY, GROWING_CAPACITY < s->limit ? GROWING_CAPACITY : s->limit);
    return !s->capacity || s->capacity > s->limit
               ? ga_fail(GA_ERR_SPEC,
                         "slab: capacity: expected a size above 0 up to limit (%llu), got %llu",
                         (unsigned long long)s->limit, (unsigned long long)s->capacity)
               : GA_OK;
}

/* For blocks of all sizes in kernels: `capacity` is the initial size, or the whole if the parent
 * cannot grow. */
static ga_status read_sized(const ga_open_args *args, ga_slab_settings *s)
{
    s->grows = ga_growing_open(args->parent, NULL) == GA_OK;
    s->limit = size_or(args, LIMIT, 0);
    s->capacity = size_or(args, CAPACITY, s->grows ? GROWING_CAPACITY : KERNEL_CAPACITY);
    if (is_given(args, MAX)) {
        return fail_unexpected(args, MAX, "expected elsewhere than in kernels");
    }
    if (is_given(args, BLOCKS)) {
        return fail_unexpected(args, BLOCKS,
                               "expected with one unit size only, but there are size classes");
    }
    if (args->values[PRESET].choice || args->values[ADDRESSING].choice) {
        int option = args->values[PRESET].choice ? PRESET : ADDRESSING;
        return fail_unexpected(args, option,
                               "expected with one unit size only, but there are size classes");
    }
    if (s->grows && s->limit && s->limit < s->capacity) {
        s->capacity = s->limit;
    }
    return !s->capacity || (is_given(args, LIMIT) && !s->limit)
               ? ga_fail(GA_ERR_SPEC, "slab: capacity, limit: expected sizes above 0, got 0")
               : GA_OK;
}

static ga_status read_room(const ga_open_args *args, ga_slab_settings *s)
{
    bool kernel = args->place == GA_PLACE_KERNEL;
    int addressing = args->values[ADDRESSING].choice;
    if (kernel && addressing == ADDRESSING_AUTO && ga_growing_open(args->parent, NULL) == GA_OK) {
        return read_growing(args, s);
    }
    s->light =
        addressing == ADDRESSING_LIGHT || (addressing == ADDRESSING_AUTO && kernel &&
                                           is_given(args, CAPACITY) && !is_given(args, LIMIT));
    s->capacity = size_or(args, CAPACITY, kernel && !s->light ? KERNEL_CAPACITY : 0);
    s->limit = size_or(args, LIMIT, s->capacity > DEFAULT_LIMIT ? s->capacity : DEFAULT_LIMIT);
    if (s->classes && s->capacity) {
        return fail_unexpected(args, CAPACITY,
                               "expected with one unit size only, but there are size classes");
    }
    if (s->light && s->classes) {
        return ga_fail(GA_ERR_SPEC,
                       "slab: addressing: expected table for size classes, got \"light\"");
    }
    if (s->light && !s->capacity) {
        return ga_fail(GA_ERR_SPEC,
                       "slab: capacity: expected a size above 0 for light addressing, got %s",
                       is_given(args, CAPACITY) ? "0" : "none");
    }
    if (s->light && is_given(args, LIMIT)) {
        return fail_unexpected(
            args, LIMIT, "expected without light addressing, where `capacity` is all there is");
    }
    if (!s->limit || s->capacity > s->limit) {
        return ga_fail(GA_ERR_SPEC,
                       "slab: limit: expected a size above 0 and up from capacity (%llu), got %llu",
                       (unsigned long long)s->capacity, (unsigned long long)s->limit);
    }
    return GA_OK;
}

static ga_status read_paper(const ga_open_args *args, ga_slab_settings *s)
{
    static const int others[] = {UNIT, BLOCKS, CAPACITY, LIMIT};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (is_given(args, others[i])) {
            return fail_unexpected(args, others[i], "expected to be left to preset=paper");
        }
    }
    if (args->values[ADDRESSING].choice == ADDRESSING_TABLE) {
        return fail_unexpected(args, ADDRESSING, "expected to be left to preset=paper");
    }
    s->light = true;
    s->block_bits = PAPER_BLOCK_BITS;
    s->capacity = s->limit = PAPER_CAPACITY;
    return GA_OK;
}

/* With a capacity empty memory stays by default. On a device it does too, because the parent's
 * ga_free() waits for the device as a rule, and a free of a unit does not. */
static ga_status read_keep(const ga_open_args *args, ga_slab_settings *s)
{
    bool host = args->place == GA_PLACE_HOST;
    uint64_t keep = size_or(args, KEEP, s->capacity || !host ? ALL : DEFAULT_KEEP);
    if (is_given(args, KEEP) && args->place == GA_PLACE_KERNEL) {
        return fail_unexpected(args, KEEP, "expected elsewhere than in kernels");
    }
    s->keep = keep == ALL ? UINT64_MAX : keep;
    return GA_OK;
}

/* When a heap opens, its parent provides the capacity superblock by superblock, and the kernel
 * checks each of them alone. The whole is checked here, or its use could bring the OOM killer. */
static ga_status check_machine(const ga_slab_settings *s)
{
    bool asks = s->place == GA_PLACE_HOST && s->capacity >= MACHINE_CHECK_BYTES;
    uint64_t total = asks ? ga_machine_memory_total() : UINT64_MAX;
    return s->capacity <= total
               ? GA_OK
               : ga_fail(GA_ERR_MEMORY,
                         "slab: capacity: expected at most %llu bytes, this machine's memory and "
                         "swap, got %llu",
                         (unsigned long long)total, (unsigned long long)s->capacity);
}

ga_status ga_slab_settings_read(const ga_open_args *args, ga_slab_settings *s)
{
    *s = (ga_slab_settings){.place = args->place, .check = args->values[CHECK].choice != 0};
    bool paper = args->values[PRESET].choice == PRESET_PAPER;
    ga_status status = read_unit(args, s);
    if (status == GA_OK && s->classes && args->place == GA_PLACE_KERNEL) {
        status = read_sized(args, s);
        return status == GA_OK ? read_keep(args, s) : status;
    }
    if (status == GA_OK) {
        status = read_max(args, s);
    }
    if (status == GA_OK && !paper) {
        status = read_blocks(args, s);
    }
    if (status == GA_OK) {
        status = paper ? read_paper(args, s) : read_room(args, s);
    }
    if (status == GA_OK) {
        status = check_machine(s);
    }
    return status == GA_OK ? read_keep(args, s) : status;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* The number of superblocks for that many bytes. A default limit is cut off at the end of the
 * addresses. */
static uint32_t super_count(const ga_slab_shape *shape, uint64_t bytes, bool exact)
{
    uint32_t bits = shape->super_bits + GA_SLAB_BLOCK_BITS;
    uint64_t each = ga_slab_super_bytes(shape);
    uint64_t count = bytes / each + (bytes % each != 0);
    uint64_t max = ((UINT64_C(1) << UNIT_BITS) - GA_SLAB_BLOCK_UNITS) >> bits;
    return in_32_bits(exact || count < max ? count : max);
}

/* log2 of the memory blocks of a superblock of the default size. Kernels have few address bits for
 * the superblock, so larger limits need larger superblocks there. */
static uint32_t default_super_bits(const ga_slab_settings *s, uint32_t unit)
{
    uint32_t max = ga_slab_block_bits(unit);
    ga_slab_shape shape = {.unit = unit};
    uint64_t usual = s->grows && s->limit / GROWING_STEPS > DEFAULT_SUPER ? s->limit / GROWING_STEPS
                                                                          : DEFAULT_SUPER;
    usual = usual < GROWING_SUPER ? usual : GROWING_SUPER;
    usual = s->grows && s->capacity < usual ? s->capacity : usual;
    while (shape.super_bits < max && ga_slab_super_bytes(&shape) * 2 <= usual) {
        shape.super_bits++;
    }
    while (s->place == GA_PLACE_KERNEL && !s->light && shape.super_bits < max &&
           super_count(&shape, s->limit, false) >> (UNIT_BITS - GA_SLAB_BLOCK_BITS - max)) {
        shape.super_bits++;
    }
    return shape.super_bits;
}

ga_status ga_slab_settings_shape(const ga_slab_settings *s, uint32_t unit, ga_slab_shape *shape)
{
    bool kernel = s->place == GA_PLACE_KERNEL;
    *shape = (ga_slab_shape){
        .unit = unit,
        .super_bits = s->block_bits < 0 ? default_super_bits(s, unit) : (uint32_t)s->block_bits,
        .supers = 1,
        .spread = kernel ? GA_SLAB_SPREAD_KERNEL : GA_SLAB_SPREAD_HOST,
        .light = s->light,
    };
    if (shape->super_bits < UNIT_BITS - GA_SLAB_BLOCK_BITS) {
        bool fixed = s->light && !s->grows;
        bool exact = fixed || (s->limit != DEFAULT_LIMIT && !s->grows);
        shape->supers = super_count(shape, fixed ? s->capacity : s->limit, exact);
    }
    uint32_t max = UINT32_C(1) << (UNIT_BITS - GA_SLAB_BLOCK_BITS - ga_slab_block_bits(unit));
    if (kernel && !s->light && s->limit == DEFAULT_LIMIT && shape->supers > max) {
        shape->supers = max; /* a default limit ends where the addresses do */
    }
    /* On the host a unit's address is its number: it needs no bits for the superblock. */
    ga_slab_shape checked = *shape;
    checked.light = s->light || !kernel;
    return ga_slab_shape_check(&checked);
}

uint32_t ga_slab_settings_first(const ga_slab_settings *s, const ga_slab_shape *shape)
{
    return s->light && !s->grows ? shape->supers : super_count(shape, s->capacity, true);
}
