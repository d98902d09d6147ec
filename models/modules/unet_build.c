/* Building a UNet from its weights. Names are those of the diffusers folder. */
#include "core/context.h"
#include "models/modules/unet.h"

struct layer_spec {
    int64_t in, out;
    int64_t heads, depth, context; /* depth 0: no attention */
};

static void bind_layer(struct tern_bind *b, const struct tern_unet_config *u, struct tern_unet_block *block, int i,
                       const struct layer_spec *s)
{
    size_t at = tern_bind_enter(b, "resnets.%d", i);
    block->resnet[i] = tern_bind_resnet(b, s->in, s->out, 4 * u->channels[0], u->groups, u->eps);
    tern_bind_leave(b, at);
    block->layers = i + 1;
    if (!s->depth)
        return;
    at = tern_bind_enter(b, "attentions.%d", i);
    block->attention[i] = tern_bind_transformer(b, s->out, s->heads, s->depth, s->context, u->groups, u->linear_projection);
    tern_bind_leave(b, at);
}

static void bind_down(struct tern_bind *b, struct tern_unet *m, int i)
{
    const struct tern_unet_config *u = &m->config;
    struct tern_unet_block *block = &m->down[i];
    size_t at = tern_bind_enter(b, "down_blocks.%d", i);
    for (int j = 0; j < u->layers[i]; j++) {
        struct layer_spec s = {j ? u->channels[i] : u->channels[i ? i - 1 : 0], u->channels[i], u->heads[i],
                               u->cross_down[i] ? u->depth[i] : 0, u->context[i]};
        bind_layer(b, u, block, j, &s);
    }
    if (i + 1 < u->blocks)
        block->sample = tern_bind_conv(b, "downsamplers.0.conv", u->channels[i], u->channels[i], 3);
    tern_bind_leave(b, at);
}

static void bind_mid(struct tern_bind *b, struct tern_unet *m)
{
    const struct tern_unet_config *u = &m->config;
    int last = u->blocks - 1;
    size_t at = tern_bind_enter(b, "mid_block");
    struct layer_spec s = {u->channels[last], u->channels[last], u->heads[last], u->depth[last], u->context[last]};
    bind_layer(b, u, &m->mid, 0, &s);
    s.depth = 0;
    bind_layer(b, u, &m->mid, 1, &s);
    tern_bind_leave(b, at);
}

/* Each resnet of an up block reads the skip of its mirror: the skips' channels are those of the down path, in reverse. */
static void bind_up(struct tern_bind *b, struct tern_unet *m, int i)
{
    const struct tern_unet_config *u = &m->config;
    struct tern_unet_block *block = &m->up[i];
    int mirror = u->blocks - 1 - i;
    int64_t layers = u->layers[mirror] + 1, out = u->channels[mirror], previous = u->channels[i ? mirror + 1 : mirror];
    int64_t input = u->channels[mirror ? mirror - 1 : 0];
    size_t at = tern_bind_enter(b, "up_blocks.%d", i);
    for (int j = 0; j < layers; j++) {
        int64_t skip = j == layers - 1 ? input : out;
        struct layer_spec s = {(j ? out : previous) + skip, out, u->heads[mirror], u->cross_up[i] ? u->up_depth[i] : 0, u->context[mirror]};
        bind_layer(b, u, block, j, &s);
    }
    if (mirror)
        block->sample = tern_bind_conv(b, "upsamplers.0.conv", out, out, 3);
    tern_bind_leave(b, at);
}

static void bind_all(struct tern_bind *b, struct tern_unet *m)
{
    const struct tern_unet_config *u = &m->config;
    int64_t c = u->channels[0];
    m->conv_in = tern_bind_conv(b, "conv_in", c, u->in_channels, 3);
    m->time1 = tern_bind_linear(b, "time_embedding.linear_1", 4 * c, c, true);
    m->time2 = tern_bind_linear(b, "time_embedding.linear_2", 4 * c, 4 * c, true);
    if (u->guidance)
        m->guidance = tern_bind_linear(b, "time_embedding.cond_proj", c, u->guidance, false);
    if (u->pooled) {
        m->add1 = tern_bind_linear(b, "add_embedding.linear_1", 4 * c, u->pooled, true);
        m->add2 = tern_bind_linear(b, "add_embedding.linear_2", 4 * c, 4 * c, true);
    }
    for (int i = 0; i < u->blocks; i++)
        bind_down(b, m, i);
    if (u->mid)
        bind_mid(b, m);
    for (int i = 0; i < u->blocks; i++)
        bind_up(b, m, i);
    m->norm_out = tern_bind_norm(b, "conv_norm_out", c);
    m->conv_out = tern_bind_conv(b, "conv_out", u->out_channels, c, 3);
}

struct tern_unet *tern_unet_build(struct tern_context *ctx, const char *config, const char *where, struct tern_bind *b)
{
    struct tern_unet *m = tern_calloc(ctx, 1, sizeof(*m));
    if (!m)
        return NULL;
    m->ctx = ctx;
    if (tern_unet_read_config(ctx, config, where, &m->config) == TERN_OK)
        bind_all(b, m);
    return m;
}

struct tern_unet *tern_unet_create(struct tern_context *ctx, const char *config, const char *where, const struct tern_weights *weights)
{
    struct tern_bind b;
    if (tern_bind_begin(&b, ctx, weights, "unet"))
        return NULL;
    struct tern_unet *m = tern_unet_build(ctx, config, where, &b);
    struct tern_weights *bound;
    if (tern_bind_end(&b, &bound))
        tern_unet_destroy(&m);
    else
        m->weights = bound;
    return m;
}

static void block_destroy(struct tern_context *ctx, struct tern_unet_block *block)
{
    for (int i = 0; i < TERN_MAX_UNET_LAYERS; i++) {
        tern_resnet_destroy(&block->resnet[i]);
        tern_transformer_destroy(ctx, &block->attention[i]);
    }
    tern_layer_destroy(&block->sample);
}

void tern_unet_destroy(struct tern_unet **unet)
{
    struct tern_unet *m = *unet;
    *unet = NULL;
    if (!m)
        return;
    for (int i = 0; i < TERN_MAX_BLOCKS; i++) {
        block_destroy(m->ctx, &m->down[i]);
        block_destroy(m->ctx, &m->up[i]);
    }
    block_destroy(m->ctx, &m->mid);
    struct tern_layer *all[] = {&m->conv_in, &m->time1, &m->time2, &m->guidance, &m->add1, &m->add2, &m->norm_out, &m->conv_out};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        tern_layer_destroy(all[i]);
    tern_weights_unref(&m->weights);
    tern_free(m->ctx, m);
}
