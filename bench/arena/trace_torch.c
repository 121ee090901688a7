/* SPDX-License-Identifier: MIT
 *
 * A transformer in training. Stream 0 computes; stream 1 brings the input in and reduces gradients.
 */
#include "trace.h"

enum {
    COMPUTE = 0,
    SIDE = 1,
    LAYERS = 24,
    HIDDEN = 2048,
    HEADS = 16,
    VOCABULARY = 50304,
    BATCH = 8,
    ITERATIONS = 6,
    SCALE_BITS = 16,
    SAVED = 11,       /* blocks that a layer keeps for its backward pass */
    WEIGHTS = 6,      /* tensors of a layer */
    MOMENTS = 2,      /* that Adam keeps for each, in 4 bytes a number */
    BUCKET_LAYERS = 4 /* layers whose gradients are reduced together */
};

typedef struct model {
    trace *t;
    uint64_t random;
    uint64_t scale;  /* sizes are multiplied by it, in parts of 2^SCALE_BITS */
    uint64_t tokens; /* of this iteration */
    uint32_t weights[LAYERS][WEIGHTS];
    uint32_t moments[LAYERS][WEIGHTS][MOMENTS];
    uint32_t gradients[LAYERS][WEIGHTS];
    uint32_t saved[LAYERS][SAVED];
    uint32_t bucket; /* being reduced on the side */
    bool reducing;
} model;

static uint32_t get(model *m, uint64_t size, unsigned stream)
{
    uint64_t scaled = size * m->scale >> SCALE_BITS;
    return trace_alloc(m->t, scaled ? scaled : 1, stream);
}

/* A tensor of the computation: `width` two-byte numbers a token. */
static uint32_t tensor(model *m, uint64_t width)
{
    return get(m, m->tokens * width * 2, COMPUTE);
}

static void drop(model *m, uint32_t block)
{
    trace_free(m->t, block, COMPUTE);
}

/* Got, used by one kernel and freed. */
static void workspace(model *m, uint64_t size)
{
    drop(m, get(m, size, COMPUTE));
}

/* Two-byte numbers in each of a layer's tensors. */
static const uint64_t weight_numbers[WEIGHTS] = {
    3 * HIDDEN * HIDDEN, HIDDEN *HIDDEN, 4 * HIDDEN *HIDDEN,
    4 * HIDDEN *HIDDEN,  2 * HIDDEN, /* both norms */
    9 * HIDDEN                       /* all biases */
};

static void make_weights(model *m)
{
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        for (unsigned w = 0; w < WEIGHTS; w++) {
            m->weights[layer][w] = get(m, 2 * weight_numbers[w], COMPUTE);
            for (unsigned i = 0; i < MOMENTS; i++) {
                m->moments[layer][w][i] = get(m, 4 * weight_numbers[w], COMPUTE);
            }
        }
    }
}

static void drop_weights(model *m)
{
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        for (unsigned w = 0; w < WEIGHTS; w++) {
            drop(m, m->weights[layer][w]);
            for (unsigned i = 0; i < MOMENTS; i++) {
                drop(m, m->moments[layer][w][i]);
            }
        }
    }
}

/* ---- a layer ----------------------------------------------------------------------------- */

static void forward(model *m, unsigned layer)
{
    uint32_t *saved = m->saved[layer];
    saved[0] = tensor(m, HIDDEN);                                  /* norm */
    saved[1] = get(m, m->tokens * 2 * 4, COMPUTE);                 /* its mean and deviation */
    saved[2] = tensor(m, 3 * HIDDEN);                              /* queries, keys, values */
    uint32_t keys = tensor(m, HIDDEN), values = tensor(m, HIDDEN); /* transposed */
    saved[3] = tensor(m, HIDDEN);                                  /* attention */
    saved[4] = get(m, m->tokens * HEADS * 4, COMPUTE);             /* sums of its softmax */
    drop(m, values);
    drop(m, keys);
    workspace(m, 4 << 20);                          /* of a matrix product that is split */
    saved[5] = tensor(m, HIDDEN);                   /* projection */
    saved[6] = get(m, m->tokens * HIDDEN, COMPUTE); /* mask of dropout, a byte for each value */
    saved[7] = tensor(m, HIDDEN);                   /* norm */
    saved[8] = tensor(m, 4 * HIDDEN);               /* wide */
    saved[9] = tensor(m, 4 * HIDDEN);               /* its activation */
    workspace(m, 8 << 20);
    saved[10] = tensor(m, HIDDEN); /* narrow again */
}

/* Allocate the gradient of a saved block's contents, then free the block. Replaces *flowing. */
static void step_back(model *m, uint32_t *flowing, uint32_t saved, uint64_t width)
{
    uint32_t next = tensor(m, width);
    drop(m, *flowing);
    drop(m, saved);
    *flowing = next;
}

static void get_gradients(model *m, unsigned layer, unsigned first, unsigned last)
{
    for (unsigned w = first; w <= last; w++) {
        workspace(m, weight_numbers[w] / 2 + 512); /* partial sums */
        m->gradients[layer][w] = get(m, 2 * weight_numbers[w], COMPUTE);
    }
}

