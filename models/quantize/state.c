/* The state file: every number that was measured, so that a run that was interrupted goes on, and ends with the same recipe. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files.h"
#include "core/json.h"
#include "models/quantize/analysis.h"

#define FORMAT "tern quantize state"
#define VERSION 1
#define MOST_SECONDS 1e9 /* a recipe that says more is refused */

static json_t *empty(const json_t *options)
{
    return json_pack("{s:s, s:i, s:O, s:{}, s:{}}", "format", FORMAT, "version", VERSION, "options", options, "times", "trials");
}

/* Of this version, and whole. */
static bool is_state(const json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    return format && !strcmp(format, FORMAT) && json_integer_value(json_object_get(root, "version")) == VERSION &&
           json_is_object(json_object_get(root, "times")) && json_is_object(json_object_get(root, "trials"));
}

/* The first option that differs. */
static const char *other_option(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value) {
        if (!json_equal(value, json_object_get(b, key)))
            return key;
    }
    return json_equal(a, b) ? NULL : "others";
}

static enum tern_status read_file(struct tern_quantize_state *s, const json_t *options)
{
    json_t *root = tern_json_load(s->ctx, s->path);
    if (!root)
        return tern_error_status(s->ctx);
    const char *other = is_state(root) ? other_option(options, json_object_get(root, "options")) : NULL;
    if (!is_state(root))
        tern_fail(s->ctx, TERN_E_FORMAT, "%s: expected the state of an earlier run of this version; a restart (--restart) begins anew",
                  s->path);
    else if (other)
        tern_fail(s->ctx, TERN_E_INVALID,
                  "%s: the state of a run with other options (\"%.40s\" differs); a restart (--restart) begins anew", s->path, other);
    else
        s->root = json_incref(root);
    json_decref(root);
    return tern_error_status(s->ctx);
}

enum tern_status tern_state_open(struct tern_quantize_state *s, struct tern_context *ctx, const char *path, bool restart,
                                 const json_t *options)
{
    *s = (struct tern_quantize_state){.ctx = ctx, .path = path};
    if (path && !restart && tern_path_kind(path) != TERN_PATH_MISSING)
        return read_file(s, options);
    s->root = empty(options);
    return s->root ? TERN_OK : tern_fail(ctx, TERN_E_NO_MEMORY, "quantize: no memory for its state");
}

static bool has_numbers(const json_t *root)
{
    return json_object_size(json_object_get(root, "times")) || json_object_size(json_object_get(root, "trials"));
}

enum tern_status tern_state_model(struct tern_quantize_state *s, const struct tern_recipe *r, const float *latents, int64_t n)
{
    struct tern_key k = {{VERSION, (uint64_t)n}};
    const char *before = json_string_value(json_object_get(s->root, "model"));
    tern_key_add_text(&k, r->fingerprint);
    tern_key_add_bytes(&k, latents, (size_t)n * sizeof(*latents));
    tern_key_text(tern_key_finish(k), s->model);
    if (before ? strcmp(before, s->model) != 0 : has_numbers(s->root)) /* numbers of no model are not this one's */
        return tern_fail(
            s->ctx, TERN_E_INVALID,
            "%s: the state of another model, or of other kernels, as --tune may choose them; a restart (--restart) begins anew", s->path);
    return json_object_set_new(s->root, "model", json_string(s->model))
               ? tern_fail(s->ctx, TERN_E_NO_MEMORY, "quantize: no memory for its state")
               : TERN_OK;
}

static bool get(const json_t *v, double least, double most, double *value)
{
    const double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(x >= least && x <= most))
        return false;
    *value = x;
    return true;
}

bool tern_state_get(const struct tern_quantize_state *s, const char *key, double least, double most, double *value)
{
    return get(json_object_get(json_object_get(s->root, "trials"), key), least, most, value);
}

enum tern_status tern_state_put(struct tern_quantize_state *s, const char *key, double value)
{
    if (json_object_set_new(json_object_get(s->root, "trials"), key, json_real(value)))
        return tern_fail(s->ctx, TERN_E_NO_MEMORY, "quantize: no memory for its state");
    return tern_state_save(s);
}

bool tern_state_times(const struct tern_quantize_state *s, const char *name, double seconds[2])
{
    const json_t *v = json_object_get(json_object_get(s->root, "times"), name);
    return get(json_array_get(v, 0), 0, MOST_SECONDS, &seconds[0]) && get(json_array_get(v, 1), 0, MOST_SECONDS, &seconds[1]);
}

void tern_state_put_times(struct tern_quantize_state *s, const char *name, const double seconds[2])
{
    json_object_set_new(json_object_get(s->root, "times"), name, json_pack("[f, f]", seconds[0], seconds[1]));
}

enum tern_status tern_state_save(const struct tern_quantize_state *s)
{
    struct tern_writer *w = s->path && !tern_failed(s->ctx) ? tern_writer_open(s->ctx, s->path) : NULL;
    if (!w)
        return tern_error_status(s->ctx);
    if (tern_json_write(s->root, w->file, JSON_COMPACT | JSON_REAL_PRECISION(17)))
        return tern_writer_commit(&w);
    tern_fail(s->ctx, tern_errno_status(TERN_E_IO), "%s: could not be written: %s", s->path, strerror(errno));
    tern_writer_discard(&w);
    return tern_error_status(s->ctx);
}

void tern_state_close(struct tern_quantize_state *s, bool done)
{
    char target[PATH_MAX];
    if (s->path && done && tern_path_kind(s->path) == TERN_PATH_FILE && realpath(s->path, target)) /* links, pipes and devices stay */
        unlink(target);
    json_decref(s->root);
    s->root = NULL;
}
