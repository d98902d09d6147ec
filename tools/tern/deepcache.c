/* Options of DeepCache: calls of the UNet that are cut short. */
#include <stdio.h>
#include <string.h>

#include "picture.h"

#define DEFAULT_QUALITY 0.95

enum { OPT_INTERVAL = OPT_DEEPCACHE, OPT_QUALITY, OPT_BRANCH, OPT_WHEN };

const struct opt deepcache_opts[] = {
    {OPT_INTERVAL, 0, "deepcache", "N",
     "only one call of the UNet in N is whole, the others take from\nit what is deep inside: faster, another picture (default 1:\n"
     "all are whole); auto: the largest N that --quality allows"},
    {OPT_QUALITY, 0, "quality", "X",
     "with --deepcache auto: the SSIM that pictures are to have to\nthose without, above 0 and below 1 (default 0.95); measured,\n"
     "and remembered for architecture, sampler, steps, size and\nguidance"},
    {OPT_BRANCH, 0, "deepcache-branch", "N",
     "what they compute themselves: 0 the outermost layers alone\n(default), up to 11 (SDXL 8), all but the innermost"},
    {OPT_WHEN, 0, "deepcache-schedule", "HOW",
     "uniform: each N-th call is whole (default); quad[:STEP:POWER]:\nas many, but more frequent around STEP, the more so the\n"
     "larger POWER is (default: 3 steps in 10, and 1.4)"},
    {0},
};

/* quad, or quad:STEP:POWER */
static int apply_schedule(const struct opt *opt, const char *text, struct deepcache_options *d)
{
    static const char quad[] = "quad:";
    char step[16];
    const char *numbers = text + sizeof(quad) - 1, *colon;
    d->center = -1;
    d->pow = strcmp(text, "uniform") ? 1.4 : 0;
    if (!d->pow || !strcmp(text, "quad"))
        return GO_ON;
    if (strncmp(text, quad, sizeof(quad) - 1) || !(colon = strchr(numbers, ':')) || (size_t)(colon - numbers) >= sizeof(step))
        return usage("option --%s: expected uniform, quad or quad:STEP:POWER, found \"%s\"", opt->name, text);
    snprintf(step, sizeof(step), "%.*s", (int)(colon - numbers), numbers);
    int code = value_int(opt, step, 0, 1000, &d->center);
    return code == GO_ON ? value_number(opt, colon + 1, 1, true, 10, &d->pow) : code;
}

/* auto, or a number; the last of them counts, and auto takes nothing from the picture of --from. */
static int apply_interval(const struct opt *opt, const char *text, struct deepcache_options *d)
{
    d->automatic = !strcmp(text, "auto");
    if (!d->automatic)
        return value_int(opt, text, 1, 1000, &d->interval);
    d->interval = 0;
    return GO_ON;
}

int deepcache_apply(const struct opt *opt, const char *value, struct deepcache_options *d)
{
    d->given = true;
    switch (opt->id) {
    case OPT_INTERVAL:
        return apply_interval(opt, value, d);
    case OPT_QUALITY:
        return value_part(opt, value, &d->quality);
    case OPT_BRANCH:
        d->needs = opt->name;
        return value_int(opt, value, 0, 1000, &d->branch);
    default:
        d->needs = opt->name;
        return apply_schedule(opt, value, d);
    }
}

int deepcache_check(const struct deepcache_options *d)
{
    if (d->quality > 0 && !d->automatic)
        return usage("option --quality: works with --deepcache auto only");
    return d->needs && d->interval < 2 ? usage("option --%s: works with --deepcache N only, N at least 2", d->needs) : GO_ON;
}

void deepcache_take(struct deepcache_options *d, const struct tern_txt2img_params *p)
{
    *d = (struct deepcache_options){
        .interval = p->cache_interval, .branch = p->cache_branch_id, .center = p->cache_center, .pow = p->cache_pow};
}

void deepcache_give(const struct deepcache_options *d, struct tern_txt2img_params *p)
{
    if (d->automatic) {
        p->cache_quality = d->quality > 0 ? d->quality : DEFAULT_QUALITY;
        return;
    }
    p->cache_interval = d->interval;
    p->cache_branch_id = d->branch;
    p->cache_center = d->center < 0 ? 3 * p->steps / 10 : d->center; /* 15 of 50, as in the reference's example */
    p->cache_pow = d->pow;
}
