/* From the prompts to the text states that condition the UNet. */
#include <string.h>
#include <tern/ops.h>

#include "models/pipelines/pipeline.h"

/* (rows, L, D): negative prompt first when guided. Each is encoded once and repeated for the pictures. */
static tern_tensor *encode(struct tern_job *j, struct tern_binding *encoder, int64_t *ids, int64_t length)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_text_input in;
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL}, *parts[2] = {NULL}; /* out[0]: last_hidden_state */
    int texts = j->guided ? 2 : 1;
    int64_t count = j->params.count;
    if (j->guided && tern_tokenize_padded(j->p->tokenizer, j->params.negative_prompt, ids))
        return NULL;
    if (tern_tokenize_padded(j->p->tokenizer, j->params.prompt, ids + (j->guided ? length : 0)))
        return NULL;
    tern_scope_begin(ctx);
    if (tern_text_input(j->p->text, ids, NULL, texts, length, &in) == TERN_OK)
        tern_job_run_plan(j, "text_encoder", encoder, &in.ids, out);
    for (int i = 0; i < texts; i++)
        parts[i] = tern_expand(tern_slice(out[0], 0, i, i + 1, 1), 3, (const int64_t[]){count, -1, -1});
    return tern_scope_end(ctx, tern_cat(parts, texts, 0));
}

enum tern_status tern_job_encode_prompt(struct tern_job *j)
{
    struct tern_pipeline *p = j->p;
    double start = tern_now();
    int64_t length = tern_tokenizer_max_length(p->tokenizer);
    tern_report(p->ctx, "encode", 0, 1, 0);
    const struct tern_stage stage = tern_job_stage(j, "text_encoder");
    struct tern_binding *encoder = tern_pipeline_binding(p, &stage);
    int64_t *ids = encoder ? tern_calloc(p->ctx, (size_t)(2 * length), sizeof(*ids)) : NULL;
    if (ids)
        j->context = encode(j, encoder, ids, length);
    tern_free(p->ctx, ids);
    tern_job_end_runs(&encoder);
    if (!p->params.keep_text_encoder)
        tern_pipeline_drop_text(p);
    if (!tern_failed(p->ctx))
        tern_report(p->ctx, "encode", 1, 1, tern_now() - start);
    return tern_error_status(p->ctx);
}
