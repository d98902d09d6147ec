/* What a check has found is what the job behind it does. Chosen anew it could be another way: the plans of the first choice lie in memory
 * by then, and leave less room for limits that are made of what is left. */
#include <string.h>

#include "models/pipelines/conditions.h"

/* *k: cleared, padding and all. */
static void fill_pass(const struct tern_job *j, struct tern_pass_kind *k)
{
    const struct tern_txt2img_params *q = &j->params;
    k->width = q->width;
    k->height = q->height;
    k->count = q->count;
    k->branches = j->branches;
    k->share = j->share;
    k->branch = j->caches ? q->cache_branch_id : 0;
    k->tokens = j->tokens;
    k->guided = j->guided;
    k->zero_negative = j->zero_negative;
    k->conditions = j->conditions;
    k->vectors = j->conditions && j->conditions->vectors;
    k->caches = j->caches;
    k->encodes = q->init_image;
    k->previews = q->on_preview;
    k->calls = tern_job_calls(j);
    k->clip_skip = q->clip_skip;
    k->sampler = q->sampler;
}

static void fill_kind(const struct tern_job *j, struct tern_job_kind *k)
{
    const struct tern_pipeline_params *q = &j->p->params;
    memset(k, 0, sizeof(*k));
    int n = 0;
    for (const struct tern_job *pass = j; pass; pass = pass->hires)
        fill_pass(pass, &k->pass[n++]);
    k->components = q->offload_components;
    k->offload = q->offload;
    k->single_use = q->single_use;
    k->keeps_text = q->keep_text_encoder;
    k->budget = j->budget;
}

static struct tern_found *find(const struct tern_job *j, const struct tern_job_kind *kind)
{
    struct tern_found *of = j->p->found;
    for (int i = 0; i < j->p->n_found; i++)
        if (!memcmp(&of[i].kind, kind, sizeof(*kind)))
            return &of[i];
    return NULL;
}

const struct tern_found *tern_job_found(const struct tern_job *j)
{
    struct tern_job_kind kind;
    fill_kind(j, &kind);
    return find(j, &kind);
}

void tern_job_remember(const struct tern_job *j)
{
    struct tern_pipeline *p = j->p;
    struct tern_job_kind kind;
    fill_kind(j, &kind);
    struct tern_found *f = find(j, &kind);
    if (!f) {
        f = &p->found[p->next_found];
        p->next_found = (p->next_found + 1) % TERN_MAX_FOUND;
        p->n_found += p->n_found < TERN_MAX_FOUND;
        memcpy(&f->kind, &kind, sizeof(kind));
    }
    f->way = (struct tern_way){j->sequential, j->unet_algorithm, j->vae_algorithm, j->resident, j->arena, j->streams_text};
    f->known[0] = j->known;
    f->known[1] = j->hires ? j->hires->known : 0;
    f->told = j->predicted;
}

void tern_pipeline_forget_found(struct tern_pipeline *p)
{
    p->n_found = p->next_found = 0;
    p->reached = 0;
}
