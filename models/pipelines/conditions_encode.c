/* The states of all texts of a job, chunk by chunk, and what emphasis makes of them. */
#include <math.h>
#include <string.h>
#include <tern/ops.h>

#include "models/pipelines/conditions.h"

/* One text encoder at work: its states stand in the columns `first` .. `first` + width of all. */
struct work {
    struct tern_job *j;
    const struct tern_text_encoder *m;
    struct tern_binding *binding;
    const char *component;
    int encoder;
    int64_t first, width;
    int64_t *ids; /* of one chunk, those of vectors 0 */
};

const int64_t *tern_condition_ids(const struct tern_conditions *c, const struct tern_condition_text *t, int encoder, int64_t chunk)
{
    const struct tern_chunks *own = &t->chunks[encoder];
    return chunk < own->count ? own->ids + chunk * own->length : c->empty.chunks[encoder].ids;
}

static double weight_of(const struct tern_condition_text *t, int encoder, int64_t chunk, int64_t i)
{
    const struct tern_chunks *c = &t->chunks[encoder];
    return chunk < c->count ? c->weights[chunk * c->length + i] : 1;
}

/* The embeddings of a chunk's vectors: (1, L, C) in their places and zeros elsewhere, and (1, L, 1) of what is kept of the tokens. */
static void make_vectors(const struct work *w, const int64_t *ids, tern_tensor **keep, tern_tensor **vectors)
{
    const int64_t length = w->j->conditions->length, width = w->m->hidden;
    float *v = tern_calloc(w->m->ctx, (size_t)(length * width), sizeof(*v)), *k = tern_alloc(w->m->ctx, (size_t)length * sizeof(*k));
    for (int64_t i = 0; v && k && i < length; i++) {
        k[i] = ids[i] >= 0;
        if (ids[i] < 0)
            memcpy(v + i * width, tern_pipeline_vector(w->j->p, w->encoder, -1 - ids[i]), (size_t)width * sizeof(*v));
    }
    *keep = v && k ? tern_tensor_create(w->m->ctx, TERN_F32, 3, (const int64_t[]){1, length, 1}, k) : NULL;
    *vectors = v && k ? tern_tensor_create(w->m->ctx, TERN_F32, 3, (const int64_t[]){1, length, width}, v) : NULL;
    tern_free(w->m->ctx, v);
    tern_free(w->m->ctx, k);
}

/* One run of the encoder: states (L, width) into `out`, and pooled when it is not NULL. */
static void run_chunk(const struct work *w, const int64_t *ids, float *out, float *pooled)
{
    struct tern_context *ctx = w->m->ctx;
    const struct tern_conditions *c = w->j->conditions;
    struct tern_text_input in;
    tern_tensor *inputs[3] = {NULL}, *result[TERN_GRAPH_MAX_IO] = {NULL};
    for (int64_t i = 0; i < c->length; i++)
        w->ids[i] = ids[i] < 0 ? 0 : ids[i];
    tern_scope_begin(ctx);
    if (tern_text_input(w->m, w->ids, NULL, 1, c->length, &in) == TERN_OK) {
        inputs[0] = in.ids;
        if (c->vectors)
            make_vectors(w, ids, &inputs[1], &inputs[2]);
        tern_job_run_plan(w->j, w->component, w->binding, inputs, result);
    }
    const tern_tensor *states = tern_job_text_states(w->j, w->m, result);
    if (states)
        tern_tensor_read(states, TERN_F32, out, (size_t)(c->length * w->width) * sizeof(float));
    /* In diffusers a vector has the next id behind the vocabulary, and configs that pool at the largest id (eos_token_id 2) do so there. */
    for (int64_t i = 0; w->j->params.prompt_syntax == TERN_PROMPT_PLAIN && i < c->length; i++)
        w->ids[i] = ids[i] < 0 ? w->m->vocab - 1 - ids[i] : ids[i];
    const tern_tensor *row = pooled && states ? tern_text_pool(w->m, result[0], w->ids) : NULL;
    if (row)
        tern_tensor_read(row, TERN_F32, pooled, (size_t)tern_tensor_numel(row) * sizeof(float));
    tern_scope_end(ctx, NULL);
}

/* One chunk of a text, to its rows from `row` on. */
static enum tern_status encode_chunk(const struct work *w, struct tern_condition_text *t, int64_t chunk, float *scratch)
{
    const struct tern_conditions *c = w->j->conditions;
    float *pooled = w->encoder && !chunk ? t->pooled : NULL;
    run_chunk(w, tern_condition_ids(c, t, w->encoder, chunk), scratch, pooled);
    for (int64_t i = 0; i < c->length && !tern_failed(w->m->ctx); i++)
        memcpy(t->states + (chunk * c->length + i) * c->width + w->first, scratch + i * w->width, (size_t)w->width * sizeof(float));
    return tern_error_status(w->m->ctx);
}

static enum tern_status encode_condition(const struct work *w, struct tern_condition *c, float *scratch)
{
    for (int64_t chunk = 0; chunk < c->chunks && !c->zeros; chunk++) {
        for (int i = 0; i < c->schedule.n_texts; i++)
            if (encode_chunk(w, &c->texts[i], chunk, scratch))
                return tern_error_status(w->m->ctx);
        if (tern_conditions_emphasise(w->j, c, w->encoder, chunk, w->first, w->width))
            return tern_error_status(w->m->ctx);
    }
    return TERN_OK;
}

