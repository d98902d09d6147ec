/* What a single file can say of a checkpoint: read again, it has to be the same model. */
#include <stdio.h>
#include <string.h>

#include "core/tensor.h"
#include "models/files/checkpoint.h"
#include "models/files/weights.h"
#include "models/modules/config.h"
#include "models/pipelines/convert.h"
#include "models/pipelines/pipeline.h"
#include "models/schedulers/scheduler.h"

static const char *const components[] = {"text_encoder", "text_encoder_2"};

enum tern_status tern_convert_read_text(struct tern_context *ctx, const char *config, const char *where, struct tern_convert_text *out)
{
    struct tern_config c;
    if (tern_config_open(&c, ctx, config, where))
        return tern_error_status(ctx);
    out->layers = tern_config_int(&c, "num_hidden_layers", 12, 1, 1000);
    out->heads = tern_config_int(&c, "num_attention_heads", 8, 1, 1024);
    out->eps = tern_config_number(&c, "layer_norm_eps", 1e-5);
    snprintf(out->act, sizeof(out->act), "%s", tern_config_string(&c, "hidden_act", "quick_gelu"));
    tern_config_close(&c);
    return tern_error_status(ctx);
}

enum tern_status tern_convert_no_form(const struct tern_checkpoint *cp, const char *what)
{
    return tern_fail(cp->ctx, TERN_E_UNSUPPORTED, "%s: there is no single file of it: %s; a folder (--folder) keeps it",
                     tern_checkpoint_path(cp), what);
}

/* What the scheduler predicts; "epsilon" when it does not say. */
enum tern_status tern_convert_prediction(struct tern_context *ctx, const char *config, char out[32], bool *zero_snr)
{
    struct tern_config c = {ctx, TERN_SCHEDULER_CONFIG, tern_scheduler_parse(ctx, config)};
    snprintf(out, 32, "%s", tern_config_string(&c, "prediction_type", "epsilon"));
    *zero_snr = tern_config_bool(&c, "rescale_betas_zero_snr", false);
    tern_config_close(&c);
    return tern_error_status(ctx);
}

/* The set that a reader will find, without elements but for vectors: a norm's may tell what is predicted. */
static struct tern_weights *as_read(const struct tern_convert_list *l)
{
    static const char nothing[1];
    struct tern_weights *w = tern_weights_create(l->ctx);
    for (int i = 0; w && i < l->count; i++) {
        const struct tern_safetensors_entry *e = &l->item[i].entry;
        const bool whole = e->ndim == 1 && l->item[i].parts == 1;
        tern_tensor *t =
            whole ? tern_tensor_ref(l->item[i].part[0]) : tern_tensor_wrap(l->ctx, e->dtype, e->ndim, e->shape, nothing, NULL, NULL);
        if (!t || tern_weights_add(w, e->name, t))
            tern_weights_unref(&w);
        tern_tensor_unref(&t);
    }
    if (w && l->prediction && tern_weights_add_metadata(w, TERN_LDM_PREDICTION, l->prediction))
        tern_weights_unref(&w);
    return w;
}

/* Of a level without attention its depth, heads and context are nothing; the mid block has those of the last level. */
static bool same_unet(const struct tern_unet_config *a, const struct tern_unet_config *b)
{
    bool same = a->blocks == b->blocks && a->groups == b->groups && a->eps == b->eps && a->act == b->act &&
                a->freq_shift == b->freq_shift && a->flip_sin_to_cos == b->flip_sin_to_cos && a->center_input == b->center_input &&
                a->downsample_padding == b->downsample_padding && a->linear_projection == b->linear_projection &&
                a->time_ids == b->time_ids && a->mid == b->mid;
    for (int i = 0; i < a->blocks && same; i++) {
        const bool mid = a->mid && i == a->blocks - 1, attends = mid || a->cross_down[i] || a->cross_up[a->blocks - 1 - i];
        same = (a->depth[i] == b->depth[i] || !(mid || a->cross_down[i])) && (a->up_depth[i] == b->up_depth[i] || !a->cross_up[i]) &&
               ((a->context[i] == b->context[i] && a->heads[i] == b->heads[i]) || !attends);
    }
    return same;
}

