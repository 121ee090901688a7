/* SPDX-License-Identifier: MIT
 *
 * The readers of device code on damaged images: cubins, fat binaries and PTX, and the writers. It
 * would catch reads and writes past an image, memory for sizes that only the image claims, a copy
 * with stubs that cannot be read or still calls CUDA's functions, and messages that cannot be
 * printed.
 *
 * The image lies before an unmapped page, because ga_image_measure() gets no size; and once more in
 * a block of its exact size.
 */
#include "../../interpose/images/cubin.h"
#include "../../interpose/images/fatbin.h"
#include "../../interpose/images/ptx.h"
#include "../../liballoc/platform/libc.h"
#include "fuzz.h"

#include "support/stubs_scene.h"

#include <err.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef GA_HAVE_ZSTD
#include <zstd.h>
#endif
#ifdef GA_HAVE_LZ4
#include <lz4.h>
#endif

const char *const fuzz_tokens[] = {
    "\x7f"
    "ELF",
    "\x50\xed\x55\xba\x01",
    "\xb1\x43\x62\x46\x01",
    "\x28\xb5\x2f\xfd",
    ".nv.constant4",
    ".text.",
    ".nv.info",
    "malloc",
    "free",
    "__cuda_syscall_aligned_malloc",
    "\n.extern .func  (.param .b64 func_retval0) malloc\n",
    ".extern .func free",
    NULL,
};

enum {
    SCENES = 16, /* bits of a seed's number: ABI, addends, calls, compression */
    FORMS = 6    /* cubin, fat binary, compressed fat binary (zstd, LZ4), stubs, PTX */
};

/* ---- seeds --------------------------------------------------------------------------------- */

static void build_scene(cubin_scene *scene, size_t number)
{
    static const unsigned architectures[] = {75, 89, 90, 120};
    unsigned sm = architectures[number & 3];
    *scene = (cubin_scene){.sm = sm,
                           .calls_cuda = true,
                           .is_old = number >> 2 & 1,
                           .is_relocatable = (number & 0xf) == 0xf,
                           .has_addends = number >> 3 & 1,
                           .constants = number >> 2 & 1 ? 16 : 0,
                           .has_pointers = number >> 2 & 1,
                           .call_type = sm >= 90 ? GA_R_ABS55_16_34 : GA_R_ABS47_34};
    cubin_scene_build(scene);
}

/* The bytes of `from`, compressed as `flags` say; 0: this build cannot. */
static size_t compress(uint8_t *to, size_t room, const cubin_scene *from, uint64_t flags)
{
    (void)to, (void)room, (void)from;
#ifdef GA_HAVE_ZSTD
    if (flags & GA_FATBIN_ZSTD) {
        size_t size = ZSTD_compress(to, room, from->bytes, from->size, 3);
        return ZSTD_isError(size) ? 0 : size;
    }
#endif
#ifdef GA_HAVE_LZ4
    if (flags & GA_FATBIN_LZ4) {
        return (size_t)LZ4_compress_default((const char *)from->bytes, (char *)to, (int)from->size,
                                            (int)room);
    }
#endif
    (void)flags;
    return 0;
}

static size_t fatbin_seed(uint8_t *room, const cubin_scene *scene, uint64_t flags)
{
    static uint8_t packed[2 * CUBIN_SCENE_SIZE];
    static const char ptx[] = ".version 9.0\n.target sm_75\n.extern .func free\n(\n";
    size_t size = 0;
    size_t stored = flags ? compress(packed, sizeof packed, scene, flags) : 0;
    ga_fatbin_record record = {.kind = GA_FATBIN_ELF, .sm = scene->sm};
    if (stored) {
        record.flags = flags;
        record.compressed_size = (uint32_t)stored;
        record.size = scene->size;
    }
    fatbin_scene_add(room, &size, record, stored ? packed : scene->bytes,
                     stored ? stored : scene->size);
    fatbin_scene_add(room, &size, (ga_fatbin_record){.kind = GA_FATBIN_PTX, .sm = 75}, ptx,
                     sizeof ptx);
    return size;
}

size_t fuzz_seed(size_t number, uint8_t room[FUZZ_INPUT_MAX])
{
    static const uint64_t flags[FORMS] = {0, 0, GA_FATBIN_ZSTD, GA_FATBIN_LZ4, 0, 0};
    static const char ptx[] = "//\n.version 9.0\n.extern .func  (.param .b64 r) malloc\n(\n);\n";
    static cubin_scene scene;
    size_t form = number / SCENES;
    if (form >= FORMS) {
        return 0;
    }
    build_scene(&scene, number % SCENES);
    if (form == FORMS - 1) {
        memcpy(room, ptx, sizeof ptx);
        return sizeof ptx - number % 2; /* with and without the NUL */
    }
    if (form == FORMS - 2) {
        static stubs_scene stubs;
        stubs = (stubs_scene){.sm = scene.sm};
        stubs_scene_build(&stubs);
        memcpy(room, stubs.cubin.bytes, stubs.cubin.size);
        return stubs.cubin.size;
    }
    if (form == 0) {
        memcpy(room, scene.bytes, scene.size);
        return scene.size;
    }
    return fatbin_seed(room, &scene, flags[form]);
}

