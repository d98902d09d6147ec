/* scheduler_config.json -> struct tern_scheduler_config. As diffusers' from_config: a key counts when it is in the file and
 * the sampler's class takes it; everything else has the class's default. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

#define BIT(sampler) (1u << TERN_SAMPLER_##sampler)
#define ALL (~0u)
#define SDES (BIT(DPMPP_SDE) | BIT(DPMPP_2M_SDE) | BIT(DPMPP_2M_SDE_HEUN) | BIT(DPMPP_3M_SDE))
#define SOLVERS (BIT(DPMPP_2M) | BIT(UNIPC))
/* Who may have levels by a formula. They begin and end where the file says, also those of classes that do not take these keys, since
 * diffusers keeps every key. */
#define FORMULAS (BIT(EULER) | BIT(HEUN) | BIT(LMS) | SOLVERS | BIT(DPM2) | BIT(DPM2_A) | BIT(DPMPP_2S_A) | SDES)
#define CLIPS (BIT(DDIM) | BIT(HEUN) | BIT(LCM) | BIT(DDPM))
#define THRESHOLDS (BIT(DDIM) | BIT(LCM) | BIT(DDPM) | SOLVERS)
/* Those of k-diffusion alone have Euler's levels. */
#define AS_EULER (SDES | BIT(DPMPP_2S_A) | BIT(DPM_FAST) | BIT(DPM_ADAPTIVE))
#define RESCALES (BIT(DDIM) | BIT(EULER) | BIT(EULER_A) | BIT(LCM) | BIT(DDPM) | BIT(TCD) | SOLVERS | AS_EULER)
#define ENDS_IN_TABLE (BIT(DDIM) | BIT(PNDM) | BIT(LCM))

/* In the order of the enumerations. */
static const char *const beta_schedules[] = {"linear", "scaled_linear", "squaredcos_cap_v2", NULL};
static const char *const predictions[] = {"epsilon", "v_prediction", "sample", NULL};
static const char *const spacings[] = {"leading", "linspace", "trailing", NULL};
static const char *const final_sigmas[] = {"zero", "sigma_min", NULL};
static const char *const solver_types[] = {"midpoint", "heun", "logrho", "bh1", "bh2", NULL};

enum kind { WHOLE, NUMBER, FLAG, CHOICE };

struct key {
    const char *name;
    unsigned samplers;
    enum kind kind;
    size_t offset;
    double min, max; /* WHOLE, NUMBER */
    const char *const *choices;
};

#define AT(field) offsetof(struct tern_scheduler_config, field)
#define MANY 1e30
#define HIGH 1e9   /* its square is within the range of f32 */
#define TINY 1e-30 /* stands for "greater than zero" */

