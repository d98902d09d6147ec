/* Fields of an infotext that every job has. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/pipelines/infotext_known.h"
#include "models/pipelines/pipeline.h"
#include "models/prompts/prompts.h"

bool tern_infotext_whole(const char *v, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    int64_t n = strtoll(v, &end, 10);
    bool ok = end != v && !*end && !errno && n >= min && n <= max;
    if (ok)
        *out = n;
    return ok;
}

bool tern_infotext_number(const char *v, double min, double max, double *out)
{
    double n = tern_prompt_is_number(v, strlen(v)) ? tern_prompt_number(v) : NAN;
    bool ok = n >= min && n <= max;
    if (ok)
        *out = n;
    return ok;
}

bool tern_infotext_int(const char *v, int min, int max, int *out)
{
    int64_t n = 0;
    bool ok = tern_infotext_whole(v, min, max, &n);
    if (ok)
        *out = (int)n;
    return ok;
}

bool tern_infotext_pair(const char *v, int least, int most, int *width, int *height)
{
    int w = 0, h = 0, end = 0;
    if (sscanf(v, "%5dx%5d%n", &w, &h, &end) != 2 || v[end] || w < least || h < least || w > most || h > most)
        return false;
    *width = w;
    *height = h;
    return true;
}

static bool take_steps(struct tern_infotext_reading *r, const char *v) { return tern_infotext_int(v, 1, TERN_MAX_STEPS, &r->params.steps); }
static bool take_skip(struct tern_infotext_reading *r, const char *v) { return tern_infotext_int(v, 1, 64, &r->params.clip_skip); }
static bool take_tags(struct tern_infotext_reading *r, const char *v) { return r->ours && tern_infotext_int(v, 1, 1000, &r->tags); }
static bool take_strength(struct tern_infotext_reading *r, const char *v) { return tern_infotext_number(v, 1e-6, 1, &r->params.strength); }
static bool take_nothing(struct tern_infotext_reading *r, const char *v) { return true; }
static bool take_padding(struct tern_infotext_reading *r, const char *v) { return !strcmp(v, "True"); }

static bool take_cfg(struct tern_infotext_reading *r, const char *v)
{
    const bool ok = tern_infotext_number(v, 0, TERN_MAX_GUIDANCE, &r->params.cfg);
    r->params.cfg = ok && r->params.cfg == 0 ? TERN_CFG_ZERO : r->params.cfg;
    return ok;
}

/* Below 1 only tern's means no guidance. */
static bool take_image_cfg(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_number(v, r->ours ? 1e-6 : 1, TERN_MAX_GUIDANCE, &r->params.image_guidance_scale);
}

static bool take_seed(struct tern_infotext_reading *r, const char *v)
{
    char *end;
    errno = 0;
    uint64_t n = strtoull(v, &end, 10);
    bool ok = *v >= '0' && *v <= '9' && !*end && !errno;
    if (ok)
        r->params.seed = n;
    r->has_seed = ok;
    return ok;
}

static bool take_size(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_pair(v, 8, TERN_MAX_SIDE, &r->params.width, &r->params.height);
}

/* "GPU": a GPU's own, which A1111 has when it is not told otherwise; "NV": the same made elsewhere. */
static bool take_generator(struct tern_infotext_reading *r, const char *v)
{
    if (strcmp(v, "CPU") && strcmp(v, "NV") && strcmp(v, "GPU"))
        return false;
    r->params.generator = strcmp(v, "CPU") ? TERN_GENERATOR_CUDA : TERN_GENERATOR_CPU;
    return true;
}

static bool take_emphasis(struct tern_infotext_reading *r, const char *v)
{
    static const char *const names[] = {"Original", "No norm", "Ignore"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(v, names[i])) {
            r->params.emphasis = (enum tern_emphasis)i;
            return true;
        }
    return false;
}

static bool take_syntax(struct tern_infotext_reading *r, const char *v)
{
    r->params.prompt_syntax = r->ours && !strcmp(v, "plain") ? TERN_PROMPT_PLAIN : TERN_PROMPT_A1111;
    return r->ours && (!strcmp(v, "plain") || !strcmp(v, "a1111"));
}

static bool take_interval(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_int(v, 1, 1000, &r->params.cache_interval);
}
static bool take_branch(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_int(v, 0, 1000, &r->params.cache_branch_id);
}
static bool take_center(struct tern_infotext_reading *r, const char *v) { return tern_infotext_int(v, 0, 1000, &r->params.cache_center); }
static bool take_pow(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_number(v, 1.0000001, 10, &r->params.cache_pow);
}

static bool take_dtype(struct tern_infotext_reading *r, const char *v)
{
    const enum tern_dtype dtype = tern_dtype_parse(v);
    const bool ok = dtype < TERN_DTYPE_COUNT && tern_dtype_is_float(dtype);
    r->dtype = ok ? dtype : r->dtype;
    return ok;
}

const struct tern_infotext_known tern_infotext_basics[] = {
    {"Version", take_nothing},
    {"Model", take_nothing},
    {"VAE", take_nothing},
    {"TI hashes", take_nothing},
    {"Batch size", take_nothing}, /* each picture of a batch has its own seed */
    {"Batch pos", take_nothing},
    {"Prompt syntax", take_syntax},
    {"Steps", take_steps},
    {"CFG scale", take_cfg},
    {"Image CFG scale", take_image_cfg},
    {"Seed", take_seed},
    {"Size", take_size},
    {"Clip skip", take_skip},
    {"RNG", take_generator},
    {"Emphasis", take_emphasis},
    {"Pad conds", take_padding},
    {"Denoising strength", take_strength},
    {"LoRA tags", take_tags},
    {"Dtype", take_dtype},
    {"Quantize", take_nothing},
    {"Quantize text encoder", take_nothing},
    {"DeepCache interval", take_interval},
    {"DeepCache branch", take_branch},
    {"DeepCache center", take_center},
    {"DeepCache pow", take_pow},
    {NULL, NULL},
};
