/* From the prompts to what conditions the UNet: text states, and for SDXL the pooled text and the sizes of the picture. */
#include <string.h>
#include <tern/ops.h>

#include "models/pipelines/conditions.h"

struct tern_job_encoder tern_job_encoder(const struct tern_job *j, int i)
{
    if (i)
        return (struct tern_job_encoder){"text_encoder_2", j->p->second_only ? j->p->tokenizer : j->p->tokenizer_2, tern_pipeline_text_2};
    return (struct tern_job_encoder){"text_encoder", j->p->tokenizer, tern_pipeline_text};
}

/* The last state after its norm; of SDXL's encoders the last but one layer's. Clip skip takes an earlier layer's, with the norm; as in
 * AUTOMATIC1111 it is for OpenAI's CLIP alone: SDXL takes its layer anyway, and OpenCLIP's last one is left out of files of SD 2. */
tern_tensor *tern_job_text_states(const struct tern_job *j, const struct tern_text_encoder *m, tern_tensor *const *out)
{
    const int skip = j->params.clip_skip;
    if (!out[0] || tern_failed(m->ctx))
        return NULL;
    if (j->p->xl)
        return out[m->layers];
    return skip > 1 && !m->bert && m->act != TERN_ACT_GELU ? tern_text_norm(m, out[m->layers + 2 - skip]) : out[0];
}

/* Texts that are encoded: a negative prompt of zeros is none. */
static int texts(const struct tern_job *j) { return j->guided && !j->zero_negative ? 2 : 1; }

/* As many zeros as the rows of one text. */
static tern_tensor *zeros(const struct tern_job *j, const tern_tensor *x)
{
    int64_t shape[TERN_MAX_DIMS];
    memcpy(shape, tern_tensor_shape(x), (size_t)tern_tensor_ndim(x) * sizeof(*shape));
    shape[0] = j->params.count;
    return tern_tensor_create(j->p->ctx, TERN_F32, tern_tensor_ndim(x), shape, NULL);
}

/* (texts, ...), negative first -> (rows, ...): each repeated for the pictures, before them the zeros of a negative without text; the
 * negative rows again at the end where a last branch has them. */
static tern_tensor *spread(const struct tern_job *j, tern_tensor *x)
{
    tern_tensor *parts[3];
    int n = 0;
    if (!x)
        return NULL;
    if (j->zero_negative)
        parts[n++] = zeros(j, x);
    for (int i = 0; i < texts(j); i++)
        parts[n++] = tern_expand(tern_slice(x, 0, i, i + 1, 1), tern_tensor_ndim(x), (const int64_t[]){j->params.count, -1, -1});
    if (j->image_guided)
        parts[n++] = parts[0];
    return tern_cat(parts, n, 0);
}

/* Of a plain text, begin and end among them; 0 with the error recorded. */
static int64_t count_tokens(const struct tern_job *j, const char *text, int condition)
{
    const struct tern_tokenizer *t = j->p->tokenizer;
    int32_t *ids;
    int64_t n;
    if (j->conditions)
        return j->conditions->at[condition].texts[0].chunks[tern_pipeline_first_encoder(j->p)].tokens;
    if (tern_tokenize(t, text, &ids, &n))
        return 0;
    tern_tokenizer_free_ids(t, ids);
    return n;
}

static void tell_cut_text(const struct tern_job *j, const char *what, const char *text, int condition)
{
    const int32_t most = tern_tokenizer_max_length(j->p->tokenizer);
    const int64_t n = count_tokens(j, text, condition);
    if (n > most)
        tern_message(j->p->ctx, TERN_LOG_WARN,
                     "%s%s: cut off, because it has %lld tokens and the text encoder reads %d, begin and end among them; in A1111's syntax "
                     "prompts have any length",
                     j->first ? "hires " : "", what, (long long)n, most);
}