/* ---- checks -------------------------------------------------------------------------------- */

static void check_status(ga_status status)
{
    FUZZ_NEED(status == GA_OK || status == GA_ERR_UNSUPPORTED || status == GA_ERR_MEMORY);
    if (status != GA_OK) {
        fuzz_check_sentence();
    }
}

static ga_cubin opened(const cubin_scene *scene)
{
    ga_cubin cubin;
    FUZZ_NEED(ga_cubin_open(&cubin, (ga_image){scene->bytes, scene->size}) == GA_OK);
    return cubin;
}

static void check_copy(const ga_cubin *cubin, const ga_cubin *stubs)
{
    static const ga_cubin_needs needs = {32, 200, 1224, CUBIN_PARAMETERS};
    ga_image image;
    void *owned;
    ga_cubin copy;
    ga_status status = ga_cubin_serve(&image, &owned, cubin, stubs, &needs);
    check_status(status);
    FUZZ_NEED((status == GA_OK) == (owned != NULL));
    /* sections of a damaged file may overlap, and then the copy may be damaged, too */
    if (status == GA_OK && ga_cubin_open(&copy, image) == GA_OK) {
        FUZZ_NEED(ga_cubin_calls(&copy) == 0);
    }
    ga_libc.free(owned);
}

/* As the program's code, and as the code with stubs. */
static void check_served(const ga_cubin *cubin)
{
    static stubs_scene stubs;
    static cubin_scene program;
    stubs = (stubs_scene){.sm = cubin->sm};
    program = (cubin_scene){.sm = cubin->sm, .calls_cuda = true};
    stubs_scene_build(&stubs);
    cubin_scene_build(&program);
    ga_cubin good = opened(&stubs.cubin);
    check_copy(cubin, &good);
    good = opened(&program);
    check_copy(&good, cubin);
}

/* Sections may overlap in a damaged file, so only that the calls end is demanded of it. */
static void check_cubin(ga_image image)
{
    static const char *const names[] = {"vprintf"};
    static const uint64_t values[] = {UINT64_C(0x7f8123456780)};
    static const ga_cubin_words words = {names, values, 1};
    ga_cubin cubin;
    ga_cubin_needs needs;
    uint8_t *copy = malloc(image.size + 1);
    FUZZ_NEED(copy);
    memcpy(copy, image.bytes, image.size);
    ga_status status = ga_cubin_open(&cubin, (ga_image){copy, image.size});
    check_status(status);
    if (status == GA_OK) {
        FUZZ_NEED(ga_cubin_calls(&cubin) < 1u << GA_CALLS_COUNT);
        check_status(ga_cubin_read_needs(&cubin, "kernel", &needs));
        check_served(&cubin);
        check_status(ga_cubin_write_words(&cubin, copy, &words));
    }
    free(copy);
}

static void check_image(ga_image image)
{
    check_cubin(image);
    FUZZ_NEED(ga_ptx_calls(image) < 1u << GA_CALLS_COUNT);
}

static void check_entry(const ga_fatbin_entry *entry)
{
    ga_image image;
    void *owned;
    ga_status status = ga_fatbin_unpack(&image, &owned, entry);
    check_status(status);
    if (status == GA_OK) {
        check_image(image);
    } else {
        FUZZ_NEED(!owned);
    }
    ga_libc.free(owned);
}

static void check_fatbin(ga_image fatbin)
{
    ga_fatbin_entry entry;
    for (size_t at = 0; ga_fatbin_next(&entry, fatbin, &at);) {
        FUZZ_NEED(entry.payload.bytes >= fatbin.bytes &&
                  entry.payload.bytes + entry.payload.size <= fatbin.bytes + fatbin.size);
        check_entry(&entry);
    }
    for (unsigned sm = 75; sm <= 121; sm += 5) {
        check_status(ga_fatbin_choose(&entry, fatbin, sm));
    }
}

/* The image's end is the end of the mapping. */
static void check_measured(const uint8_t *data, size_t size)
{
    static uint8_t *end;
    ga_image image;
    if (!end) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uint8_t *start = mmap(NULL, FUZZ_INPUT_MAX + page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED || munmap(start + FUZZ_INPUT_MAX, page) != 0) {
            err(1, "cannot map memory for an image");
        }
        end = start + FUZZ_INPUT_MAX;
    }
    if (size > FUZZ_INPUT_MAX) {
        return;
    }
    memcpy(end - size, data, size);
    ga_status status = ga_image_measure(&image, end - size, SIZE_MAX);
    check_status(status);
    if (status == GA_OK && image.bytes == end - size) { /* a wrapper may lead anywhere */
        FUZZ_NEED(image.size <= size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    FUZZ_NEED(copy);
    uint8_t *exact = copy + 1; /* not aligned, and ends with the block */
    if (size) {
        memcpy(exact, data, size);
    }
    check_fatbin((ga_image){exact, size});
    check_image((ga_image){exact, size});
    check_measured(data, size);
    free(copy);
    return 0;
}
