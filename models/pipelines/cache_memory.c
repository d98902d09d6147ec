/* Which interval of DeepCache held the quality that was asked for, on disk. Text:
 *
 *     tern-deepcache 1
 *     KIND of job
 *     INTERVAL SSIM
 *
 * The file's name is a hash of the second line. */
#include <stdio.h>
#include <string.h>

#include "core/cache.h"
#include "core/files.h"
#include "core/number.h"
#include "core/sha256.h"
#include "models/pipelines/cache_auto.h"
#include "models/schedulers/scheduler.h"

#define HEAD "tern-deepcache 1\n"
#define LIMIT 4096

/* What a pass does; tern_free. Options are those that count, with defaults filled in. */
static char *pass_of(const struct tern_job *j)
{
    const struct tern_txt2img_params *q = &j->params;
    const struct tern_sampler_options *o = &j->scheduler->options;
    const double values[] = {q->cfg, o->eta, o->s_churn, o->s_tmin, o->s_tmax, o->s_noise};
    char number[6][TERN_NUMBER_TEXT];
    for (int i = 0; i < 6; i++)
        tern_number_text(values[i], number[i]);
    return tern_sprintf(j->p->ctx, "%s %s, %d steps, %d skipped, from call %d, %dx%d, cfg %s, eta %s, churn %s of %s to %s, noise %s%s%s",
                        tern_sampler_name(tern_scheduler_sampler(j->scheduler)), tern_schedule_name(j->scheduler->schedule), q->steps,
                        j->skipped, j->begin, q->width, q->height, number[0], number[1], number[2], number[3], number[4], number[5],
                        o->discard_penultimate_sigma ? ", penultimate discarded" : "",
                        o->k_diffusion_levels ? ", k-diffusion's levels" : "");
}

/* What the loss depends on, as far as it is not the prompt: one line; tern_free. The strength is told by itself, because samplers that lay
 * their calls out anew for it begin with the first. */
static char *kind_of(const struct tern_job *j)
{
    const struct tern_txt2img_params *q = &j->params;
    const struct tern_unet_config *u = &j->p->unet_config;
    char strength[TERN_NUMBER_TEXT], image_cfg[TERN_NUMBER_TEXT], quality[TERN_NUMBER_TEXT];
    char *first = pass_of(j), *second = j->hires ? pass_of(j->hires) : NULL, *kind = NULL;
    if (!tern_failed(j->p->ctx))
        kind = tern_sprintf(j->p->ctx,
                            "architecture %u, %lld blocks from %lld channels, %lld in; from %s, strength %s; %s; hires %s; image cfg %s; "
                            "quality %s",
                            tern_pipeline_architecture(j->p), (long long)u->blocks, (long long)u->channels[0], (long long)u->in_channels,
                            q->mask_image   ? "picture and mask"
                            : q->init_image ? "picture"
                                            : "text",
                            tern_number_text(q->init_image ? q->strength : 1, strength), first, second ? second : "none",
                            tern_number_text(q->image_guidance_scale, image_cfg), tern_number_text(q->cache_quality, quality));
    tern_free(j->p->ctx, first);
    tern_free(j->p->ctx, second);
    return kind;
}

static char *path_of(const struct tern_job *j, const char *kind)
{
    char name[TERN_SHA256_TEXT];
    tern_sha256(kind, strlen(kind), name);
    return tern_cache_path(j->p->ctx, "deepcache", name);
}

/* The text after what every file of this kind begins with is an interval and an SSIM, and nothing else. */
static bool parse(const char *text, size_t size, const char *kind, struct tern_cache_choice *out)
{
    const size_t head = strlen(HEAD), n = strlen(kind);
    int used = 0;
    if (!size || strlen(text) != size || text[size - 1] != '\n' || strncmp(text, HEAD, head) != 0 || strncmp(text + head, kind, n) != 0 ||
        text[head + n] != '\n')
        return false;
    const char *rest = text + head + n + 1;
    char *end;
    if (sscanf(rest, "%4d %n", &out->interval, &used) != 1 || !used)
        return false;
    out->ssim = tern_number_parse(rest + used, &end);
    return end != rest + used && end[0] == '\n' && !end[1] && out->ssim >= 0 && out->ssim <= 1;
}

bool tern_cache_recall(const struct tern_cache_search *s, struct tern_cache_choice *choice)
{
    struct tern_context *ctx = s->p->ctx;
    char *kind = kind_of(&s->job), *path = kind ? path_of(&s->job, kind) : NULL, *text = NULL;
    struct tern_cache_choice read;
    size_t size = 0;
    bool found = false;
    if (path && tern_path_kind(path) != TERN_PATH_MISSING) {
        text = tern_read_file(ctx, path, LIMIT, &size);
        found = text && parse(text, size, kind, &read) && tern_cache_is_choice(s, &read);
        if (found)
            *choice = read;
        else
            tern_message(ctx, TERN_LOG_WARN, "%s: damaged, or of another kind of job: DeepCache is measured anew", path);
        if (!text)
            tern_error_clear_own(ctx);
    }
    tern_free(ctx, text);
    tern_free(ctx, path);
    tern_free(ctx, kind);
    return found;
}

void tern_cache_remember(const struct tern_job *j, const struct tern_cache_choice *choice)
{
    struct tern_context *ctx = j->p->ctx;
    char *kind = kind_of(j), *path = kind ? path_of(j, kind) : NULL, number[TERN_NUMBER_TEXT];
    struct tern_writer *w = path && tern_cache_prepare(ctx, path) == TERN_OK ? tern_writer_open(ctx, path) : NULL;
    if (w)
        fprintf(w->file, "%s%s\n%d %s\n", HEAD, kind, choice->interval, tern_number_text(choice->ssim, number));
    if (path && (!w || tern_writer_commit(&w))) {
        tern_message(ctx, TERN_LOG_WARN, "the choice of DeepCache is not remembered: %s", tern_error(ctx));
        tern_error_clear_own(ctx);
    }
    tern_free(ctx, path);
    tern_free(ctx, kind);
}
