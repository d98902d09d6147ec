/* Building an AutoencoderKL or an AutoencoderTiny: configuration and weights. */
#include <string.h>

#include "core/context.h"
#include "models/modules/vae.h"

static void check_types(const struct tern_config *c, const char *key, int blocks, const char *expected)
{
    const char *types[TERN_MAX_BLOCKS];
    int n = tern_config_strings(c, key, TERN_MAX_BLOCKS, types);
    if (n && n != blocks)
        tern_fail(c->ctx, TERN_E_FORMAT, "%s: \"%s\": expected %d entries, one a block, found %d", c->where, key, blocks, n);
    for (int i = 0; i < n; i++)
        if (strcmp(types[i], expected))
            tern_fail(c->ctx, TERN_E_UNSUPPORTED, "%s: \"%s\": block type %s is not supported; expected %s", c->where, key, types[i],
                      expected);
}

/* What both classes have; only the default of the scaling factor is another. */
static void read_common(const struct tern_config *c, struct tern_vae_config *v)
{
    v->in_channels = tern_config_int(c, "in_channels", 3, 3, 3);
    v->out_channels = tern_config_int(c, "out_channels", 3, 3, 3);
    v->latent_channels = tern_config_int(c, "latent_channels", 4, 1, 1 << 8);
    v->scaling_factor = tern_config_number(c, "scaling_factor", v->tiny ? 1 : 0.18215);
    tern_config_only(c, "latents_mean", "");
    tern_config_only(c, "latents_std", "");
    if (v->scaling_factor == 0)
        tern_fail(c->ctx, TERN_E_FORMAT, "%s: \"scaling_factor\" is 0", c->where);
}

static void read_tiny(const struct tern_config *c, struct tern_vae_config *v)
{
    tern_taesd_read_config(c, "encoder", &v->encoder);
    tern_taesd_read_config(c, "decoder", &v->decoder);
    v->blocks = v->decoder.stages;
    tern_config_only(c, "act_fn", "relu");
    tern_config_only(c, "upsample_fn", "nearest");
    tern_config_only(c, "upsampling_scaling_factor", "2");
    if (v->encoder.stages != v->decoder.stages)
        tern_fail(c->ctx, TERN_E_UNSUPPORTED, "%s: an encoder of %d stages and a decoder of %d: latents of two sizes", c->where,
                  v->encoder.stages, v->decoder.stages);
}

static void read_config(const struct tern_config *c, struct tern_vae_config *v)
{
    v->blocks = tern_config_list(c, "block_out_channels", TERN_MAX_BLOCKS, 1, 1 << 14, v->channels);
    if (!v->blocks) {
        v->blocks = 1;
        v->channels[0] = 64;
    }
    check_types(c, "down_block_types", v->blocks, "DownEncoderBlock2D");
    check_types(c, "up_block_types", v->blocks, "UpDecoderBlock2D");
    v->layers = (int)tern_config_int(c, "layers_per_block", 1, 1, TERN_MAX_VAE_LAYERS - 1);
    v->groups = (int)tern_config_int(c, "norm_num_groups", 32, 1, 1 << 12);
    v->mid_attention = tern_config_bool(c, "mid_block_add_attention", true);
    v->quant_conv = tern_config_bool(c, "use_quant_conv", true);
    v->post_quant_conv = tern_config_bool(c, "use_post_quant_conv", true);
    tern_config_only(c, "act_fn", "silu");
    for (int i = 0; i < v->blocks; i++)
        if (v->channels[i] % v->groups)
            tern_fail(c->ctx, TERN_E_FORMAT, "%s: block_out_channels[%d] %lld is no multiple of norm_num_groups %d", c->where, i,
                      (long long)v->channels[i], v->groups);
}

enum tern_status tern_vae_read_config(struct tern_context *ctx, const char *config, const char *where, struct tern_vae_config *out)
{
    struct tern_config c;
    memset(out, 0, sizeof(*out));
    if (tern_config_open(&c, ctx, config, where) == TERN_OK) {
        out->tiny = !strcmp(tern_config_string(&c, "_class_name", ""), "AutoencoderTiny");
        read_common(&c, out);
        if (out->tiny)
            read_tiny(&c, out);
        else
            read_config(&c, out);
    }
    tern_config_close(&c);
    return tern_error_status(ctx);
}

/* `layers` resnets, the first from `in` channels, and the sampler if there is one. */
static void bind_block(struct tern_bind *b, const struct tern_vae_config *v, struct tern_vae_block *block, int layers, int64_t in,
                       int64_t out, const char *sampler)
{
    for (int i = 0; i < layers; i++) {
        size_t at = tern_bind_enter(b, "resnets.%d", i);
        block->resnet[i] = tern_bind_resnet(b, i ? out : in, out, 0, v->groups, 1e-6);
        tern_bind_leave(b, at);
        block->layers = i + 1;
    }
    if (sampler)
        block->sample = tern_bind_conv(b, sampler, out, out, 3);
}

static void bind_mid(struct tern_bind *b, const struct tern_vae_config *v, struct tern_vae_half *h)
{
    int64_t c = v->channels[v->blocks - 1];
    size_t mid = tern_bind_enter(b, "mid_block");
    for (int i = 0; i < 2; i++) {
        size_t at = tern_bind_enter(b, "resnets.%d", i);
        h->mid[i] = tern_bind_resnet(b, c, c, 0, v->groups, 1e-6);
        tern_bind_leave(b, at);
    }
    if (v->mid_attention) {
        size_t at = tern_bind_enter(b, "attentions.0");
        h->attention_norm = tern_bind_norm(b, "group_norm", c);
        h->attention.heads = 1;
        h->attention.q = tern_bind_linear(b, "to_q", c, c, true);
        h->attention.k = tern_bind_linear(b, "to_k", c, c, true);
        h->attention.v = tern_bind_linear(b, "to_v", c, c, true);
        h->attention.out = tern_bind_linear(b, "to_out.0", c, c, true);
        tern_bind_leave(b, at);
    }
    tern_bind_leave(b, mid);
}

