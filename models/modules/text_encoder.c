/* CLIP and BERT text encoders: building and what both share. */
#include "models/modules/text_encoder.h"

#include <math.h>
#include <string.h>

#include "core/context.h"
#include "models/modules/config.h"

static void read_config(struct tern_text_encoder *m, const struct tern_config *c)
{
    m->vocab = tern_config_int(c, "vocab_size", m->bert ? 30522 : 49408, 1, 1 << 24);
    m->hidden = tern_config_int(c, "hidden_size", m->bert ? 768 : 512, 1, 1 << 16);
    m->intermediate = tern_config_int(c, "intermediate_size", m->bert ? 3072 : 2048, 1, 1 << 20);
    m->layers = (int)tern_config_int(c, "num_hidden_layers", 12, 1, TERN_MAX_TEXT_LAYERS);
    m->heads = (int)tern_config_int(c, "num_attention_heads", m->bert ? 12 : 8, 1, 1 << 12);
    m->positions = tern_config_int(c, "max_position_embeddings", m->bert ? 512 : 77, 1, 1 << 20);
    m->eos_id = tern_config_int(c, "eos_token_id", m->bert ? -1 : 49407, -1, 1 << 24);
    m->types = tern_config_int(c, "type_vocab_size", 2, 1, 1 << 16);
    m->projection = tern_config_int(c, "projection_dim", 512, 1, 1 << 16);
    m->eps = tern_config_number(c, "layer_norm_eps", m->bert ? 1e-12 : 1e-5);
    const char *act = tern_config_string(c, "hidden_act", m->bert ? "gelu" : "quick_gelu");
    m->act = tern_activation_parse(act);
    if (m->act == TERN_ACT_UNKNOWN)
        tern_fail(m->ctx, TERN_E_UNSUPPORTED,
                  "%s: \"hidden_act\": \"%s\" is not supported; expected quick_gelu, gelu, gelu_new, relu or silu", c->where, act);
    if (m->bert) {
        tern_config_only(c, "position_embedding_type", "absolute");
        tern_config_only(c, "is_decoder", ""); /* its mask would be causal */
    }
    tern_config_only(c, "use_attention_mask", "");
    if (m->hidden % m->heads)
        tern_fail(m->ctx, TERN_E_FORMAT, "%s: hidden_size %lld is no multiple of num_attention_heads %d", c->where, (long long)m->hidden,
                  m->heads);
}

static void bind_clip(struct tern_text_encoder *m, const char *class_name, struct tern_bind *b)
{
    const int64_t c = m->hidden;
    size_t root = tern_bind_enter(b, "text_model"), at = tern_bind_enter(b, "embeddings");
    m->token = tern_bind_tensor(b, "token_embedding.weight", 2, (const int64_t[]){m->vocab, c});
    m->position = tern_bind_tensor(b, "position_embedding.weight", 2, (const int64_t[]){m->positions, c});
    tern_bind_leave(b, at);
    for (int i = 0; i < m->layers; i++) {
        struct tern_text_layer *l = &m->layer[i];
        at = tern_bind_enter(b, "encoder.layers.%d", i);
        l->norm1 = tern_bind_norm(b, "layer_norm1", c);
        l->attention.heads = m->heads;
        l->attention.q = tern_bind_linear(b, "self_attn.q_proj", c, c, true);
        l->attention.k = tern_bind_linear(b, "self_attn.k_proj", c, c, true);
        l->attention.v = tern_bind_linear(b, "self_attn.v_proj", c, c, true);
        l->attention.out = tern_bind_linear(b, "self_attn.out_proj", c, c, true);
        l->norm2 = tern_bind_norm(b, "layer_norm2", c);
        l->fc1 = tern_bind_linear(b, "mlp.fc1", m->intermediate, c, true);
        l->fc2 = tern_bind_linear(b, "mlp.fc2", c, m->intermediate, true);
        tern_bind_leave(b, at);
    }
    m->norm = tern_bind_norm(b, "final_layer_norm", c);
    tern_bind_leave(b, root);
    /* As transformers: the class says so. CLIPTextModel has none, whatever the file holds. */
    if (class_name ? !strcmp(class_name, "CLIPTextModelWithProjection") : tern_bind_has(b, "text_projection.weight", false))
        m->text_projection = tern_bind_linear(b, "text_projection", m->projection, c, false);
    else
        tern_bind_pass_over(b, "text_projection.weight");
}

