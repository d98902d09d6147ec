/* The inside of a scheduler: configuration, noise table, schedule, and the function table that a sampler fills. */
#ifndef TERN_MODELS_SCHEDULERS_SCHEDULER_H
#define TERN_MODELS_SCHEDULERS_SCHEDULER_H

#include <tern/scheduler.h>

#include "core/context.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/status.h"

enum tern_beta_schedule { TERN_BETA_LINEAR, TERN_BETA_SCALED_LINEAR, TERN_BETA_COSINE };
enum tern_prediction { TERN_PREDICT_EPSILON, TERN_PREDICT_V, TERN_PREDICT_SAMPLE };
enum tern_spacing { TERN_SPACING_LEADING, TERN_SPACING_LINSPACE, TERN_SPACING_TRAILING };
enum tern_final_sigma { TERN_FINAL_ZERO, TERN_FINAL_SIGMA_MIN };
enum tern_solver_type { TERN_SOLVER_MIDPOINT, TERN_SOLVER_HEUN, TERN_SOLVER_LOGRHO, TERN_SOLVER_BH1, TERN_SOLVER_BH2 };

/* The keys of a scheduler_config.json, by diffusers' names. Enumerations are ints, so that one table can fill all. */
struct tern_scheduler_config {
    int64_t num_train_timesteps, steps_offset, solver_order, original_inference_steps;
    double beta_start, beta_end;
    double clip_sample_range, dynamic_thresholding_ratio, sample_max_value, timestep_scaling, lambda_min_clipped;
    double sigma_min, sigma_max; /* NaN: not given */
    int beta_schedule, prediction_type, timestep_spacing, final_sigmas_type, solver_type;
    bool clip_sample, thresholding, set_alpha_to_one, skip_prk_steps, rescale_betas_zero_snr;
    bool use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas;
    bool lower_order_final, euler_at_final;
};

/* How a sampler sees a noisy sample of x0 and noise e.
 * TABLE: sqrt(a) x0 + sqrt(1 - a) e with a = alphas_cumprod[timestep];
 * UNIT: the same from sigmas[i], a = 1 / (sigma^2 + 1); GROWING: x0 + sigma e, scaled down for the model. */
enum tern_noise_form { TERN_NOISE_TABLE, TERN_NOISE_UNIT, TERN_NOISE_GROWING };

/* Room that set_steps finds: pndm needs n + 9, heun 2 n; ddim_uniform can make nearly 2 n levels of n steps. */
#define TERN_SCHEDULER_ROOM(steps) (4 * (size_t)(steps) + 16)

#define TERN_SCHEDULER_MAX_ROWS 6
#define TERN_SOLVER_MAX_ORDER 3

/* dpm_solver.c: a step of dpm_fast or dpm_adaptive. Times are -ln sigma. */
struct tern_dpm_step {
    double start, end;       /* of the run */
    double time, next, down; /* where the step begins and ends, and how far down it goes before noise */
    double up;               /* noise */
    int first, order;        /* its calls */
    double h, error;         /* dpm_adaptive: length of the next step, error of the last */
    bool accepted;
};

/* The noise levels that a step's noise belongs to. */
struct tern_noise_span {
    float from, to;
};

/* The options that a sampler has. */
enum { TERN_TAKES_ETA = 1, TERN_TAKES_NOISE = 2, TERN_TAKES_CHURN = 4 };

struct tern_sampler_fns {
    enum tern_sampler sampler;
    const char *name;       /* tern's */
    const char *class_name; /* diffusers' */
    const char *aliases[3]; /* other names, lower case, without blanks */
    enum tern_noise_form noise;
    bool has_schedules, has_sample_prediction;
    bool discards;                         /* A1111 discards the last but one of its noise levels unasked */
    int calls_per_step;                    /* the `order` of diffusers, for img2img */
    int most_calls;                        /* 0: set_steps knows them all */
    unsigned takes;                        /* of TERN_TAKES_… */
    int rows;                              /* arrays of n values that a run needs; at most TERN_SCHEDULER_MAX_ROWS */
    struct tern_scheduler_config defaults; /* of diffusers' class */
    /* Fills timesteps, sigmas and calls of s for s->steps; see timesteps.c. */
    enum tern_status (*set_steps)(struct tern_scheduler *s);
    /* x (n values) of call i -> x of call i + 1, in place. s->done calls were made since the begin index. noise: NULL where
     * draws_noise says no. */
    void (*step)(struct tern_scheduler *s, int i, const float *model_output, const float *noise, float *x, int64_t n);
    bool (*draws_noise)(const struct tern_scheduler *s, int i);                  /* NULL: never */
    struct tern_noise_span (*noise_span)(const struct tern_scheduler *s, int i); /* NULL: noise is not a Brownian motion's */
    /* With TERN_TAKES_CHURN: the level of a call between two. NULL: there is none. */
    float (*middle)(const struct tern_scheduler *s, float from, float to);
    /* Inpainting: before a call between two levels the noise is that of the lower one, as diffusers' classes have it. */
    bool lower_noise;
    /* img2img: lays the calls out anew for a run without that many steps. NULL: it begins at a later call. */
    enum tern_status (*skip_steps)(struct tern_scheduler *s, int steps);
    /* After call i: adds the calls that are known then. NULL: none. */
    enum tern_status (*extend)(struct tern_scheduler *s, int i);
    int (*expected)(const struct tern_scheduler *s); /* calls in all, of a sampler that extends */
    double eta;                                      /* how much of the noise that a step may add; 0: it has none */
    double most_eta;                                 /* 0: 10 */
};

