/* Transformer2DModel: attention over the pixels of a picture, conditioned on text.        [Rombach 2022, 3.3] */
#include "core/context.h"
#include "models/modules/unet.h"

static void bind_block(struct tern_bind *b, struct tern_transformer_block *m, int64_t c, int64_t heads, int64_t context)
{
    const int64_t inner = 4 * c;
    m->norm1 = tern_bind_norm(b, "norm1", c);
    m->self.heads = m->cross.heads = (int)heads;
    m->self.q = tern_bind_linear(b, "attn1.to_q", c, c, false);
    m->self.k = tern_bind_linear(b, "attn1.to_k", c, c, false);
    m->self.v = tern_bind_linear(b, "attn1.to_v", c, c, false);
    m->self.out = tern_bind_linear(b, "attn1.to_out.0", c, c, true);
    m->norm2 = tern_bind_norm(b, "norm2", c);
    m->cross.q = tern_bind_linear(b, "attn2.to_q", c, c, false);
    m->cross.k = tern_bind_linear(b, "attn2.to_k", c, context, false);
    m->cross.v = tern_bind_linear(b, "attn2.to_v", c, context, false);
    m->cross.out = tern_bind_linear(b, "attn2.to_out.0", c, c, true);
    m->norm3 = tern_bind_norm(b, "norm3", c);
    m->gate = tern_bind_linear(b, "ff.net.0.proj", 2 * inner, c, true);
    m->out = tern_bind_linear(b, "ff.net.2", c, inner, true);
}

struct tern_transformer *tern_bind_transformer(struct tern_bind *b, int64_t channels, int64_t heads, int64_t depth, int64_t context,
                                               int groups, bool linear)
{
    struct tern_transformer *m = tern_calloc(b->ctx, 1, sizeof(*m));
    if (!m)
        return NULL;
    m->block = tern_calloc(b->ctx, (size_t)depth, sizeof(*m->block));
    if (!m->block) {
        tern_free(b->ctx, m);
        return NULL;
    }
    m->depth = (int)depth;
    m->groups = groups;
    m->linear = linear;
    m->norm = tern_bind_norm(b, "norm", channels);
    m->in = linear ? tern_bind_linear(b, "proj_in", channels, channels, true) : tern_bind_conv(b, "proj_in", channels, channels, 1);
    for (int i = 0; i < m->depth; i++) {
        size_t at = tern_bind_enter(b, "transformer_blocks.%d", i);
        bind_block(b, &m->block[i], channels, heads, context);
        tern_bind_leave(b, at);
    }
    m->out = linear ? tern_bind_linear(b, "proj_out", channels, channels, true) : tern_bind_conv(b, "proj_out", channels, channels, 1);
    return m;
}

/* GEGLU: linear to 2 x inner, first half times gelu of the second, linear back. x (N, L, C) */
static tern_tensor *feed_forward(const struct tern_transformer_block *m, tern_tensor *x)
{
    return tern_apply_linear(&m->out, tern_linear_geglu(x, m->gate.w, m->gate.b));
}

/* x + branch, in the dtype of x */
static tern_tensor *add_branch(tern_tensor *x, tern_tensor *branch)
{
    return x ? tern_add(x, tern_cast(branch, tern_tensor_dtype(x))) : NULL;
}

static tern_tensor *normed(const struct tern_layer *norm, tern_tensor *x, const tern_tensor *context)
{
    return tern_cast(tern_apply_layer_norm(norm, x, 1e-5), tern_tensor_dtype(context));
}

/* x (N, L, C), which may be wider than context (N, S, D), whose dtype the rest is computed in. Rows of x that several texts share are
 * repeated when they meet them. */
static tern_tensor *apply_block(const struct tern_transformer_block *m, tern_tensor *x, tern_tensor *context)
{
    tern_tensor *h = normed(&m->norm1, x, context);
    x = add_branch(x, tern_attend(&m->self, h, h, NULL, false));
    h = normed(&m->norm2, x, context);
    x = tern_repeat_tokens(x, tern_tensor_size(context, 0));
    x = add_branch(x, tern_attend(&m->cross, h, context, NULL, false));
    return add_branch(x, feed_forward(m, normed(&m->norm3, x, context)));
}

/* proj_in: (N, C, H, W) to (N, H W, C) */
static tern_tensor *enter(const struct tern_transformer *m, tern_tensor *x, enum tern_dtype sums)
{
    if (m->linear)
        return tern_cast(tern_apply_linear(&m->in, tern_to_tokens(x)), sums);
    return tern_to_tokens(tern_cast(tern_apply_conv(&m->in, x), sums));
}

/* x + proj_out of y: (N, C, H, W) */
static tern_tensor *leave(const struct tern_transformer *m, tern_tensor *y, tern_tensor *x)
{
    int64_t h = tern_tensor_size(x, 2), w = tern_tensor_size(x, 3);
    if (m->linear)
        return tern_from_tokens(add_branch(tern_to_tokens(x), tern_apply_linear(&m->out, y)), h, w);
    return add_branch(x, tern_apply_conv(&m->out, tern_from_tokens(y, h, w)));
}

tern_tensor *tern_apply_transformer(const struct tern_transformer *m, tern_tensor *x, tern_tensor *context)
{
    if (!x || !context)
        return NULL;
    struct tern_context *ctx = tern_tensor_context(x);
    const enum tern_dtype dtype = tern_tensor_dtype(context), sums = dtype == TERN_BF16 ? TERN_F32 : dtype;
    tern_scope_begin(ctx);
    x = tern_cast(x, sums);
    tern_scope_begin(ctx);
    tern_tensor *y = enter(m, tern_cast(tern_apply_group_norm(&m->norm, x, m->groups, 1e-6), dtype), sums);
    for (int i = 0; i < m->depth; i++)
        y = tern_scope_next(ctx, apply_block(&m->block[i], y, context));
    y = tern_scope_end(ctx, tern_cast(y, dtype));
    x = tern_repeat_picture(x, tern_tensor_size(context, 0));
    return tern_scope_end(ctx, x ? tern_cast(leave(m, y, x), dtype) : NULL);
}

void tern_transformer_destroy(struct tern_context *ctx, struct tern_transformer **transformer)
{
    struct tern_transformer *m = *transformer;
    *transformer = NULL;
    if (!m)
        return;
    for (int i = 0; i < m->depth; i++) {
        struct tern_transformer_block *t = &m->block[i];
        struct tern_layer *all[] = {&t->norm1, &t->norm2, &t->norm3, &t->gate, &t->out};
        for (int j = 0; j < 5; j++)
            tern_layer_destroy(all[j]);
        tern_attention_destroy(&t->self);
        tern_attention_destroy(&t->cross);
    }
    tern_layer_destroy(&m->norm);
    tern_layer_destroy(&m->in);
    tern_layer_destroy(&m->out);
    tern_free(ctx, m->block);
    tern_free(ctx, m);
}