static void bind_bert(struct tern_text_encoder *m, struct tern_bind *b)
{
    const int64_t c = m->hidden;
    size_t at = tern_bind_enter(b, "embeddings");
    m->token = tern_bind_tensor(b, "word_embeddings.weight", 2, (const int64_t[]){m->vocab, c});
    m->position = tern_bind_tensor(b, "position_embeddings.weight", 2, (const int64_t[]){m->positions, c});
    m->type = tern_bind_tensor(b, "token_type_embeddings.weight", 2, (const int64_t[]){m->types, c});
    m->norm = tern_bind_norm(b, "LayerNorm", c);
    tern_bind_leave(b, at);
    for (int i = 0; i < m->layers; i++) {
        struct tern_text_layer *l = &m->layer[i];
        at = tern_bind_enter(b, "encoder.layer.%d", i);
        l->attention.heads = m->heads;
        l->attention.q = tern_bind_linear(b, "attention.self.query", c, c, true);
        l->attention.k = tern_bind_linear(b, "attention.self.key", c, c, true);
        l->attention.v = tern_bind_linear(b, "attention.self.value", c, c, true);
        l->attention.out = tern_bind_linear(b, "attention.output.dense", c, c, true);
        l->norm1 = tern_bind_norm(b, "attention.output.LayerNorm", c);
        l->fc1 = tern_bind_linear(b, "intermediate.dense", m->intermediate, c, true);
        l->fc2 = tern_bind_linear(b, "output.dense", c, m->intermediate, true);
        l->norm2 = tern_bind_norm(b, "output.LayerNorm", c);
        tern_bind_leave(b, at);
    }
    if (tern_bind_has(b, "pooler.dense.weight", true))
        m->pooler = tern_bind_linear(b, "pooler.dense", c, c, true);
}

struct tern_text_encoder *tern_text_encoder_build(struct tern_context *ctx, const char *class_name, const char *config, const char *where,
                                                  struct tern_bind *b)
{
    struct tern_config c;
    struct tern_text_encoder *m = tern_calloc(ctx, 1, sizeof(*m));
    if (!m)
        return NULL;
    m->ctx = ctx;
    m->dtype = TERN_F32;
    m->bert = class_name && !strcmp(class_name, "BertModel");
    if (class_name && !m->bert && strncmp(class_name, "CLIPTextModel", 13))
        tern_fail(ctx, TERN_E_UNSUPPORTED,
                  "%s: text encoder %s is not supported; expected CLIPTextModel, CLIPTextModelWithProjection or BertModel", where,
                  class_name);
    if (tern_config_open(&c, ctx, config, where) == TERN_OK)
        read_config(m, &c);
    tern_config_close(&c);
    m->layer = tern_failed(ctx) ? NULL : tern_calloc(ctx, (size_t)m->layers, sizeof(*m->layer));
    if (m->layer && m->bert)
        bind_bert(m, b);
    else if (m->layer)
        bind_clip(m, class_name, b);
    return m;
}

struct tern_text_encoder *tern_text_encoder_create(struct tern_context *ctx, const char *class_name, const char *config, const char *where,
                                                   enum tern_dtype dtype, const struct tern_weights *weights)
{
    struct tern_bind b;
    if (tern_bind_begin(&b, ctx, weights, "text_encoder"))
        return NULL;
    struct tern_text_encoder *m = tern_text_encoder_build(ctx, class_name, config, where, &b);
    struct tern_weights *bound;
    if (tern_bind_end(&b, &bound))
        tern_text_encoder_destroy(&m);
    else {
        m->weights = bound;
        m->dtype = dtype;
    }
    return m;
}

