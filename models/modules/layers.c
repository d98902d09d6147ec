/* The layers that all models share. */
#include "models/modules/layers.h"

#include <stdio.h>
#include <string.h>

void tern_layer_destroy(struct tern_layer *l)
{
    tern_tensor_unref(&l->w);
    tern_tensor_unref(&l->b);
}

/* "name.weight" of any shape and "name.bias" of its first size. */
static struct tern_layer bind_layer(struct tern_bind *b, const char *name, int ndim, const int64_t *shape, bool bias)
{
    struct tern_layer l = {NULL, NULL};
    size_t at = tern_bind_enter(b, "%s", name);
    l.w = tern_bind_tensor(b, "weight", ndim, shape);
    if (bias)
        l.b = tern_bind_tensor(b, "bias", 1, shape);
    tern_bind_leave(b, at);
    return l;
}

struct tern_layer tern_bind_linear(struct tern_bind *b, const char *name, int64_t out, int64_t in, bool bias)
{
    return bind_layer(b, name, 2, (const int64_t[]){out, in}, bias);
}

struct tern_layer tern_bind_conv(struct tern_bind *b, const char *name, int64_t out, int64_t in, int kernel)
{
    return bind_layer(b, name, 4, (const int64_t[]){out, in, kernel, kernel}, true);
}

struct tern_layer tern_bind_conv_without_bias(struct tern_bind *b, const char *name, int64_t out, int64_t in, int kernel)
{
    return bind_layer(b, name, 4, (const int64_t[]){out, in, kernel, kernel}, false);
}

struct tern_layer tern_bind_norm(struct tern_bind *b, const char *name, int64_t n) { return bind_layer(b, name, 1, &n, true); }

tern_tensor *tern_apply_linear(const struct tern_layer *l, tern_tensor *x) { return tern_linear(x, l->w, l->b); }

tern_tensor *tern_apply_conv(const struct tern_layer *l, tern_tensor *x)
{
    return tern_conv2d(x, l->w, l->b, .padding = (int)(tern_tensor_size(l->w, 3) / 2));
}

tern_tensor *tern_apply_downsample(const struct tern_layer *l, tern_tensor *x, int padding)
{
    if (!padding)
        x = tern_pad(x, 4, (const int64_t[]){0, 1, 0, 1}, 0);
    return tern_conv2d(x, l->w, l->b, .stride = 2, .padding = padding);
}

tern_tensor *tern_apply_group_norm(const struct tern_layer *l, tern_tensor *x, int groups, double eps)
{
    return tern_group_norm(x, groups, l->w, l->b, eps);
}

tern_tensor *tern_apply_layer_norm(const struct tern_layer *l, tern_tensor *x, double eps)
{
    return tern_layer_norm(x, 1, l->w, l->b, eps);
}

tern_tensor *tern_to_tokens(tern_tensor *x)
{
    if (!x)
        return NULL;
    int64_t n = tern_tensor_size(x, 0), c = tern_tensor_size(x, 1), hw = tern_tensor_size(x, 2) * tern_tensor_size(x, 3);
    return tern_reshape(tern_permute(x, 4, (const int[]){0, 2, 3, 1}), 3, (const int64_t[]){n, hw, c});
}

tern_tensor *tern_from_tokens(tern_tensor *x, int64_t h, int64_t w)
{
    if (!x)
        return NULL;
    int64_t n = tern_tensor_size(x, 0), c = tern_tensor_size(x, 2);
    return tern_permute(tern_reshape(x, 4, (const int64_t[]){n, h, w, c}), 4, (const int[]){0, 3, 1, 2});
}

tern_tensor *tern_repeat_tokens(tern_tensor *x, int64_t n)
{
    const int64_t rows = x ? tern_tensor_size(x, 0) : n;
    if (rows == n)
        return x;
    const int64_t l = tern_tensor_size(x, 1), c = tern_tensor_size(x, 2);
    x = tern_expand(tern_reshape(x, 4, (const int64_t[]){1, rows, l, c}), 4, (const int64_t[]){n / rows, rows, l, c});
    return tern_contiguous(tern_reshape(x, 3, (const int64_t[]){n, l, c}), TERN_CONTIGUOUS);
}

tern_tensor *tern_repeat_picture(tern_tensor *x, int64_t n)
{
    if (!x || tern_tensor_size(x, 0) == n)
        return x;
    return tern_from_tokens(tern_repeat_tokens(tern_to_tokens(x), n), tern_tensor_size(x, 2), tern_tensor_size(x, 3));
}

