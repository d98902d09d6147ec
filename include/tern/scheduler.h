/* Noise schedules and samplers with the numbers of diffusers. Works on host arrays of f32. */
#ifndef TERN_SCHEDULER_H
#define TERN_SCHEDULER_H

#include <tern/random.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tern_sampler {
    TERN_SAMPLER_DEFAULT = 0, /* the one that the model's index names, or else its scheduler_config.json */
    TERN_SAMPLER_DDIM,
    TERN_SAMPLER_PNDM,
    TERN_SAMPLER_EULER,
    TERN_SAMPLER_EULER_A,
    TERN_SAMPLER_DPMPP_2M,
    TERN_SAMPLER_HEUN,
    TERN_SAMPLER_LMS,
    TERN_SAMPLER_UNIPC,
    TERN_SAMPLER_LCM,
    TERN_SAMPLER_DPM2,
    TERN_SAMPLER_DPM2_A,
    TERN_SAMPLER_DDPM,
    TERN_SAMPLER_TCD,
    TERN_SAMPLER_DPMPP_2S_A, /* from here on k-diffusion's, which diffusers has not */
    TERN_SAMPLER_DPMPP_SDE,
    TERN_SAMPLER_DPMPP_2M_SDE,
    TERN_SAMPLER_DPMPP_2M_SDE_HEUN,
    TERN_SAMPLER_DPMPP_3M_SDE,
    TERN_SAMPLER_DPM_FAST,
    TERN_SAMPLER_DPM_ADAPTIVE, /* steps count in img2img only; the pictures of a batch share their steps */
    TERN_SAMPLER_COUNT
};

enum tern_schedule {
    TERN_SCHEDULE_DEFAULT = 0, /* what the config and sampler say */
    TERN_SCHEDULE_KARRAS,
    TERN_SCHEDULE_EXPONENTIAL,
    TERN_SCHEDULE_BETA,
    TERN_SCHEDULE_SGM_UNIFORM, /* from here on A1111's: over all training sigmas, down to 0 */
    TERN_SCHEDULE_SIMPLE,
    TERN_SCHEDULE_NORMAL,
    TERN_SCHEDULE_DDIM_UNIFORM,
    TERN_SCHEDULE_ALIGN_YOUR_STEPS, /* the levels for Stable Diffusion 1.x */
    TERN_SCHEDULE_COUNT
};

/* "euler_a" …; parse also takes diffusers' class names ("EulerAncestralDiscreteScheduler") and
 * A1111's ("Euler a", "DPM++ 2M Karras": then *schedule is set too, if not NULL). COUNT when unknown. */
TERN_API const char *tern_sampler_name(enum tern_sampler s);
TERN_API enum tern_sampler tern_sampler_parse(const char *name, enum tern_schedule *schedule);
TERN_API const char *tern_schedule_name(enum tern_schedule s);
TERN_API enum tern_schedule tern_schedule_parse(const char *name);
/* A1111's: "SGM Uniform" … */
TERN_API const char *tern_schedule_label(enum tern_schedule s);

/* What a sampler can be told besides its config, in the words of k-diffusion and A1111. Zero: the default that stands beside it. */
struct tern_sampler_options {
    double eta;            /* how much of its noise an ancestral, DPM or SDE sampler adds (1), or ddim (0), at most 10; tcd's gamma (0.3, as
                            * diffusers' TCDScheduler.step; its pipelines say 0 to it), at most 1; negative: none */
    double s_churn;        /* euler, heun, dpm2: noise before each step [Karras 2022, algorithm 2]; at most 1000; 0 */
    double s_tmin, s_tmax; /* noise levels between which that is done; 0 and infinity */
    double s_noise;        /* factor of the noise of all these samplers but ddim and tcd; at most 10; 1; negative: none */
    /* Noise levels are those of one step more without the last one before 0: A1111's always_discard_next_to_last_sigma, which it always
     * does for dpm2, dpm2_a and dpm++3m_sde. Samplers with schedules have it. */
    bool discard_penultimate_sigma;
    /* karras, exponential and beta go from the model's highest noise level to its lowest and then to 0, and timesteps are not rounded, as in
     * k-diffusion and A1111; diffusers has the levels of the run's own timesteps, or what the config says. Samplers with schedules have it.
     */
    bool k_diffusion_levels;
    bool sdxl; /* the levels of align_your_steps are those for Stable Diffusion XL; jobs choose by their model */
};

struct tern_scheduler;

/* Makes a sampler from a scheduler_config.json text (NULL: SD 1.5's). As diffusers' from_config: keys
 * that are present count, all others are the sampler class's defaults. Errors: bad JSON, a key of the
 * wrong type, a sampler that has no schedules (both named). */
TERN_API struct tern_scheduler *tern_scheduler_create(struct tern_context *ctx, const char *config_json, enum tern_sampler sampler,
                                                      enum tern_schedule schedule);
TERN_API void tern_scheduler_destroy(struct tern_scheduler **s);
TERN_API enum tern_sampler tern_scheduler_sampler(const struct tern_scheduler *s);