void tern_text_encoder_destroy(struct tern_text_encoder **encoder)
{
    struct tern_text_encoder *m = *encoder;
    *encoder = NULL;
    if (!m)
        return;
    for (int i = 0; m->layer && i < m->layers; i++) {
        struct tern_text_layer *l = &m->layer[i];
        struct tern_layer *all[] = {&l->norm1, &l->norm2, &l->fc1, &l->fc2};
        for (int j = 0; j < 4; j++)
            tern_layer_destroy(all[j]);
        tern_attention_destroy(&l->attention);
    }
    tern_tensor_unref(&m->token);
    tern_tensor_unref(&m->position);
    tern_tensor_unref(&m->type);
    tern_layer_destroy(&m->norm);
    tern_layer_destroy(&m->pooler);
    tern_layer_destroy(&m->text_projection);
    tern_free(m->ctx, m->layer);
    tern_weights_unref(&m->weights);
    tern_free(m->ctx, m);
}

/* (N, L, C) in f32, computed in the encoder's dtype from x in f32 */
static tern_tensor *attention(const struct tern_text_encoder *m, const struct tern_text_layer *l, tern_tensor *x, tern_tensor *mask)
{
    tern_tensor *h = tern_cast(x, m->dtype);
    return tern_cast(tern_attend(&l->attention, h, h, mask, !mask && !m->bert), TERN_F32);
}

static tern_tensor *mlp(const struct tern_text_encoder *m, const struct tern_text_layer *l, tern_tensor *x)
{
    tern_tensor *h = tern_activate(m->act, tern_apply_linear(&l->fc1, tern_cast(x, m->dtype)));
    return tern_cast(tern_apply_linear(&l->fc2, h), TERN_F32);
}

/* x + attention(norm(x)), then x + mlp(norm(x)): x (N, L, C) */
static tern_tensor *clip_layer(const struct tern_text_encoder *m, const struct tern_text_layer *l, tern_tensor *x, tern_tensor *mask)
{
    x = tern_add(x, attention(m, l, tern_apply_layer_norm(&l->norm1, x, m->eps), mask));
    return tern_add(x, mlp(m, l, tern_apply_layer_norm(&l->norm2, x, m->eps)));
}

/* norm(x + attention(x)), then norm(x + mlp(x)) */
static tern_tensor *bert_layer(const struct tern_text_encoder *m, const struct tern_text_layer *l, tern_tensor *x, tern_tensor *mask)
{
    x = tern_apply_layer_norm(&l->norm1, tern_add(x, attention(m, l, x, mask)), m->eps);
    return tern_apply_layer_norm(&l->norm2, tern_add(x, mlp(m, l, x)), m->eps);
}

/* (N, L) of 0 and 1 -> additive (N, 1, L, L): what a query must not see is -inf; causal for CLIP. */
static tern_tensor *make_mask(const struct tern_text_encoder *m, const int64_t *mask, int64_t n, int64_t length)
{
    const int64_t shape[] = {n, 1, length, length};
    float *v = tern_calloc(m->ctx, (size_t)(n * length * length), sizeof(*v));
    for (int64_t i = 0; v && i < n * length * length; i++) {
        int64_t row = i / length % length, column = i % length;
        if (!mask[i / length / length * length + column] || (!m->bert && column > row))
            v[i] = -INFINITY;
    }
    tern_tensor *t = v ? tern_tensor_create(m->ctx, TERN_F32, 4, shape, v) : NULL;
    tern_free(m->ctx, v);
    return t;
}

/* Position of the end token: the largest id when the config says 2 (as old ones do), else the first such id. */
static int64_t end_position(const struct tern_text_encoder *m, const int64_t *ids, int64_t length)
{
    int64_t at = 0;
    for (int64_t i = 0; i < length; i++) {
        if (m->eos_id == 2 && ids[i] > ids[at])
            at = i;
        if (m->eos_id != 2 && ids[i] == m->eos_id)
            return i;
    }
    return at;
}

/* Row at the end token of each text, (N, L, C) -> (N, C); with the projection (N, P). BERT: tanh(pooler(first row)). */
tern_tensor *tern_text_pool(const struct tern_text_encoder *m, tern_tensor *x, const int64_t *ids)
{
    tern_tensor *rows[2];
    int64_t n = x ? tern_tensor_size(x, 0) : 0, length = x ? tern_tensor_size(x, 1) : 0;
    if (!x)
        return NULL;
    if (m->bert) {
        tern_tensor *first = tern_reshape(tern_slice(x, 1, 0, 1, 1), 2, (const int64_t[]){n, m->hidden});
        return m->pooler.w ? tern_tanh(tern_apply_linear(&m->pooler, first)) : NULL;
    }
    tern_tensor *all = NULL;
    for (int64_t i = 0; i < n; i++) { /* joined in pairs, because cat takes few tensors */
        int64_t at = end_position(m, ids + i * length, length);
        tern_tensor *row = tern_slice(tern_slice(x, 0, i, i + 1, 1), 1, at, at + 1, 1);
        rows[0] = all;
        rows[1] = tern_reshape(row, 2, (const int64_t[]){1, m->hidden});
        all = all ? tern_cat(rows, 2, 0) : rows[1];
    }
    return m->text_projection.w ? tern_apply_linear(&m->text_projection, all) : all;
}

