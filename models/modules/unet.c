/* The forward pass of the UNet. */
#include "models/modules/unet.h"

#include <math.h>

#include "core/context.h"
#include "core/tensor.h"

/* Sinusoidal embedding of n values: (n, dim); cosine first when flipped.      [Vaswani 2017, 3.5; Ho 2020]
 * In f32 throughout, as diffusers. */
static void fill_sinusoids(const double *values, int64_t n, int64_t dim, bool flip, double shift, float *e)
{
    int64_t half = dim / 2;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < half; j++) {
            float exponent = -logf(10000.0f) * (float)j / (float)((double)half - shift);
            float angle = (float)values[i] * expf(exponent);
            e[i * dim + (flip ? half : 0) + j] = sinf(angle);
            e[i * dim + (flip ? 0 : half) + j] = cosf(angle);
        }
}

static tern_tensor *sinusoids(struct tern_context *ctx, const double *values, int64_t n, int64_t dim, bool flip, double shift)
{
    float *e = tern_calloc(ctx, (size_t)(n * dim), sizeof(*e));
    if (e)
        fill_sinusoids(values, n, dim, flip, shift, e);
    tern_tensor *t = e ? tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){n, dim}, e) : NULL;
    tern_free(ctx, e);
    return t;
}

#define MAX_NUMBERS 6

/* (N, K) time ids, K = 6, or 5 in a refiner -> sinusoids of each, side by side, behind the pooled text: (N, P)        [Podell 2023, 2.2] */
static tern_tensor *added_conditions(const struct tern_unet *m, tern_tensor *text_embeds, tern_tensor *time_ids)
{
    double values[MAX_NUMBERS * TERN_UNET_MAX_ROWS];
    float ids[MAX_NUMBERS * TERN_UNET_MAX_ROWS];
    bool pairs = text_embeds && tern_tensor_ndim(text_embeds) == 2 && time_ids && tern_tensor_ndim(time_ids) == 2;
    int64_t n = pairs ? tern_tensor_size(text_embeds, 0) : 0, per = pairs ? tern_tensor_size(time_ids, 1) : 0;
    bool fits = n >= 1 && n <= TERN_UNET_MAX_ROWS && per >= 1 && per <= MAX_NUMBERS && tern_tensor_size(time_ids, 0) == n &&
                tern_tensor_size(text_embeds, 1) + per * m->config.time_ids == m->config.pooled;
    if (!fits) {
        if (!tern_failed(m->ctx))
            tern_fail(m->ctx, TERN_E_INVALID,
                      "unet: this model needs text_embeds (N, P) and time_ids (N, K) with P + %lld K = %lld, N at most %d and K at most %d",
                      (long long)m->config.time_ids, (long long)m->config.pooled, TERN_UNET_MAX_ROWS, MAX_NUMBERS);
        return NULL;
    }
    if (tern_tensor_read(time_ids, TERN_F32, ids, (size_t)(n * per) * sizeof(*ids)))
        return NULL;
    for (int64_t i = 0; i < n * per; i++)
        values[i] = ids[i];
    tern_tensor *e = sinusoids(m->ctx, values, n * per, m->config.time_ids, m->config.flip_sin_to_cos, m->config.freq_shift);
    tern_tensor *parts[] = {tern_cast(text_embeds, TERN_F32), tern_reshape(e, 2, (const int64_t[]){n, -1})};
    return tern_cat(parts, 2, 1);
}

int64_t tern_unet_time_width(const struct tern_unet_config *u) { return u->channels[0] + u->guidance; }

/* A row for each timestep: its sinusoids, and those of 1000 (guidance - 1), sine first.             [Luo 2023, 4.2] */
static float *time_values(const struct tern_unet *m, const double *timesteps, int64_t n, double guidance)
{
    const struct tern_unet_config *u = &m->config;
    const int64_t width = tern_unet_time_width(u);
    const double w = (double)((float)(guidance - 1) * 1000.0f);
    float *e = tern_calloc(m->ctx, (size_t)(n * width), sizeof(*e));
    for (int64_t i = 0; e && i < n; i++) {
        fill_sinusoids(timesteps + i, 1, u->channels[0], u->flip_sin_to_cos, u->freq_shift, e + i * width);
        if (u->guidance)
            fill_sinusoids(&w, 1, u->guidance, false, 1, e + i * width + u->channels[0]);
    }
    return e;
}