struct tern_scheduler {
    struct tern_context *ctx;
    const struct tern_sampler_fns *fns;
    struct tern_scheduler_config config;
    enum tern_schedule schedule;         /* asked for, or else the config's */
    struct tern_sampler_options options; /* with the numbers that count */
    int churned;                         /* one more than the call that churn was made for */
    float *trained_betas;                /* num_train_timesteps of them, NULL: beta_schedule */
    float *alphas_cumprod;               /* num_train_timesteps */
    float *train_sigmas;                 /* num_train_timesteps: sqrt((1 - a) / a) */

    int steps; /* of set_steps; 0 before it */
    int calls;
    int begin;         /* first call */
    bool anew;         /* it begins with nothing known, as if no call were before it */
    int done;          /* calls made since begin */
    double *timesteps; /* calls; TERN_SCHEDULER_ROOM */
    float *sigmas;     /* sigma_count = calls + 1, or none; TERN_SCHEDULER_ROOM */
    int sigma_count;

    int batch; /* pictures in a sample */
    int64_t n; /* values of a sample; 0 before the first step */
    float *row_memory;
    float *rows[TERN_SCHEDULER_MAX_ROWS]; /* n values each; a sampler may exchange the pointers */
    int stored;                           /* model outputs kept so far, as the sampler counts them */
    int order;                            /* unipc: order of the last predictor */
    struct tern_dpm_step dpm;             /* dpm_fast, dpm_adaptive: the step of the next call */
};

/* What k-diffusion's samplers have in common with diffusers' classes of the GROWING form. */
#define TERN_GROWING_DEFAULTS                                                                                            \
    {                                                                                                                    \
        .num_train_timesteps = 1000, .beta_start = 0.00085, .beta_end = 0.012, .timestep_spacing = TERN_SPACING_LINSPACE \
    }

/* Begins anew behind so many steps, as k-diffusion's samplers do when they get the last noise levels alone, where tern_scheduler_begin_at
 * does what diffusers does: the first call, also as begin index, or -1 with the error recorded. */
int tern_scheduler_skip(struct tern_scheduler *s, int steps);

/* registry.c: the row of a sampler; NULL for DEFAULT and values that are none. */
const struct tern_sampler_fns *tern_sampler_fns(enum tern_sampler sampler);
/* The row of a class of diffusers. NULL with the error recorded, which begins with where the class is named. */
const struct tern_sampler_fns *tern_sampler_of_class(struct tern_context *ctx, const char *where, const char *class_name);
/* "ddim, pndm, …" or, with schedules_only, those that take a schedule. */
void tern_sampler_list(char *out, size_t size, bool schedules_only);
/* Whether two names of something are the same to people: case, blanks, brackets, '_' and '-' do not count. */
bool tern_same_name(const char *a, const char *b);
/* "default, karras, …" */
void tern_schedule_list(char *out, size_t size);

#define TERN_SCHEDULER_CONFIG "scheduler_config.json"

/* config_text.c: the file's object, or Stable Diffusion 1.5's when text is NULL. NULL with the error recorded. json_decref. */
json_t *tern_scheduler_parse(struct tern_context *ctx, const char *text);
/* The text with what diffusers' pipelines correct in old files (StableDiffusionPipeline.__init__ and its img2img and inpaint
 * sisters): steps_offset is 1; clip_sample is off, or when inpainting skip_prk_steps is on. A sampler that is not the
 * own gets only values that stand in the file, as by from_config(pipe.scheduler.config). The own one is index_class, of
 * model_index.json, or where that is NULL the file's. tern_free; NULL with the error recorded. */
char *tern_scheduler_correct(struct tern_context *ctx, const char *text, const char *index_class, enum tern_sampler sampler, bool inpaint);

/* config.c: reads the keys that the class of s->fns knows over its defaults. */
enum tern_status tern_scheduler_read_config(struct tern_scheduler *s, const json_t *config, const char *where);

/* noise_table.c: fills alphas_cumprod and train_sigmas. */
enum tern_status tern_scheduler_make_table(struct tern_scheduler *s);

/* timesteps.c. Each sets s->calls and s->timesteps (descending, at most T-1) from config and steps:
 * whole: whole numbers, T / n apart; fractional: linspace is not rounded;
 * solver: whole numbers, n + 1 points without the lowest (DPM-Solver's convention). */
