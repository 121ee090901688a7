/* SPDX-License-Identifier: MIT
 *
 * Products of sparse matrices on a device that is made of host memory. Its kernels do nothing, so
 * the matrices have no entries, except where they are refused: vectors and matrices in the wrong
 * place, and calls of the driver that fail.
 */
#include <gpualloc/spgemm.h>

#include "support/expect.h"
#include "support/vmm_driver.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>

enum {
    ROWS = 50
};

static const uint64_t some_offsets[] = {0, 2, 2, 3};
static const uint32_t some_indices[] = {0, 2, 1};
static const double some_values[] = {1, 2, 3};

/* ---- vectors --------------------------------------------------------------------------------- */

static ga_vector *open_vector(ga_place place, int device, ga_stream stream, size_t element)
{
    ga_vector *v;
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_EXACT,
                                .place = place,
                                .device = device,
                                .reserve = (uint64_t)1 << 32};
    assert_ok(ga_vector_open(&v, element, &options, stream));
    return v;
}

static ga_spgemm_product open_product(ga_place place, int device, ga_stream stream)
{
    return (ga_spgemm_product){.offsets = open_vector(place, device, stream, sizeof(uint64_t)),
                               .indices = open_vector(place, device, stream, sizeof(uint32_t)),
                               .values = open_vector(place, device, stream, sizeof(double))};
}

static void close_product(ga_spgemm_product *c)
{
    ga_vector_close(c->offsets);
    ga_vector_close(c->indices);
    ga_vector_close(c->values);
}

/* A matrix is in such vectors as well. */
static ga_csr upload(ga_spgemm_product *m, const ga_csr *from)
{
    uint64_t entries = from->offsets[from->rows];
    *m = open_product(GA_PLACE_DEVICE, 0, NULL);
    assert_ok(ga_vector_append(m->offsets, from->rows + 1, from->offsets));
    assert_ok(ga_vector_append(m->indices, entries, from->indices));
    assert_ok(ga_vector_append(m->values, entries, from->values));
    ga_csr view = *from;
    view.offsets = ga_vector_data(m->offsets);
    view.indices = ga_vector_data(m->indices);
    view.values = ga_vector_data(m->values);
    return view;
}

static ga_csr upload_empty(ga_spgemm_product *m)
{
    static const uint64_t offsets[ROWS + 1];
    ga_csr none = {ROWS, ROWS, offsets, some_indices, some_values, GA_FLOAT64};
    return upload(m, &none);
}

static ga_spgemm_kernel kernel; /* that multiply() uses */
static uint32_t flags;          /* likewise */

static ga_status multiply(const ga_csr *a, ga_spgemm_method method, ga_spgemm_product *c)
{
    ga_spgemm_options options = {
        .options_size = sizeof options, .method = method, .kernel = kernel, .flags = flags};
    return ga_spgemm_multiply(a, a, &options, c, NULL);
}

static void start(int devices)
{
    vmm_driver_start(&(vmm_driver_options){.devices = devices, .kernels = VMM_KERNELS_GROW});
}

static void expect_nothing_left(void)
{
    vmm_driver_counts now = vmm_driver_count();
    cr_assert_eq(now.ranges + now.chunks + now.mappings + now.blocks + now.pinned, 0,
                 "%" PRIu64 " ranges, %" PRIu64 " chunks, %" PRIu64 " mappings, %" PRIu64
                 " blocks, %" PRIu64 " pinned",
                 now.ranges, now.chunks, now.mappings, now.blocks, now.pinned);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refused(const ga_csr *a, const ga_csr *b, ga_spgemm_product *c,
                           const char *words)
{
    ga_spgemm_product before = *c;
    cr_assert_eq(ga_spgemm_multiply(a, b, NULL, c, NULL), GA_ERR_ARGUMENT, "%s: %s", words,
                 ga_error_text());
    cr_assert(strstr(ga_error_text(), words), "\"%s\" in \"%s\"", words, ga_error_text());
    cr_assert_eq(c->rows, before.rows);
    cr_assert_eq(ga_vector_size(c->indices), 0);
}

Test(spgemm_device, vectors_apart)
{
    start(2);
    ga_spgemm_product m, c = open_product(GA_PLACE_DEVICE, 0, NULL);
    ga_spgemm_product others[] = {
        open_product(GA_PLACE_HOST, 0, NULL), open_product(GA_PLACE_DEVICE, 1, NULL),
        open_product(GA_PLACE_DEVICE, 0, (ga_stream)2)}; /* the driver's own name of a stream */
    ga_csr a = upload_empty(&m);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ga_spgemm_product mixed = c;
        mixed.offsets = others[i].offsets;
        expect_refused(&a, &a, &mixed, "vectors of different places");
        mixed = c;
        mixed.indices = others[i].indices;
        expect_refused(&a, &a, &mixed, "vectors of different places");
        mixed = c;
        mixed.values = others[i].values;
        expect_refused(&a, &a, &mixed, "vectors of different places");
        close_product(&others[i]);
    }
    close_product(&c);
    close_product(&m);
    expect_nothing_left();
    vmm_driver_stop();
}

