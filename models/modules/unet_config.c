/* config.json of a UNet2DConditionModel. Defaults are those of the diffusers class. */
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "models/modules/unet.h"

/* Features that change the architecture and that no Stable Diffusion uses: refused by name. */
static void refuse_foreign(const struct tern_config *c)
{
    static const char *const keys[][2] = {
        {"addition_embed_type", "text_time"},
        {"class_embed_type", ""},
        {"num_class_embeds", ""},
        {"encoder_hid_dim_type", ""},
        {"attention_type", "default"},
        {"dual_cross_attention", ""},
        {"only_cross_attention", ""},
        {"mid_block_only_cross_attention", ""},
        {"resnet_time_scale_shift", "default"},
        {"resnet_skip_time_act", ""},
        {"resnet_out_scale_factor", "1.0 1"},
        {"mid_block_scale_factor", "1 1.0"},
        {"time_embedding_type", "positional"},
        {"time_embedding_act_fn", ""},
        {"timestep_post_act", ""},
        {"conv_in_kernel", "3"},
        {"conv_out_kernel", "3"},
        {"cross_attention_norm", ""},
        {"class_embeddings_concat", ""},
        {"time_embedding_dim", ""},
        {"encoder_hid_dim", ""},
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        tern_config_only(c, keys[i][0], keys[i][1]);
}

static void read_types(const struct tern_config *c, const char *key, const char *plain, const char *cross, const char *const *fallback,
                       int n, bool *out)
{
    const char *types[TERN_MAX_BLOCKS];
    int found = tern_config_strings(c, key, TERN_MAX_BLOCKS, types);
    if (!found && n == 4) {
        memcpy(types, fallback, sizeof(*types) * 4);
        found = 4;
    }
    if (found != n) {
        tern_fail(c->ctx, TERN_E_FORMAT, "%s: \"%s\": expected %d entries, one a block, found %d", c->where, key, n, found);
        return;
    }
    for (int i = 0; i < n; i++) {
        out[i] = !strcmp(types[i], cross);
        if (!out[i] && strcmp(types[i], plain))
            tern_fail(c->ctx, TERN_E_UNSUPPORTED, "%s: \"%s\": block type %s is not supported; expected %s or %s", c->where, key, types[i],
                      plain, cross);
    }
}

static void read_blocks(const struct tern_config *c, struct tern_unet_config *u)
{
    static const char *const down[] = {"CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"};
    static const char *const up[] = {"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"};
    static const int64_t channels[] = {320, 640, 1280, 1280};
    u->blocks = tern_config_list(c, "block_out_channels", TERN_MAX_BLOCKS, 1, 1 << 16, u->channels);
    if (!u->blocks) {
        u->blocks = 4;
        memcpy(u->channels, channels, sizeof(channels));
    }
    read_types(c, "down_block_types", "DownBlock2D", "CrossAttnDownBlock2D", down, u->blocks, u->cross_down);
    read_types(c, "up_block_types", "UpBlock2D", "CrossAttnUpBlock2D", up, u->blocks, u->cross_up);
    const char *mid = tern_config_string(c, "mid_block_type", "UNetMidBlock2DCrossAttn");
    if (strcmp(mid, "UNetMidBlock2DCrossAttn"))
        tern_fail(c->ctx, TERN_E_UNSUPPORTED, "%s: \"mid_block_type\": %s is not supported; expected UNetMidBlock2DCrossAttn or null",
                  c->where, mid);
    u->mid = !json_is_null(json_object_get(c->json, "mid_block_type")); /* not there is not null */
    tern_config_ints(c, "layers_per_block", u->blocks, 2, 1, TERN_MAX_UNET_LAYERS - 1, u->layers);
    /* diffusers: the key attention_head_dim holds the number of heads, and the one of that name is refused */
    tern_config_ints(c, "attention_head_dim", u->blocks, 8, 1, 1 << 12, u->heads);
    tern_config_only(c, "num_attention_heads", "");
    tern_config_ints(c, "cross_attention_dim", u->blocks, 1280, 1, 1 << 16, u->context);
    tern_config_ints(c, "transformer_layers_per_block", u->blocks, 1, 1, 64, u->depth);
    for (int i = 0; i < u->blocks; i++)
        u->up_depth[i] = u->depth[u->blocks - 1 - i];
    if (json_is_array(json_object_get(c->json, "reverse_transformer_layers_per_block")))
        tern_config_ints(c, "reverse_transformer_layers_per_block", u->blocks, 1, 1, 64, u->up_depth);
}

/* Whether a version is below 0.9, "0.6.0" say. None is not. */
static bool is_before_0_9(const char *version)
{
    char *end = NULL;
    const long major = version ? strtol(version, &end, 10) : 1;
    return version && *end == '.' && end > version && !major && strtol(end + 1, NULL, 10) < 9;
}

static void read_sizes(const struct tern_config *c, struct tern_unet_config *u)
{
    int64_t size[2] = {64, 64};
    if (json_is_array(json_object_get(c->json, "sample_size"))) {
        if (tern_config_list(c, "sample_size", 2, 1, 1 << 14, size) == 1)
            size[1] = size[0];
    } else {
        size[0] = size[1] = tern_config_int(c, "sample_size", 64, 1, 1 << 14);
        u->doubtful_size = size[0] < 64 && is_before_0_9(json_string_value(json_object_get(c->json, "_diffusers_version")));
    }
    u->sample_h = size[0];
    u->sample_w = size[1];
    u->in_channels = tern_config_int(c, "in_channels", 4, 1, 1 << 10);
    u->out_channels = tern_config_int(c, "out_channels", 4, 1, 1 << 10);
    u->groups = (int)tern_config_int(c, "norm_num_groups", 32, 1, 1 << 12);
    u->downsample_padding = (int)tern_config_int(c, "downsample_padding", 1, 0, 1);
    u->eps = tern_config_number(c, "norm_eps", 1e-5);
    u->freq_shift = tern_config_number(c, "freq_shift", 0);
    u->flip_sin_to_cos = tern_config_bool(c, "flip_sin_to_cos", true);
    u->center_input = tern_config_bool(c, "center_input_sample", false);
    u->linear_projection = tern_config_bool(c, "use_linear_projection", false);
    u->act = tern_activation_parse(tern_config_string(c, "act_fn", "silu"));
    if (u->act != TERN_ACT_SILU)
        tern_fail(c->ctx, TERN_E_UNSUPPORTED, "%s: \"act_fn\": only silu is supported", c->where);
    if (json_is_integer(json_object_get(c->json, "time_cond_proj_dim")))
        u->guidance = tern_config_int(c, "time_cond_proj_dim", 256, 4, 1 << 12);
    if (json_is_string(json_object_get(c->json, "addition_embed_type"))) {
        u->time_ids = tern_config_int(c, "addition_time_embed_dim", 256, 2, 1 << 12);
        u->pooled = tern_config_int(c, "projection_class_embeddings_input_dim", 2816, 1, 1 << 16);
    }
}

static void check(const struct tern_config *c, const struct tern_unet_config *u)
{
    for (int i = 0; i < u->blocks; i++) {
        if (u->channels[i] % u->groups)
            tern_fail(c->ctx, TERN_E_FORMAT, "%s: block_out_channels[%d] %lld is no multiple of norm_num_groups %d", c->where, i,
                      (long long)u->channels[i], u->groups);
        bool attends = u->cross_down[i] || u->cross_up[u->blocks - 1 - i] || (u->mid && i == u->blocks - 1);
        if (attends && u->channels[i] % u->heads[i])
            tern_fail(c->ctx, TERN_E_FORMAT, "%s: block_out_channels[%d] %lld is no multiple of its %lld heads (attention_head_dim)",
                      c->where, i, (long long)u->channels[i], (long long)u->heads[i]);
    }
}

enum tern_status tern_unet_read_config(struct tern_context *ctx, const char *config, const char *where, struct tern_unet_config *out)
{
    struct tern_config c;
    memset(out, 0, sizeof(*out));
    if (tern_config_open(&c, ctx, config, where) == TERN_OK) {
        refuse_foreign(&c);
        read_blocks(&c, out);
        read_sizes(&c, out);
        if (!tern_failed(ctx))
            check(&c, out);
    }
    tern_config_close(&c);
    return tern_error_status(ctx);
}
