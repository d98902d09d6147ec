/* Options that Stable Diffusion XL adds: what it is told of sizes, scores, and a picture by two models. */
#include <stdio.h>
#include <string.h>

#include "picture.h"

enum {
    OPT_ORIGINAL = OPT_XL,
    OPT_CROP,
    OPT_TARGET,
    OPT_NEGATIVE_ORIGINAL,
    OPT_NEGATIVE_CROP,
    OPT_NEGATIVE_TARGET,
    OPT_SCORE,
    OPT_NEGATIVE_SCORE,
    OPT_END,
    OPT_START,
    OPT_REFINER,
    OPT_REFINER_LORA
};

const struct opt xl_opts[] = {
    {OPT_ORIGINAL, 0, "original-size", "WxH", "SDXL: the size that the picture is said to have had (default:\nits own)"},
    {OPT_CROP, 0, "crops-coords-top-left", "Y,X", "\nSDXL: what is said to be cut off above and left (default 0,0)"},
    {OPT_TARGET, 0, "target-size", "WxH", "SDXL: the size that it is said to have (default: its own)"},
    {OPT_NEGATIVE_ORIGINAL, 0, "negative-original-size", "WxH", "\nSDXL: the size that it is not to have had, and"},
    {OPT_NEGATIVE_TARGET, 0, "negative-target-size", "WxH",
     "\nthe one that it is not to have; txt2img takes both or none\n(default: the same as above)"},
    {OPT_NEGATIVE_CROP, 0, "negative-crops-coords-top-left", "Y,X",
     "\nlikewise what is not to be cut off: beside both sizes in\ntxt2img, or of a refiner (default 0,0)"},
    {OPT_SCORE, 0, "aesthetic-score", "X", "SDXL's refiner: how good the picture is said to be (default 6)"},
    {OPT_NEGATIVE_SCORE, 0, "negative-aesthetic-score", "X", "\nand what it is not to be (default 2.5)"},
    {OPT_REFINER, 0, "refiner", "MODEL[:X]", "another model that does the steps behind X of all (default\n0.8), as SDXL's refiner"},
    {OPT_REFINER_LORA, 0, "refiner-lora", "FILE:SCALE",
     "\na LoRA for the refiner, as --lora for the first model; may be\ngiven several times"},
    {OPT_END, 0, "denoising-end", "X", "end where X of all steps are done, above 0 and below 1; for\nanother model, with --save-latents"},
    {OPT_START, 0, "denoising-start", "X", "do the steps behind X; --init-latents are those that the\nother model has saved"},
    {0},
};

static int apply_pair(const struct opt *opt, const char *text, char between, int least, int *first, int *second)
{
    int n = 0;
    char mark = 0;
    if (strspn(text, "0123456789xX,") == strlen(text) && sscanf(text, "%5d%c%5d%n", first, &mark, second, &n) == 3 && !text[n] &&
        (mark | 0x20) == (between | 0x20) && *first >= least && *second >= least)
        return GO_ON;
    return usage("option --%s: expected two whole numbers of at least %d as %s, found \"%s\"", opt->name, least, opt->value, text);
}

/* "MODEL:0.7": what stands behind the last colon is a number, or all is a path. */
static int apply_refiner(const struct opt *opt, const char *text, struct xl_options *x)
{
    const char *colon = strrchr(text, ':');
    bool part = colon && colon[1] && strspn(colon + 1, "0123456789.") == strlen(colon + 1);
    int n = part ? (int)(colon - text) : (int)strlen(text);
    if (!n || (size_t)snprintf(x->refiner, sizeof(x->refiner), "%.*s", n, text) >= sizeof(x->refiner))
        return usage("option --refiner: expected a model, found \"%.80s\"", text);
    if (x->part_given) /* with another model; that of a picture (--from) stays */
        x->refiner_start = 0;
    x->part_given = part;
    return part ? value_part(opt, colon + 1, &x->refiner_start) : GO_ON;
}

/* 0 as a number is the default. */
static int apply_score(const struct opt *opt, const char *value, double *score)
{
    const int code = value_number(opt, value, -1000, false, 1000, score);
    *score = *score == 0 ? TERN_SCORE_ZERO : *score;
    return code;
}

int xl_apply(const struct opt *opt, const char *value, struct xl_options *x)
{
    switch (opt->id) {
    case OPT_ORIGINAL:
        return apply_pair(opt, value, 'x', 1, &x->original_size[1], &x->original_size[0]);
    case OPT_CROP:
        return apply_pair(opt, value, ',', 0, &x->crop[0], &x->crop[1]);
    case OPT_TARGET:
        return apply_pair(opt, value, 'x', 1, &x->target_size[1], &x->target_size[0]);
    case OPT_NEGATIVE_ORIGINAL:
        return apply_pair(opt, value, 'x', 1, &x->negative_original_size[1], &x->negative_original_size[0]);
    case OPT_NEGATIVE_CROP:
        return apply_pair(opt, value, ',', 0, &x->negative_crop[0], &x->negative_crop[1]);
    case OPT_NEGATIVE_TARGET:
        return apply_pair(opt, value, 'x', 1, &x->negative_target_size[1], &x->negative_target_size[0]);
    case OPT_SCORE:
        return apply_score(opt, value, &x->score);
    case OPT_NEGATIVE_SCORE:
        return apply_score(opt, value, &x->negative_score);
    case OPT_END:
        return value_part(opt, value, &x->end);
    case OPT_START:
        return value_part(opt, value, &x->start);
    case OPT_REFINER_LORA:
        return lora_add(opt, value, &x->loras);
    default:
        return apply_refiner(opt, value, x);
    }
}

static double switch_at(const struct xl_options *x) { return x->refiner_start > 0 ? x->refiner_start : 0.8; }

/* The scores are the refiner's when there is one: a base model is told no score. */
void xl_first(const struct xl_options *x, struct tern_txt2img_params *p)
{
    bool two = x->refiner[0];
    memcpy(p->original_size, x->original_size, sizeof(p->original_size));
    memcpy(p->crops_coords_top_left, x->crop, sizeof(p->crops_coords_top_left));
    memcpy(p->target_size, x->target_size, sizeof(p->target_size));
    memcpy(p->negative_original_size, x->negative_original_size, sizeof(p->negative_original_size));
    memcpy(p->negative_crops_coords_top_left, x->negative_crop, sizeof(p->negative_crops_coords_top_left));
    memcpy(p->negative_target_size, x->negative_target_size, sizeof(p->negative_target_size));
    p->aesthetic_score = two ? 0 : x->score;
    p->negative_aesthetic_score = two ? 0 : x->negative_score;
    p->denoising_end = two ? switch_at(x) : x->end;
    p->refiner.name = two ? x->refiner : NULL;
    p->refiner.aesthetic_score = x->score;
    p->refiner.negative_aesthetic_score = x->negative_score;
    p->denoising_start = x->start;
}

void xl_second(const struct xl_options *x, struct tern_txt2img_params *p)
{
    if (!p->mask_image) /* which says what stays as it is in that picture */
        p->init_image = NULL;
    p->image_guidance_scale = 0;
    p->init_latents = NULL;
    memset(p->target_size, 0, sizeof(p->target_size));
    memset(p->negative_target_size, 0, sizeof(p->negative_target_size));
    p->aesthetic_score = x->score;
    p->negative_aesthetic_score = x->negative_score;
    p->denoising_start = switch_at(x);
    p->denoising_end = 0;
}
