/* The inside of a recipe. */
#ifndef TERN_MODELS_QUANTIZE_RECIPE_H
#define TERN_MODELS_QUANTIZE_RECIPE_H

#include <tern/quantize.h>

#include "core/json.h"
#include "models/pipelines/pipeline.h"
#include "ops/key.h"

#define TERN_RECIPE_FORMAT "tern recipe"
#define TERN_RECIPE_VERSION 1
#define TERN_RECIPE_LAYERS 4096   /* most of them */
#define TERN_RECIPE_NAME 256      /* longest name of one */
#define TERN_RECIPE_REASON 256    /* longest decision */
#define TERN_RECIPE_FACTORS 65536 /* most channels of a norm */

/* All attention of the network: a layer of this kind and this name, which is that of the op, without a shape. */
#define TERN_RECIPE_ATTENTION "attention"
#define TERN_RECIPE_ATTENTION_NAME "sdpa"

/* What a norm is divided by before int8, a letter a channel (graph/passes/passes.h). */
struct tern_recipe_norm {
    char *name; /* of its weight */
    char *factors;
};

struct tern_recipe {
    struct tern_context *ctx;
    char *path; /* for messages; NULL: it was not read */
    char *architecture;
    char fingerprint[TERN_KEY_TEXT];
    struct tern_recipe_layer *layer; /* strings are tern_alloc'ed, but for the kinds */
    int count, capacity;
    struct tern_recipe_norm *norm;
    int norms, norm_capacity;
    struct tern_recipe_facts facts;
    json_t *options; /* of the run that made it; NULL: not known */
};

struct tern_recipe *tern_recipe_create(struct tern_context *ctx);
/* Appends a layer: the name is copied. */
enum tern_status tern_recipe_add(struct tern_recipe *r, const char *name, const char *kind, int ndim, const int64_t *shape);
/* Appends factors, which are copied. */
enum tern_status tern_recipe_smooth(struct tern_recipe *r, const char *norm, const char *factors);
enum tern_status tern_recipe_decide(struct tern_recipe *r, int i, const char *decision);
bool tern_recipe_is_attention(const struct tern_recipe_layer *l);
/* Of the names and shapes of all layers that have weights. */
void tern_recipe_fingerprint(const struct tern_recipe *r, char out[TERN_KEY_TEXT]);
/* The kind of that name, static; NULL: there is no such kind. */
const char *tern_recipe_kind(const char *name);

/* The layers of the pipeline's UNet, none of them int8. NULL with the error recorded. */
struct tern_recipe *tern_recipe_of_pipeline(struct tern_pipeline *p);
/* "(320, 4, 3, 3)" */
const char *tern_recipe_shape(const struct tern_recipe_layer *l, char out[TERN_META_TEXT]);

#endif
