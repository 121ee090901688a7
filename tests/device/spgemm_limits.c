/* SPDX-License-Identifier: MIT
 *
 * Vectors that are used again, that cannot grow, and on several streams at once.
 */
#include "spgemm_tests.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MIB = 1 << 20
};

/* ---- the vectors again ----------------------------------------------------------------------- */

/* Multiplies A by itself into `c`, and compares. */
static void multiply_into(int device, const char *name, matrix *a, ga_spgemm_method method,
                          ga_spgemm_product *c)
{
    ga_spgemm_product want = host_product(&a->view, &a->view);
    device_matrix on_a = upload(device, &a->view);
    describe("%s, %s", name, ga_spgemm_method_text(method));
    EXPECT(multiply_device(&on_a.view, &on_a.view, method, true, c, &want, NULL) == GA_OK);
    is_product(c, &want, true);
    device_matrix_close(&on_a);
    close_product(&want);
}

static void used_again(int device)
{
    matrix large = band_matrix(suite.quick ? 300 : 5000, 27, 1), small = band_matrix(20, 3, 1);
    matrix none = random_matrix(40, 40, 0, 1);
    matrix_fill(&large, GA_FLOAT64, 1);
    matrix_fill(&small, GA_FLOAT64, 2);
    matrix_fill(&none, GA_FLOAT64, 3);
    for (uint32_t method = 0; method < GA_SPGEMM_METHOD_COUNT; method++) {
        ga_spgemm_product c = open_product(GA_PLACE_DEVICE, device, NULL, GA_FLOAT64);
        const void *data = ga_vector_data(c.values);
        multiply_into(device, "a large product", &large, method, &c);
        multiply_into(device, "the large product again", &large, method, &c);
        multiply_into(device, "a small one after it", &small, method, &c);
        multiply_into(device, "an empty one after it", &none, method, &c);
        multiply_into(device, "a large one after it", &large, method, &c);
        EXPECT(ga_vector_data(c.values) == data);
        close_product(&c);
    }
    matrix_free(&large);
    matrix_free(&small);
    matrix_free(&none);
}

/* A product in device memory is a matrix for the next product. */
static void powers(int device)
{
    matrix a = band_matrix(suite.quick ? 200 : 3000, 5, 7);
    matrix_fill(&a, GA_FLOAT64, 1);
    for (uint64_t i = 0; i < a.offsets[a.view.rows]; i++) { /* so that the third power is exact */
        ((double *)a.values)[i] = (double)(i % 17) - 8;
    }
    device_matrix on_a = upload(device, &a.view);
    ga_spgemm_product square = open_product(GA_PLACE_DEVICE, device, NULL, GA_FLOAT64);
    ga_spgemm_product cube = open_product(GA_PLACE_DEVICE, device, NULL, GA_FLOAT64);
    ga_spgemm_product host_square = host_product(&a.view, &a.view), want;
    ga_csr host_view = ga_spgemm_view(&host_square);
    want = host_product(&host_view, &a.view);
    for (uint32_t method = 0; method < GA_SPGEMM_METHOD_COUNT; method++) {
        describe("the third power, %s", ga_spgemm_method_text(method));
        REQUIRE(multiply_device(&on_a.view, &on_a.view, method, true, &square, &host_square,
                                NULL) == GA_OK);
        ga_csr view = ga_spgemm_view(&square);
        EXPECT(multiply_device(&view, &on_a.view, method, true, &cube, &want, NULL) == GA_OK);
        is_product(&cube, &want, true);
        EXPECT(multiply_device(&view, &on_a.view, method, true, &square, &want, NULL) ==
               GA_ERR_ARGUMENT);
        EXPECT(test_error_has("matrix A is in a vector of the product"));
        is_product(&square, &host_square, true);
    }
    close_product(&square);
    close_product(&cube);
    close_product(&host_square);
    close_product(&want);
    device_matrix_close(&on_a);
    matrix_free(&a);
}

/* B has the pattern of A, in the same memory, and other values. */
static void one_pattern(int device)
{
    matrix a = band_matrix(500, 7, 3);
    matrix_fill(&a, GA_FLOAT64, 1);
    device_matrix on_a = upload(device, &a.view);
    void *first = a.values;
    ga_csr with_first = a.view;
    a.values = NULL;
    matrix_fill(&a, GA_FLOAT64, 2);
    device_matrix on_b = upload(device, &a.view);
    ga_csr b = on_a.view;
    b.values = on_b.view.values;
    ga_spgemm_product want = host_product(&with_first, &a.view);
    ga_spgemm_product c = open_product(GA_PLACE_DEVICE, device, NULL, GA_FLOAT64);
    for (uint32_t method = 0; method < GA_SPGEMM_METHOD_COUNT; method++) {
        describe("matrices of one pattern, %s", ga_spgemm_method_text(method));
        EXPECT(multiply_device(&on_a.view, &b, method, true, &c, &want, NULL) == GA_OK);
        is_product(&c, &want, true);
    }
    close_product(&c);
    close_product(&want);
    device_matrix_close(&on_a);
    device_matrix_close(&on_b);
    free(first);
    matrix_free(&a);
}