/* Sums of a text's chunk as it is and with its weights. */
static void add_means(const struct tern_condition_text *t, const float *x, int encoder, int64_t chunk, int64_t length, int64_t stride,
                      int64_t width, double sums[2])
{
    for (int64_t i = 0; i < length; i++) {
        double row = 0;
        for (int64_t k = 0; k < width; k++)
            row += x[i * stride + k];
        sums[0] += t->times * row;
        sums[1] += t->times * row * weight_of(t, encoder, chunk, i);
    }
}

static bool has_weights(const struct tern_condition *c, int encoder, int64_t chunk, int64_t length)
{
    for (int n = 0; n < c->schedule.n_texts; n++)
        for (int64_t i = 0; i < length; i++)
            if (weight_of(&c->texts[n], encoder, chunk, i) != 1)
                return true;
    return false;
}

enum tern_status tern_conditions_emphasise(struct tern_job *j, struct tern_condition *c, int encoder, int64_t chunk, int64_t first,
                                           int64_t width)
{
    const struct tern_conditions *all = j->conditions;
    const int64_t length = all->length, at = chunk * length * all->width + first;
    double sums[2] = {0};
    if (j->params.emphasis == TERN_EMPHASIS_IGNORE || !has_weights(c, encoder, chunk, length))
        return TERN_OK;
    for (int n = 0; n < c->schedule.n_texts; n++)
        add_means(&c->texts[n], c->texts[n].states + at, encoder, chunk, length, all->width, width, sums);
    const double ratio = j->params.emphasis == TERN_EMPHASIS_NO_NORM ? 1 : sums[0] / sums[1];
    if (!isfinite((float)ratio))
        return tern_fail(
            j->p->ctx, TERN_E_INVALID,
            "prompt: its weights leave a mean of %g where it was %g, which cannot be restored; emphasis without norm would work", sums[1],
            sums[0]);
    for (int n = 0; n < c->schedule.n_texts; n++)
        for (int64_t i = 0; i < length; i++) {
            float *row = c->texts[n].states + at + i * all->width;
            const float weight = (float)(weight_of(&c->texts[n], encoder, chunk, i) * ratio);
            for (int64_t k = 0; k < width; k++)
                row[k] *= weight;
        }
    return TERN_OK;
}

static enum tern_status encode_all(struct work *w)
{
    struct tern_conditions *c = w->j->conditions;
    struct tern_context *ctx = w->m->ctx;
    float *scratch = tern_alloc(ctx, (size_t)(c->length * w->width) * sizeof(*scratch));
    w->ids = tern_calloc(ctx, (size_t)c->length, sizeof(*w->ids));
    for (int i = 0; i < c->count && !tern_failed(ctx); i++)
        encode_condition(w, &c->at[i], scratch);
    if (!tern_failed(ctx) && tern_job_pads_prompt(w->j))
        encode_chunk(w, &c->empty, 0, scratch);
    tern_free(ctx, w->ids);
    tern_free(ctx, scratch);
    return tern_error_status(ctx);
}

/* Behind the end of a shorter prompt: among those joined by AND its last state again and again, as in A1111, and then the states of the
 * empty prompt. */
static void pad(struct tern_conditions *c, const struct tern_condition *of, int64_t repeated)
{
    const size_t row = (size_t)c->width * sizeof(float);
    for (int n = 0; n < of->schedule.n_texts; n++)
        for (int64_t i = of->chunks * c->length; i < c->chunks * c->length; i++) {
            float *states = of->texts[n].states;
            const float *from =
                i < repeated ? states + (of->chunks * c->length - 1) * c->width : c->empty.states + i % c->length * c->width;
            memcpy(states + i * c->width, from, row);
        }
}

static void pad_all(struct tern_conditions *c)
{
    int64_t longest = 0;
    for (int i = 1; i < c->count; i++)
        longest = c->at[i].chunks > longest ? c->at[i].chunks : longest;
    for (int i = 0; i < c->count; i++)
        pad(c, &c->at[i], i ? longest * c->length : 0);
}

static enum tern_status make_room(struct tern_job *j)
{
    struct tern_conditions *c = j->conditions;
    const size_t states = (size_t)(c->length * c->width), pooled = j->p->xl ? (size_t)tern_pipeline_pooled_width(j->p) : 1;
    c->empty.states = tern_calloc(j->p->ctx, states, sizeof(float));
    for (int i = 0; i < c->count; i++)
        for (int n = 0; n < c->at[i].schedule.n_texts; n++) {
            c->at[i].texts[n].states = tern_calloc(j->p->ctx, (size_t)c->chunks * states, sizeof(float));
            c->at[i].texts[n].pooled = tern_calloc(j->p->ctx, pooled, sizeof(float));
        }
    return tern_error_status(j->p->ctx);
}

enum tern_status tern_conditions_encode(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    int64_t first = 0;
    make_room(j);
    for (int i = tern_pipeline_first_encoder(j->p); i < tern_pipeline_end_encoders(j->p) && !tern_failed(ctx); i++) {
        const struct tern_job_encoder e = tern_job_encoder(j, i);
        struct tern_device *former = tern_pipeline_go(j->p, e.component);
        const struct tern_stage stage = tern_job_stage(j, e.component);
        struct work w = {j, NULL, tern_pipeline_binding(j->p, &stage), e.component, i, first, 0, NULL};
        w.m = e.module(j->p);
        w.width = w.m ? w.m->hidden : 0;
        first += w.width;
        if (w.binding && w.m)
            encode_all(&w);
        tern_job_end_runs(&w.binding);
        tern_job_put_out(j, tern_module_of(e.component));
        tern_device_go(ctx, former);
    }
    if (!tern_failed(ctx))
        pad_all(j->conditions);
    return tern_error_status(ctx);
}
