/* The schedulers of single files, which do not tell them: those of the published models. */
#include "core/context.h"
#include "models/files/detect.h"

/* As scheduler_config.json of Stable Diffusion 1.5. */
char *tern_detect_scheduler_sd1(struct tern_context *ctx)
{
    return tern_detect_dump(ctx, json_pack("{s:s,s:s,s:f,s:s,s:f,s:i,s:b,s:b,s:i,s:n,s:b}", "_class_name", "PNDMScheduler",
                                           "_diffusers_version", "0.6.0", "beta_end", 0.012, "beta_schedule", "scaled_linear", "beta_start",
                                           0.00085, "num_train_timesteps", 1000, "set_alpha_to_one", 0, "skip_prk_steps", 1, "steps_offset",
                                           1, "trained_betas", "clip_sample", 0));
}

/* As scheduler_config.json of Stable Diffusion 2.1. Nothing in a file tells what is predicted: diffusers, too, takes every
 * file of SD 2 to be the one for 768 pixels, which predicts v; the inpainting model predicts the noise. */
char *tern_detect_scheduler_sd2(struct tern_context *ctx, bool inpaint)
{
    return tern_detect_dump(ctx, json_pack("{s:s,s:s,s:f,s:s,s:f,s:b,s:i,s:s,s:b,s:b,s:i,s:n}", "_class_name", "DDIMScheduler",
                                           "_diffusers_version", "0.8.0", "beta_end", 0.012, "beta_schedule", "scaled_linear", "beta_start",
                                           0.00085, "clip_sample", 0, "num_train_timesteps", 1000, "prediction_type",
                                           inpaint ? "epsilon" : "v_prediction", "set_alpha_to_one", 0, "skip_prk_steps", 1, "steps_offset",
                                           1, "trained_betas"));
}

/* As scheduler_config.json of Stable Diffusion XL, base and refiner, which predict the noise. Files of models that predict v say so by a
 * tensor "v_pred", and by "ztsnr" that they were trained down to no signal at all: a mark of trainers that other programs know, too. */
char *tern_detect_scheduler_xl(const struct tern_detector *d)
{
    bool v = tern_detect_get(d, "v_pred") != NULL, zero_snr = v && tern_detect_get(d, "ztsnr");
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
