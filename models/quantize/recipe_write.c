/* A recipe as JSON. */
#include <errno.h>
#include <string.h>
#include <tern/context.h>

#include "core/files.h"
#include "core/json.h"
#include "core/status.h"
#include "models/quantize/recipe.h"

static json_t *shape_json(const struct tern_recipe_layer *l)
{
    json_t *list = json_array();
    for (int i = 0; i < l->ndim; i++)
        tern_json_append(&list, json_integer(l->shape[i]));
    return list;
}

static json_t *layer_json(const struct tern_recipe_layer *l)
{
    json_t *o = json_pack("{s:s, s:s, s:o, s:b}", "name", l->name, "kind", l->kind, "shape", shape_json(l), "int8", l->int8);
    if (*l->decision)
        tern_json_set(&o, "decision", json_string(l->decision));
    if (l->density > 0)
        tern_json_set(&o, "density", json_real(l->density));
    if (l->seconds > 0) {
        tern_json_set(&o, "seconds", json_real(l->seconds));
        tern_json_set(&o, "saved", json_real(l->saved));
    }
    if (l->measured_with) {
        tern_json_set(&o, "error", json_real(l->error));
        tern_json_set(&o, "measured_with", json_integer(l->measured_with));
    }
    return o;
}

static json_t *result_json(const struct tern_recipe_facts *f)
{
    json_t *o = json_pack("{s:f, s:f, s:f, s:f, s:i, s:i}", "error", f->error, "ssim", f->ssim, "seconds", f->seconds, "saved", f->saved,
                          "trials", f->trials, "verified", f->verified);
    if (f->call_seconds > 0) {
        tern_json_set(&o, "call_seconds", json_real(f->call_seconds));
        tern_json_set(&o, "call_int8_seconds", json_real(f->call_int8_seconds));
    }
    return o;
}

static json_t *recipe_json(const struct tern_recipe *r)
{
    const struct tern_recipe_facts *f = &r->facts;
    json_t *layers = json_array(), *root;
    for (int i = 0; i < r->count; i++)
        tern_json_append(&layers, layer_json(&r->layer[i]));
    root = json_pack("{s:s, s:i, s:s, s:{s:s, s:s}}", "format", TERN_RECIPE_FORMAT, "version", TERN_RECIPE_VERSION, "component", "unet",
                     "architecture", "name", r->architecture, "fingerprint", r->fingerprint);
    if (r->options)
        tern_json_set(&root, "options", json_incref(r->options));
    if (f->seconds > 0)
        tern_json_set(&root, "result", result_json(f));
    tern_json_set(&root, "layers", layers);
    json_t *norms = json_array();
    for (int i = 0; i < r->norms; i++)
        tern_json_append(&norms, json_pack("{s:s, s:s}", "norm", r->norm[i].name, "factors", r->norm[i].factors));
    if (r->norms)
        tern_json_set(&root, "smooth", norms);
    else
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
    const bool written = w && tern_json_write(root, w->file, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (!w)
        return tern_error_status(r->ctx);
    if (written)
        return tern_writer_commit(&w);
    tern_fail(r->ctx, tern_errno_status(TERN_E_IO), "%s: could not be written: %s", path, strerror(errno));
    tern_writer_discard(&w);
    return tern_error_status(r->ctx);
}
