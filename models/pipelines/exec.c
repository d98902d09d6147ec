/* Running one component on named tensors. */
#include <string.h>
#include <tern/ops.h>

#include "models/pipelines/pipeline.h"

#define MOST_INPUTS 8

/* Inputs of one call: which were taken. */
struct inputs {
    struct tern_context *ctx;
    const struct tern_weights *w;
    const char *component;
    const char *taken[MOST_INPUTS];
    int n_taken;
};

static tern_tensor *take(struct inputs *in, const char *name, bool required)
{
    tern_tensor *t = tern_weights_get(in->w, name);
    if (t && in->n_taken < MOST_INPUTS)
        in->taken[in->n_taken++] = name;
    if (!t && required)
        tern_fail(in->ctx, TERN_E_INVALID, "%s: input \"%s\" is missing", in->component, name);
    if (t && t->ctx != in->ctx) {
        tern_fail(in->ctx, TERN_E_INVALID, "%s: input \"%s\": expected a tensor of the pipeline's context, found one of another",
                  in->component, name);
        return NULL;
    }
    return t;
}

static bool was_taken(const struct inputs *in, const char *name)
{
    for (int i = 0; i < in->n_taken; i++)
        if (!strcmp(in->taken[i], name))
            return true;
    return false;
}

/* All inputs must have been taken. */
static bool finish(struct inputs *in, const char *expected)
{
    for (int64_t i = 0; i < tern_weights_count(in->w) && !tern_failed(in->ctx); i++)
        if (!was_taken(in, tern_weights_name(in->w, i)))
            tern_fail(in->ctx, TERN_E_INVALID, "%s: expected %s, found another input, \"%s\"", in->component, expected,
                      tern_weights_name(in->w, i));
    return !tern_failed(in->ctx);
}

/* Adds a contiguous f32 copy of t. */
static void give(struct tern_weights *out, struct tern_context *ctx, const char *name, tern_tensor *t)
{
    if (t)
        tern_weights_add(out, name, tern_contiguous(tern_cast(t, TERN_F32), TERN_CONTIGUOUS));
}

static int64_t *read_ids(struct tern_context *ctx, const tern_tensor *t, const char *component, const char *name, int64_t *n,
                         int64_t *length)
{
    char text[TERN_META_TEXT];
    if (!t)
        return NULL;
    if (tern_tensor_ndim(t) != 2 || tern_dtype_is_float(t->meta.dtype) || !tern_tensor_numel(t)) {
        tern_fail(ctx, TERN_E_SHAPE, "%s: %s: expected (N, L) i64, found %s", component, name, tern_meta_text(&t->meta, text));
        return NULL;
    }
    *n = tern_tensor_size(t, 0);
    *length = tern_tensor_size(t, 1);
    int64_t *ids = tern_alloc(ctx, (size_t)tern_tensor_numel(t) * sizeof(*ids));
    if (ids && tern_tensor_read(t, TERN_I64, ids, (size_t)tern_tensor_numel(t) * sizeof(*ids))) {
        tern_free(ctx, ids);
        return NULL;
    }
    return ids;
}

static struct tern_graph_input as_input(const char *name, const tern_tensor *t)
{
    struct tern_graph_input in = {.name = name, .dtype = t->meta.dtype, .ndim = t->meta.ndim};
    memcpy(in.shape, t->meta.shape, sizeof(in.shape));
    return in;
}

/* A call that is recorded: layers are quantised in plans. */
struct quantized {
    const char *words;
    tern_graph_fn fn;
    void *user;
    struct tern_weights *weights;
    const struct tern_graph_input *inputs;
    int n_inputs, n_outputs;
};

static enum tern_status run_quantized(const struct quantized *q, tern_tensor *const *in, tern_tensor **out)
{
    struct tern_context *ctx = tern_tensor_context(in[0]);
    struct tern_graph *g = tern_graph_trace(ctx, q->fn, q->user, q->weights, q->inputs, q->n_inputs, q->n_outputs);
    struct tern_plan *plan = g ? tern_plan_compile(g, &(struct tern_plan_params){.quantize = q->words, .resident = ctx->passing}) : NULL;
    struct tern_binding *binding = plan ? tern_plan_bind(plan, q->weights) : NULL;
    if (binding)
        tern_plan_run(binding, in, out);
    tern_binding_unref(&binding);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    return tern_error_status(ctx);
}

/* A call of a text encoder that is recorded. */
struct text_call {
    const struct tern_text_encoder *m;
    bool masked;
};

/* ids, and the mask where there is one -> last_hidden_state and hidden_states */
static enum tern_status text_forward(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct text_call *call = user;
    return tern_text_outputs(call->m, &(struct tern_text_input){.ids = in[0], .mask = call->masked ? in[1] : NULL}, out);
}

