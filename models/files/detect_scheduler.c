/* The schedulers of single files, which do not tell them: those of the published models. What the UNet predicts is told by some. */
#include <math.h>
#include <string.h>

#include "core/context.h"
#include "core/json.h"
#include "core/tensor.h"
#include "models/files/detect.h"

#define LAST_BIAS "model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias"
#define MOST_ELEMENTS 65536 /* of a bias */
#define V_SPREAD 0.09

enum told { TOLD_NOTHING, TOLD_NOISE, TOLD_V };

/* By the mark "v_pred", which other programs go by, then by what trainers (prediction_type, architecture) and ComfyUI (predict_key) write
 * into the header. */
static enum told what_is_told(const struct tern_detector *d)
{
    static const struct {
        const char *key, *start;
        enum told told;
    } values[] = {
        {TERN_LDM_PREDICTION, "epsilon", TOLD_NOISE},
        {TERN_LDM_PREDICTION, "v", TOLD_V},
        {"modelspec.predict_key", "epsilon", TOLD_NOISE},
        {"modelspec.predict_key", "v", TOLD_V},
        {"modelspec.architecture", "stable-diffusion-v2-512", TOLD_NOISE},
        {"modelspec.architecture", "stable-diffusion-v2-768-v", TOLD_V},
    };
    if (tern_detect_get(d, "v_pred"))
        return TOLD_V;
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        const char *value = tern_weights_metadata(d->w, values[i].key);
        if (value && !strncmp(value, values[i].start, strlen(values[i].start)))
            return values[i].told;
    }
    return TOLD_NOTHING;
}

/* The standard deviation of its elements; below 0: there are none, or the error is recorded. */
static double spread(const struct tern_detector *d, const tern_tensor *t)
{
    const int64_t n = t && tern_dtype_is_float(t->meta.dtype) ? tern_meta_numel(&t->meta) : 0;
    float *x = n > 0 && n <= MOST_ELEMENTS ? tern_alloc(d->ctx, (size_t)n * sizeof(*x)) : NULL;
    double mean = 0, squares = 0;
    const bool read = x && !tern_tensor_read(t, TERN_F32, x, (size_t)n * sizeof(*x));
    for (int64_t i = 0; read && i < n; i++)
        mean += x[i] / (double)n;
    for (int64_t i = 0; read && i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    tern_free(d->ctx, x);
    return read ? sqrt(squares / (double)n) : -1;
}

/* SD 2's files for 768 pixels predict v, those for 512 the noise. ComfyUI tells them by one bias (SD20.model_type); where it is missing v
 * is taken, as diffusers takes it for all of them. */
bool tern_detect_predicts_v(const struct tern_detector *d, bool by_weights)
{
    const enum told told = what_is_told(d);
    if (told || !by_weights)
        return told == TOLD_V;
    const double s = spread(d, tern_detect_get(d, LAST_BIAS));
    const bool v = s < 0 || s > V_SPREAD;
    if (s < 0)
        tern_message(d->ctx, TERN_LOG_INFO, "%s: it does not say what it predicts: v is taken, as in most files of Stable Diffusion 2",
                     d->where);
    else
        tern_message(d->ctx, TERN_LOG_INFO,
                     "%s: it does not say what it predicts: %s is taken, as \"" LAST_BIAS "\" has a deviation of %.3g (v: above %g)",
                     d->where, v ? "v" : "the noise", s, V_SPREAD);
    return v;
}

/* As scheduler_config.json of Stable Diffusion 1.5. */
char *tern_detect_scheduler_sd1(struct tern_context *ctx, bool v)
{
    json_t *o = json_pack("{s:s,s:s,s:f,s:s,s:f,s:i,s:b,s:b,s:i,s:n,s:b}", "_class_name", "PNDMScheduler", "_diffusers_version", "0.6.0",
                          "beta_end", 0.012, "beta_schedule", "scaled_linear", "beta_start", 0.00085, "num_train_timesteps", 1000,
                          "set_alpha_to_one", 0, "skip_prk_steps", 1, "steps_offset", 1, "trained_betas", "clip_sample", 0);
    if (v)
        tern_json_set(&o, "prediction_type", json_string("v_prediction"));
    return tern_detect_dump(ctx, o);
}

/* As scheduler_config.json of Stable Diffusion 2.1, its base and its inpainting model. */
char *tern_detect_scheduler_sd2(struct tern_context *ctx, bool v)
{
    return tern_detect_dump(ctx, json_pack("{s:s,s:s,s:f,s:s,s:f,s:b,s:i,s:s,s:b,s:b,s:i,s:n}", "_class_name", "DDIMScheduler",
                                           "_diffusers_version", "0.8.0", "beta_end", 0.012, "beta_schedule", "scaled_linear", "beta_start",
                                           0.00085, "clip_sample", 0, "num_train_timesteps", 1000, "prediction_type",
                                           v ? "v_prediction" : "epsilon", "set_alpha_to_one", 0, "skip_prk_steps", 1, "steps_offset", 1,
                                           "trained_betas"));
}

/* As scheduler_config.json of Stable Diffusion XL, base and refiner. Files of models that predict v say by a tensor "ztsnr" that they were
 * trained down to no signal at all: a mark of trainers that other programs know, too. */
char *tern_detect_scheduler_xl(const struct tern_detector *d, bool v)
{
    bool zero_snr = v && tern_detect_get(d, "ztsnr");
    if (tern_detect_get(d, "edm_mean") || tern_detect_get(d, "edm_vpred.sigma_max")) {
        tern_fail(d->ctx, TERN_E_UNSUPPORTED,
                  "%s: a model of SDXL's architecture with the noise levels of EDM (as Playground 2.5) is not supported", d->where);
        return NULL;
    }
    return tern_detect_dump(d->ctx, json_pack("{s:s,s:s,s:f,s:s,s:f,s:b,s:s,s:i,s:s,s:b,s:f,s:b,s:b,s:i,s:s,s:n,s:b}", "_class_name",
                                              "EulerDiscreteScheduler", "_diffusers_version", "0.19.0.dev0", "beta_end", 0.012,
                                              "beta_schedule", "scaled_linear", "beta_start", 0.00085, "clip_sample", 0,
                                              "interpolation_type", "linear", "num_train_timesteps", 1000, "prediction_type",
                                              v ? "v_prediction" : "epsilon", "rescale_betas_zero_snr", (int)zero_snr, "sample_max_value",
                                              1.0, "set_alpha_to_one", 0, "skip_prk_steps", 1, "steps_offset", 1, "timestep_spacing",
                                              zero_snr ? "trailing" : "leading", "trained_betas", "use_karras_sigmas", 0));
}