static void backward(model *m, unsigned layer, uint32_t *flowing)
{
    const uint32_t *saved = m->saved[layer];
    step_back(m, flowing, saved[10], HIDDEN);
    get_gradients(m, layer, 3, 3);
    step_back(m, flowing, saved[9], 4 * HIDDEN);
    step_back(m, flowing, saved[8], 4 * HIDDEN);
    get_gradients(m, layer, 2, 2);
    step_back(m, flowing, saved[7], HIDDEN);
    drop(m, saved[6]);
    step_back(m, flowing, saved[5], HIDDEN);
    get_gradients(m, layer, 1, 1);
    workspace(m, m->tokens * HIDDEN * 4); /* of attention, in 4 bytes */
    drop(m, saved[4]);
    step_back(m, flowing, saved[3], HIDDEN);
    step_back(m, flowing, saved[2], 3 * HIDDEN);
    get_gradients(m, layer, 0, 0);
    drop(m, saved[1]);
    step_back(m, flowing, saved[0], HIDDEN);
    get_gradients(m, layer, 4, 5);
}

/* ---- gradients --------------------------------------------------------------------------- */

static void end_reduction(model *m)
{
    if (m->reducing) {
        trace_free(m->t, m->bucket, SIDE);
        trace_wait(m->t, COMPUTE, SIDE);
        m->reducing = false;
    }
}

/* Copy the gradients of some layers into one block, which the side stream reduces concurrently. */
static void reduce(model *m)
{
    uint64_t numbers = 0;
    for (unsigned w = 0; w < WEIGHTS; w++) {
        numbers += weight_numbers[w];
    }
    end_reduction(m);
    m->bucket = get(m, BUCKET_LAYERS * numbers * 2, COMPUTE);
    trace_wait(m->t, SIDE, COMPUTE);
    m->reducing = true;
}

/* Adam over a few tensors at a time: their temporaries are live together, then freed. */
static void optimize(model *m, unsigned layer)
{
    uint32_t steps[WEIGHTS], roots[WEIGHTS];
    for (unsigned w = 0; w < WEIGHTS; w++) {
        roots[w] = get(m, 4 * weight_numbers[w], COMPUTE);
    }
    for (unsigned w = 0; w < WEIGHTS; w++) {
        steps[w] = get(m, 4 * weight_numbers[w], COMPUTE);
    }
    for (unsigned w = 0; w < WEIGHTS; w++) {
        drop(m, roots[w]);
        drop(m, steps[w]);
        drop(m, m->gradients[layer][w]);
    }
}

/* ---- iterations -------------------------------------------------------------------------- */

/* Returns the gradient that the layers receive. */
static uint32_t loss(model *m)
{
    uint32_t logits = tensor(m, VOCABULARY);
    uint32_t wide = get(m, m->tokens * VOCABULARY * 4, COMPUTE);
    uint32_t value = get(m, 4, COMPUTE);
    drop(m, logits);
    uint32_t gradient = tensor(m, VOCABULARY);
    drop(m, wide);
    uint32_t flowing = tensor(m, HIDDEN);
    drop(m, gradient);
    drop(m, value);
    return flowing;
}

static void train(model *m)
{
    uint32_t input = get(m, m->tokens * 8, SIDE);
    trace_wait(m->t, COMPUTE, SIDE);
    uint32_t embedded = tensor(m, HIDDEN);
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        forward(m, layer);
    }
    uint32_t flowing = loss(m);
    for (unsigned layer = LAYERS; layer-- > 0;) {
        backward(m, layer, &flowing);
        if (layer % BUCKET_LAYERS == 0) {
            reduce(m);
        }
    }
    drop(m, flowing);
    drop(m, embedded);
    drop(m, input);
    end_reduction(m);
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        optimize(m, layer);
    }
    trace_sync(m->t, COMPUTE); /* the host prints the loss */
}

/* Forward only: a layer's output is freed as soon as the next layer has its own. */
static void evaluate(model *m)
{
    uint32_t held = tensor(m, HIDDEN);
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        forward(m, layer);
        for (unsigned i = 0; i < SAVED - 1; i++) {
            drop(m, m->saved[layer][i]);
        }
        drop(m, held);
        held = m->saved[layer][SAVED - 1];
    }
    workspace(m, m->tokens * VOCABULARY * 2);
    drop(m, held);
    trace_sync(m->t, COMPUTE);
}

static void make(model *m)
{
    make_weights(m);
    for (unsigned i = 0; i < ITERATIONS; i++) {
        m->tokens = BATCH * 8 * (32 + trace_below(&m->random, 225)); /* sequences of 256 to 2048 */
        train(m);
        if (i % 2) {
            m->tokens = BATCH * 8 * (32 + trace_below(&m->random, 225));
            evaluate(m);
        }
    }
    drop_weights(m);
}

/* Once in full size to know the peak, then within the budget. */
void trace_make_torch(trace *t, uint64_t seed, uint64_t budget)
{
    char why[TRACE_WHY];
    trace whole = {0};
    model m = {.t = &whole, .random = seed, .scale = 1 << SCALE_BITS};
    make(&m);
    bool fits = trace_check(&whole, why) && whole.peak <= budget;
    uint64_t peak = whole.peak;
    trace_clear(&whole);
    m = (model){.t = t, .random = seed, .scale = 1 << SCALE_BITS};
    if (!fits && peak) {
        m.scale = (budget << SCALE_BITS) / peak;
    }
    make(&m);
}