enum tern_status tern_unet_conditions(const struct tern_unet *m, const double *timesteps, int n_timesteps, double guidance,
                                      tern_tensor *text_embeds, tern_tensor *time_ids, struct tern_unet_conditions *out)
{
    const struct tern_unet_config *u = &m->config;
    float *e = time_values(m, timesteps, n_timesteps, guidance);
    *out = (struct tern_unet_conditions){NULL, NULL};
    if (e)
        out->time = tern_tensor_create(m->ctx, TERN_F32, 2, (const int64_t[]){n_timesteps, tern_unet_time_width(u)}, e);
    tern_free(m->ctx, e);
    if (u->pooled)
        out->added = added_conditions(m, text_embeds, time_ids);
    return tern_error_status(m->ctx);
}

enum tern_status tern_unet_set_time(const struct tern_unet *m, const double *timesteps, int n_timesteps, double guidance, tern_tensor *time)
{
    float *e = time_values(m, timesteps, n_timesteps, guidance);
    const size_t count = (size_t)(n_timesteps * tern_unet_time_width(&m->config));
    enum tern_status st = e ? tern_tensor_write(time, TERN_F32, e, count * sizeof(*e)) : tern_error_status(m->ctx);
    tern_free(m->ctx, e);
    return st;
}

void tern_unet_set_guidance(const struct tern_unet *m, tern_tensor *timestep_cond, struct tern_unet_conditions *c)
{
    const int64_t width = m->config.guidance, channels = m->config.channels[0];
    char found[TERN_META_TEXT];
    if (!width || tern_failed(m->ctx))
        return;
    tern_tensor *told = timestep_cond ? tern_cast(timestep_cond, TERN_F32) : tern_full(m->ctx, TERN_F32, 2, (const int64_t[]){1, width}, 0);
    int64_t rows = tern_tensor_size(c->time, 0), n = told && tern_tensor_ndim(told) == 2 ? tern_tensor_size(told, 0) : 0;
    if (told && (n < 1 || tern_tensor_size(told, 1) != width || (n != rows && n != 1 && rows != 1))) {
        tern_fail(m->ctx, TERN_E_SHAPE, "unet: timestep_cond: expected (1, %lld) or one row for each timestep, found %s", (long long)width,
                  tern_meta_text(&told->meta, found));
        return;
    }
    rows = n > rows ? n : rows;
    tern_tensor *parts[] = {tern_expand(tern_slice(c->time, 1, 0, channels, 1), 2, (const int64_t[]){rows, channels}),
                            tern_expand(told, 2, (const int64_t[]){rows, width})};
    c->time = tern_cat(parts, 2, 1);
}

/* The timestep as linear_1 takes it. */
static tern_tensor *timed(const struct tern_unet *m, tern_tensor *time)
{
    const int64_t c = m->config.channels[0], all = tern_unet_time_width(&m->config);
    if (all == c)
        return time;
    return tern_add(tern_slice(time, 1, 0, c, 1), tern_apply_linear(&m->guidance, tern_slice(time, 1, c, all, 1)));
}

/* (N, T), or (1, T) where all rows are told the same; computed in f32 whatever the dtype of the rest */
static tern_tensor *time_embedding(const struct tern_unet *m, const struct tern_unet_conditions *c)
{
    tern_tensor *t = tern_apply_linear(&m->time2, tern_silu(tern_apply_linear(&m->time1, timed(m, c->time))));
    if (m->config.pooled)
        t = tern_add(t, tern_apply_linear(&m->add2, tern_silu(tern_apply_linear(&m->add1, c->added))));
    return t;
}

/* Skips of the down path, newest last. */
struct skips {
    tern_tensor *t[TERN_MAX_BLOCKS * (TERN_MAX_UNET_LAYERS + 1) + 1];
    int n;
};

static tern_tensor *push(struct skips *s, tern_tensor *x) { return s->t[s->n++] = x; }

static tern_tensor *layer(const struct tern_unet_block *block, int i, tern_tensor *x, tern_tensor *temb, tern_tensor *context)
{
    x = tern_apply_resnet(&block->resnet[i], x, temb);
    return block->attention[i] ? tern_apply_transformer(block->attention[i], x, context) : x;
}

