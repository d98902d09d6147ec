/* The schedulers of single files, which do not tell them: those of the published models. */
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

/* As scheduler_config.json of Stable Diffusion XL, base and refiner. */
char *tern_detect_scheduler_xl(struct tern_context *ctx)
{
    return tern_detect_dump(ctx, json_pack("{s:s,s:s,s:f,s:s,s:f,s:b,s:s,s:i,s:s,s:f,s:b,s:b,s:i,s:s,s:n,s:b}", "_class_name",
                                           "EulerDiscreteScheduler", "_diffusers_version", "0.19.0.dev0", "beta_end", 0.012,
                                           "beta_schedule", "scaled_linear", "beta_start", 0.00085, "clip_sample", 0, "interpolation_type",
                                           "linear", "num_train_timesteps", 1000, "prediction_type", "epsilon", "sample_max_value", 1.0,
                                           "set_alpha_to_one", 0, "skip_prk_steps", 1, "steps_offset", 1, "timestep_spacing", "leading",
                                           "trained_betas", "use_karras_sigmas", 0));
}
