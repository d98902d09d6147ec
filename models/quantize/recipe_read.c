/* Reading a recipe: nothing in the file is trusted. */
#include "models/quantize/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/passes/passes.h"

#define MOST_SIDE ((int64_t)1 << 31)

/* A string that must be there, of 1 to `most` bytes. */
static enum tern_status text_of(struct tern_context *ctx, const json_t *o, const char *where, const char *key, size_t most,
                                const char **out)
{
    *out = NULL;
    if (tern_json_string(ctx, o, where, key, out))
        return tern_error_status(ctx);
    const size_t n = *out ? strlen(*out) : 0;
    if (!n || n > most)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"%s\": expected a text of 1 to %zu bytes, found %s", where, key, most,
                         !*out ? "nothing"
                         : n   ? "a longer one"
                               : "an empty one");
    return TERN_OK;
}

/* What stands there must be of the JSON type; NULL with the error recorded. */
static const json_t *part(struct tern_context *ctx, const json_t *o, const char *where, const char *key, json_type type,
                          const char *expected)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_typeof(v) != type)
        tern_fail(ctx, TERN_E_FORMAT, "%s: \"%s\": expected %s, found %s", where, key, expected, v ? "something else" : "nothing");
    return tern_failed(ctx) ? NULL : v;
}

static enum tern_status read_shape(struct tern_context *ctx, const json_t *row, const char *where, bool attention, int *ndim,
                                   int64_t shape[4])
{
    const char *expected = attention ? "an empty list" : "a list of 2 or 4 numbers";
    const json_t *list = part(ctx, row, where, "shape", JSON_ARRAY, expected);
    const size_t n = list ? json_array_size(list) : 0;
    const bool good = attention ? n == 0 : n == 2 || n == 4;
    if (list && !good)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"shape\": expected %s, found %zu", where, expected, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        shape[i] = json_is_integer(v) ? json_integer_value(v) : 0;
        if (shape[i] < 1 || shape[i] > MOST_SIDE)
            return tern_fail(ctx, TERN_E_FORMAT, "%s: \"shape\": expected whole numbers of 1 to %lld", where, (long long)MOST_SIDE);
    }
    *ndim = (int)n;
    return tern_error_status(ctx);
}

/* A measured value, which may be missing; none is below `least`. */
static enum tern_status read_number(struct tern_context *ctx, const json_t *o, const char *where, const char *key, double least,
                                    double *out)
{
    if (tern_json_number(ctx, o, where, key, out))
        return tern_error_status(ctx);
    return *out >= least ? TERN_OK
                         : tern_fail(ctx, TERN_E_FORMAT, "%s: \"%s\": expected a number of at least %g, found %g", where, key, least, *out);
}

static enum tern_status read_measured(struct tern_context *ctx, const json_t *row, const char *where, struct tern_recipe_layer *l)
{
    int64_t with = 0;
    if (read_number(ctx, row, where, "density", 0, &l->density) || read_number(ctx, row, where, "error", 0, &l->error) ||
        read_number(ctx, row, where, "seconds", 0, &l->seconds) || read_number(ctx, row, where, "saved", -1e9, &l->saved) ||
        tern_json_int(ctx, row, where, "measured_with", 0, TERN_RECIPE_LAYERS, &with))
        return tern_error_status(ctx);
    l->measured_with = (int)with;
    return TERN_OK;
}

/* A name becomes a word of tern_plan_params.quantize. */
static bool is_name(const char *name) { return name[0] != '!' && !strpbrk(name, " *:^\t\r\n"); }