/* The first `layers` layers, and the downsampler behind all of them. */
static tern_tensor *down(const struct tern_unet *m, const struct tern_unet_block *block, int layers, bool sample, tern_tensor *x,
                         tern_tensor *temb, tern_tensor *context, struct skips *skips)
{
    for (int i = 0; i < layers; i++)
        x = push(skips, layer(block, i, x, temb, context));
    if (block->sample.w && sample)
        x = push(skips, tern_apply_downsample(&block->sample, x, m->config.downsample_padding));
    return x;
}

/* Layers first..end-1, and the upsampler behind the last one. It makes the size of the next skip, so that odd sizes come back as they
 * went. */
static tern_tensor *up(const struct tern_unet_block *block, int first, int end, tern_tensor *x, tern_tensor *temb, tern_tensor *context,
                       struct skips *skips)
{
    for (int i = first; i < end; i++) {
        struct tern_context *ctx = x ? tern_tensor_context(x) : NULL;
        tern_tensor *pair[] = {x, skips->t[--skips->n]};
        if (!ctx)
            continue;
        tern_scope_begin(ctx);
        pair[1] = tern_repeat_picture(pair[1], tern_tensor_size(x, 0));
        x = tern_scope_end(ctx, layer(block, i, tern_cat(pair, 2, 1), temb, context));
    }
    if (!block->sample.w || end < block->layers || !x || !skips->n || !skips->t[skips->n - 1])
        return x;
    const tern_tensor *next = skips->t[skips->n - 1];
    x = tern_interpolate(x, .size = {tern_tensor_size(next, 2), tern_tensor_size(next, 3)}, .mode = TERN_NEAREST);
    return tern_apply_conv(&block->sample, x);
}

/* Where a pass through the shallow part turns: it goes down to the block `down`, of which it does `layers`, and up from layer `first` of
 * the block `up` on. That layer takes what was deeper, and the skip of the branch. */
struct turn {
    int down, layers, up, first;
};

static struct turn turn_of(const struct tern_unet_config *u, int branch)
{
    const int block = branch / TERN_UNET_BRANCHES, most = (int)u->layers[block], layer = branch % TERN_UNET_BRANCHES;
    const int layers = layer < most ? layer : most;
    return (struct turn){block, layers, u->blocks - 1 - block, most - layers};
}

void tern_unet_deep_shape(const struct tern_unet_config *u, int branch, int64_t n, int64_t h, int64_t w, int64_t shape[4])
{
    const struct turn t = turn_of(u, branch);
    for (int i = 0; i < t.down; i++) {
        h = (h + u->downsample_padding) / 2;
        w = (w + u->downsample_padding) / 2;
    }
    shape[0] = n;
    shape[1] = u->channels[t.first || !t.up ? t.down : t.down + 1];
    shape[2] = h;
    shape[3] = w;
}

static enum tern_status check_inputs(const struct tern_unet *m, const tern_tensor *sample, const struct tern_unet_conditions *c,
                                     const tern_tensor *context)
{
    const struct tern_unet_config *u = &m->config;
    if (!sample || !context || !c->time)
        return tern_failed(m->ctx) ? tern_error_status(m->ctx)
                                   : tern_fail(m->ctx, TERN_E_INVALID, "unet: sample and encoder_hidden_states are needed");
    char a[TERN_META_TEXT], b[TERN_META_TEXT];
    if (tern_tensor_ndim(sample) != 4 || tern_tensor_size(sample, 1) != u->in_channels || tern_tensor_numel(sample) == 0)
        return tern_fail(m->ctx, TERN_E_SHAPE, "unet: sample: expected (N, %lld, H, W), found %s", (long long)u->in_channels,
                         tern_meta_text(&sample->meta, a));
    const int64_t rows = tern_tensor_size(sample, 0), times = tern_tensor_size(c->time, 0);
    if (tern_tensor_ndim(context) != 3 || tern_tensor_size(context, 0) < 1 || tern_tensor_size(context, 0) % rows ||
        tern_tensor_size(context, 1) < 1 || tern_tensor_size(context, 2) != u->context[0])
        return tern_fail(m->ctx, TERN_E_SHAPE, "unet: encoder_hidden_states: expected (%lld, L, %lld), found %s", (long long)rows,
                         (long long)u->context[0], tern_meta_text(&context->meta, b));
    const int64_t n = tern_tensor_size(context, 0);
    if (times != 1 && times != n)
        return tern_fail(m->ctx, TERN_E_SHAPE, "unet: timestep: expected 1 or %lld values, found %lld", (long long)n, (long long)times);
    return TERN_OK;
}