static void bind_encoder(struct tern_bind *b, const struct tern_vae_config *v, struct tern_vae_half *h)
{
    int64_t last = v->channels[v->blocks - 1];
    size_t root = tern_bind_enter(b, "encoder");
    h->conv_in = tern_bind_conv(b, "conv_in", v->channels[0], v->in_channels, 3);
    for (int i = 0; i < v->blocks; i++) {
        size_t at = tern_bind_enter(b, "down_blocks.%d", i);
        bind_block(b, v, &h->block[i], v->layers, v->channels[i ? i - 1 : 0], v->channels[i],
                   i + 1 < v->blocks ? "downsamplers.0.conv" : NULL);
        tern_bind_leave(b, at);
    }
    bind_mid(b, v, h);
    h->norm_out = tern_bind_norm(b, "conv_norm_out", last);
    h->conv_out = tern_bind_conv(b, "conv_out", 2 * v->latent_channels, last, 3);
    tern_bind_leave(b, root);
}

static void bind_decoder(struct tern_bind *b, const struct tern_vae_config *v, struct tern_vae_half *h)
{
    int64_t last = v->channels[v->blocks - 1];
    size_t root = tern_bind_enter(b, "decoder");
    h->conv_in = tern_bind_conv(b, "conv_in", last, v->latent_channels, 3);
    bind_mid(b, v, h);
    for (int i = 0; i < v->blocks; i++) {
        int mirror = v->blocks - 1 - i;
        size_t at = tern_bind_enter(b, "up_blocks.%d", i);
        bind_block(b, v, &h->block[i], v->layers + 1, v->channels[i ? mirror + 1 : mirror], v->channels[mirror],
                   i + 1 < v->blocks ? "upsamplers.0.conv" : NULL);
        tern_bind_leave(b, at);
    }
    h->norm_out = tern_bind_norm(b, "conv_norm_out", v->channels[0]);
    h->conv_out = tern_bind_conv(b, "conv_out", v->out_channels, v->channels[0], 3);
    tern_bind_leave(b, root);
}

static void bind_all(struct tern_bind *b, struct tern_vae *m)
{
    const struct tern_vae_config *v = &m->config;
    int64_t z = v->latent_channels;
    if (tern_bind_has(b, "encoder.conv_in.weight", true)) {
        bind_encoder(b, v, &m->encoder);
        if (v->quant_conv)
            m->quant = tern_bind_conv(b, "quant_conv", 2 * z, 2 * z, 1);
    }
    if (v->post_quant_conv)
        m->post_quant = tern_bind_conv(b, "post_quant_conv", z, z, 1);
    bind_decoder(b, v, &m->decoder);
}

static void bind_tiny(struct tern_bind *b, struct tern_vae *m)
{
    const struct tern_vae_config *v = &m->config;
    if (tern_bind_has(b, "encoder.layers.0.weight", true))
        tern_taesd_bind_encoder(b, &v->encoder, v->in_channels, v->latent_channels, &m->tiny_encoder);
    tern_taesd_bind_decoder(b, &v->decoder, v->latent_channels, v->out_channels, &m->tiny_decoder);
}

struct tern_vae *tern_vae_build(struct tern_context *ctx, const char *config, const char *where, struct tern_bind *b)
{
    struct tern_vae *m = tern_calloc(ctx, 1, sizeof(*m));
    if (!m)
        return NULL;
    m->ctx = ctx;
    if (tern_vae_read_config(ctx, config, where, &m->config) == TERN_OK)
        (m->config.tiny ? bind_tiny : bind_all)(b, m);
    return m;
}

struct tern_vae *tern_vae_create(struct tern_context *ctx, const char *config, const char *where, const struct tern_weights *weights)
{
    struct tern_bind b;
    if (tern_bind_begin(&b, ctx, weights, "vae"))
        return NULL;
    struct tern_vae *m = tern_vae_build(ctx, config, where, &b);
    struct tern_weights *bound;
    if (tern_bind_end(&b, &bound))
        tern_vae_destroy(&m);
    else
        m->weights = bound;
    return m;
}

static void half_destroy(struct tern_vae_half *h)
{
    for (int i = 0; i < TERN_MAX_BLOCKS; i++) {
        for (int j = 0; j < h->block[i].layers; j++)
            tern_resnet_destroy(&h->block[i].resnet[j]);
        tern_layer_destroy(&h->block[i].sample);
    }
    tern_resnet_destroy(&h->mid[0]);
    tern_resnet_destroy(&h->mid[1]);
    tern_layer_destroy(&h->attention_norm);
    tern_attention_destroy(&h->attention);
    tern_layer_destroy(&h->conv_in);
    tern_layer_destroy(&h->norm_out);
    tern_layer_destroy(&h->conv_out);
}

void tern_vae_destroy(struct tern_vae **vae)
{
    struct tern_vae *m = *vae;
    *vae = NULL;
    if (!m)
        return;
    half_destroy(&m->encoder);
    half_destroy(&m->decoder);
    tern_taesd_destroy(&m->tiny_encoder);
    tern_taesd_destroy(&m->tiny_decoder);
    tern_layer_destroy(&m->quant);
    tern_layer_destroy(&m->post_quant);
    tern_weights_unref(&m->weights);
    tern_free(m->ctx, m);
}
