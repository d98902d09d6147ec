/* A recipe as JSON. */
#include "core/files.h"
#include "models/quantize/recipe.h"

static json_t *shape_json(const struct tern_recipe_layer *l)
{
    json_t *list = json_array();
    for (int i = 0; i < l->ndim; i++)
        json_array_append_new(list, json_integer(l->shape[i]));
    return list;
}

static json_t *layer_json(const struct tern_recipe_layer *l)
{
    json_t *o = json_pack("{s:s, s:s, s:o, s:b}", "name", l->name, "kind", l->kind, "shape", shape_json(l), "int8", l->int8);
    if (*l->decision)
        json_object_set_new(o, "decision", json_string(l->decision));
    if (l->density > 0)
        json_object_set_new(o, "density", json_real(l->density));
    if (l->seconds > 0) {
        json_object_set_new(o, "seconds", json_real(l->seconds));
        json_object_set_new(o, "saved", json_real(l->saved));
    }
    if (l->measured_with) {
        json_object_set_new(o, "error", json_real(l->error));
        json_object_set_new(o, "measured_with", json_integer(l->measured_with));
    }
    return o;
}

static json_t *recipe_json(const struct tern_recipe *r)
{
    const struct tern_recipe_facts *f = &r->facts;
    json_t *layers = json_array(), *root;
    for (int i = 0; i < r->count; i++)
        json_array_append_new(layers, layer_json(&r->layer[i]));
    root = json_pack("{s:s, s:i, s:s, s:{s:s, s:s}}", "format", TERN_RECIPE_FORMAT, "version", TERN_RECIPE_VERSION, "component", "unet",
                     "architecture", "name", r->architecture, "fingerprint", r->fingerprint);
    if (r->options)
        json_object_set(root, "options", r->options);
    if (f->seconds > 0)
        json_object_set_new(root, "result",
                            json_pack("{s:f, s:f, s:f, s:f, s:i, s:i}", "error", f->error, "ssim", f->ssim, "seconds", f->seconds, "saved",
                                      f->saved, "trials", f->trials, "verified", f->verified));
    json_object_set_new(root, "layers", layers);
    json_t *norms = json_array();
    for (int i = 0; i < r->norms; i++)
        json_array_append_new(norms, json_pack("{s:s, s:s}", "norm", r->norm[i].name, "factors", r->norm[i].factors));
    if (r->norms)
        json_object_set(root, "smooth", norms);
    json_decref(norms);
    return root;
}

enum tern_status tern_recipe_save(const struct tern_recipe *r, const char *path)
{
    if (!r || !path)
        return tern_fail(r ? r->ctx : NULL, TERN_E_INVALID, "tern_recipe_save: expected a path, found NULL");
    json_t *root = recipe_json(r);
    struct tern_writer *w = root ? tern_writer_open(r->ctx, path) : NULL;
    if (!root)
        return tern_fail(r->ctx, TERN_E_NO_MEMORY, "%s: no memory to write it", path);
    const bool bad = w && json_dumpf(root, w->file, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (!w)
        return tern_error_status(r->ctx);
    if (!bad)
        return tern_writer_commit(&w);
    tern_writer_discard(&w);
    return tern_fail(r->ctx, TERN_E_IO, "%s: could not be written", path);
}