/* As tern_text_encode, as a plan. */
static enum tern_status text_quantized(struct tern_pipeline *p, const struct tern_text_encoder *m, const int64_t *ids, const int64_t *mask,
                                       int64_t n, int64_t length, struct tern_text_output *o)
{
    struct tern_text_input made;
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    if (!p->text_encoder_quantize)
        return tern_text_encode(m, ids, mask, n, length, o);
    if (tern_text_input(m, ids, mask, n, length, &made))
        return tern_error_status(m->ctx);
    tern_tensor *const in[] = {made.ids, made.mask};
    const struct tern_graph_input inputs[] = {as_input("input_ids", made.ids),
                                              made.mask ? as_input("mask", made.mask) : as_input("", made.ids)};
    struct text_call call = {m, made.mask != NULL};
    const struct quantized q = {p->text_encoder_quantize, text_forward, &call, m->weights, inputs, call.masked ? 2 : 1, m->layers + 2};
    if (run_quantized(&q, in, out))
        return tern_error_status(m->ctx);
    *o = (struct tern_text_output){.last_hidden_state = out[0], .n_hidden = m->layers + 1};
    memcpy(o->hidden_states, out + 1, (size_t)o->n_hidden * sizeof(*out));
    o->pooled = tern_text_pool(m, o->last_hidden_state, ids);
    return tern_error_status(m->ctx);
}

static void exec_text_encoder(struct tern_pipeline *p, struct inputs *in, struct tern_weights *out)
{
    struct tern_context *ctx = p->ctx;
    struct tern_text_output o;
    int64_t n = 0, length = 0, mn = 0, ml = 0;
    char name[32];
    tern_tensor *ids_in = take(in, "input_ids", true), *mask_in = take(in, "attention_mask", false);
    bool second = !strcmp(in->component, "text_encoder_2");
    const struct tern_text_encoder *m = !finish(in, "input_ids and attention_mask") ? NULL
                                        : second                                    ? tern_pipeline_text_2(p)
                                                                                    : tern_pipeline_text(p);
    int64_t *ids = m ? read_ids(ctx, ids_in, in->component, "input_ids", &n, &length) : NULL,
            *mask = ids ? read_ids(ctx, mask_in, in->component, "attention_mask", &mn, &ml) : NULL;
    if (mask && (mn != n || ml != length))
        tern_fail(ctx, TERN_E_SHAPE, "%s: attention_mask: expected the shape of input_ids, (%lld, %lld), found (%lld, %lld)", in->component,
                  (long long)n, (long long)length, (long long)mn, (long long)ml);
    if (ids && !tern_failed(ctx) && text_quantized(p, m, ids, mask, n, length, &o) == TERN_OK) {
        give(out, ctx, "last_hidden_state", o.last_hidden_state);
        give(out, ctx, m->text_projection.w ? "text_embeds" : "pooler_output", o.pooled);
        for (int i = 0; i < o.n_hidden; i++) {
            snprintf(name, sizeof(name), "hidden_states.%d", i);
            give(out, ctx, name, o.hidden_states[i]);
        }
    }
    tern_free(ctx, ids);
    tern_free(ctx, mask);
}

/* A call of the UNet that is recorded. */
struct unet_call {
    const struct tern_unet *m;
    const struct tern_unet_conditions *c;
};

static enum tern_status unet_forward(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct unet_call *call = user;
    out[0] = tern_unet_forward(call->m, in[0], call->c, in[1], NULL);
    return tern_error_status(call->m->ctx);
}

static tern_tensor *unet_quantized(struct tern_pipeline *p, struct unet_call *call, tern_tensor *sample, tern_tensor *context)
{
    tern_tensor *const in[] = {sample, context};
    tern_tensor *out = NULL;
    if (!sample || !context)
        return NULL;
    const struct tern_graph_input inputs[] = {as_input("sample", sample), as_input("encoder_hidden_states", context)};
    run_quantized(&(struct quantized){p->quantize, unet_forward, call, call->m->weights, inputs, 2, 1}, in, &out);
    return out;
}

/* As in forward() of diffusers; tern_unet_forward, which checks all else, takes more texts than samples. */
static enum tern_status check_rows(struct tern_context *ctx, const tern_tensor *sample, const tern_tensor *context)
{
    char found[TERN_META_TEXT];
    const bool told = tern_tensor_ndim(sample) == 4 && tern_tensor_ndim(context) == 3;
    const int64_t rows = told ? tern_tensor_size(sample, 0) : 0;
    if (!told || tern_tensor_size(context, 0) == rows)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_SHAPE, "unet: encoder_hidden_states: expected (%lld, L, D), as many rows as in sample, found %s",
                     (long long)rows, tern_meta_text(&context->meta, found));
}

