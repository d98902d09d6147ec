/* The components as graphs: what goes in and comes out of each, and its weights. */
#include <string.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "models/pipelines/hoist.h"

enum tern_status tern_text_outputs(const struct tern_text_encoder *m, const struct tern_text_input *in, tern_tensor **out)
{
    struct tern_text_output o;
    if (tern_text_forward(m, in, &o))
        return tern_error_status(m->ctx);
    out[0] = o.last_hidden_state;
    for (int i = 0; i < o.n_hidden; i++)
        out[i + 1] = o.hidden_states[i];
    return TERN_OK;
}

static enum tern_status trace_text(void *user, tern_tensor *const *in, tern_tensor **out)
{
    return tern_text_outputs(user, &(struct tern_text_input){.ids = in[0]}, out);
}

static enum tern_status trace_text_vectors(void *user, tern_tensor *const *in, tern_tensor **out)
{
    return tern_text_outputs(user, &(struct tern_text_input){.ids = in[0], .keep = in[1], .vectors = in[2]}, out);
}

/* A part of a UNet. */
struct unet_part {
    const struct tern_unet *m;
    enum tern_unet_part part;
    int branch;
};

/* What is kept lies between two plans as convolutions like it on most devices, channels last: so it is not copied. */
static enum tern_status trace_unet(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct unet_part *u = user;
    const struct tern_unet *m = u->m;
    const struct tern_unet_conditions c = {in[1], m->config.pooled ? in[3] : NULL};
    struct tern_unet_cache cache = {.branch = u->branch};
    if (u->part == TERN_UNET_SHALLOW)
        cache.deep = tern_permute(in[m->config.pooled ? 4 : 3], 4, (const int[]){0, 3, 1, 2});
    out[0] = tern_unet_forward(m, in[0], &c, in[2], u->part == TERN_UNET_WHOLE ? NULL : &cache);
    if (u->part == TERN_UNET_KEEPS)
        out[1] = tern_contiguous(tern_permute(cache.deep, 4, (const int[]){0, 2, 3, 1}), TERN_CONTIGUOUS);
    return tern_error_status(m->ctx);
}

static enum tern_status trace_decoder(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_vae *m = user;
    out[0] = tern_vae_decode(m, in[0]);
    return tern_error_status(m->ctx);
}

static enum tern_status trace_encoder(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_vae *m = user;
    tern_tensor *mean, *logvar;
    if (tern_vae_encode(m, in[0], &mean, &logvar))
        return tern_error_status(m->ctx);
    out[0] = mean;
    if (logvar) /* TAESD has one output */
        out[1] = logvar;
    return TERN_OK;
}

/* How a component is traced. */
struct trace {
    tern_graph_fn fn;
    void *module;
    struct tern_weights *weights;
    struct tern_graph_input inputs[5];
    int n_inputs, n_outputs;
    struct unet_part unet; /* the module of a UNet's graph */
};

static struct tern_graph_input input(const char *name, enum tern_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct tern_graph_input){name, dtype, ndim, {a, b, c, d}};
}

static bool text_trace(struct tern_pipeline *p, struct tern_text_encoder *m, int64_t n, bool vectors, struct trace *t)
{
    if (!m)
        return false;
    int64_t length = p->tokenizer ? tern_tokenizer_max_length(p->tokenizer) : m->positions;
    *t = (struct trace){vectors ? trace_text_vectors : trace_text,
                        m,
                        m->weights,
                        {input("input_ids", TERN_I64, 2, n, length, 0, 0), input("keep", TERN_F32, 3, n, length, 1, 0),
                         input("vectors", TERN_F32, 3, n, length, m->hidden, 0)},
                        vectors ? 3 : 1,
                        m->layers + 2};
    return true;
}

static bool unet_trace(struct tern_pipeline *p, int64_t n, int64_t h, int64_t w, const struct tern_stage *stage, struct trace *t)
{
    struct tern_unet *m = tern_pipeline_unet(p);
    enum tern_dtype dtype = tern_pipeline_dtype(p, "unet");
    if (!m)
        return false;
    const struct tern_unet_config *u = &m->config;
    const int64_t rows = stage->share ? n / stage->share : n;
    int64_t length = stage->tokens ? stage->tokens : p->tokenizer ? tern_tokenizer_max_length(p->tokenizer) : 77;
    *t =
        (struct trace){trace_unet,
                       &t->unet,
                       m->weights,
                       {input("sample", dtype, 4, rows, u->in_channels, h, w), input("time", TERN_F32, 2, 1, tern_unet_time_width(u), 0, 0),
                        input("encoder_hidden_states", dtype, 3, n, length, u->context[0], 0),
                        input("added", TERN_F32, 2, n, u->pooled, 0, 0)},
                       u->pooled ? 4 : 3,
                       stage->part == TERN_UNET_KEEPS ? 2 : 1,
                       {m, stage->part, stage->branch}};
    if (stage->part == TERN_UNET_SHALLOW) {
        int64_t s[4];
        tern_unet_deep_shape(u, stage->branch, n, h, w, s);
        t->inputs[t->n_inputs++] = input("deep", dtype, 4, s[0], s[2], s[3], s[1]);
    }
    return true;
}