/* (N, L, C) -> (N, heads, L, C / heads) */
static tern_tensor *split_heads(tern_tensor *x, int heads)
{
    if (!x)
        return NULL;
    int64_t n = tern_tensor_size(x, 0), l = tern_tensor_size(x, 1), c = tern_tensor_size(x, 2);
    return tern_permute(tern_reshape(x, 4, (const int64_t[]){n, l, heads, c / heads}), 4, (const int[]){0, 2, 1, 3});
}

tern_tensor *tern_attend(const struct tern_attention *m, tern_tensor *x, tern_tensor *context, tern_tensor *mask, bool causal)
{
    if (!x || !context)
        return NULL;
    const int64_t n = tern_tensor_size(context, 0);
    tern_tensor *q = split_heads(tern_repeat_tokens(tern_apply_linear(&m->q, x), n), m->heads); /* (N, H, L, E) */
    tern_tensor *k = split_heads(tern_apply_linear(&m->k, context), m->heads);                  /* (N, H, S, E) */
    tern_tensor *v = split_heads(tern_apply_linear(&m->v, context), m->heads);
    tern_tensor *y = tern_sdpa(q, k, v, .attn_mask = mask, .is_causal = causal);
    y = tern_permute(y, 4, (const int[]){0, 2, 1, 3});
    y = tern_reshape(y, 3, (const int64_t[]){n, tern_tensor_size(x, 1), -1});
    return tern_apply_linear(&m->out, y);
}

void tern_attention_destroy(struct tern_attention *m)
{
    tern_layer_destroy(&m->q);
    tern_layer_destroy(&m->k);
    tern_layer_destroy(&m->v);
    tern_layer_destroy(&m->out);
}

enum tern_activation tern_activation_parse(const char *name)
{
    static const struct {
        const char *name;
        enum tern_activation act;
    } table[] = {{"silu", TERN_ACT_SILU},
                 {"swish", TERN_ACT_SILU},
                 {"gelu", TERN_ACT_GELU},
                 {"gelu_new", TERN_ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", TERN_ACT_GELU_TANH},
                 {"quick_gelu", TERN_ACT_QUICK_GELU},
                 {"relu", TERN_ACT_RELU}};
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (!strcmp(name, table[i].name))
            return table[i].act;
    return TERN_ACT_UNKNOWN;
}

tern_tensor *tern_activate(enum tern_activation act, tern_tensor *x)
{
    switch (act) {
    case TERN_ACT_SILU:
        return tern_silu(x);
    case TERN_ACT_GELU:
        return tern_gelu(x, TERN_GELU_NONE);
    case TERN_ACT_GELU_TANH:
        return tern_gelu(x, TERN_GELU_TANH);
    case TERN_ACT_QUICK_GELU:
        return tern_quick_gelu(x);
    case TERN_ACT_RELU:
        return tern_relu(x);
    case TERN_ACT_UNKNOWN:
        break;
    }
    return x;
}

struct tern_resnet tern_bind_resnet(struct tern_bind *b, int64_t in, int64_t out, int64_t temb, int groups, double eps)
{
    struct tern_resnet m = {.groups = groups, .eps = eps};
    m.norm1 = tern_bind_norm(b, "norm1", in);
    m.conv1 = tern_bind_conv(b, "conv1", out, in, 3);
    if (temb)
        m.time = tern_bind_linear(b, "time_emb_proj", out, temb, true);
    m.norm2 = tern_bind_norm(b, "norm2", out);
    m.conv2 = tern_bind_conv(b, "conv2", out, out, 3);
    if (in != out)
        m.skip = tern_bind_conv(b, "conv_shortcut", out, in, 1);
    return m;
}

tern_tensor *tern_apply_resnet(const struct tern_resnet *m, tern_tensor *x, tern_tensor *temb)
{
    if (!x)
        return NULL;
    struct tern_context *ctx = tern_tensor_context(x);
    tern_scope_begin(ctx);
    tern_tensor *h = tern_silu(tern_apply_group_norm(&m->norm1, x, m->groups, m->eps));
    h = tern_scope_next(ctx, tern_apply_conv(&m->conv1, h));
    if (m->time.w)
        h = tern_add(h, tern_as_nc11(tern_apply_linear(&m->time, tern_silu(temb))));
    h = tern_scope_next(ctx, tern_silu(tern_apply_group_norm(&m->norm2, h, m->groups, m->eps)));
    h = tern_apply_conv(&m->conv2, h);
    return tern_scope_end(ctx, tern_add(m->skip.w ? tern_apply_conv(&m->skip, x) : x, h));
}

void tern_resnet_destroy(struct tern_resnet *m)
{
    struct tern_layer *all[] = {&m->norm1, &m->conv1, &m->time, &m->norm2, &m->conv2, &m->skip};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        tern_layer_destroy(all[i]);
}
