/* Fields of Stable Diffusion XL: what it is told beside the text, and a second model. */
#include "models/pipelines/infotext_known.h"

#define XL_MOST 65536

/* A side of 0 is that of the pass, as where none is given. */
static bool take_xl_size(const char *v, int out[2])
{
    int width = 0, height = 0;
    if (!tern_infotext_pair(v, 0, XL_MOST, &width, &height) || (!width && !height))
        return false;
    out[0] = height;
    out[1] = width;
    return true;
}

static bool take_original(struct tern_infotext_reading *r, const char *v) { return take_xl_size(v, r->params.original_size); }
static bool take_target(struct tern_infotext_reading *r, const char *v) { return take_xl_size(v, r->params.target_size); }
static bool take_top(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_int(v, 1, XL_MOST, &r->params.crops_coords_top_left[0]);
}
static bool take_left(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_int(v, 1, XL_MOST, &r->params.crops_coords_top_left[1]);
}
static bool take_negative_original(struct tern_infotext_reading *r, const char *v)
{
    return take_xl_size(v, r->params.negative_original_size);
}
static bool take_negative_target(struct tern_infotext_reading *r, const char *v) { return take_xl_size(v, r->params.negative_target_size); }

static bool take_negative_top(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_int(v, 1, XL_MOST, &r->params.negative_crops_coords_top_left[0]);
}

static bool take_negative_left(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_int(v, 1, XL_MOST, &r->params.negative_crops_coords_top_left[1]);
}

/* 0 as a number is the default. */
static bool take_zero(const char *v, double *score)
{
    const bool good = tern_infotext_number(v, -1000, 1000, score);
    *score = good && *score == 0 ? TERN_SCORE_ZERO : *score;
    return good;
}
static bool take_score(struct tern_infotext_reading *r, const char *v) { return take_zero(v, &r->params.aesthetic_score); }
static bool take_negative_score(struct tern_infotext_reading *r, const char *v)
{
    return take_zero(v, &r->params.negative_aesthetic_score);
}
static bool take_end(struct tern_infotext_reading *r, const char *v)
{
    return r->ours && tern_infotext_number(v, 1e-6, 0.999999, &r->params.denoising_end);
}
static bool take_switch(struct tern_infotext_reading *r, const char *v)
{
    return r->params.refiner.name && tern_infotext_number(v, 1e-6, 0.999999, &r->params.denoising_end);
}

static bool take_refiner(struct tern_infotext_reading *r, const char *v)
{
    r->params.refiner.name = v; /* of which the result gets a copy */
    return true;
}

const struct tern_infotext_known tern_infotext_stages[] = {
    {"SDXL original size", take_original},
    {"SDXL target size", take_target},
    {"SDXL crop top", take_top},
    {"SDXL crop left", take_left},
    {"SDXL negative original size", take_negative_original},
    {"SDXL negative target size", take_negative_target},
    {"SDXL negative crop top", take_negative_top},
    {"SDXL negative crop left", take_negative_left},
    {"SDXL aesthetic score", take_score},
    {"SDXL negative aesthetic score", take_negative_score},
    {"Refiner", take_refiner},
    {"Refiner switch at", take_switch},
    {"Denoising end", take_end},
    {NULL, NULL},
};