/* ---- no room --------------------------------------------------------------------------------- */

/* A square of a million entries, for limits that it exceeds by far. */
typedef struct large_square {
    matrix a;
    device_matrix on_a;
    ga_spgemm_product want;
} large_square;

static large_square open_square(int device, ga_value_type type)
{
    large_square square = {.a = band_matrix(20000, 27, 1)};
    matrix_fill(&square.a, type, 1);
    square.on_a = upload(device, &square.a.view);
    square.want = host_product(&square.a.view, &square.a.view);
    return square;
}

static void close_square(large_square *square)
{
    matrix_free(&square->a);
    device_matrix_close(&square->on_a);
    close_product(&square->want);
}

static ga_status multiply_large(const large_square *square, ga_spgemm_method method,
                                ga_spgemm_product *c)
{
    const ga_csr *a = &square->on_a.view;
    ga_spgemm_options options = options_of(method, true);
    return ga_spgemm_multiply(a, a, &options, c, NULL);
}

/* Multiply into vectors with these limits, which are too low. */
static void exceed(int device, const large_square *square, ga_spgemm_method method,
                   uint64_t indices, uint64_t values)
{
    ga_value_type type = square->a.view.type;
    ga_spgemm_product c = open_limited(device, type, indices, values);
    describe("%s, %s, at most %llu and %llu bytes", ga_value_type_text(type),
             ga_spgemm_method_text(method), (unsigned long long)indices,
             (unsigned long long)values);
    ga_status status = multiply_large(square, method, &c);
    if (status != GA_ERR_MEMORY) {
        FAIL("no memory, got status %d", (int)status);
    }
    if (method == GA_SPGEMM_GROWING || method == GA_SPGEMM_AUTO) {
        EXPECT(test_error_has(indices ? "the vector of indices" : "the vector of values"));
    }
    EXPECT(test_error_has("limit"));
    EXPECT(ga_vector_size(c.offsets) == 0 && ga_vector_size(c.indices) == 0 &&
           ga_vector_size(c.values) == 0);
    EXPECT(c.rows == 0 && c.columns == 0);
    close_product(&c);
}

static void limits(int device)
{
    if (suite.no_growing) {
        SKIP("it grows under a kernel");
    }
    for (uint32_t type = 0; type < GA_VALUE_TYPE_COUNT; type++) {
        large_square square = open_square(device, type);
        for (uint32_t method = 0; method < GA_SPGEMM_METHOD_COUNT; method++) {
            exceed(device, &square, method, 2 * MIB, 0);
            exceed(device, &square, method, 0, 2 * MIB);
            ga_spgemm_product c = open_product(GA_PLACE_DEVICE, device, NULL, type);
            EXPECT(multiply_large(&square, method, &c) == GA_OK); /* A is unchanged */
            is_product(&c, &square.want, true);
            close_product(&c);
        }
        close_square(&square);
    }
}

/* The methods upper and dynamic need more. */
static void a_limit_that_is_just_enough(int device)
{
    if (suite.no_growing) {
        SKIP("it grows under a kernel");
    }
    large_square square = open_square(device, GA_FLOAT64);
    uint64_t entries = ga_vector_size(square.want.indices), step = 2 * MIB;
    uint64_t indices = (entries * sizeof(uint32_t) + step - 1) / step * step;
    uint64_t values = (entries * sizeof(double) + step - 1) / step * step;
    for (uint32_t method = 0; method < GA_SPGEMM_METHOD_COUNT; method++) {
        ga_spgemm_product c = open_limited(device, GA_FLOAT64, indices, values);
        describe("just enough memory, %s", ga_spgemm_method_text(method));
        if (method != GA_SPGEMM_UPPER && method != GA_SPGEMM_DYNAMIC) {
            EXPECT(multiply_large(&square, method, &c) == GA_OK);
            is_product(&c, &square.want, true);
        }
        close_product(&c);
    }
    close_square(&square);
}