static bool same_vae(const struct tern_vae_config *a, const struct tern_vae_config *b)
{
    return a->groups == b->groups && a->scaling_factor == b->scaling_factor && a->quant_conv == b->quant_conv &&
           a->post_quant_conv == b->post_quant_conv && a->mid_attention == b->mid_attention;
}

/* What a reader makes of the file is the model that there is. */
static enum tern_status check_read(struct tern_context *ctx, const struct tern_checkpoint *cp, const struct tern_detected *d)
{
    struct tern_unet_config u[2];
    struct tern_vae_config v[2];
    const char *unet[] = {tern_checkpoint_config(cp, "unet"), d->unet}, *vae[] = {tern_checkpoint_config(cp, "vae"), d->vae};
    const char *texts[][2] = {{tern_checkpoint_config(cp, "text_encoder"), d->text_encoder},
                              {tern_checkpoint_config(cp, "text_encoder_2"), d->text_encoder_2}};
    for (int i = 0; i < 2; i++)
        if (tern_unet_read_config(ctx, unet[i], "unet", &u[i]) || tern_vae_read_config(ctx, vae[i], "vae", &v[i]))
            return tern_error_status(ctx);
    if (!same_unet(&u[0], &u[1]))
        return tern_convert_no_form(cp, "its UNet's heads, groups or other settings are not those that a reader takes such a file to have");
    if (!same_vae(&v[0], &v[1]))
        return tern_convert_no_form(cp, "its VAE's groups or scaling factor are not those that a reader takes such a file to have");
    for (int i = 0; i < 2; i++) {
        struct tern_convert_text t[2] = {{0}, {0}};
        if (!texts[i][0])
            continue;
        if (tern_convert_read_text(ctx, texts[i][0], components[i], &t[0]) ||
            tern_convert_read_text(ctx, texts[i][1], components[i], &t[1]))
            return tern_error_status(ctx);
        if (t[0].layers != t[1].layers || t[0].heads != t[1].heads || t[0].eps != t[1].eps || strcmp(t[0].act, t[1].act))
            return tern_convert_no_form(
                cp, "its text encoder's heads, activation or layer_norm_eps are not those that a reader takes such a file to have");
    }
    if (u[0].sample_w != u[1].sample_w || u[0].sample_h != u[1].sample_h)
        tern_message(ctx, TERN_LOG_WARN,
                     "%s: its UNet's own size is %lld x %lld; a single file of it does not tell, and is taken for %lld x %lld",
                     tern_checkpoint_path(cp), (long long)u[0].sample_w, (long long)u[0].sample_h, (long long)u[1].sample_w,
                     (long long)u[1].sample_h);
    return TERN_OK;
}

/* What SDXL's folders say in their index has no place in a file. */
static enum tern_status check_index(struct tern_context *ctx, const struct tern_checkpoint *cp, enum tern_ldm_family family)
{
    const bool refiner = family == TERN_LDM_REFINER;
    struct tern_index was, is;
    if (family < TERN_LDM_XL)
        return TERN_OK;
    if (tern_pipeline_read_index(ctx, tern_checkpoint_index(cp), refiner, &was) || tern_pipeline_read_index(ctx, NULL, refiner, &is))
        return tern_error_status(ctx);
    if (was.scales_edited != is.scales_edited)
        return tern_convert_no_form(cp, "its pictures come in scaled (is_cosxl_edit), which a reader of such a file does not learn");
    if (was.force_zeros != is.force_zeros)
        return tern_convert_no_form(cp,
                                    "its negative prompt that is not given (force_zeros_for_empty_prompt) is not that of published models");
    return TERN_OK;
}

/* Whether the noise is what betas make of it: jobs have a sampler of the class, or its file has them and it is none of EDM's. */
static bool has_betas(const json_t *config, const char *class_name)
{
    for (int i = TERN_SAMPLER_DEFAULT + 1; i < TERN_SAMPLER_COUNT; i++)
        if (!strcmp(tern_sampler_fns((enum tern_sampler)i)->class_name, class_name))
            return true;
    return strncmp(class_name, "EDM", 3) != 0 &&
           (json_is_number(json_object_get(config, "beta_start")) || json_is_array(json_object_get(config, "trained_betas")));
}

