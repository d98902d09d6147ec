/* The ops of Stable Diffusion 1.5, SDXL and their VAE, derived from the configurations that their checkpoints come with. The walk is that
 * of models/modules: which layers there are, in which size. What a plan fuses (SiLU behind a norm, sums behind a product) stands by itself
 * here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define BLOCKS 4
#define GROUPS 32
#define TOKENS 77
#define ROWS 2 /* guidance: with and without the prompt */
/* Attention as two products keeps its scores in memory; only where they take at most so many elements. */
#define MOST_SCORES (16 << 20)

struct unet {
    int blocks, layers;
    int64_t in, channels[BLOCKS], heads[BLOCKS], depth[BLOCKS]; /* depth: transformer blocks a layer */
    bool cross[BLOCKS];                                         /* whether the block has attention; the middle always has the last depth */
    int64_t context, pooled;                                    /* pooled: 0 where nothing but the time is embedded */
    bool linear;                                                /* projections around transformers, else convolutions */
};
struct text_encoder {
    int layers;
    int64_t width, heads;
    bool quick; /* quick_gelu, else gelu */
};
struct vae {
    int blocks, layers;
    int64_t latent, channels[BLOCKS];
};

/* [Rombach 2022], [Podell 2023], [Radford 2021]: the config.json of each component. */
static const struct unet sd15 = {4, 2, 4, {320, 640, 1280, 1280}, {8, 8, 8, 8}, {1, 1, 1, 1}, {true, true, true, false}, 768, 0, false};
static const struct unet sdxl = {3, 2, 4, {320, 640, 1280}, {5, 10, 20}, {1, 2, 10}, {false, true, true}, 2048, 2816, true};
static const struct text_encoder clip_l = {12, 768, 12, true}, clip_big_g = {32, 1280, 20, false};
static const struct vae kl_f8 = {4, 2, 4, {128, 256, 512, 512}};

const char *const bench_archs[] = {"sd15", "sdxl", "vae", NULL};

static const struct {
    const char *op, *letters;
    bool product;
} kinds[BENCH_KINDS] = {
    [BENCH_CONV2D] = {"conv2d", "NCHWOks", true},
    [BENCH_LINEAR] = {"linear", "MKN", true},
    [BENCH_LINEAR_GEGLU] = {"linear_geglu", "MKN", true},
    [BENCH_MATMUL] = {"matmul", "BMKN", true},
    [BENCH_SDPA] = {"sdpa", "NHLSE", true},
    [BENCH_GROUP_NORM] = {"group_norm", "NCHWG"},
    [BENCH_LAYER_NORM] = {"layer_norm", "MC"},
    [BENCH_SILU] = {"silu", "MC"},
    [BENCH_GELU] = {"gelu", "MC"},
    [BENCH_QUICK_GELU] = {"quick_gelu", "MC"},
    [BENCH_ADD] = {"add", "MC"},
    [BENCH_INTERPOLATE] = {"interpolate", "NCHW"},
    [BENCH_CAT] = {"cat", "NCDHW"},
};

const char *bench_kind_name(enum bench_kind kind) { return kinds[kind].op; }
bool bench_is_product(enum bench_kind kind) { return kinds[kind].product; }
bool bench_is_quantizable(enum bench_kind kind) { return kind != BENCH_MATMUL && kinds[kind].product; }

bool bench_op_has_int8(const char *op)
{
    for (int k = 0; k < BENCH_KINDS; k++)
        if (!strcmp(op, bench_kind_name((enum bench_kind)k)))
            return bench_is_quantizable((enum bench_kind)k);
    return false;
}

const char *bench_shape_text(const struct bench_shape *s, char out[BENCH_SHAPE_TEXT])
{
    const char *letters = kinds[s->kind].letters;
    *out = 0;
    for (size_t i = 0, n = 0; letters[i] && n < BENCH_SHAPE_TEXT; i++)
        n += (size_t)snprintf(out + n, BENCH_SHAPE_TEXT - n, "%s%c%lld", i ? " " : "", letters[i], (long long)s->n[i]);
    return out;
}

static void add(struct bench_shapes *l, enum bench_kind kind, struct bench_shape s)
{
    s.kind = kind;
    s.count = 1;
    for (int i = 0; i < l->count; i++)
        if (l->at[i].kind == kind && !memcmp(l->at[i].n, s.n, sizeof(s.n))) {
            l->at[i].count++;
            return;
        }
    if (l->count == l->capacity) {
        int more = l->capacity ? 2 * l->capacity : 64;
        struct bench_shape *at = realloc(l->at, (size_t)more * sizeof(*at));
        l->bad |= !at;
        if (!at)
            return;
        l->at = at;
        l->capacity = more;
    }
    l->at[l->count++] = s;
}
#define ADD(kind, ...) add(l, kind, (struct bench_shape){.n = {__VA_ARGS__}})