static const struct key keys[] = {
    {"num_train_timesteps", ALL, WHOLE, AT(num_train_timesteps), 2, 1000000, NULL},
    {"steps_offset", ALL, WHOLE, AT(steps_offset), 0, 1000000, NULL},
    {"beta_start", ALL, NUMBER, AT(beta_start), 0, 1, NULL},
    {"beta_end", ALL, NUMBER, AT(beta_end), 0, 1, NULL},
    {"beta_schedule", ALL, CHOICE, AT(beta_schedule), 0, 0, beta_schedules},
    {"prediction_type", ALL, CHOICE, AT(prediction_type), 0, 0, predictions},
    {"timestep_spacing", ALL, CHOICE, AT(timestep_spacing), 0, 0, spacings},
    {"rescale_betas_zero_snr", RESCALES, FLAG, AT(rescale_betas_zero_snr), 0, 0, NULL},
    {"clip_sample", CLIPS, FLAG, AT(clip_sample), 0, 0, NULL},
    {"clip_sample_range", CLIPS, NUMBER, AT(clip_sample_range), TINY, MANY, NULL},
    {"thresholding", THRESHOLDS, FLAG, AT(thresholding), 0, 0, NULL},
    {"dynamic_thresholding_ratio", THRESHOLDS, NUMBER, AT(dynamic_thresholding_ratio), 0, 1, NULL},
    {"sample_max_value", THRESHOLDS, NUMBER, AT(sample_max_value), TINY, MANY, NULL},
    {"set_alpha_to_one", ENDS_IN_TABLE, FLAG, AT(set_alpha_to_one), 0, 0, NULL},
    {"skip_prk_steps", BIT(PNDM), FLAG, AT(skip_prk_steps), 0, 0, NULL},
    {"use_karras_sigmas", FORMULAS, FLAG, AT(use_karras_sigmas), 0, 0, NULL},
    {"use_exponential_sigmas", FORMULAS, FLAG, AT(use_exponential_sigmas), 0, 0, NULL},
    {"use_beta_sigmas", FORMULAS, FLAG, AT(use_beta_sigmas), 0, 0, NULL},
    {"sigma_min", FORMULAS, NUMBER, AT(sigma_min), TINY, HIGH, NULL},
    {"sigma_max", FORMULAS, NUMBER, AT(sigma_max), TINY, HIGH, NULL},
    {"final_sigmas_type", SOLVERS | BIT(EULER), CHOICE, AT(final_sigmas_type), 0, 0, final_sigmas},
    {"solver_order", SOLVERS, WHOLE, AT(solver_order), 1, TERN_SOLVER_MAX_ORDER, NULL},
    {"solver_type", SOLVERS, CHOICE, AT(solver_type), 0, 0, solver_types},
    {"lower_order_final", SOLVERS, FLAG, AT(lower_order_final), 0, 0, NULL},
    {"euler_at_final", BIT(DPMPP_2M), FLAG, AT(euler_at_final), 0, 0, NULL},
    {"lambda_min_clipped", BIT(DPMPP_2M), NUMBER, AT(lambda_min_clipped), -MANY, MANY, NULL},
    {"original_inference_steps", BIT(LCM) | BIT(TCD), WHOLE, AT(original_inference_steps), 1, 1000000, NULL},
    {"timestep_scaling", BIT(LCM), NUMBER, AT(timestep_scaling), -MANY, MANY, NULL},
};

/* Keys of the classes that would change the numbers and that tern knows with one value only. */
struct fixed {
    const char *name;
    unsigned samplers;
    const char *allowed[2]; /* as compact JSON; null is always allowed */
};

static const struct fixed fixed_keys[] = {
    {"use_lu_lambdas", BIT(DPMPP_2M), {"false"}},
    {"use_flow_sigmas", SOLVERS, {"false"}},
    {"use_dynamic_shifting", SOLVERS, {"false"}},
    {"interpolation_type", BIT(EULER), {"\"linear\""}},
    {"timestep_type", BIT(EULER), {"\"discrete\""}},
    {"algorithm_type", BIT(DPMPP_2M), {"\"dpmsolver++\"", "\"deis\""}}, /* diffusers takes deis for dpmsolver++ */
    {"variance_type", BIT(DPMPP_2M), {"null"}},
    {"variance_type", BIT(DDPM), {"\"fixed_small\""}},
    {"predict_x0", BIT(UNIPC), {"true"}},
    {"disable_corrector", BIT(UNIPC), {"[]"}},
    {"solver_p", BIT(UNIPC), {"null"}},
    {"shift_terminal", BIT(UNIPC), {"null"}},
};

static enum tern_status read_choice(struct tern_context *ctx, const json_t *config, const char *where, const struct key *k, int *out)
{
    const char *word = NULL;
    enum tern_status status = tern_json_string(ctx, config, where, k->name, &word);
    if (status || !word)
        return status;
    char list[128] = "";
    size_t used = 0;
    for (int i = 0; k->choices[i]; i++) {
        if (strcmp(word, k->choices[i]) == 0) {
            *out = i;
            return TERN_OK;
        }
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", k->choices[i]);
    }
    return tern_fail(ctx, TERN_E_UNSUPPORTED, "%s: \"%s\": expected one of %s; found \"%.40s\"", where, k->name, list, word);
}

static enum tern_status read_number(struct tern_context *ctx, const json_t *config, const char *where, const struct key *k, double *out)
{
    /* Python writes -Infinity for "not clipped"; see quote_words. */
    const char *word = json_string_value(json_object_get(config, k->name));
    if (word && k->min < 0 && strcmp(word, "-Infinity") == 0)
        return TERN_OK;
    double x = *out;
    enum tern_status status = tern_json_number(ctx, config, where, k->name, &x);
    if (status)
        return status;
    /* A default (infinity, NaN) need not lie in the range. */
    const json_t *v = json_object_get(config, k->name);
    if (v && !json_is_null(v) && (x < k->min || x > k->max))
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"%s\": expected a number %s %g%s, found %g", where, k->name,
                         k->min == TINY ? "greater than" : "from", k->min == TINY ? 0 : k->min, k->max == 1 ? " to 1" : "", x);
    *out = x;
    return TERN_OK;
}

