/* SPDX-License-Identifier: MIT
 *
 * Products of sparse matrices: checks, and the choice of the place and of the method.
 */
#include "multiply.h"

#include "matrix.h"
#include "rounds.h"

#include "arena/vector_state.h"

const char *ga_spgemm_method_text(ga_spgemm_method method)
{
    static const char *const texts[GA_SPGEMM_METHOD_COUNT] = {"auto", "precise", "upper", "growing",
                                                              "dynamic"};
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
    if (options->flags & ~(uint32_t)(GA_SPGEMM_UNSORTED | GA_SPGEMM_COOPERATIVE)) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "spgemm: flags=%#x: expected GA_SPGEMM_UNSORTED, GA_SPGEMM_COOPERATIVE or 0",
                       options->flags);
    }
    if ((unsigned)options->method >= GA_SPGEMM_METHOD_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: method=%d: expected 0 to %d", (int)options->method,
                       GA_SPGEMM_METHOD_COUNT - 1);
    }
    if ((unsigned)options->goal >= GA_SPGEMM_GOAL_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: goal=%d: expected 0 to %d", (int)options->goal,
                       GA_SPGEMM_GOAL_COUNT - 1);
    }
    if ((unsigned)options->kernel >= GA_SPGEMM_KERNEL_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: kernel=%d: expected 0 to %d", (int)options->kernel,
                       GA_SPGEMM_KERNEL_COUNT - 1);
    }
    if (options->kernel == GA_SPGEMM_KERNEL_DOT &&
        (options->method == GA_SPGEMM_AUTO || options->method == GA_SPGEMM_GROWING)) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "spgemm: method %s with the kernel dot: expected precise, upper or dynamic",
                       ga_spgemm_method_text(options->method));
    }
    if (options->size_per_row && (options->size_per_row < GA_SPGEMM_SIZE_MIN ||
                                  options->size_per_row > GA_SPGEMM_SIZE_MAX)) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: size_per_row=%u: expected 0, or %d to %d",
                       options->size_per_row, GA_SPGEMM_SIZE_MIN, GA_SPGEMM_SIZE_MAX);
    }
    return options->threads <= GA_SPGEMM_THREADS_MAX
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "spgemm: threads=%u: expected 0 to %d", options->threads,
                         GA_SPGEMM_THREADS_MAX);
}

/* What needs no look at the entries: they may be in device memory. */
static ga_status check_matrices(const ga_csr *a, const ga_csr *b)
{
    ga_status status = ga_csr_check_form(a);
    status = status ? status : ga_csr_check_form(b);
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
    if (vector->loan) {
        return ga_fail(GA_ERR_ARGUMENT, "spgemm: the vector of %s is lent: expected it back", name);
    }
    return ga_vector_element(vector) == element
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "spgemm: %s of %zu bytes: expected %zu", name,
                         ga_vector_element(vector), element);
}

static bool is_together(const ga_carrier *a, const ga_carrier *b)
{
    return a->place == b->place &&
           (a->place == GA_PLACE_HOST || (a->device == b->device && a->stream == b->stream));
}

static ga_status check_places(const ga_spgemm_product *c)
{
    return is_together(&c->offsets->carrier, &c->indices->carrier) &&
                   is_together(&c->offsets->carrier, &c->values->carrier)
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "spgemm: vectors of different places: expected all on "
                                          "the host, or all on one device and one stream");
}

static ga_status check_cooperative(const ga_spgemm_options *options, const ga_spgemm_product *c)
{
    ga_place place = c->offsets->carrier.place;
    if (!(options->flags & GA_SPGEMM_COOPERATIVE) ||
        (options->method == GA_SPGEMM_DYNAMIC && options->kernel == GA_SPGEMM_KERNEL_ROWS &&
         place == GA_PLACE_DEVICE)) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_ARGUMENT,
                   "spgemm: GA_SPGEMM_COOPERATIVE with method %s, kernel %d and place %s: expected "
                   "dynamic, 0 and device",
                   ga_spgemm_method_text(options->method), (int)options->kernel,
                   ga_place_text(place));
}

static bool points_into(const ga_vector *vector, const void *array)
{
    uintptr_t data = (uintptr_t)ga_vector_data(vector), at = (uintptr_t)array;
    return at >= data && at - data < ga_vector_capacity(vector) * ga_vector_element(vector);
}

static bool is_in(const ga_csr *matrix, const ga_vector *vector)
{
    return points_into(vector, matrix->offsets) || points_into(vector, matrix->indices) ||
           points_into(vector, matrix->values);
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
    status = status ? status : check_places(product);
    status = status ? status : check_cooperative(options, product);
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

ga_status ga_spgemm_begin(const ga_csr *a, const ga_csr *b, ga_spgemm_product *product)
{
    empty(product);
    product->rows = a->rows;
    product->columns = b->columns;
    product->type = a->type;
    ga_status status = ga_vector_reserve(product->offsets, a->rows + 1);
    return status ? status : ga_vector_resize(product->offsets, a->rows + 1);
}

/* On a device GA_SPGEMM_AUTO may choose again, when more is known. */
static ga_spgemm_method method_of(const ga_spgemm_options *options)
{
    return options->method                          ? options->method
           : options->goal == GA_SPGEMM_GOAL_MEMORY ? GA_SPGEMM_PRECISE
                                                    : GA_SPGEMM_GROWING;
}

ga_status ga_spgemm_multiply(const ga_csr *a, const ga_csr *b, const ga_spgemm_options *options,
                             ga_spgemm_product *product, ga_spgemm_report *report)
{
    static const ga_spgemm_options none = {.options_size = sizeof none};
    ga_spgemm_report own;
    report = report ? report : &own;
    options = options ? options : &none;
    ga_status status = check(a, b, options, product);
    if (status != GA_OK) {
        return status;
    }
    *report = (ga_spgemm_report){.method = method_of(options)};
    status = product->offsets->carrier.place == GA_PLACE_HOST
                 ? ga_spgemm_on_host(a, b, options, product, report)
                 : ga_spgemm_on_device(a, b, options, product, report);
    if (status != GA_OK && status != GA_ERR_ARGUMENT) {
        empty(product);
    }
    return status;
}
