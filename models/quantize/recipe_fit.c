/* Recipes and models: the layers that a model has, and whether a recipe is for them. */
#include <stdio.h>
#include <string.h>

#include "graph/passes/passes.h"
#include "models/quantize/recipe.h"

/* NULL: no layer that could be int8. */
static const char *kind_of(enum tern_op op)
{
    return op == TERN_OP_conv2d ? "conv" : op == TERN_OP_linear || op == TERN_OP_linear_geglu ? "linear" : NULL;
}

static const struct tern_stage unet = {.component = "unet"};

static enum tern_status add_layers(struct tern_recipe *r, const struct tern_graph *g)
{
    bool attention = false;
    for (int i = 0; i < g->n_nodes && !tern_failed(r->ctx); i++) {
        const struct tern_node *n = &g->nodes[i];
        if (n->dead || (n->kind != TERN_CALL_LAUNCH && n->kind != TERN_CALL_REFERENCE))
            continue;
        const char *kind = kind_of(n->desc.op);
        const struct tern_value *w = kind ? &g->values[n->in[1]] : NULL;
        attention |= n->desc.op == TERN_OP_sdpa;
        if (w && w->kind == TERN_VALUE_WEIGHT)
            tern_recipe_add(r, w->name, kind, w->meta.ndim, w->meta.shape);
    }
    if (attention && !tern_failed(r->ctx))
        tern_recipe_add(r, TERN_RECIPE_ATTENTION_NAME, TERN_RECIPE_ATTENTION, 0, NULL);
    return tern_error_status(r->ctx);
}

struct tern_recipe *tern_recipe_of_pipeline(struct tern_pipeline *p)
{
    char text[TERN_ARCHITECTURE_TEXT];
    struct tern_graph *g = tern_pipeline_stage_graph(p, &unet);
    struct tern_recipe *r = g ? tern_recipe_create(p->ctx) : NULL;
    if (r && add_layers(r, g) == TERN_OK) {
        r->architecture = tern_strdup(p->ctx, tern_architecture_text(tern_pipeline_architecture(p), text));
        tern_recipe_fingerprint(r, r->fingerprint);
    }
    tern_graph_destroy(&g);
    if (tern_failed(p->ctx))
        tern_recipe_destroy(&r);
    return r;
}

const char *tern_recipe_shape(const struct tern_recipe_layer *l, char out[TERN_META_TEXT])
{
    size_t n = (size_t)snprintf(out, TERN_META_TEXT, "(");
    for (int i = 0; i < l->ndim; i++)
        n += (size_t)snprintf(out + n, TERN_META_TEXT - n, "%s%lld", i ? ", " : "", (long long)l->shape[i]);
    snprintf(out + n, TERN_META_TEXT - n, ")");
    return out;
}

static bool same(const struct tern_recipe_layer *a, const struct tern_recipe_layer *b)
{
    return a && b && !strcmp(a->name, b->name) && a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape));
}

/* Of a kin, which is told a picture beside the latents (inpainting, instructions), the first layer alone has other inputs. */
static bool fits(const struct tern_recipe_layer *a, const struct tern_recipe_layer *b)
{
    struct tern_recipe_layer like;
    if (!a || !b || strcmp(a->name, "conv_in.weight") != 0 || a->ndim != b->ndim || a->ndim < 2)
        return same(a, b);
    like = *a;
    like.shape[1] = b->shape[1];
    return same(&like, b);
}

/* The first layer from i on that has a weight; NULL: there is none. */
static const struct tern_recipe_layer *weighted(const struct tern_recipe *r, int *i)
{
    while (*i < r->count && tern_recipe_is_attention(&r->layer[*i]))
        ++*i;
    return tern_recipe_at(r, *i);
}

/* As tern_recipe_fingerprint says it, but for the first layer's inputs. */
static bool all_fit(const struct tern_recipe *r, const struct tern_recipe *own)
{
    const struct tern_recipe_layer *a, *b;
    int i = 0, k = 0;
    while (a = weighted(r, &i), b = weighted(own, &k), fits(a, b)) {
        i++;
        k++;
    }
    return !a && !b;
}

/* "no layer" behind the last one */
static void layer_text(const struct tern_recipe_layer *l, char *out, size_t size)
{
    char shape[TERN_META_TEXT];
    if (l)
        snprintf(out, size, "%.120s %s", l->name, tern_recipe_shape(l, shape));
    else
        snprintf(out, size, "no layer");
}

static enum tern_status refuse(const struct tern_recipe *r, const struct tern_recipe *own, const struct tern_pipeline *p)
{
    char expected[TERN_META_TEXT + 128], found[TERN_META_TEXT + 128];
    int i = 0;
    while (i < r->count && fits(tern_recipe_at(r, i), tern_recipe_at(own, i)))
        i++;
    layer_text(tern_recipe_at(r, i), expected, sizeof(expected));
    layer_text(tern_recipe_at(own, i), found, sizeof(found));
    return tern_fail(p->ctx, TERN_E_FORMAT,
                     "%s: a recipe for %s (%d layers), the model %s is %s (%d layers): layer %d is %s in the recipe, %s in the model",
                     r->path ? r->path : "recipe", r->architecture, r->count, p->name, own->architecture, own->count, i + 1, expected,
                     found);
}

/* The weight of the norm of that name that may be divided; NULL: there is none. */
static const struct tern_value *find_norm(const struct tern_graph *g, const char *name)
{
    bool silu;
    for (int i = 0; i < g->n_nodes; i++)
        if (tern_smooth_place(g, i, &silu) >= 0 && !strcmp(g->values[g->nodes[i].in[1]].name, name))
            return &g->values[g->nodes[i].in[1]];
    return NULL;
}

static enum tern_status check_norms(const struct tern_recipe *r, struct tern_pipeline *p)
{
    struct tern_graph *g = r->norms ? tern_pipeline_stage_graph(p, &unet) : NULL;
    for (int i = 0; g && i < r->norms && !tern_failed(p->ctx); i++) {
        const struct tern_value *w = find_norm(g, r->norm[i].name);
        const size_t n = strlen(r->norm[i].factors);
        if (!w)
            tern_fail(p->ctx, TERN_E_FORMAT, "%s: \"smooth\": the model %s has no norm \"%.80s\" that may be divided",
                      r->path ? r->path : "recipe", p->name, r->norm[i].name);
        else if ((int64_t)n != w->meta.shape[0])
            tern_fail(p->ctx, TERN_E_FORMAT, "%s: \"smooth\": \"%.80s\": expected %lld factors, found %zu", r->path ? r->path : "recipe",
                      r->norm[i].name, (long long)w->meta.shape[0], n);
    }
    tern_graph_destroy(&g);
    return tern_error_status(p->ctx);
}

enum tern_status tern_recipe_check(const struct tern_recipe *r, struct tern_pipeline *p)
{
    if (!r || !p)
        return tern_fail(p ? p->ctx : r ? r->ctx : NULL, TERN_E_INVALID, "tern_recipe_check: expected a recipe and a pipeline, found NULL");
    if (tern_failed(p->ctx) || tern_pipeline_may_load(p))
        return tern_error_status(p->ctx);
    p->calls++;
    struct tern_recipe *own = tern_recipe_of_pipeline(p);
    if (own && !all_fit(r, own))
        refuse(r, own, p);
    else if (own)
        check_norms(r, p);
    p->calls--;
    tern_recipe_destroy(&own);
    return tern_error_status(p->ctx);
}