static void sdpa(struct bench_shapes *l, int64_t n, int64_t heads, int64_t queries, int64_t keys, int64_t each)
{
    ADD(BENCH_SDPA, n, heads, queries, keys, each);
    if (n * heads * queries * keys > MOST_SCORES)
        return;
    ADD(BENCH_MATMUL, n * heads, queries, each, keys);
    ADD(BENCH_MATMUL, n * heads, queries, keys, each);
}

/* `time`: channels of the embedding that is added; 0: none. h: height and width. */
static void resnet(struct bench_shapes *l, int64_t n, int64_t in, int64_t out, int64_t h, int64_t time)
{
    ADD(BENCH_GROUP_NORM, n, in, h, h, GROUPS);
    ADD(BENCH_SILU, n * h * h, in);
    ADD(BENCH_CONV2D, n, in, h, h, out, 3, 1);
    if (time)
        ADD(BENCH_LINEAR, n, time, out);
    ADD(BENCH_GROUP_NORM, n, out, h, h, GROUPS);
    ADD(BENCH_SILU, n * h * h, out);
    ADD(BENCH_CONV2D, n, out, h, h, out, 3, 1);
    if (in != out)
        ADD(BENCH_CONV2D, n, in, h, h, out, 1, 1);
    ADD(BENCH_ADD, n * h * h, out);
}

static void attention(struct bench_shapes *l, int64_t n, int64_t c, int64_t heads, int64_t pixels, int64_t keys, int64_t context)
{
    ADD(BENCH_LAYER_NORM, n * pixels, c);
    for (int i = 0; i < 2; i++) /* queries, result */
        ADD(BENCH_LINEAR, n * pixels, c, c);
    for (int i = 0; i < 2; i++) /* keys, values */
        ADD(BENCH_LINEAR, n * keys, context, c);
    sdpa(l, n, heads, pixels, keys, c / heads);
    ADD(BENCH_ADD, n * pixels, c);
}

static void transformer(struct bench_shapes *l, const struct unet *u, int64_t c, int64_t h, int level)
{
    const int64_t n = ROWS, pixels = h * h, rows = n * pixels;
    ADD(BENCH_GROUP_NORM, n, c, h, h, GROUPS);
    for (int i = 0; i < 2; i++) { /* in and out */
        if (u->linear)
            ADD(BENCH_LINEAR, rows, c, c);
        else
            ADD(BENCH_CONV2D, n, c, h, h, c, 1, 1);
    }
    for (int i = 0; i < u->depth[level]; i++) {
        attention(l, n, c, u->heads[level], pixels, pixels, c);
        attention(l, n, c, u->heads[level], pixels, TOKENS, u->context);
        ADD(BENCH_LAYER_NORM, rows, c);
        ADD(BENCH_LINEAR_GEGLU, rows, c, 4 * c);
        ADD(BENCH_LINEAR, rows, 4 * c, c);
        ADD(BENCH_ADD, rows, c);
    }
    ADD(BENCH_ADD, rows, c);
}

static void unet(struct bench_shapes *l, const struct unet *u, int64_t h)
{
    const int64_t n = ROWS, time = 4 * u->channels[0];
    const int last = u->blocks - 1;
    ADD(BENCH_CONV2D, n, u->in, h, h, u->channels[0], 3, 1);
    ADD(BENCH_LINEAR, 1, u->channels[0], time);
    ADD(BENCH_LINEAR, 1, time, time);
    if (u->pooled) {
        ADD(BENCH_LINEAR, n, u->pooled, time);
        ADD(BENCH_LINEAR, n, time, time);
    }
    for (int i = 0; i <= last; i++) {
        int64_t c = u->channels[i];
        for (int k = 0; k < u->layers; k++) {
            resnet(l, n, k ? c : u->channels[i ? i - 1 : 0], c, h, time);
            if (u->cross[i])
                transformer(l, u, c, h, i);
        }
        if (i < last) {
            ADD(BENCH_CONV2D, n, c, h, h, c, 3, 2);
            h /= 2;
        }
    }
    resnet(l, n, u->channels[last], u->channels[last], h, time);
    transformer(l, u, u->channels[last], h, last);
    resnet(l, n, u->channels[last], u->channels[last], h, time);
    for (int i = last; i >= 0; i--) { /* the way up reads what the way down left, the last first */
        int64_t c = u->channels[i], below = u->channels[i < last ? i + 1 : i];
        for (int k = 0; k <= u->layers; k++) {
            int64_t from = k ? c : below, skip = k < u->layers ? c : u->channels[i ? i - 1 : 0];
            ADD(BENCH_CAT, n, from, skip, h, h);
            resnet(l, n, from + skip, c, h, time);
            if (u->cross[i])
                transformer(l, u, c, h, i);
        }
        if (i) {
            ADD(BENCH_INTERPOLATE, n, c, h, h);
            h *= 2;
            ADD(BENCH_CONV2D, n, c, h, h, c, 3, 1);
        }
    }
    ADD(BENCH_GROUP_NORM, n, u->channels[0], h, h, GROUPS);
    ADD(BENCH_SILU, n * h * h, u->channels[0]);
    ADD(BENCH_CONV2D, n, u->channels[0], h, h, u->in, 3, 1);
}