static void exec_unet(struct tern_pipeline *p, struct inputs *in, struct tern_weights *out)
{
    static const char *const expected[2][2] = {
        {"sample, timestep and encoder_hidden_states", "sample, timestep, encoder_hidden_states and timestep_cond"},
        {"sample, timestep, encoder_hidden_states, text_embeds and time_ids",
         "sample, timestep, encoder_hidden_states, text_embeds, time_ids and timestep_cond"},
    };
    struct tern_context *ctx = p->ctx;
    double t[256];
    float values[256];
    enum tern_dtype dtype = tern_pipeline_dtype(p, "unet");
    tern_tensor *sample = take(in, "sample", true), *timestep = take(in, "timestep", true),
                *context = take(in, "encoder_hidden_states", true);
    bool xl = p->unet_config.pooled;
    tern_tensor *text_embeds = xl ? take(in, "text_embeds", true) : NULL, *time_ids = xl ? take(in, "time_ids", true) : NULL;
    tern_tensor *told = p->unet_config.guidance ? take(in, "timestep_cond", false) : NULL;
    if (!finish(in, expected[xl][p->unet_config.guidance > 0]))
        return;
    int64_t n = tern_tensor_numel(timestep);
    if (n < 1 || n > 256) {
        tern_fail(ctx, TERN_E_SHAPE, "unet: timestep: expected 1..256 values, found %lld", (long long)n);
        return;
    }
    const struct tern_unet *m = tern_pipeline_unet(p);
    if (!m || tern_tensor_read(timestep, TERN_F32, values, (size_t)n * sizeof(*values)))
        return;
    for (int64_t i = 0; i < n; i++)
        t[i] = values[i];
    struct tern_unet_conditions c;
    if (check_rows(ctx, sample, context) || tern_unet_conditions(m, t, (int)n, 1, text_embeds, time_ids, &c))
        return;
    tern_unet_set_guidance(m, told, &c);
    sample = tern_cast(sample, dtype);
    context = tern_cast(context, dtype);
    give(out, ctx, "sample",
         p->quantize ? unet_quantized(p, &(struct unet_call){m, &c}, sample, context) : tern_unet_forward(m, sample, &c, context, NULL));
}

static void exec_vae_decoder(struct tern_pipeline *p, struct inputs *in, struct tern_weights *out)
{
    tern_tensor *latent = take(in, "latent", true);
    const struct tern_vae *m = finish(in, "latent") ? tern_pipeline_vae(p) : NULL;
    if (m)
        give(out, p->ctx, "sample", tern_vae_decode(m, tern_cast(latent, tern_pipeline_vae_dtype(p))));
}

static void exec_vae_encoder(struct tern_pipeline *p, struct inputs *in, struct tern_weights *out)
{
    tern_tensor *sample = take(in, "sample", true), *mean, *logvar;
    const struct tern_vae *m = finish(in, "sample") ? tern_pipeline_vae(p) : NULL;
    if (m && tern_vae_encode(m, tern_cast(sample, tern_pipeline_vae_dtype(p)), &mean, &logvar) == TERN_OK) {
        give(out, p->ctx, m->config.tiny ? "latents" : "mean", mean);
        give(out, p->ctx, "logvar", logvar);
    }
}

/* Whether the component runs but once, or the budget does not hold its weights as kernels want them beside what is there now: then each is
 * prepared when it is used, which takes no longer for one run. */
static bool passes(struct tern_pipeline *p, const char *component)
{
    const struct tern_weights *w = tern_pipeline_budget(p) ? tern_pipeline_module_weights(p, component) : NULL;
    size_t bytes = tern_memory_used(p->ctx);
    for (int64_t i = 0; i < tern_weights_count(w); i++) {
        const tern_tensor *t = tern_weights_at(w, i);
        const size_t stored = tern_dtype_size(t->meta.dtype), computed = tern_dtype_size(tern_pipeline_dtype(p, component));
        bytes += (size_t)tern_tensor_numel(t) * (stored > computed ? stored : computed);
    }
    return p->params.single_use || (w && bytes > tern_pipeline_budget(p));
}

struct tern_weights *tern_pipeline_exec(struct tern_pipeline *p, const char *component, const struct tern_weights *inputs)
{
    static const struct {
        const char *name;
        void (*run)(struct tern_pipeline *, struct inputs *, struct tern_weights *);
    } table[] = {{"text_encoder", exec_text_encoder},
                 {"text_encoder_2", exec_text_encoder},
                 {"unet", exec_unet},
                 {"vae_decoder", exec_vae_decoder},
                 {"vae_encoder", exec_vae_encoder}};
    struct tern_context *ctx = p ? p->ctx : NULL;
    struct tern_weights *out = NULL;
    if (tern_failed(ctx) || tern_pipeline_may_begin(p))
        return NULL;
    component = component ? component : "";
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (!strcmp(component, table[i].name)) {
            struct inputs in = {.ctx = ctx, .w = inputs, .component = component};
            out = tern_weights_create(ctx);
            tern_scope_begin(ctx);
            bool passed = ctx->passing;
            struct tern_device *former = tern_pipeline_go(p, component);
            p->calls++;
            ctx->passing = passed || passes(p, component);
            p->used |= tern_module_of(component);
            if (out && !tern_failed(ctx))
                table[i].run(p, &in, out);
            ctx->passing = passed;
            p->calls--;
            tern_device_go(ctx, former);
            tern_scope_end(ctx, NULL);
            if (tern_failed(ctx))
                tern_weights_unref(&out);
            return out;
        }
    tern_fail(ctx, TERN_E_NOT_FOUND, "component \"%s\" is not known; expected text_encoder, unet, vae_decoder or vae_encoder%s", component,
              p->xl ? ", or text_encoder_2" : "");
    return NULL;
}