static bool vae_trace(struct tern_pipeline *p, struct tern_vae *m, enum tern_dtype dtype, bool decode, int64_t n, int64_t h, int64_t w,
                      struct trace *t)
{
    int64_t scale = m ? tern_pipeline_scale(p) : 0;
    if (!m)
        return false;
    struct tern_graph_input in = decode ? input("latent", dtype, 4, n, m->config.latent_channels, h, w)
                                        : input("sample", dtype, 4, n, m->config.in_channels, h * scale, w * scale);
    *t = (struct trace){decode ? trace_decoder : trace_encoder, m, m->weights, {in}, 1, decode || m->config.tiny ? 1 : 2};
    return true;
}

/* False with the error recorded. Sizes are in pixels; the graph's are in latents. */
static bool find(struct tern_pipeline *p, const struct tern_stage *stage, struct trace *t)
{
    const char *component = stage->component;
    const struct tern_graph_size *s = &stage->size;
    int scale = tern_pipeline_scale(p);
    int64_t n = s->batch ? s->batch : 1, h = s->height ? s->height / scale : p->unet_config.sample_h,
            w = s->width ? s->width / scale : p->unet_config.sample_w;
    if (s->batch < 0 || s->batch > TERN_UNET_MAX_ROWS || s->height < 0 || s->width < 0 || s->height % scale || s->width % scale ||
        s->height > TERN_MAX_SIDE || s->width > TERN_MAX_SIDE) {
        tern_fail(p->ctx, TERN_E_INVALID, "graph: expected a batch of 1..%d and multiples of %d up to %d, found %d, %d x %d",
                  TERN_UNET_MAX_ROWS, scale, TERN_MAX_SIDE, s->batch, s->width, s->height);
        return false;
    }
    if (!strcmp(component, "text_encoder"))
        return text_trace(p, tern_pipeline_text(p), n, stage->vectors, t);
    if (!strcmp(component, "text_encoder_2"))
        return text_trace(p, tern_pipeline_text_2(p), n, stage->vectors, t);
    if (!strcmp(component, "unet"))
        return unet_trace(p, n, h, w, stage, t);
    if (!strcmp(component, "vae_decoder") || !strcmp(component, "vae_encoder"))
        return vae_trace(p, tern_pipeline_vae(p), tern_pipeline_vae_dtype(p), component[4] == 'd', n, h, w, t);
    if (p->preview_alone && !strcmp(component, "preview_decoder"))
        return vae_trace(p, tern_pipeline_preview(p), tern_pipeline_preview_dtype(p), true, n, h, w, t);
    tern_fail(p->ctx, TERN_E_NOT_FOUND, "no component \"%.40s\"; there are text_encoder, unet, vae_decoder, vae_encoder%s", component,
              p->xl ? ", text_encoder_2" : "");
    return false;
}

struct tern_graph *tern_pipeline_stage_graph(struct tern_pipeline *p, const struct tern_stage *stage)
{
    struct trace t;
    if (tern_failed(p->ctx) || !find(p, stage, &t))
        return NULL;
    struct tern_device *former = tern_pipeline_go(p, stage->component);
    p->half_made++;
    struct tern_graph *g = tern_graph_trace(p->ctx, t.fn, t.module, t.weights, t.inputs, t.n_inputs, t.n_outputs);
    p->half_made--;
    g = tern_hoist_part(&g, stage);
    tern_device_go(p->ctx, former);
    return g;
}

struct tern_graph *tern_pipeline_graph(struct tern_pipeline *p, const char *component, const struct tern_graph_size *size)
{
    const struct tern_stage stage = {.component = component ? component : "", .size = size ? *size : (struct tern_graph_size){0}};
    if (!p || tern_pipeline_may_load(p))
        return NULL;
    p->calls++;
    struct tern_graph *g = tern_pipeline_stage_graph(p, &stage);
    p->calls--;
    return g;
}

struct tern_weights *tern_pipeline_module_weights(struct tern_pipeline *p, const char *component)
{
    struct trace t;
    const struct tern_stage stage = {.component = component};
    return !tern_failed(p->ctx) && find(p, &stage, &t) ? t.weights : NULL;
}

const struct tern_weights *tern_pipeline_weights(struct tern_pipeline *p, const char *component)
{
    if (!p || tern_pipeline_may_load(p))
        return NULL;
    p->calls++;
    const struct tern_weights *weights = tern_pipeline_module_weights(p, component ? component : "");
    p->calls--;
    return weights;
}