static void text_encoder(struct bench_shapes *l, const struct text_encoder *t)
{
    const int64_t rows = ROWS * TOKENS, c = t->width;
    for (int i = 0; i < t->layers; i++) {
        attention(l, ROWS, c, t->heads, TOKENS, TOKENS, c);
        ADD(BENCH_LAYER_NORM, rows, c);
        ADD(BENCH_LINEAR, rows, c, 4 * c);
        ADD(t->quick ? BENCH_QUICK_GELU : BENCH_GELU, rows, 4 * c);
        ADD(BENCH_LINEAR, rows, 4 * c, c);
        ADD(BENCH_ADD, rows, c);
    }
    ADD(BENCH_LAYER_NORM, rows, c);
}

static void vae_middle(struct bench_shapes *l, int64_t c, int64_t h)
{
    resnet(l, 1, c, c, h, 0);
    ADD(BENCH_GROUP_NORM, 1, c, h, h, GROUPS);
    for (int i = 0; i < 4; i++)
        ADD(BENCH_LINEAR, h * h, c, c);
    sdpa(l, 1, 1, h * h, h * h, c);
    ADD(BENCH_ADD, h * h, c);
    resnet(l, 1, c, c, h, 0);
}

static void vae_end(struct bench_shapes *l, int64_t c, int64_t h, int64_t out)
{
    ADD(BENCH_GROUP_NORM, 1, c, h, h, GROUPS);
    ADD(BENCH_SILU, h * h, c);
    ADD(BENCH_CONV2D, 1, c, h, h, out, 3, 1);
}

static void vae(struct bench_shapes *l, const struct vae *v, int64_t size)
{
    const int last = v->blocks - 1;
    int64_t h = size;
    ADD(BENCH_CONV2D, 1, 3, h, h, v->channels[0], 3, 1);
    for (int i = 0; i <= last; i++) {
        for (int k = 0; k < v->layers; k++)
            resnet(l, 1, k ? v->channels[i] : v->channels[i ? i - 1 : 0], v->channels[i], h, 0);
        if (i < last) { /* padded at two sides, which makes no difference in work */
            ADD(BENCH_CONV2D, 1, v->channels[i], h, h, v->channels[i], 3, 2);
            h /= 2;
        }
    }
    vae_middle(l, v->channels[last], h);
    vae_end(l, v->channels[last], h, 2 * v->latent);
    ADD(BENCH_CONV2D, 1, 2 * v->latent, h, h, 2 * v->latent, 1, 1);
    ADD(BENCH_CONV2D, 1, v->latent, h, h, v->latent, 1, 1);
    ADD(BENCH_CONV2D, 1, v->latent, h, h, v->channels[last], 3, 1);
    vae_middle(l, v->channels[last], h);
    for (int i = last; i >= 0; i--) {
        for (int k = 0; k <= v->layers; k++)
            resnet(l, 1, k ? v->channels[i] : v->channels[i < last ? i + 1 : i], v->channels[i], h, 0);
        if (i) {
            ADD(BENCH_INTERPOLATE, 1, v->channels[i], h, h);
            h *= 2;
            ADD(BENCH_CONV2D, 1, v->channels[i], h, h, v->channels[i], 3, 1);
        }
    }
    vae_end(l, v->channels[0], h, 3);
}

bool bench_shapes_of(const char *arch, int size, struct bench_shapes *l)
{
    *l = (struct bench_shapes){0};
    if (!strcmp(arch, "sd15")) {
        text_encoder(l, &clip_l);
        unet(l, &sd15, size / 8);
    } else if (!strcmp(arch, "sdxl")) {
        text_encoder(l, &clip_l);
        text_encoder(l, &clip_big_g);
        unet(l, &sdxl, size / 8);
    } else if (!strcmp(arch, "vae")) {
        vae(l, &kl_f8, size);
    } else {
        return false;
    }
    return true;
}
