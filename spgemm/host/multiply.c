/* SPDX-License-Identifier: MIT
 *
 * Products of sparse matrices on the host: checks, and the choice of the method. job.h has the call
 * tree.
 */
#include "job.h"

#include "arena/vector_state.h"

#include <string.h>

const char *ga_spgemm_method_text(ga_spgemm_method method)
{
    static const char *const texts[GA_SPGEMM_METHOD_COUNT] = {"auto", "precise", "upper",
                                                              "growing"};
    return (unsigned)method < GA_SPGEMM_METHOD_COUNT ? texts[method] : "?";
}

ga_csr ga_spgemm_view(const ga_spgemm_product *product)
{
    ga_csr view = {0};
    if (!product) {
        return view;
    }
    view.rows = product->rows;
    view.columns = product->columns;
    view.type = product->type;
    view.offsets = ga_vector_data(product->offsets);
    view.indices = ga_vector_data(product->indices);
    view.values = ga_vector_data(product->values);
    return view;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static ga_status check_options(const ga_spgemm_options *options)
{
    if (options->options_size != sizeof *options) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: options_size=%u: expected %zu",
                       options->options_size, sizeof *options);
    }
    if (options->flags & ~(uint32_t)GA_SPGEMM_UNSORTED) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: flags=%#x: expected GA_SPGEMM_UNSORTED or 0",
                       options->flags);
    }
    if ((unsigned)options->method >= GA_SPGEMM_METHOD_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: method=%d: expected 0 to %d", (int)options->method,
                       GA_SPGEMM_METHOD_COUNT - 1);
    }
    return options->threads <= GA_SPGEMM_THREADS_MAX
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "spgemm: threads=%u: expected 0 to %d", options->threads,
                         GA_SPGEMM_THREADS_MAX);
}

static ga_status check_matrices(const ga_csr *a, const ga_csr *b)
{
    ga_status status = ga_csr_check(a);
    if (status == GA_OK && b != a) {
        status = ga_csr_check(b);
    }
    if (status != GA_OK) {
        return status;
    }
    if (a->columns != b->rows) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: A has %llu columns: expected %llu, the rows of B",
                       (unsigned long long)a->columns, (unsigned long long)b->rows);
    }
    return a->type == b->type
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "spgemm: A is of %s: expected %s, the type of B",
                         ga_value_type_text(a->type), ga_value_type_text(b->type));
}

static ga_status check_vector(const ga_vector *vector, const char *name, size_t element)
{
    if (!vector) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: no vector of %s: expected one", name);
    }
    if (ga_vector_element(vector) != element) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: %s of %zu bytes: expected %zu", name,
                       ga_vector_element(vector), element);
    }
    return vector->carrier.place == GA_PLACE_HOST
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT,
                         "spgemm: %s in device memory: expected a vector on the host", name);
}

static bool is_in(const ga_csr *matrix, const ga_vector *vector)
{
    const void *data = ga_vector_data(vector);
    return matrix->offsets == data || matrix->indices == data || matrix->values == data;
}

/* The call writes to the vectors while it reads the matrices. */
static ga_status check_apart(const ga_csr *a, const ga_csr *b, const ga_spgemm_product *product)
{
    const ga_vector *all[] = {product->offsets, product->indices, product->values};
    for (int i = 0; i < 3; i++) {
        if (all[i] == all[(i + 1) % 3]) {
            return ga_fail(GA_ERR_ARGUMENT, "spgemm: one vector twice: expected three vectors");
        }
        if (is_in(a, all[i]) || is_in(b, all[i])) {
            return ga_fail(GA_ERR_ARGUMENT,
                           "spgemm: matrix %s is in a vector of the product: expected other memory",
                           is_in(a, all[i]) ? "A" : "B");
        }
    }
    return GA_OK;
}

static ga_status check(const ga_csr *a, const ga_csr *b, const ga_spgemm_options *options,
                       const ga_spgemm_product *product)
{
    if (!a || !b || !product) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: no %s: expected a pointer",
                       !a   ? "matrix A"
                       : !b ? "matrix B"
                            : "product");
    }
    ga_status status = check_options(options);
    status = status ? status : check_matrices(a, b);
    status = status ? status : check_vector(product->offsets, "offsets", sizeof(uint64_t));
    status = status ? status : check_vector(product->indices, "indices", sizeof(uint32_t));
    status = status ? status : check_vector(product->values, "values", ga_value_size(a->type));
    return status ? status : check_apart(a, b, product);
}

/* ---- the call -------------------------------------------------------------------------------- */

static void empty(ga_spgemm_product *product)
{
    product->rows = product->columns = 0;
    ga_vector_resize(product->offsets, 0);
    ga_vector_resize(product->indices, 0);
    ga_vector_resize(product->values, 0);
}

static ga_status begin(ga_spgemm_job *job)
{
    ga_spgemm_product *c = job->product;
    uint64_t rows = job->a->rows;
    empty(c);
    c->rows = rows;
    c->columns = job->b->columns;
    c->type = job->a->type;
    ga_status status = ga_vector_reserve(c->offsets, rows + 1);
    status = status ? status : ga_vector_resize(c->offsets, rows + 1);
    if (status != GA_OK) {
        return status;
    }
    job->offsets = ga_vector_data(c->offsets);
    job->indices = ga_vector_data(c->indices);
    job->values = ga_vector_data(c->values);
    memset(job->offsets, 0, (rows + 1) * sizeof *job->offsets);
    return ga_spgemm_plan(job);
}

static ga_status run(ga_spgemm_job *job)
{
    switch (job->report->method) {
    case GA_SPGEMM_PRECISE:
        return ga_spgemm_precise(job);
    case GA_SPGEMM_UPPER:
        return ga_spgemm_upper(job);
    default:
        return ga_spgemm_growing(job);
    }
}

ga_status ga_spgemm_multiply(const ga_csr *a, const ga_csr *b, const ga_spgemm_options *options,
                             ga_spgemm_product *product, ga_spgemm_report *report)
{
    static const ga_spgemm_options none = {.options_size = sizeof none};
    ga_spgemm_report own = {0};
    ga_spgemm_job job = {.a = a,
                         .b = b,
                         .options = options ? options : &none,
                         .product = product,
                         .report = report ? report : &own};
    ga_status status = check(a, b, job.options, product);
    if (status != GA_OK) {
        return status;
    }
    *job.report =
        (ga_spgemm_report){.method = job.options->method ? job.options->method : GA_SPGEMM_GROWING};
    status = begin(&job);
    status = status ? status : run(&job);
    if (status == GA_OK) {
        job.report->entries = job.offsets[a->rows];
        job.report->scratch_bytes = job.scratch_bytes;
    } else {
        empty(product);
    }
    ga_spgemm_plan_free(&job);
    return status;
}
