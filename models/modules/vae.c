/* The forward passes of AutoencoderKL, and the way to those of AutoencoderTiny. */
#include "models/modules/vae.h"

#include "core/context.h"
#include "core/tensor.h"

/* resnet, single-head attention over all pixels, resnet */
static tern_tensor *mid(const struct tern_vae *m, const struct tern_vae_half *h, tern_tensor *x)
{
    x = tern_apply_resnet(&h->mid[0], x, NULL);
    if (h->attention.q.w && x) {
        int64_t height = tern_tensor_size(x, 2), width = tern_tensor_size(x, 3);
        tern_scope_begin(m->ctx);
        tern_tensor *t = tern_to_tokens(tern_apply_group_norm(&h->attention_norm, x, m->config.groups, 1e-6));
        t = tern_attend(&h->attention, t, t, NULL, false);
        x = tern_scope_end(m->ctx, tern_add(x, tern_from_tokens(t, height, width)));
    }
    return tern_apply_resnet(&h->mid[1], x, NULL);
}

static tern_tensor *block(struct tern_context *ctx, const struct tern_vae_block *b, tern_tensor *x, bool up)
{
    tern_scope_begin(ctx);
    for (int i = 0; i < b->layers; i++)
        x = tern_scope_next(ctx, tern_apply_resnet(&b->resnet[i], x, NULL));
    if (b->sample.w && up)
        x = tern_apply_conv(&b->sample, tern_interpolate(x, .scale_factor = 2, .mode = TERN_NEAREST));
    else if (b->sample.w)
        x = tern_apply_downsample(&b->sample, x, 0);
    return tern_scope_end(ctx, x);
}

static tern_tensor *out(const struct tern_vae *m, const struct tern_vae_half *h, tern_tensor *x)
{
    return tern_apply_conv(&h->conv_out, tern_silu(tern_apply_group_norm(&h->norm_out, x, m->config.groups, 1e-6)));
}

static enum tern_status check_input(const struct tern_vae *m, const tern_tensor *x, int64_t channels, int64_t least, const char *what)
{
    char text[TERN_META_TEXT];
    if (!x)
        return tern_failed(m->ctx) ? tern_error_status(m->ctx) : tern_fail(m->ctx, TERN_E_INVALID, "vae: %s is needed", what);
    if (tern_tensor_ndim(x) != 4 || tern_tensor_size(x, 0) < 1 || tern_tensor_size(x, 1) != channels || tern_tensor_size(x, 2) < least ||
        tern_tensor_size(x, 3) < least)
        return tern_fail(m->ctx, TERN_E_SHAPE, "vae: %s: expected (N, %lld, H, W), H and W at least %lld, found %s", what,
                         (long long)channels, (long long)least, tern_meta_text(&x->meta, text));
    return TERN_OK;
}

tern_tensor *tern_vae_decode(const struct tern_vae *m, tern_tensor *latent)
{
    if (check_input(m, latent, m->config.latent_channels, 1, "latent"))
        return NULL;
    if (m->config.tiny)
        return tern_taesd_decode(m->ctx, &m->config.decoder, &m->tiny_decoder, latent);
    tern_scope_begin(m->ctx);
    tern_tensor *x = m->post_quant.w ? tern_apply_conv(&m->post_quant, latent) : latent;
    x = tern_scope_next(m->ctx, mid(m, &m->decoder, tern_apply_conv(&m->decoder.conv_in, x)));
    for (int i = 0; i < m->config.blocks; i++)
        x = tern_scope_next(m->ctx, block(m->ctx, &m->decoder.block[i], x, true));
    return tern_scope_end(m->ctx, out(m, &m->decoder, x));
}

enum tern_status tern_vae_encode(const struct tern_vae *m, tern_tensor *picture, tern_tensor **mean, tern_tensor **logvar)
{
    tern_tensor *both[2] = {NULL, NULL};
    int64_t z = m->config.latent_channels;
    *mean = *logvar = NULL;
    if (!m->encoder.conv_in.w && !m->tiny_encoder.conv[0].w)
        return tern_fail(m->ctx, TERN_E_UNSUPPORTED, "vae: these weights have no encoder");
    if (check_input(m, picture, m->config.in_channels, (int64_t)1 << (m->config.blocks - 1), "sample"))
        return tern_error_status(m->ctx);
    if (m->config.tiny) {
        *mean = tern_taesd_encode(m->ctx, &m->config.encoder, &m->tiny_encoder, picture);
        return tern_error_status(m->ctx);
    }
    tern_scope_begin(m->ctx);
    tern_tensor *x = tern_apply_conv(&m->encoder.conv_in, picture);
    for (int i = 0; i < m->config.blocks; i++)
        x = tern_scope_next(m->ctx, block(m->ctx, &m->encoder.block[i], x, false));
    x = out(m, &m->encoder, mid(m, &m->encoder, x));
    x = m->quant.w ? tern_apply_conv(&m->quant, x) : x;
    both[0] = tern_contiguous(tern_slice(x, 1, 0, z, 1), TERN_CONTIGUOUS);
    both[1] = tern_clamp(tern_contiguous(tern_slice(x, 1, z, 2 * z, 1), TERN_CONTIGUOUS), -30, 20);
    tern_scope_end_many(m->ctx, both, 2);
    *mean = both[0];
    *logvar = both[1];
    return tern_error_status(m->ctx);
}
