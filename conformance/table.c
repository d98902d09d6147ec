/* The case table: read once, and checked whole before any case is run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/suite.h"
#include "core/json.h"

#define LARGEST_INPUT ((int64_t)1 << 26) /* elements */

const json_t *tern_table_case(const struct tern_table *t, int i) { return json_array_get(t->cases, (size_t)i); }

const char *tern_json_word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

double tern_json_real(const json_t *v) { return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v); }

bool tern_spec_meta(const json_t *spec, struct tern_meta *m)
{
    const json_t *shape = json_object_get(spec, "shape"), *size;
    size_t i;
    int64_t n;
    memset(m, 0, sizeof(*m));
    m->dtype = tern_dtype_parse(tern_json_word(spec, "dtype"));
    if (!tern_dtype_size(m->dtype) || !json_is_array(shape) || json_array_size(shape) > TERN_MAX_DIMS)
        return false;
    m->ndim = (int)json_array_size(shape);
    json_array_foreach(shape, i, size) {
        if (!json_is_integer(size))
            return false;
        m->shape[i] = json_integer_value(size);
    }
    if (!tern_shape_valid(m->ndim, m->shape, &n) || n > LARGEST_INPUT)
        return false;
    tern_meta_contiguous(m);
    return true;
}

const void *tern_spec_stored(const struct tern_table *t, const json_t *spec)
{
    static const char none[1];
    size_t at = (size_t)json_integer_value(json_object_get(spec, "at"));
    return t->values->data ? t->values->data + at : (const unsigned char *)none;
}

/* "at" is a place in the file with room for all elements. */
static bool stored_is_there(const struct tern_table *t, const json_t *spec, const struct tern_meta *m)
{
    const json_t *at = json_object_get(spec, "at");
    size_t n = (size_t)tern_meta_numel(m) * tern_dtype_size(m->dtype);
    return json_is_integer(at) && json_integer_value(at) >= 0 && json_integer_value(at) % 8 == 0 &&
           (uint64_t)json_integer_value(at) <= t->values->size && n <= t->values->size - (size_t)json_integer_value(at);
}

static bool view_is_good(const json_t *step)
{
    static const struct {
        const char *name;
        size_t least, most;
    } known[] = {{"permute", 0, TERN_MAX_DIMS}, {"slice", 4, 4}, {"expand", 0, TERN_MAX_DIMS}, {"channels_last", 0, 0}};
    const char *what = json_string_value(json_array_get(step, 0));
    const json_t *v;
    size_t i;
    json_array_foreach(step, i, v)
        if (i && !json_is_integer(v))
            return false;
    for (i = 0; what && i < sizeof(known) / sizeof(*known); i++)
        if (!strcmp(what, known[i].name))
            return json_array_size(step) - 1 >= known[i].least && json_array_size(step) - 1 <= known[i].most;
    return false;
}

static bool input_is_good(const struct tern_table *t, const json_t *spec)
{
    struct tern_meta m;
    const json_t *step, *low = json_object_get(spec, "low"), *high = json_object_get(spec, "high");
    size_t i;
    if (json_is_null(spec))
        return true;
    if (!tern_spec_meta(spec, &m) || (json_object_get(spec, "at") ? !stored_is_there(t, spec, &m) : !json_object_get(spec, "seed")))
        return false;
    int64_t from = low ? json_integer_value(low) : -100, to = high ? json_integer_value(high) : 100;
    if (from < -((int64_t)1 << 32) || to > (int64_t)1 << 32 || from >= to)
        return false;
    json_array_foreach(json_object_get(spec, "view"), i, step)
        if (!view_is_good(step))
            return false;
    return true;
}

/* As many inputs as the op takes, and those that it must have. Of calls that must be refused just that may be wrong. */
static bool inputs_are_there(const json_t *row)
{
    const struct tern_op_info info = tern_op_get(tern_op_find(tern_json_word(row, "op")));
    const json_t *in = json_object_get(row, "in");
    const int n = (int)json_array_size(in);
    for (int i = 0; i < info.min_inputs; i++)
        if (i == n || json_is_null(json_array_get(in, (size_t)i)))
            return false;
    return n <= info.max_inputs;
}

/* NULL, or what is wrong with it. */
static const char *case_is_bad(const struct tern_table *t, const json_t *row)
{
    const json_t *in = json_object_get(row, "in"), *out = json_object_get(row, "out"), *spec;
    struct tern_meta m;
    size_t i;
    if (!*tern_json_word(row, "name") || tern_op_find(tern_json_word(row, "op")) == TERN_OP_COUNT)
        return "no name, or an op that this build does not have";
    if (!json_is_array(in) || json_array_size(in) > TERN_MAX_INPUTS || !json_is_object(json_object_get(row, "attrs")))
        return "inputs or attributes are missing";
    json_array_foreach(in, i, spec)
        if (!input_is_good(t, spec))
            return "an input is not well-formed";
    if (!out)
        return *tern_json_word(row, "error") && *tern_json_word(row, "status") ? NULL : "neither expected values nor an error";
    if (!inputs_are_there(row))
        return "it lacks an input, or has too many";
    if (!tern_spec_meta(out, &m) || !stored_is_there(t, out, &m))
        return "the expected values are not there";
    return json_is_object(json_object_get(t->limits, tern_json_word(row, "limit"))) ? NULL : "its limit is not known";
}

void tern_table_close(struct tern_table *t)
{
    json_decref(t->root);
    tern_mapping_unref(&t->values);
    memset(t, 0, sizeof(*t));
}

bool tern_table_load(struct tern_context *ctx, const char *folder, struct tern_table *t)
{
    char *cases = tern_path_join(ctx, folder, "cases.json"), *values = tern_path_join(ctx, folder, "values.bin");
    const json_t *row;
    size_t i;
    memset(t, 0, sizeof(*t));
    t->root = cases && values ? tern_json_load(ctx, cases) : NULL;
    t->limits = json_object_get(t->root, "limits");
    t->cases = json_object_get(t->root, "cases");
    t->values = t->root ? tern_map_file(ctx, values) : NULL;
    if (t->values && (!json_is_object(t->limits) || !json_is_array(t->cases)))
        tern_fail(ctx, TERN_E_FORMAT, "%s: expected \"limits\" and \"cases\"", cases);
    if (t->values && !tern_failed(ctx))
        json_array_foreach(t->cases, i, row) {
            const char *wrong = case_is_bad(t, row);
            if (wrong) {
                tern_fail(ctx, TERN_E_FORMAT, "%s: case %zu (\"%s\"): %s", cases, i, tern_json_word(row, "name"), wrong);
                break;
            }
        }
    tern_free(ctx, cases);
    tern_free(ctx, values);
    if (!tern_failed(ctx))
        return true;
    tern_table_close(t);
    return false;
}
