/* Options of a second pass at another size. */
#include <stdio.h>
#include <string.h>

#include "picture.h"

enum {
    OPT_SCALE = OPT_HIRES,
    OPT_SIZE,
    OPT_UPSCALER,
    OPT_STEPS,
    OPT_STRENGTH,
    OPT_SAMPLER,
    OPT_SCHEDULE,
    OPT_CFG,
    OPT_PROMPT,
    OPT_NEGATIVE
};

const struct opt hires_opts[] = {
    {OPT_SCALE, 0, "hires", "SCALE",
     "a second pass (hires fix): the latents in a size that is so\nmany times as large, sampled again; 0: none (default)"},
    {OPT_SIZE, 0, "hires-size", "WxH",
     "the size instead of a scale; what does not fit is cut off,\nand a side of 0 follows from the other"},
    {OPT_UPSCALER, 0, "hires-upscaler", "NAME",
     "latent (default), latent-antialiased, latent-bicubic,\nlatent-bicubic-antialiased, latent-nearest or\nlatent-nearest-exact"},
    {OPT_STEPS, 0, "hires-steps", "N", "steps of the second pass, 1 to 1000 (default: as many as\nthe first)"},
    {OPT_STRENGTH, 0, "hires-strength", "X", "how much it paints anew (denoising strength), above 0 and\nat most 1 (default 0.7)"},
    {OPT_SAMPLER, 0, "hires-sampler", "NAME", "its sampler (this and what follows: default as the first pass)"},
    {OPT_SCHEDULE, 0, "hires-schedule", "NAME", "its schedule"},
    {OPT_CFG, 0, "hires-cfg", "X", "its guidance scale"},
    {OPT_PROMPT, 0, "hires-prompt", "TEXT", "its prompt; LoRAs are those of both passes"},
    {OPT_NEGATIVE, 0, "hires-negative", "TEXT", "its negative prompt"},
    {0},
};

static int apply_size(const struct opt *opt, const char *text, struct tern_hires *h)
{
    int n = 0;
    h->hr_scale = 0;
    if (strspn(text, "0123456789x") == strlen(text) && sscanf(text, "%5dx%5d%n", &h->hr_resize_x, &h->hr_resize_y, &n) == 2 && !text[n] &&
        (h->hr_resize_x || h->hr_resize_y) && h->hr_resize_x <= 8192 && h->hr_resize_y <= 8192)
        return GO_ON;
    return usage("option --%s: expected two whole numbers up to 8192 as WxH, not both 0, found \"%s\"", opt->name, text);
}

static int apply_scale(const struct opt *opt, const char *text, struct tern_hires *h)
{
    int code = value_number(opt, text, 0, false, 8192, &h->hr_scale);
    h->hr_resize_x = h->hr_resize_y = 0;
    if (code == GO_ON && h->hr_scale == 0)
        *h = (struct tern_hires){0};
    return code;
}

int hires_apply(const struct opt *opt, const char *value, struct picture_settings *s)
{
    struct tern_hires *h = &s->hires;
    int code;
    switch (opt->id) {
    case OPT_SCALE:
        return apply_scale(opt, value, h);
    case OPT_SIZE:
        return apply_size(opt, value, h);
    case OPT_UPSCALER:
        h->hr_upscaler = value; /* the library knows the names */
        return GO_ON;
    case OPT_STEPS:
        return value_int(opt, value, 1, 1000, &h->hr_second_pass_steps);
    case OPT_STRENGTH:
        return value_number(opt, value, 0, true, 1, &h->denoising_strength);
    case OPT_SAMPLER:
        h->hr_discard_penultimate_sigma = h->hr_k_diffusion_levels = 0; /* which were the other sampler's */
        return value_sampler(opt, value, &h->hr_sampler, &h->hr_schedule, s->hires_schedule_given);
    case OPT_SCHEDULE:
        s->hires_schedule_given = true;
        return value_schedule(opt, value, &h->hr_schedule);
    case OPT_CFG:
        code = value_number(opt, value, 0, false, 1000, &h->hr_cfg);
        h->hr_cfg = h->hr_cfg == 0 ? TERN_CFG_ZERO : h->hr_cfg;
        return code;
    case OPT_PROMPT:
        h->hr_prompt = value;
        return GO_ON;
    default:
        h->hr_negative_prompt = value;
        return GO_ON;
    }
}

int hires_check(const struct tern_hires *h)
{
    const bool more = h->hr_upscaler || h->hr_second_pass_steps || h->denoising_strength > 0 || h->hr_sampler || h->hr_schedule ||
                      h->hr_cfg > 0 || h->hr_prompt || h->hr_negative_prompt;
    if (!more || hires_wanted(h))
        return GO_ON;
    return usage("options --hires-...: work with --hires SCALE or --hires-size only");
}

bool hires_wanted(const struct tern_hires *h) { return h->hr_scale > 0 || h->hr_resize_x || h->hr_resize_y; }