enum tern_status tern_job_tell_cut_texts(const struct tern_job *j)
{
    const struct tern_txt2img_params *q = &j->params;
    const struct tern_job *f = j->first; /* which may have told the same */
    if (q->prompt_syntax == TERN_PROMPT_A1111)
        return TERN_OK;
    if (!f || strcmp(q->prompt, f->params.prompt))
        tell_cut_text(j, "prompt", q->prompt, j->guided);
    if (texts(j) == 2 && (!f || texts(f) == 1 || strcmp(q->negative_prompt, f->params.negative_prompt)))
        tell_cut_text(j, "negative prompt", q->negative_prompt, 0);
    return tern_error_status(j->p->ctx);
}

static enum tern_status read_prompts(const struct tern_job *j, const struct tern_tokenizer *tokenizer, int64_t *ids, int64_t length)
{
    if (texts(j) == 2 && tern_tokenize_padded(tokenizer, j->params.negative_prompt, ids))
        return tern_error_status(j->p->ctx);
    return tern_tokenize_padded(tokenizer, j->params.prompt, ids + (texts(j) - 1) * length);
}

/* (rows, L, D). *pooled: (rows, P) when the encoder has a projection and the model wants it. */
static tern_tensor *encode(struct tern_job *j, const struct tern_job_encoder *e, struct tern_binding *binding, int64_t *ids, int64_t length,
                           tern_tensor **pooled)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_text_input in;
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL}; /* last_hidden_state, hidden_states.0 ... */
    const struct tern_text_encoder *m = e->module(j->p);
    if (!m || read_prompts(j, e->tokenizer, ids, length))
        return NULL;
    tern_scope_begin(ctx);
    if (tern_text_input(m, ids, NULL, texts(j), length, &in) == TERN_OK)
        tern_job_run_plan(j, e->component, binding, &in.ids, out);
    if (pooled && out[0])
        *pooled = tern_tensor_ref(spread(j, tern_text_pool(m, out[0], ids)));
    return tern_scope_end(ctx, spread(j, tern_job_text_states(j, m, out)));
}

/* With one encoder, which leaves then unless it is kept. */
static tern_tensor *encode_with(struct tern_job *j, const struct tern_job_encoder *e, tern_tensor **pooled)
{
    struct tern_pipeline *p = j->p;
    struct tern_device *former = tern_pipeline_go(p, e->component);
    int64_t length = tern_tokenizer_max_length(e->tokenizer);
    const struct tern_stage stage = tern_job_stage(j, e->component);
    struct tern_binding *binding = tern_pipeline_binding(p, &stage);
    int64_t *ids = binding ? tern_calloc(p->ctx, (size_t)(2 * length), sizeof(*ids)) : NULL;
    tern_tensor *states = ids ? encode(j, e, binding, ids, length, pooled) : NULL;
    tern_free(p->ctx, ids);
    tern_job_end_runs(&binding);
    tern_job_put_out(j, tern_module_of(e->component));
    tern_device_go(p->ctx, former);
    return states;
}

/* Both encoders' states side by side. */
static void encode_xl(struct tern_job *j, const struct tern_job_encoder *second)
{
    tern_tensor *parts[] = {j->context, encode_with(j, second, &j->pooled)};
    j->context = tern_failed(j->p->ctx) ? NULL : tern_cat(parts, 2, 2);
    for (int i = 0; i < 2; i++)
        tern_tensor_unref(&parts[i]);
}

enum tern_status tern_job_encode_prompt(struct tern_job *j)
{
    struct tern_pipeline *p = j->p;
    const struct tern_job_encoder first = tern_job_encoder(j, 0), second = tern_job_encoder(j, 1);
    double start = tern_now();
    tern_report(p->ctx, "encode", 0, 1, 0);
    if (j->conditions)
        tern_conditions_encode(j);
    else
        j->context = p->second_only ? encode_with(j, &second, &j->pooled) : encode_with(j, &first, NULL);
    if (p->xl && !p->second_only && !j->conditions)
        encode_xl(j, &second);
    if (p->xl)
        j->time_ids = tern_job_time_ids(j);
    if (!tern_failed(p->ctx))
        tern_report(p->ctx, "encode", 1, 1, tern_now() - start);
    return tern_error_status(p->ctx);
}