Test(spgemm_device, arrays_on_the_host)
{
    static const char *const words[] = {"offsets at ", "columns at ", "values at "};
    ga_csr host = {3, 3, some_offsets, some_indices, some_values, GA_FLOAT64};
    start(1);
    ga_spgemm_product m, n, o, c = open_product(GA_PLACE_DEVICE, 0, NULL);
    ga_csr a = upload(&m, &host), b = upload(&o, &host);
    for (int array = 0; array < 3; array++) {
        ga_csr mixed = a;
        mixed.offsets = array == 0 ? host.offsets : a.offsets;
        mixed.indices = array == 1 ? host.indices : a.indices;
        mixed.values = array == 2 ? host.values : a.values;
        expect_refused(&mixed, &b, &c, words[array]);
        expect_refused(&b, &mixed, &c, words[array]);
    }
    expect_refused(&host, &host, &c, "that device 0 can access");
    ga_csr one_pattern = a;
    one_pattern.values = host.values;
    expect_refused(&a, &one_pattern, &c, "values at ");
    a.indices = NULL;
    expect_refused(&a, &a, &c, "no columns of its 3 entries");
    host.offsets += 1; /* the first is 2 */
    host.rows = 2;
    ga_csr late = upload(&n, &host);
    late.columns = 2;
    expect_refused(&late, &late, &c, "row 0: it begins at 2: expected 0");
    close_product(&c);
    close_product(&m);
    close_product(&n);
    close_product(&o);
    expect_nothing_left();
    vmm_driver_stop();
}

/* ---- failures -------------------------------------------------------------------------------- */

static void expect_empty(const ga_spgemm_product *c)
{
    cr_assert_eq(c->rows + c->columns, 0);
    cr_assert_eq(ga_vector_size(c->offsets), 0);
    cr_assert_eq(ga_vector_size(c->indices), 0);
    cr_assert_eq(ga_vector_size(c->values), 0);
}

Test(spgemm_device, no_kernels)
{
    vmm_driver_start(NULL);
    ga_spgemm_product m, c = open_product(GA_PLACE_DEVICE, 0, NULL);
    ga_csr a = upload_empty(&m);
    cr_assert_eq(multiply(&a, GA_SPGEMM_AUTO, &c), GA_ERR_DEVICE);
    expect_empty(&c);
    close_product(&c);
    close_product(&m);
    expect_nothing_left();
    vmm_driver_stop();
}

Test(spgemm_device, a_driver_that_has_shut_down)
{
    start(1);
    ga_spgemm_product m, c = open_product(GA_PLACE_DEVICE, 0, NULL);
    ga_csr a = upload_empty(&m);
    vmm_driver_shut_down();
    cr_assert_eq(multiply(&a, GA_SPGEMM_AUTO, &c), GA_ERR_DEVICE);
    expect_empty(&c);
    close_product(&c);
    close_product(&m);
    vmm_driver_stop();
}