static enum tern_status read_key(struct tern_context *ctx, const json_t *config, const char *where, const struct key *k,
                                 struct tern_scheduler_config *c)
{
    char *field = (char *)c + k->offset;
    switch (k->kind) {
    case WHOLE:
        return tern_json_int(ctx, config, where, k->name, (int64_t)k->min, (int64_t)k->max, (int64_t *)(void *)field);
    case NUMBER:
        return read_number(ctx, config, where, k, (double *)(void *)field);
    case FLAG:
        if (json_is_null(json_object_get(config, k->name))) /* as None does in Python, whatever the default is */
            *(bool *)field = false;
        return tern_json_bool(ctx, config, where, k->name, (bool *)field);
    default:
        return read_choice(ctx, config, where, k, (int *)(void *)field);
    }
}

static enum tern_status check_fixed(const struct tern_scheduler *s, const json_t *config, const char *where, const struct fixed *f)
{
    const json_t *v = json_object_get(config, f->name);
    if (!v || json_is_null(v))
        return TERN_OK;
    char *text = tern_json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        return tern_fail(s->ctx, TERN_E_NO_MEMORY, "%s: no memory to read it", where);
    bool ok = strcmp(text, f->allowed[0]) == 0 || (f->allowed[1] && strcmp(text, f->allowed[1]) == 0);
    if (!ok)
        tern_fail(s->ctx, TERN_E_UNSUPPORTED, "%s: \"%s\": %s knows only %s, found %.60s; another sampler may do", where, f->name,
                  s->fns->name, f->allowed[0], text);
    free(text);
    return ok ? TERN_OK : TERN_E_UNSUPPORTED;
}

static enum tern_status read_trained_betas(struct tern_scheduler *s, const json_t *config, const char *where)
{
    const json_t *list = json_object_get(config, "trained_betas");
    if (!list || json_is_null(list))
        return TERN_OK;
    size_t n = json_array_size(list), expected = (size_t)s->config.num_train_timesteps;
    if (!json_is_array(list) || n != expected)
        return tern_fail(s->ctx, TERN_E_FORMAT, "%s: \"trained_betas\": expected a list of %zu numbers (num_train_timesteps), found %zu",
                         where, expected, n);
    s->trained_betas = tern_calloc(s->ctx, n, sizeof(float));
    if (!s->trained_betas)
        return tern_error_status(s->ctx);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_number(v))
            return tern_fail(s->ctx, TERN_E_FORMAT, "%s: \"trained_betas\"[%zu]: expected a number", where, i);
        s->trained_betas[i] = (float)json_number_value(v);
    }
    return TERN_OK;
}

enum tern_status tern_scheduler_read_config(struct tern_scheduler *s, const json_t *config, const char *where)
{
    unsigned bit = 1u << s->fns->sampler;
    s->config = s->fns->defaults;
    s->config.sigma_min = s->config.sigma_max = NAN;
    s->config.lambda_min_clipped = -INFINITY;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        enum tern_status status = keys[i].samplers & bit ? read_key(s->ctx, config, where, &keys[i], &s->config) : TERN_OK;
        if (status)
            return status;
    }
    for (size_t i = 0; i < sizeof(fixed_keys) / sizeof(fixed_keys[0]); i++) {
        enum tern_status status = fixed_keys[i].samplers & bit ? check_fixed(s, config, where, &fixed_keys[i]) : TERN_OK;
        if (status)
            return status;
    }
    if (s->config.prediction_type == TERN_PREDICT_SAMPLE && !s->fns->has_sample_prediction)
        return tern_fail(s->ctx, TERN_E_UNSUPPORTED,
                         "%s: \"prediction_type\": %s knows epsilon and v_prediction, found \"sample\"; choose another sampler", where,
                         s->fns->name);
    return read_trained_betas(s, config, where);
}