/* The class that the index or else the file names is told by no single file. */
static enum tern_status check_scheduler(struct tern_context *ctx, const struct tern_checkpoint *cp)
{
    char text[TERN_PRINTABLE], what[TERN_PRINTABLE + 128];
    json_t *config = tern_scheduler_parse(ctx, tern_checkpoint_scheduler(cp));
    const char *of_index = tern_checkpoint_scheduler_class(cp),
               *class_name = of_index ? of_index : json_string_value(json_object_get(config, "_class_name"));
    if (class_name && !has_betas(config, class_name)) {
        snprintf(what, sizeof(what), "the noise levels of its scheduler, %s, are not those that a reader makes of betas",
                 tern_printable(class_name, strlen(class_name), text));
        tern_convert_no_form(cp, what);
    }
    json_decref(config);
    return tern_error_status(ctx);
}

static enum tern_status warn_of_prediction(struct tern_context *ctx, const struct tern_checkpoint *cp, const struct tern_detected *d)
{
    char was[32], is[32];
    bool zero_snr;
    if (tern_convert_prediction(ctx, tern_checkpoint_scheduler(cp), was, &zero_snr) ||
        tern_convert_prediction(ctx, d->scheduler, is, &zero_snr))
        return tern_error_status(ctx);
    if (strcmp(was, is))
        tern_message(ctx, TERN_LOG_WARN, "%s: its scheduler predicts \"%s\"; a single file of it does not tell, and is taken for \"%s\"",
                     tern_checkpoint_path(cp), was, is);
    return TERN_OK;
}

/* Whether a file's value is another than what is said, if anything is. */
static bool differs(const json_t *said, const json_t *is)
{
    if (!said || json_is_null(said) || json_is_false(said))
        return false;
    return json_is_number(said) && json_is_number(is) ? json_number_value(said) != json_number_value(is) : !json_equal(said, is);
}

/* The noise that the model was trained with, which is nobody's choice. */
static enum tern_status warn_of_noise(struct tern_context *ctx, const struct tern_checkpoint *cp, const struct tern_detected *d)
{
    static const char *const keys[] = {"beta_start", "beta_end", "beta_schedule", "trained_betas", "rescale_betas_zero_snr"};
    json_t *was = tern_scheduler_parse(ctx, tern_checkpoint_scheduler(cp)), *is = was ? tern_scheduler_parse(ctx, d->scheduler) : NULL;
    for (size_t i = 0; is && i < sizeof(keys) / sizeof(*keys); i++)
        if (differs(json_object_get(was, keys[i]), json_object_get(is, keys[i])))
            tern_message(ctx, TERN_LOG_WARN,
                         "%s: its scheduler has a \"%s\" of its own; a single file of it does not tell, and is taken for the published "
                         "models'",
                         tern_checkpoint_path(cp), keys[i]);
    json_decref(was);
    json_decref(is);
    return tern_error_status(ctx);
}

/* Before anything is written. */
enum tern_status tern_convert_check(const struct tern_convert_list *l, const struct tern_checkpoint *cp, const char *out)
{
    struct tern_detected d = {0};
    struct tern_weights *w = as_read(l);
    enum tern_status st = w ? tern_detect_sd(l->ctx, w, out, &d) : tern_error_status(l->ctx);
    if (st == TERN_E_FORMAT) { /* it would call a file damaged that is not there */
        tern_error_clear_own(l->ctx);
        st = tern_convert_no_form(cp, "its networks have other sizes than a reader can tell from the tensors of such a file");
    }
    if (!st)
        st = check_index(l->ctx, cp, d.sizes.family);
    if (!st)
        st = check_scheduler(l->ctx, cp);
    if (!st)
        st = check_read(l->ctx, cp, &d);
    if (!st)
        st = warn_of_prediction(l->ctx, cp, &d);
    if (!st)
        st = warn_of_noise(l->ctx, cp, &d);
    tern_detected_free(l->ctx, &d);
    tern_weights_unref(&w);
    return st;
}
