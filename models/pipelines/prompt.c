/* From the prompts to the text states that condition the UNet. */
#include <string.h>
#include <tern/ops.h>

#include "models/pipelines/pipeline.h"

/* (rows, L, D): negative prompt first when guided. Each is encoded once and repeated for the pictures. */
static tern_tensor *encode(struct tern_job *j, const struct tern_text_encoder *m, int64_t *ids, int64_t length)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_text_output out;
    tern_tensor *parts[2];
    int texts = j->guided ? 2 : 1;
    int64_t count = j->params.count;
    if (j->guided && tern_tokenize_padded(j->p->tokenizer, j->params.negative_prompt, ids))
        return NULL;
    if (tern_tokenize_padded(j->p->tokenizer, j->params.prompt, ids + (j->guided ? length : 0)))
        return NULL;
    tern_scope_begin(ctx);
    tern_text_encode(m, ids, NULL, texts, length, &out);
    for (int i = 0; i < texts; i++)
        parts[i] = tern_expand(tern_slice(out.last_hidden_state, 0, i, i + 1, 1), 3, (const int64_t[]){count, -1, -1});
    return tern_scope_end(ctx, tern_cat(parts, texts, 0));
}

enum tern_status tern_job_encode_prompt(struct tern_job *j)
{
    struct tern_pipeline *p = j->p;
    double start = tern_now();
    int64_t length = tern_tokenizer_max_length(p->tokenizer);
    tern_report(p->ctx, "encode", 0, 1, 0);
    const struct tern_text_encoder *m = tern_pipeline_text(p);
    int64_t *ids = m ? tern_calloc(p->ctx, (size_t)(2 * length), sizeof(*ids)) : NULL;
    if (ids)
        j->context = encode(j, m, ids, length);
    tern_free(p->ctx, ids);
    if (!p->params.keep_text_encoder)
        tern_pipeline_drop_text(p);
    if (!tern_failed(p->ctx))
        tern_report(p->ctx, "encode", 1, 1, tern_now() - start);
    return tern_error_status(p->ctx);
}