enum tern_status tern_timesteps_whole(struct tern_scheduler *s);
enum tern_status tern_timesteps_fractional(struct tern_scheduler *s);
enum tern_status tern_timesteps_solver(struct tern_scheduler *s);
/* n of the original_inference_steps timesteps of a distillation (lcm, tcd): k - 1, 2 k - 1 …, evenly spaced by index. */
enum tern_status tern_timesteps_distilled(struct tern_scheduler *s);
/* The noise that belongs to model output m for a sample x = alpha x0 + sigma e. */
float tern_predict_noise(const struct tern_scheduler *s, float alpha, float sigma, float m, float x);
/* TERN_E_INVALID when a timestep has alphas_cumprod 0 and the model predicts noise, of which no x0 follows. */
enum tern_status tern_timesteps_check_signal(struct tern_scheduler *s);
/* tern_timesteps_whole, and that check */
enum tern_status tern_timesteps_signalled(struct tern_scheduler *s);

/* schedules.c: fills `level` (TERN_SCHEDULER_ROOM) with the levels of s->schedule, falling, and returns their number. min and
 * max bound those of diffusers' schedules. */
int tern_schedule_levels(const struct tern_scheduler *s, double min, double max, double *level);
/* ln of a training sigma, f32 as diffusers keeps it */
float tern_log_sigma(const struct tern_scheduler *s, int64_t t);
/* beta_quantile.c: x with P(X <= x) = p for the beta distribution with both parameters a. */
double tern_beta_quantile(double a, double p);

/* sigmas.c: the timestep that a noise level belongs to, linear in ln sigma. */
double tern_timestep_of(const struct tern_scheduler *s, double sigma);

/* options.c: the level at which call i is made; with s_churn not that of the schedule. */
float tern_call_sigma(const struct tern_scheduler *s, int i);
/* Whether noise is drawn for this run that is no Brownian motion's. */
bool tern_scheduler_draws_fresh(const struct tern_scheduler *s);
/* How often the calls before the begin index draw it. */
int tern_scheduler_draws_before(const struct tern_scheduler *s);

/* midpoint.c. An ancestral step from one level to the next: down past it, and noise up to it (of that, eta). */
struct tern_ancestral {
    float up, down;
};
struct tern_ancestral tern_ancestral_step(const struct tern_scheduler *s, float from, float to);
/* set_steps of a sampler with a call between two levels: at middle(s, from, to), to > 0. */
enum tern_status tern_midpoint_steps(struct tern_scheduler *s, float (*middle)(const struct tern_scheduler *s, float from, float to));
/* Halfway from one level to another in ln sigma, rounded as k-diffusion's DPM++ samplers do; 0 when `to` is. */
float tern_log_middle(float from, float to);
/* With the second call of each step, if eta is not 0. */
bool tern_midpoint_draws_noise(const struct tern_scheduler *s, int i);

/* sigmas.c. Sigmas with the final one; with a schedule the timesteps are replaced.
 * growing: sets the timesteps, too; sigma range of the chosen timesteps, fractional timesteps;
 * solver: from the timesteps; whole range, rounded timesteps. */
enum tern_status tern_growing_steps(struct tern_scheduler *s);
enum tern_status tern_sigmas_solver(struct tern_scheduler *s);

/* predict.c: x0 from model output m. */
/* x = alpha x0 + sigma e */
void tern_predict_unit(const struct tern_scheduler *s, float alpha, float sigma, const float *m, const float *x, float *x0, int64_t n);
/* x = x0 + sigma e */
void tern_predict_growing(const struct tern_scheduler *s, float sigma, const float *m, const float *x, float *x0, int64_t n);
/* Of call i, whose sample is x, for whoever wants to see it; nothing of the run changes. */
void tern_scheduler_predict_clean(const struct tern_scheduler *s, int i, const float *m, const float *x, float *x0, int64_t n);
/* clip_sample, thresholding; s->rows[scratch] is overwritten by thresholding. */
void tern_predict_limit(struct tern_scheduler *s, float *x0, int scratch, int64_t n);

/* Moves rows 0..count-1, newest first, on by one: the oldest becomes row 0, to be written. */
float *tern_newest_row(struct tern_scheduler *s, int count);
/* x = x + s_noise up noise; nothing without noise. */
void tern_add_noise(const struct tern_scheduler *s, float *x, const float *noise, float up, int64_t n);

/* alpha and sigma of a unit-variance sample for a ratio sigma / alpha, and ln(alpha / sigma); f32 as PyTorch does it. */
struct tern_unit_noise {
    float alpha, sigma, lambda;
};
struct tern_unit_noise tern_unit_noise(float ratio);
float tern_exp_f32(float x);
float tern_expm1_f32(float x);

extern const struct tern_sampler_fns tern_sampler_ddim, tern_sampler_pndm, tern_sampler_euler, tern_sampler_euler_a, tern_sampler_dpmpp_2m,
    tern_sampler_heun, tern_sampler_lms, tern_sampler_unipc, tern_sampler_lcm, tern_sampler_dpm2, tern_sampler_dpm2_a, tern_sampler_ddpm,
    tern_sampler_tcd, tern_sampler_dpmpp_2s_a, tern_sampler_dpmpp_sde, tern_sampler_dpmpp_2m_sde, tern_sampler_dpmpp_2m_sde_heun,
    tern_sampler_dpmpp_3m_sde, tern_sampler_dpm_fast, tern_sampler_dpm_adaptive;

#endif
