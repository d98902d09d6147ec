/* Inputs of a case: generated or stored elements, views of them, attributes by the op's schema. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tern/ops.h>

#include "conformance/suite.h"
#include "ops/reference.h"

/* Fills attributes by the op's schema; the count of a list is its length unless the table gives another. */
static void fill_attrs(const json_t *from, const struct tern_op_info *info, union tern_op_attrs *attrs)
{
    memset(attrs, 0, sizeof(*attrs));
    for (int i = 0; i < info->n_attrs; i++) {
        const struct tern_attr_info *a = &info->attrs[i];
        const json_t *v = json_object_get(from, a->name);
        char *to = (char *)attrs + a->offset, list[32];
        size_t n = strlen(a->name);
        if (!v && n > 2 && n < sizeof(list) && !strcmp(a->name + n - 2, "_n")) {
            snprintf(list, sizeof(list), "%.*s", (int)n - 2, a->name);
            *(int64_t *)(void *)to = (int64_t)json_array_size(json_object_get(from, list));
        }
        for (int k = 0; v && k < a->count && (k == 0 || k < (int)json_array_size(v)); k++) {
            const json_t *x = json_is_array(v) ? json_array_get(v, (size_t)k) : v;
            if (a->kind == TERN_ATTR_FLOAT)
                ((double *)(void *)to)[k] = tern_json_real(x);
            else
                ((int64_t *)(void *)to)[k] = json_integer_value(x);
        }
    }
}

/* As `generate` of tools/goldens_ops/table.py. */
static void generate(const json_t *spec, const struct tern_meta *m, void *out)
{
    uint32_t seed = (uint32_t)json_integer_value(json_object_get(spec, "seed")) * 0x9E3779B9u;
    const json_t *scale = json_object_get(spec, "scale"), *low = json_object_get(spec, "low"), *high = json_object_get(spec, "high");
    bool positive = json_is_true(json_object_get(spec, "positive"));
    int bits = m->dtype == TERN_F32 ? 24 : m->dtype == TERN_F16 ? 11 : 8;
    int64_t from = low ? json_integer_value(low) : -100, range = (high ? json_integer_value(high) : 100) - from;
    int64_t n = tern_meta_numel(m);
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = (uint32_t)i + seed;
        h = (h ^ h >> 16) * 0x7FEB352Du;
        h = (h ^ h >> 15) * 0x846CA68Bu;
        h ^= h >> 16;
        if (tern_dtype_is_float(m->dtype)) {
            double v = ldexp((double)(h >> (32 - bits)) - ldexp(1, bits - 1), 2 - bits);
            tern_store(m->dtype, out, i, (positive ? fabs(v) + 0.25 : v) * (scale ? json_number_value(scale) : 1));
        } else {
            tern_store_i64(m->dtype, out, i, m->dtype == TERN_BOOL ? h >> 16 & 1 : from + (int64_t)(h % (uint64_t)range));
        }
    }
}

/* One step of "view": ["permute", d...], ["slice", dim, start, end, step], ["expand", size...], ["channels_last"] */
static tern_tensor *view_step(tern_tensor *x, const json_t *step)
{
    const char *what = json_string_value(json_array_get(step, 0));
    int64_t v[TERN_MAX_DIMS] = {0};
    int n = (int)json_array_size(step) - 1, dims[TERN_MAX_DIMS] = {0};
    for (int i = 0; i < n; i++) {
        v[i] = json_integer_value(json_array_get(step, (size_t)i + 1));
        dims[i] = (int)v[i];
    }
    if (!strcmp(what, "permute"))
        return tern_permute(x, n, dims);
    if (!strcmp(what, "slice"))
        return tern_slice(x, dims[0], v[1], v[2], v[3]);
    if (!strcmp(what, "expand"))
        return tern_expand(x, n, v);
    return tern_contiguous(x, TERN_CHANNELS_LAST);
}

static tern_tensor *input_of(const struct tern_table *t, struct tern_context *ctx, const json_t *spec)
{
    struct tern_meta m;
    if (!tern_spec_meta(spec, &m))
        return NULL;
    const void *data = json_object_get(spec, "at") ? tern_spec_stored(t, spec) : NULL;
    void *made = NULL;
    if (!data) {
        made = tern_alloc(ctx, (size_t)tern_meta_numel(&m) * tern_dtype_size(m.dtype));
        if (!made)
            return NULL;
        generate(spec, &m, made);
    }
    tern_tensor *x = tern_tensor_create(ctx, m.dtype, m.ndim, m.shape, data ? data : made);
    tern_free(ctx, made);
    size_t i;
    const json_t *step;
    json_array_foreach(json_object_get(spec, "view"), i, step)
        x = view_step(x, step);
    return x;
}

bool tern_call_prepare(const struct tern_table *t, const json_t *row, struct tern_context *ctx, struct tern_call *call)
{
    const json_t *in = json_object_get(row, "in");
    *call = (struct tern_call){.op = tern_op_find(tern_json_word(row, "op")), .n_in = (int)json_array_size(in)};
    call->info = tern_op_get(call->op);
    fill_attrs(json_object_get(row, "attrs"), &call->info, &call->attrs);
    for (int i = 0; i < call->n_in; i++) {
        const json_t *spec = json_array_get(in, (size_t)i);
        call->in[i] = json_is_null(spec) ? NULL : input_of(t, ctx, spec);
        if (!call->in[i] && !json_is_null(spec)) {
            tern_fail_prefix(ctx, "input %d could not be made", i);
            return false;
        }
    }
    return true;
}

bool tern_call_describe(struct tern_context *ctx, const struct tern_call *call, struct tern_op_desc *d)
{
    memset(d, 0, sizeof(*d));
    d->op = call->op;
    d->n_in = call->n_in;
    d->attrs = call->attrs;
    for (int i = 0; i < call->n_in; i++) {
        d->present[i] = call->in[i] != NULL;
        if (call->in[i])
            d->in[i] = call->in[i]->meta;
    }
    return call->info.shape(ctx, d) == TERN_OK;
}