static tern_tensor *embed(const struct tern_text_encoder *m, const struct tern_text_input *in)
{
    tern_tensor *x = tern_cast(tern_embedding(in->ids, m->token), TERN_F32);
    if (in->vectors)
        x = tern_add(tern_mul(x, in->keep), in->vectors);
    x = tern_add(x, tern_cast(tern_slice(m->position, 0, 0, tern_tensor_size(in->ids, 1), 1), TERN_F32));
    if (!m->bert)
        return x;
    x = tern_add(x, tern_cast(tern_slice(m->type, 0, 0, 1, 1), TERN_F32));
    return tern_apply_layer_norm(&m->norm, x, m->eps);
}

static enum tern_status check_ids(const struct tern_text_encoder *m, const int64_t *ids, int64_t n, int64_t length)
{
    if (length < 1 || length > m->positions)
        return tern_fail(m->ctx, TERN_E_SHAPE, "text_encoder: expected 1..%lld ids a text, found %lld", (long long)m->positions,
                         (long long)length);
    for (int64_t i = 0; i < n * length; i++)
        if (ids[i] < 0 || ids[i] >= m->vocab)
            return tern_fail(m->ctx, TERN_E_INVALID,
                             "text_encoder: id %lld at position %lld: expected 0..%lld; is the tokenizer that of this model?",
                             (long long)ids[i], (long long)(i % length), (long long)m->vocab - 1);
    return TERN_OK;
}

enum tern_status tern_text_input(const struct tern_text_encoder *m, const int64_t *ids, const int64_t *mask, int64_t n, int64_t length,
                                 struct tern_text_input *out)
{
    *out = (struct tern_text_input){0};
    if (check_ids(m, ids, n, length))
        return tern_error_status(m->ctx);
    out->ids = tern_tensor_create(m->ctx, TERN_I64, 2, (const int64_t[]){n, length}, ids);
    out->mask = mask ? make_mask(m, mask, n, length) : NULL;
    return tern_error_status(m->ctx);
}

tern_tensor *tern_text_norm(const struct tern_text_encoder *m, tern_tensor *x)
{
    return m->bert ? x : tern_apply_layer_norm(&m->norm, x, m->eps);
}

enum tern_status tern_text_forward(const struct tern_text_encoder *m, const struct tern_text_input *in, struct tern_text_output *out)
{
    memset(out, 0, sizeof(*out));
    if (!in->ids)
        return tern_error_status(m->ctx);
    tern_tensor *x = embed(m, in), *mask = in->mask ? tern_cast(in->mask, m->dtype) : NULL;
    out->hidden_states[0] = x;
    for (int i = 0; i < m->layers; i++) {
        tern_scope_begin(m->ctx);
        x = tern_scope_end(m->ctx, (m->bert ? bert_layer : clip_layer)(m, &m->layer[i], x, mask));
        out->hidden_states[i + 1] = x;
    }
    out->n_hidden = m->layers + 1;
    out->last_hidden_state = tern_text_norm(m, x);
    return tern_error_status(m->ctx);
}

enum tern_status tern_text_encode(const struct tern_text_encoder *m, const int64_t *ids, const int64_t *mask, int64_t n, int64_t length,
                                  struct tern_text_output *out)
{
    struct tern_text_input in;
    memset(out, 0, sizeof(*out));
    if (tern_text_input(m, ids, mask, n, length, &in) || tern_text_forward(m, &in, out))
        return tern_error_status(m->ctx);
    out->pooled = tern_text_pool(m, out->last_hidden_state, ids);
    return tern_error_status(m->ctx);
}