static enum tern_status read_layer(struct tern_recipe *r, const json_t *row, const char *where)
{
    struct tern_context *ctx = r->ctx;
    const char *name, *kind, *decision = NULL;
    int64_t shape[4];
    int ndim = 0;
    if (!json_is_object(row))
        return tern_fail(ctx, TERN_E_FORMAT, "%s: expected an object", where);
    if (text_of(ctx, row, where, "name", TERN_RECIPE_NAME, &name) || text_of(ctx, row, where, "kind", 16, &kind) ||
        tern_json_string(ctx, row, where, "decision", &decision))
        return tern_error_status(ctx);
    if (!tern_recipe_kind(kind))
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"kind\": expected conv, linear or attention, found \"%s\"", where, kind);
    const bool attention = !strcmp(kind, TERN_RECIPE_ATTENTION);
    if (attention != !strcmp(name, TERN_RECIPE_ATTENTION_NAME) || !is_name(name))
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"name\": expected %s, found \"%.80s\"", where,
                         attention ? TERN_RECIPE_ATTENTION_NAME : "the name of a weight", name);
    if (read_shape(ctx, row, where, attention, &ndim, shape))
        return tern_error_status(ctx);
    if (decision && strlen(decision) > TERN_RECIPE_REASON)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"decision\": expected at most %d bytes, found %zu", where, TERN_RECIPE_REASON,
                         strlen(decision));
    if (!json_is_boolean(json_object_get(row, "int8")))
        return tern_fail(ctx, TERN_E_FORMAT, "%s: \"int8\": expected true or false", where);
    if (tern_recipe_add(r, name, kind, ndim, shape) || (decision && tern_recipe_decide(r, r->count - 1, decision)))
        return tern_error_status(ctx);
    r->layer[r->count - 1].int8 = json_is_true(json_object_get(row, "int8"));
    return read_measured(ctx, row, where, &r->layer[r->count - 1]);
}

/* Calls `read` for each in a list. */
static void read_each(struct tern_recipe *r, const json_t *list, const char *what,
                      enum tern_status (*read)(struct tern_recipe *r, const json_t *row, const char *where))
{
    for (size_t i = 0; i < json_array_size(list) && !tern_failed(r->ctx); i++) {
        char *where = tern_sprintf(r->ctx, "%s: %s %zu", r->path, what, i + 1);
        if (where)
            read(r, json_array_get(list, i), where);
        tern_free(r->ctx, where);
    }
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static enum tern_status check_twice(const struct tern_recipe *r)
{
    const char **names = tern_alloc(r->ctx, ((size_t)r->count + 1) * sizeof(*names)), *twice = NULL;
    if (!names)
        return tern_error_status(r->ctx);
    for (int i = 0; i < r->count; i++)
        names[i] = r->layer[i].name;
    qsort(names, (size_t)r->count, sizeof(*names), by_name);
    for (int i = 1; i < r->count && !twice; i++)
        twice = strcmp(names[i - 1], names[i]) ? NULL : names[i];
    tern_free(r->ctx, names);
    return twice ? tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"layers\": \"%.80s\" stands there twice", r->path, twice) : TERN_OK;
}

static enum tern_status read_layers(struct tern_recipe *r, const json_t *root)
{
    const json_t *list = part(r->ctx, root, r->path, "layers", JSON_ARRAY, "a list of layers");
    const size_t n = list ? json_array_size(list) : 0;
    if (list && (n < 1 || n > TERN_RECIPE_LAYERS))
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"layers\": expected 1 to %d, found %zu", r->path, TERN_RECIPE_LAYERS, n);
    read_each(r, list, "layer", read_layer);
    return tern_failed(r->ctx) ? tern_error_status(r->ctx) : check_twice(r);
}

static enum tern_status read_norm(struct tern_recipe *r, const json_t *row, const char *where)
{
    const char *name, *factors;
    if (!json_is_object(row))
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: expected an object", where);
    if (text_of(r->ctx, row, where, "norm", TERN_RECIPE_NAME, &name) ||
        text_of(r->ctx, row, where, "factors", TERN_RECIPE_FACTORS, &factors))
        return tern_error_status(r->ctx);
    if (!is_name(name))
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"norm\": expected the name of a weight, found \"%.80s\"", where, name);
    if (tern_quantize_factor_span(factors) != strlen(factors))
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"factors\": expected letters, A to Z and a to z, found another character", where);
    for (int i = 0; i < r->norms; i++)
        if (!strcmp(r->norm[i].name, name))
            return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"%.80s\" stands there twice", where, name);
    return tern_recipe_smooth(r, name, factors);
}

/* Factors, which most recipes have not. */
static enum tern_status read_smooth(struct tern_recipe *r, const json_t *root)
{
    const json_t *list = json_object_get(root, "smooth") ? part(r->ctx, root, r->path, "smooth", JSON_ARRAY, "a list of norms") : NULL;
    if (json_array_size(list) > TERN_RECIPE_LAYERS)
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"smooth\": expected at most %d, found %zu", r->path, TERN_RECIPE_LAYERS,
                         json_array_size(list));
    read_each(r, list, "norm", read_norm);
    return tern_error_status(r->ctx);
}

