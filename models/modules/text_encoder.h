/* Text encoders: CLIP [Radford 2021] and BERT [Devlin 2019] as in transformers. */
#ifndef TERN_MODELS_TEXT_ENCODER_H
#define TERN_MODELS_TEXT_ENCODER_H

#include "models/modules/layers.h"

#define TERN_MAX_TEXT_LAYERS 64

struct tern_text_layer {
    struct tern_layer norm1, norm2, fc1, fc2;
    struct tern_attention attention;
};

struct tern_text_encoder {
    struct tern_context *ctx;
    struct tern_weights *weights; /* its tensors by name */
    bool bert;                    /* post-norm, token types, no causal mask; else CLIP */
    int64_t vocab, positions, hidden, intermediate;
    int layers, heads;
    int64_t eos_id, projection, types;
    enum tern_activation act;
    double eps;
    enum tern_dtype dtype;                /* of products and attention; sums over the layers, norms and all that comes out are f32 */
    tern_tensor *token, *position, *type; /* embeddings (V, C), (L, C), BERT: (2, C) */
    struct tern_layer norm;               /* CLIP: after the last layer; BERT: after the embeddings */
    struct tern_layer pooler;             /* BERT */
    struct tern_layer text_projection;    /* CLIPTextModelWithProjection */
    struct tern_text_layer *layer;
};

/* What comes out; tensors belong to the open scope or the caller. */
struct tern_text_output {
    tern_tensor *last_hidden_state; /* (N, L, C) */
    tern_tensor *pooled;            /* (N, C): pooler_output; with a projection text_embeds (N, P) */
    tern_tensor *hidden_states[TERN_MAX_TEXT_LAYERS + 1];
    int n_hidden;
};

/* dtype: of the products; f32, f16 or bf16. class_name: "CLIPTextModel", "CLIPTextModelWithProjection", "BertModel". NULL with the error
 * recorded. */
struct tern_text_encoder *tern_text_encoder_create(struct tern_context *ctx, const char *class_name, const char *config, const char *where,
                                                   enum tern_dtype dtype, const struct tern_weights *weights);
/* The same on any binding, with f32; what it holds after an error is to be destroyed. */
struct tern_text_encoder *tern_text_encoder_build(struct tern_context *ctx, const char *class_name, const char *config, const char *where,
                                                  struct tern_bind *b);
void tern_text_encoder_destroy(struct tern_text_encoder **m);

/* What a text is as tensors. */
struct tern_text_input {
    tern_tensor *ids;            /* (N, L) i64 */
    tern_tensor *mask;           /* (N, 1, L, L), added to the scores: -inf where a query must not look; NULL: nothing is masked */
    tern_tensor *keep, *vectors; /* (N, L, 1) and (N, L, C) f32: tokens' embeddings are multiplied and added with them; NULL: as they are */
};
/* ids (n x length), checked against the vocabulary; mask n x length of 0 and 1, or NULL. The tensors belong to the open scope
 * or the caller. */
enum tern_status tern_text_input(const struct tern_text_encoder *m, const int64_t *ids, const int64_t *mask, int64_t n, int64_t length,
                                 struct tern_text_input *out);
/* What comes out of the last layer after the norm that follows it. */
tern_tensor *tern_text_norm(const struct tern_text_encoder *m, tern_tensor *x);
/* hidden_states and last_hidden_state */
enum tern_status tern_text_forward(const struct tern_text_encoder *m, const struct tern_text_input *in, struct tern_text_output *out);
/* `pooled`, which depends on where the ids end: last_hidden_state (N, L, C). */
tern_tensor *tern_text_pool(const struct tern_text_encoder *m, tern_tensor *last_hidden_state, const int64_t *ids);
/* All three. */
enum tern_status tern_text_encode(const struct tern_text_encoder *m, const int64_t *ids, const int64_t *mask, int64_t n, int64_t length,
                                  struct tern_text_output *out);

#endif