Test(spgemm_device, no_scratch_memory)
{
    start(1);
    ga_spgemm_product m, c = open_product(GA_PLACE_DEVICE, 0, NULL);
    ga_csr a = upload_empty(&m);
    vmm_driver_fail("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(multiply(&a, GA_SPGEMM_PRECISE, &c), GA_ERR_MEMORY);
    cr_assert(strstr(ga_error_text(), "no scratch memory of "), "%s", ga_error_text());
    expect_empty(&c);
    close_product(&c);
    close_product(&m);
    expect_nothing_left();
    vmm_driver_stop();
}

/* Each call of the driver fails once: the product fails, or does without, and the next one is
 * right. */
static void fail_each_call(const ga_csr *a, ga_spgemm_method method, CUresult error)
{
    bool reached = true;
    vmm_driver_counts before = vmm_driver_count();
    for (uint64_t n = 1; reached; n++) {
        ga_spgemm_product c = open_product(GA_PLACE_DEVICE, 0, NULL);
        vmm_driver_fail(NULL, n, error);
        ga_status status = multiply(a, method, &c);
        reached = vmm_driver_has_failed();
        vmm_driver_fail(NULL, 0, 0);
        if (status != GA_OK) {
            cr_assert(reached && (status == GA_ERR_DEVICE || status == GA_ERR_MEMORY),
                      "call %" PRIu64 ": %s", n, ga_error_text());
            expect_empty(&c);
        }
        assert_ok(multiply(a, method, &c));
        cr_assert_eq(c.rows, ROWS);
        cr_assert_eq(ga_vector_size(c.offsets), ROWS + 1);
        cr_assert_eq(ga_vector_size(c.indices) + ga_vector_size(c.values), 0);
        close_product(&c);
        vmm_driver_counts now = vmm_driver_count();
        cr_assert_eq(now.blocks, before.blocks, "call %" PRIu64, n);
        cr_assert_eq(now.chunk_bytes, before.chunk_bytes, "call %" PRIu64, n);
        cr_assert_eq(now.ranges, before.ranges, "call %" PRIu64, n);
        cr_assert(n < 1000);
    }
}

Test(spgemm_device, driver_calls_that_fail)
{
    start(1);
    ga_spgemm_product m;
    ga_csr a = upload_empty(&m);
    for (uint32_t method = GA_SPGEMM_PRECISE; method < GA_SPGEMM_METHOD_COUNT; method++) {
        fail_each_call(&a, method, CUDA_ERROR_OUT_OF_MEMORY);
        fail_each_call(&a, method, CUDA_ERROR_INVALID_VALUE);
    }
    kernel = GA_SPGEMM_KERNEL_DOT;
    fail_each_call(&a, GA_SPGEMM_PRECISE, CUDA_ERROR_OUT_OF_MEMORY);
    fail_each_call(&a, GA_SPGEMM_UPPER, CUDA_ERROR_OUT_OF_MEMORY);
    fail_each_call(&a, GA_SPGEMM_DYNAMIC, CUDA_ERROR_OUT_OF_MEMORY);
    kernel = GA_SPGEMM_KERNEL_ROWS;
    flags = GA_SPGEMM_COOPERATIVE;
    fail_each_call(&a, GA_SPGEMM_DYNAMIC, CUDA_ERROR_OUT_OF_MEMORY);
    fail_each_call(&a, GA_SPGEMM_DYNAMIC, CUDA_ERROR_NOT_SUPPORTED);
    close_product(&m);
    expect_nothing_left();
    vmm_driver_stop();
}

Test(spgemm_device, cooperative_launches)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW, .no_cooperative = true});
    ga_spgemm_product m, c = open_product(GA_PLACE_DEVICE, 0, NULL);
    ga_csr a = upload_empty(&m);
    flags = GA_SPGEMM_COOPERATIVE;
    cr_assert_eq(multiply(&a, GA_SPGEMM_DYNAMIC, &c), GA_ERR_DEVICE);
    cr_assert(strstr(ga_error_text(), "device 0 has no cooperative launches: expected a device "
                                      "that has"));
    expect_empty(&c);
    cr_assert_eq(multiply(&a, GA_SPGEMM_PRECISE, &c), GA_ERR_ARGUMENT);
    cr_assert(strstr(ga_error_text(), "method precise, kernel 0 and place device: expected"));
    kernel = GA_SPGEMM_KERNEL_DOT;
    cr_assert_eq(multiply(&a, GA_SPGEMM_DYNAMIC, &c), GA_ERR_ARGUMENT);
    cr_assert(strstr(ga_error_text(), "method dynamic, kernel 1 and place device: expected"));
    close_product(&c);
    close_product(&m);
    expect_nothing_left();
    vmm_driver_stop();
}