static enum tern_status check_cache(const struct tern_unet *m, const tern_tensor *sample, int64_t n, const struct tern_unet_cache *cache)
{
    char expected[TERN_META_TEXT], found[TERN_META_TEXT];
    int64_t shape[4];
    if (!cache)
        return TERN_OK;
    if (cache->branch < 0 || cache->branch >= TERN_UNET_BRANCHES * m->config.blocks)
        return tern_fail(m->ctx, TERN_E_INVALID, "unet: branch: expected 0..%d, found %d", TERN_UNET_BRANCHES * m->config.blocks - 1,
                         cache->branch);
    tern_unet_deep_shape(&m->config, cache->branch, n, tern_tensor_size(sample, 2), tern_tensor_size(sample, 3), shape);
    struct tern_meta want = tern_meta_make(tern_tensor_dtype(sample), 4, shape);
    if (!cache->deep || (tern_meta_same_shape(&cache->deep->meta, &want) && tern_tensor_dtype(cache->deep) == want.dtype))
        return TERN_OK;
    return tern_fail(m->ctx, TERN_E_SHAPE, "unet: what is deeper than branch %d: expected %s, found %s", cache->branch,
                     tern_meta_text(&want, expected), tern_meta_text(&cache->deep->meta, found));
}

/* All blocks, or those up to the turn and what was deeper; that is kept when it is computed. */
static tern_tensor *through(const struct tern_unet *m, tern_tensor *x, tern_tensor *temb, tern_tensor *context,
                            struct tern_unet_cache *cache)
{
    const int blocks = m->config.blocks;
    const bool shallow = cache && cache->deep;
    const struct turn t = cache ? turn_of(&m->config, cache->branch) : (struct turn){.up = blocks};
    struct skips skips = {.n = 0};
    x = push(&skips, tern_apply_conv(&m->conv_in, x));
    for (int i = 0; i < (shallow ? t.down : blocks); i++)
        x = down(m, &m->down[i], m->down[i].layers, true, x, temb, context, &skips);
    if (shallow) {
        down(m, &m->down[t.down], t.layers, false, x, temb, context, &skips);
    } else if (m->config.mid) {
        x = layer(&m->mid, 0, x, temb, context);
        x = layer(&m->mid, 1, x, temb, context);
    }
    for (int i = shallow ? t.up : 0; i < blocks; i++) {
        const int first = i == t.up ? t.first : 0;
        if (i == t.up && !shallow)
            cache->deep = tern_repeat_picture(up(&m->up[i], 0, first, x, temb, context, &skips), tern_tensor_size(context, 0));
        x = up(&m->up[i], first, m->up[i].layers, i == t.up ? cache->deep : x, temb, context, &skips);
    }
    return x;
}

tern_tensor *tern_unet_forward(const struct tern_unet *m, tern_tensor *sample, const struct tern_unet_conditions *c, tern_tensor *context,
                               struct tern_unet_cache *cache)
{
    const struct tern_unet_config *u = &m->config;
    const int64_t n = context ? tern_tensor_size(context, 0) : 0;
    if (check_inputs(m, sample, c, context) || check_cache(m, sample, n, cache))
        return NULL;
    tern_scope_begin(m->ctx);
    tern_tensor *temb = tern_cast(time_embedding(m, c), tern_tensor_dtype(sample));
    tern_tensor *given = cache ? cache->deep : NULL, *x = u->center_input ? tern_add_scalar(tern_mul_scalar(sample, 2), -1) : sample;
    if (temb && tern_tensor_size(temb, 0) != 1)
        x = tern_repeat_picture(x, n);
    x = tern_repeat_picture(through(m, x, temb, context, cache), n);
    /* What guidance multiplies is not rounded: the end is f32 whatever the dtype of the rest. */
    x = tern_silu(tern_apply_group_norm(&m->norm_out, tern_cast(x, TERN_F32), u->groups, u->eps));
    tern_tensor *kept[] = {tern_apply_conv(&m->conv_out, x), cache && !given ? cache->deep : NULL};
    tern_scope_end_many(m->ctx, kept, 2);
    if (cache && !given)
        cache->deep = kept[1];
    return kept[0];
}
