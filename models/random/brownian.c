/* Brownian motion by halving [Lévy; Kidger 2021, "Efficient and accurate gradients for neural SDEs"], with the values of torchsde's
 * BrownianTree. The increment over the whole range is sqrt(length) unit noise. A node is halved at its middle, rounded to 1e-6, and
 *   W(left) = l / (l + r) W(node) + sqrt(l r / (l + r)) unit noise,   W(right) = W(node) - W(left)
 * where l, r are the lengths of the halves. A node's noise is the first draw of a generator with the first word of
 * SeedSequence(seed, spawn_key = (its number among those of its depth, depth)) as its seed; without a spawn key for the whole range.
 * What an interval has depends on the seed and the range alone, not on what was asked before. */
#include <math.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/random/random.h"

#define UNITS 1e6      /* to a noise level of 1: what torchsde's tol of 1e-6 rounds to */
#define HIGHEST 0x1p30 /* so that a level is exact in units, and a node's number fits 64 bits */

struct tern_brownian {
    struct tern_context *ctx;
    enum tern_generator_kind kind;
    double low, high;  /* as they were given */
    double start, end; /* rounded */
    int64_t n;
    int depth;   /* of the deepest node at most */
    float *rows; /* depth + 1 of n values: the increments on the way down */
    uint64_t seed;
};

struct node {
    double start, end;
    uint64_t number;
    int depth;
};

/* Python's round(x, 6): to the nearest, a tie of x's exact value to the even one. */
static double to_unit(double x)
{
    double product = x * UNITS, error = fma(x, UNITS, -product), unit = floor(product), rest = product - unit;
    bool up = rest > 0.5 || (rest == 0.5 && (error > 0 || (error == 0 && fmod(unit, 2) != 0)));
    return (unit + up) / UNITS;
}

static void draw(const struct tern_brownian *b, const struct node *node, float *out)
{
    struct tern_generator g;
    uint32_t seed;
    uint64_t key[] = {node ? node->number : 0, node ? (uint64_t)node->depth : 0};
    tern_seed_sequence(b->seed, key, node ? 2 : 0, &seed, 1);
    tern_generator_seed(&g, b->kind, seed);
    tern_generator_randn(&g, out, b->n);
}

/* The increment of a node's left half, from its own one in the row above. */
static void halve(const struct tern_brownian *b, const struct node *node, double middle)
{
    double left = middle - node->start, right = node->end - middle, inverse = 1 / (node->end - node->start);
    float *whole = b->rows + node->depth * b->n, *half = whole + b->n;
    float l = (float)left, share = (float)inverse, deviation = (float)sqrt(left * right * inverse);
    draw(b, node, half);
    for (int64_t j = 0; j < b->n; j++)
        half[j] = whole[j] * l * share + half[j] * deviation;
}

/* Adds the increment from `from` to `to` of what lies in a node, whose own one is in its row. */
static void add(const struct tern_brownian *b, struct node node, double from, double to, float *out)
{
    float *whole = b->rows + node.depth * b->n, *half = whole + b->n;
    if (from <= node.start && to >= node.end) {
        for (int64_t j = 0; j < b->n; j++)
            out[j] += whole[j];
        return;
    }
    double middle = to_unit(0.5 * (node.end + node.start));
    if (node.depth == b->depth || from >= node.end || to <= node.start)
        return;
    halve(b, &node, middle);
    add(b, (struct node){node.start, middle, 2 * node.number, node.depth + 1}, from, to, out);
    if (to <= middle)
        return;
    for (int64_t j = 0; j < b->n; j++)
        half[j] = whole[j] - half[j];
    add(b, (struct node){middle, node.end, 2 * node.number + 1, node.depth + 1}, from, to, out);
}

static int deepest(double length)
{
    int depth = 1;
    for (double units = fmin(length, HIGHEST) * UNITS; units > 1; units /= 2)
        depth++;
    return depth;
}

size_t tern_brownian_bytes(double low, double high, int64_t n)
{
    return sizeof(struct tern_brownian) + (size_t)(deepest(high - low) + 1) * (size_t)n * sizeof(float);
}

struct tern_brownian *tern_brownian_create(struct tern_context *ctx, enum tern_generator_kind kind, double low, double high, int64_t n)
{
    size_t size;
    if (!ctx)
        return NULL;
    if (!(low >= 0 && low <= high && high <= HIGHEST) || n < 1) {
        tern_fail(ctx, TERN_E_INVALID,
                  "brownian: expected noise levels from 0 on, rising, at most %g, and a value or more; found %g to %g "
                  "and %lld",
                  HIGHEST, low, high, (long long)n);
        return NULL;
    }
    struct tern_brownian *b = tern_calloc(ctx, 1, sizeof(*b));
    if (!b)
        return NULL;
    *b = (struct tern_brownian){
        .kind = kind, .low = low, .high = high, .start = to_unit(low), .end = to_unit(high), .n = n, .depth = deepest(high - low)};
    tern_context_ref(ctx);
    b->ctx = ctx;
    if (!tern_mul_size((size_t)n, (size_t)b->depth + 1, &size))
        tern_fail(ctx, TERN_E_NO_MEMORY, "brownian: %lld values", (long long)n);
    else
        b->rows = tern_calloc(ctx, size, sizeof(float));
    if (!b->rows)
        tern_brownian_destroy(&b);
    return b;
}

void tern_brownian_destroy(struct tern_brownian **brownian)
{
    struct tern_brownian *b = brownian ? *brownian : NULL;
    if (!b)
        return;
    struct tern_context *ctx = b->ctx;
    tern_free(ctx, b->rows);
    tern_free(ctx, b);
    tern_context_unref(ctx);
    *brownian = NULL;
}

static double clamp(const struct tern_brownian *b, double x) { return to_unit(x < b->start ? b->start : x > b->end ? b->end : x); }

enum tern_status tern_brownian_noise(struct tern_brownian *b, uint64_t seed, double from, double to, float *out)
{
    if (!b || !out)
        return tern_fail(b ? b->ctx : NULL, TERN_E_INVALID, "tern_brownian_noise: expected a place for the values, found NULL");
    if (isnan(from) || isnan(to))
        return tern_fail(b->ctx, TERN_E_INVALID, "brownian: expected two noise levels, found %g and %g", from, to);
    double low = clamp(b, fmin(from, to)), high = clamp(b, fmax(from, to));
    for (int64_t j = 0; j < b->n; j++)
        out[j] = 0;
    if (low == high)
        return TERN_OK;
    b->seed = seed;
    draw(b, NULL, b->rows);
    float whole = (float)sqrt(b->high - b->low), length = (from < to ? 1 : -1) * sqrtf((float)fabs(to - from));
    for (int64_t j = 0; j < b->n; j++)
        b->rows[j] *= whole;
    add(b, (struct node){b->start, b->end, 0, 0}, low, high, out);
    for (int64_t j = 0; j < b->n; j++)
        out[j] /= length;
    return TERN_OK;
}