/* Sets the options, NULL: the defaults; takes the steps back. TERN_E_INVALID when the sampler does not have one that is given, or for a
 * number out of range. */
TERN_API enum tern_status tern_scheduler_set_options(struct tern_scheduler *s, const struct tern_sampler_options *options);

/* set_timesteps(steps): 1..num_train_timesteps (1000). Resets the state. */
TERN_API enum tern_status tern_scheduler_set_steps(struct tern_scheduler *s, int steps);

/* Model calls in all (heun: 2n - 1, pndm: n + 1 …), and the timestep of call i, as the UNet gets it. dpm_adaptive decides on its
 * calls as it goes: after a step there may be more, until the last one. */
TERN_API int tern_scheduler_calls(const struct tern_scheduler *s);
/* For a display: the same, or while there may be more what it looks like to be, at least tern_scheduler_calls. */
TERN_API int tern_scheduler_expected_calls(const struct tern_scheduler *s);
TERN_API double tern_scheduler_timestep(const struct tern_scheduler *s, int i);
/* sigmas[i] as diffusers keeps them, calls + 1 of them where the sampler has sigmas; else 0. Of samplers with calls
 * between the levels (dpm2 …) the noise level of each call; before churn. */
TERN_API int tern_scheduler_sigma_count(const struct tern_scheduler *s);
TERN_API double tern_scheduler_sigma(const struct tern_scheduler *s, int i);
/* What unit noise is multiplied with before the first call; of NULL 1. */
TERN_API double tern_scheduler_init_noise_sigma(const struct tern_scheduler *s);

/* img2img: the first call for that strength (0..1), as diffusers' get_timesteps; sets the begin index. Of dpm_fast and
 * dpm_adaptive 0: their calls are laid out anew from that step's level on. Equal to
 * tern_scheduler_calls when steps x strength is under 1: there is nothing to do. -1 with the error recorded when strength
 * is not in 0..1 or no steps are set. */
TERN_API int tern_scheduler_begin_at(struct tern_scheduler *s, double strength);

/* Two models one after the other: how many calls belong to the first `part` (0..1) of the training timesteps, as diffusers'
 * denoising_end counts them. */
TERN_API int tern_scheduler_calls_until(const struct tern_scheduler *s, double part);
/* The first call behind them, as diffusers' denoising_start; sets the begin index. -1 as tern_scheduler_begin_at, and of dpm_fast and
 * dpm_adaptive, which choose their steps themselves (TERN_E_UNSUPPORTED). */
TERN_API int tern_scheduler_begin_behind(struct tern_scheduler *s, double part);

/* Pictures in one sample (1): a config with "thresholding" limits each picture by itself. */
TERN_API enum tern_status tern_scheduler_set_batch(struct tern_scheduler *s, int pictures);

/* scale_model_input at call i: out may be x. */
TERN_API void tern_scheduler_scale_input(const struct tern_scheduler *s, int i, const float *x, float *out, int64_t n);

/* add_noise at call i (img2img, inpaint): out = noisy version of x. */
TERN_API void tern_scheduler_add_noise(const struct tern_scheduler *s, int i, const float *x, const float *noise, float *out, int64_t n);

/* Whether step i, the next one, draws noise. */
TERN_API bool tern_scheduler_draws_noise(const struct tern_scheduler *s, int i);

/* s_churn: whether the sample gets noise before call i, and that: it rises to the level at which the call is made. Noise is drawn where
 * the level does not rise (s_tmin, s_tmax), too, as k-diffusion does. Must be called where tern_scheduler_churns, before the call's
 * input is scaled. noise: n values of unit noise. */
TERN_API bool tern_scheduler_churns(const struct tern_scheduler *s, int i);
TERN_API enum tern_status tern_scheduler_churn(struct tern_scheduler *s, int i, const float *noise, float *sample, int64_t n);

/* Samplers of an SDE (dpm++sde …) take the noise of a Brownian motion over the noise levels, tern_brownian_noise; of k-diffusion's
 * numbers only with that. noise_range: its lowest and highest level; noise_span: between which levels step i goes, in the order
 * of tern_brownian_noise. False, with nothing set: the sampler, or step i, takes no such noise. */
TERN_API bool tern_scheduler_noise_range(const struct tern_scheduler *s, double *low, double *high);
TERN_API bool tern_scheduler_noise_span(const struct tern_scheduler *s, int i, double *from, double *to);

/* One step: sample (n values) and the model's output at call i -> sample of call i + 1, in place.
 * noise: n values of unit noise when tern_scheduler_draws_noise(s, i), else ignored. Calls must be made
 * in order, each once. f32 arithmetic as diffusers does it (coefficients as there). */
TERN_API enum tern_status tern_scheduler_step(struct tern_scheduler *s, int i, const float *model_output, const float *noise, float *sample,
                                              int64_t n);

#ifdef __cplusplus
}
#endif
#endif