/* What the device has free does not depend on how often products fail and succeed. */
static void nothing_is_lost(int device)
{
    if (suite.no_growing) {
        SKIP("it grows under a kernel");
    }
    large_square square = open_square(device, GA_FLOAT64);
    uint64_t before = 0;
    for (int round = 0; round < 6; round++) {
        for (uint32_t method = 0; method < GA_SPGEMM_METHOD_COUNT; method++) {
            ga_spgemm_product c = open_product(GA_PLACE_DEVICE, device, NULL, GA_FLOAT64);
            EXPECT(multiply_large(&square, method, &c) == GA_OK);
            close_product(&c);
            exceed(device, &square, method, 2 * MIB, 0);
            exceed(device, &square, method, 0, 4 * MIB);
        }
        if (round == 1) {
            before = free_memory(device);
        }
    }
    uint64_t after = free_memory(device);
    printf("    %llu bytes were free, then %llu\n", (unsigned long long)before,
           (unsigned long long)after);
    EXPECT(before && after >= before);
    close_square(&square);
}

/* ---- streams --------------------------------------------------------------------------------- */

/* A thread with a stream of its own, which multiplies matrices that others multiply too. */
typedef struct worker {
    pthread_t thread;
    int device;
    CUstream stream;
    uint32_t number;
    device_matrix *a;
    const ga_spgemm_product *want;
    uint32_t pairs;
} worker;

static void *work(void *context)
{
    worker *own = context;
    ga_spgemm_product c = open_product(GA_PLACE_DEVICE, own->device, own->stream, GA_FLOAT64);
    uint32_t rounds = suite.quick ? 2 : 150;
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t pair = (round + own->number) % own->pairs;
        ga_spgemm_method method = (round / own->pairs + own->number) % GA_SPGEMM_METHOD_COUNT;
        const ga_csr *a = &own->a[pair].view;
        describe("matrix %u, thread %u, round %u, %s", pair, own->number, round,
                 ga_spgemm_method_text(method));
        ga_status status = multiply_device(a, a, method, true, &c, &own->want[pair], NULL);
        if (status != GA_OK) {
            FAIL("a product, got status %d", (int)status);
            break;
        }
        if (!is_product(&c, &own->want[pair], true)) {
            break;
        }
    }
    close_product(&c);
    return NULL;
}

/* Threads that share the device, and its default stream if `streams` is false. The matrices need
 * tables of different sizes. */
static void work_together(int device, bool streams)
{
    enum {
        THREADS = 4,
        PAIRS = 3
    };
    uint64_t n = suite.quick ? 200 : 1500;
    matrix a[PAIRS] = {band_matrix(n, 27, 3), random_matrix(400, 400, 30000, 5),
                       random_matrix(n / 4, n / 4, 5000, 7)};
    device_matrix on_a[PAIRS];
    ga_spgemm_product want[PAIRS];
    worker workers[THREADS];
    for (int i = 0; i < PAIRS; i++) {
        matrix_fill(&a[i], GA_FLOAT64, (uint64_t)i + 1);
        on_a[i] = upload(device, &a[i].view);
        want[i] = host_product(&a[i].view, &a[i].view);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.device = device,
                              .stream = streams ? open_stream(device) : NULL,
                              .number = i,
                              .a = on_a,
                              .want = want,
                              .pairs = PAIRS};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            test_fail(__FILE__, __LINE__, "a thread");
            workers[i].pairs = 0;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        if (workers[i].pairs) {
            pthread_join(workers[i].thread, NULL);
        }
        close_stream(device, workers[i].stream);
    }
    for (int i = 0; i < PAIRS; i++) {
        matrix_free(&a[i]);
        device_matrix_close(&on_a[i]);
        close_product(&want[i]);
    }
}

static void streams_of_threads(int device)
{
    work_together(device, true);
}

static void one_stream_of_threads(int device)
{
    work_together(device, false);
}

/* The vectors' device need not be the current one. */
static void another_device(int device)
{
    int devices = 0;
    EXPECT(ga_cuda_device_count(&devices) == GA_OK);
    if (devices < 2) {
        SKIP("no other device");
    }
    ga_cuda_scope scope;
    REQUIRE(ga_cuda_enter(&scope, device) == GA_OK);
    multiply_square((device + 1) % devices, "a product elsewhere", band_matrix(1000, 7, 3));
    ga_cuda_leave(&scope);
}

case_list limit_cases(void)
{
    static const test_case cases[] = {
        {"vectors that are used again", used_again},
        {"products of products", powers},
        {"matrices of one pattern", one_pattern},
        {"limits that the result exceeds", limits},
        {"a limit that is just enough", a_limit_that_is_just_enough},
        {"nothing is lost", nothing_is_lost},
        {"threads with a stream each", streams_of_threads},
        {"threads with one stream", one_stream_of_threads},
        {"a product on another device", another_device},
    };
    return (case_list){"memory", cases, sizeof cases / sizeof *cases};
}
