/* AutoencoderTiny: configuration, weights and forward passes.       [madebyollin/taesd; diffusers' AutoencoderTiny] */
#include "models/modules/taesd.h"

#include <stdio.h>

#include "core/context.h"
#include "core/tensor.h"

void tern_taesd_read_config(const struct tern_config *c, const char *half, struct tern_taesd_config *out)
{
    static const int usual[] = {1, 3, 3, 3}; /* of the encoder; the decoder has them in the other order */
    char widths[32], counts[32];
    int64_t channels[TERN_MAX_BLOCKS], blocks[TERN_MAX_BLOCKS];
    snprintf(widths, sizeof(widths), "%s_block_out_channels", half);
    snprintf(counts, sizeof(counts), "num_%s_blocks", half);
    int n = tern_config_list(c, widths, TERN_MAX_BLOCKS, 1, 1 << 14, channels),
        m = tern_config_list(c, counts, TERN_MAX_BLOCKS, 0, TERN_MAX_TINY_BLOCKS, blocks);
    out->channels = n ? channels[0] : 64;
    n = n ? n : 4;
    out->stages = m ? m : 4;
    for (int i = 0; i < out->stages; i++)
        out->blocks[i] = m ? (int)blocks[i] : usual[half[0] == 'e' ? i : 3 - i];
    if (n != out->stages)
        tern_fail(c->ctx, TERN_E_FORMAT, "%s: \"%s\" has %d entries, \"%s\" has %d; expected one a stage of both", c->where, widths, n,
                  counts, out->stages);
    for (int i = 1; i < n && !tern_failed(c->ctx); i++)
        if (channels[i] != channels[0])
            tern_fail(c->ctx, TERN_E_UNSUPPORTED, "%s: \"%s\": stages of %lld and %lld channels; all must have as many", c->where, widths,
                      (long long)channels[0], (long long)channels[i]);
}

/* The layer at a place of the half's list. */
static struct tern_layer bind_conv(struct tern_bind *b, int place, int64_t out, int64_t in, bool bias)
{
    char name[24];
    snprintf(name, sizeof(name), "layers.%d", place);
    return bias ? tern_bind_conv(b, name, out, in, 3) : tern_bind_conv_without_bias(b, name, out, in, 3);
}

static void bind_block(struct tern_bind *b, int place, int64_t channels, struct tern_layer *block)
{
    static const char *const names[] = {"conv.0", "conv.2", "conv.4"};
    size_t at = tern_bind_enter(b, "layers.%d", place);
    for (int i = 0; i < 3; i++)
        block[i] = tern_bind_conv(b, names[i], channels, channels, 3);
    tern_bind_leave(b, at);
}

/* The list counts layers without weights, too: what of them follows the first convolution, and what a stage but the last ends with. */
static void bind_half(struct tern_bind *b, const char *name, const struct tern_taesd_config *c, int64_t in, int64_t out, int silent,
                      struct tern_taesd_half *h)
{
    size_t at = tern_bind_enter(b, "%s", name);
    int place = 0;
    h->conv[0] = bind_conv(b, place++, c->channels, in, true);
    place += silent;
    for (int i = 0; i < c->stages; i++) {
        bool last = i + 1 == c->stages;
        for (int k = 0; k < c->blocks[i]; k++)
            bind_block(b, place++, c->channels, h->block[i][k]);
        place += last ? 0 : silent;
        h->conv[i + 1] = bind_conv(b, place++, last ? out : c->channels, c->channels, last);
    }
    tern_bind_leave(b, at);
}

void tern_taesd_bind_encoder(struct tern_bind *b, const struct tern_taesd_config *c, int64_t in, int64_t latent, struct tern_taesd_half *h)
{
    bind_half(b, "encoder", c, in, latent, 0, h);
}

/* Silent are the ReLU behind the first convolution, and the steps up. */
void tern_taesd_bind_decoder(struct tern_bind *b, const struct tern_taesd_config *c, int64_t latent, int64_t out, struct tern_taesd_half *h)
{
    bind_half(b, "decoder", c, latent, out, 1, h);
}

void tern_taesd_destroy(struct tern_taesd_half *h)
{
    for (int i = 0; i <= TERN_MAX_BLOCKS; i++)
        tern_layer_destroy(&h->conv[i]);
    for (int i = 0; i < TERN_MAX_BLOCKS; i++)
        for (int k = 0; k < TERN_MAX_TINY_BLOCKS; k++)
            for (int j = 0; j < 3; j++)
                tern_layer_destroy(&h->block[i][k][j]);
}

/* x (N, C, H, W) -> the same */
static tern_tensor *stage(struct tern_context *ctx, const struct tern_taesd_config *c, const struct tern_taesd_half *h, int i,
                          tern_tensor *x)
{
    tern_scope_begin(ctx);
    for (int k = 0; k < c->blocks[i]; k++) {
        const struct tern_layer *l = h->block[i][k];
        tern_tensor *y = tern_relu(tern_apply_conv(&l[0], x));
        y = tern_apply_conv(&l[2], tern_relu(tern_apply_conv(&l[1], y)));
        x = tern_scope_next(ctx, tern_relu(tern_add(y, x)));
    }
    return tern_scope_end(ctx, x);
}

tern_tensor *tern_taesd_decode(struct tern_context *ctx, const struct tern_taesd_config *c, const struct tern_taesd_half *h,
                               tern_tensor *latent)
{
    tern_scope_begin(ctx);
    tern_tensor *x = tern_mul_scalar(tern_tanh(tern_mul_scalar(latent, 1.0 / 3)), 3);
    x = tern_scope_next(ctx, tern_relu(tern_apply_conv(&h->conv[0], x)));
    for (int i = 0; i < c->stages; i++) {
        x = stage(ctx, c, h, i, x);
        if (i + 1 < c->stages)
            x = tern_interpolate(x, .scale_factor = 2, .mode = TERN_NEAREST);
        x = tern_scope_next(ctx, tern_apply_conv(&h->conv[i + 1], x));
    }
    return tern_scope_end(ctx, tern_add_scalar(tern_mul_scalar(x, 2), -1)); /* it was trained on 0..1 */
}

tern_tensor *tern_taesd_encode(struct tern_context *ctx, const struct tern_taesd_config *c, const struct tern_taesd_half *h,
                               tern_tensor *picture)
{
    tern_scope_begin(ctx);
    tern_tensor *x = tern_mul_scalar(tern_add_scalar(picture, 1), 0.5);
    x = tern_scope_next(ctx, tern_apply_conv(&h->conv[0], x));
    for (int i = 0; i < c->stages; i++) {
        const struct tern_layer *next = &h->conv[i + 1];
        x = stage(ctx, c, h, i, x);
        x = tern_scope_next(ctx, i + 1 < c->stages ? tern_apply_downsample(next, x, 1) : tern_apply_conv(next, x));
    }
    return tern_scope_end(ctx, x);
}