/* Whose recipe it is; the fingerprint is that of the layers, so that a list that was edited is found. */
static enum tern_status read_architecture(struct tern_recipe *r, const json_t *root)
{
    char found[TERN_KEY_TEXT];
    const char *name, *fingerprint;
    const json_t *o = part(r->ctx, root, r->path, "architecture", JSON_OBJECT, "an object");
    if (!o || text_of(r->ctx, o, r->path, "name", TERN_ARCHITECTURE_TEXT, &name) ||
        text_of(r->ctx, o, r->path, "fingerprint", TERN_KEY_TEXT - 1, &fingerprint))
        return tern_error_status(r->ctx);
    r->architecture = tern_strdup(r->ctx, name);
    tern_recipe_fingerprint(r, found);
    if (strcmp(found, fingerprint) != 0)
        return tern_fail(r->ctx, TERN_E_FORMAT,
                         "%s: \"fingerprint\": expected %s, that of its layers' names and shapes, found \"%s\": layers were added, taken "
                         "away or renamed",
                         r->path, found, fingerprint);
    snprintf(r->fingerprint, sizeof(r->fingerprint), "%s", found);
    return tern_error_status(r->ctx);
}

static enum tern_status read_facts(struct tern_recipe *r, const json_t *root)
{
    struct tern_recipe_facts *f = &r->facts;
    const json_t *o = json_object_get(root, "result"), *options = json_object_get(root, "options");
    int64_t trials = 0, verified = 0;
    if ((o && !json_is_object(o)) || (options && !json_is_object(options)))
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"result\" and \"options\": expected objects", r->path);
    if (options)
        r->options = json_deep_copy(options);
    if (read_number(r->ctx, o, r->path, "error", 0, &f->error) || read_number(r->ctx, o, r->path, "ssim", -1, &f->ssim) ||
        read_number(r->ctx, o, r->path, "seconds", 0, &f->seconds) || read_number(r->ctx, o, r->path, "saved", -1e9, &f->saved) ||
        read_number(r->ctx, o, r->path, "call_seconds", 0, &f->call_seconds) ||
        read_number(r->ctx, o, r->path, "call_int8_seconds", 0, &f->call_int8_seconds) ||
        tern_json_int(r->ctx, o, r->path, "trials", 0, 1 << 24, &trials) ||
        tern_json_int(r->ctx, o, r->path, "verified", 0, 1 << 24, &verified))
        return tern_error_status(r->ctx);
    f->trials = (int)trials;
    f->verified = (int)verified;
    return TERN_OK;
}

static enum tern_status read_root(struct tern_recipe *r, const json_t *root)
{
    const char *format = NULL;
    int64_t version = 0;
    if (!json_is_object(root))
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: expected a recipe, a JSON object", r->path);
    if (text_of(r->ctx, root, r->path, "format", 64, &format))
        return tern_error_status(r->ctx);
    if (strcmp(format, TERN_RECIPE_FORMAT) != 0)
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"format\": expected \"%s\", found \"%s\"", r->path, TERN_RECIPE_FORMAT, format);
    if (tern_json_int(r->ctx, root, r->path, "version", INT64_MIN, INT64_MAX, &version))
        return tern_error_status(r->ctx);
    if (version != TERN_RECIPE_VERSION)
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"version\": expected %d, found %lld; another version of tern wrote it", r->path,
                         TERN_RECIPE_VERSION, (long long)version);
    return read_layers(r, root) || read_architecture(r, root) || read_smooth(r, root) ? tern_error_status(r->ctx) : read_facts(r, root);
}

struct tern_recipe *tern_recipe_open(struct tern_context *ctx, const char *path)
{
    if (!path)
        tern_fail(ctx, TERN_E_INVALID, "tern_recipe_open: expected a path, found NULL");
    struct tern_recipe *r = tern_failed(ctx) ? NULL : tern_recipe_create(ctx);
    json_t *root = NULL;
    if (r && (r->path = tern_strdup(ctx, path)) && (root = tern_json_load(ctx, r->path)))
        read_root(r, root);
    json_decref(root);
    if (tern_failed(ctx))
        tern_recipe_destroy(&r);
    return r;
}
