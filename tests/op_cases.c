/* Reads the case table, builds inputs, runs, compares. */
#include "tests/op_cases.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "ops/dispatch.h"
#include "ops/reference.h"

struct op_cases {
    json_t *root, *limits, *list;
    unsigned char *values;
    size_t n_values;
};

static bool say(char *message, size_t size, const char *fmt, ...) TERN_PRINTF(3, 4);
/* Always false, so that it can be returned. */
static bool say(char *message, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, size, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- the table ---- */

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    long n = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
    unsigned char *p = n >= 0 ? malloc((size_t)n + 1) : NULL;
    *size = n > 0 ? (size_t)n : 0;
    if (p && (fseek(f, 0, SEEK_SET) || fread(p, 1, *size, f) != *size)) {
        free(p);
        p = NULL;
    }
    if (f)
        fclose(f);
    return p;
}

void op_cases_free(struct op_cases **cases)
{
    if (!*cases)
        return;
    json_decref((*cases)->root);
    free((*cases)->values);
    free(*cases);
    *cases = NULL;
}

struct op_cases *op_cases_load(const char *folder, char *message, size_t size)
{
    char path[4096];
    json_error_t error;
    struct op_cases *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    snprintf(path, sizeof(path), "%s/cases.json", folder);
    c->root = json_load_file(path, 0, &error);
    c->limits = json_object_get(c->root, "limits");
    c->list = json_object_get(c->root, "cases");
    if (!c->root || !c->limits || !c->list)
        say(message, size, "%s: %s", path, c->root ? "no limits or no cases" : error.text);
    else if (snprintf(path, sizeof(path), "%s/values.bin", folder), !(c->values = read_file(path, &c->n_values)))
        say(message, size, "%s: cannot be read", path);
    else
        return c;
    op_cases_free(&c);
    return NULL;
}

int op_cases_count(const struct op_cases *c) { return (int)json_array_size(c->list); }

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

const char *op_case_name(const struct op_cases *c, int i) { return text_of(json_array_get(c->list, (size_t)i), "name"); }
enum tern_op op_case_op(const struct op_cases *c, int i) { return tern_op_find(text_of(json_array_get(c->list, (size_t)i), "op")); }
bool op_case_is_error(const struct op_cases *c, int i) { return json_object_get(json_array_get(c->list, (size_t)i), "error") != NULL; }

/* A number, or the text "nan", "inf" or "-inf". */
static double number_of(const json_t *v) { return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v); }

static bool meta_of(const json_t *spec, struct tern_meta *m)
{
    const json_t *shape = json_object_get(spec, "shape");
    m->dtype = tern_dtype_parse(text_of(spec, "dtype"));
    m->ndim = (int)json_array_size(shape);
    for (int i = 0; i < m->ndim && i < TERN_MAX_DIMS; i++)
        m->shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
    if (!tern_dtype_size(m->dtype) || !tern_shape_valid(m->ndim, m->shape, NULL))
        return false;
    tern_meta_contiguous(m);
    return true;
}

/* Stored elements; NULL when they are not in the file. */
static const void *stored(const struct op_cases *c, const json_t *spec, const struct tern_meta *m)
{
    size_t at = (size_t)json_integer_value(json_object_get(spec, "at")), n = (size_t)tern_meta_numel(m) * tern_dtype_size(m->dtype);
    return at <= c->n_values && n <= c->n_values - at ? c->values + at : NULL;
}

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
                ((double *)(void *)to)[k] = number_of(x);
            else
                ((int64_t *)(void *)to)[k] = json_integer_value(x);
        }
    }
}

/* ---- inputs ---- */

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
    int n = (int)json_array_size(step) - 1, dims[TERN_MAX_DIMS];
    for (int i = 0; i < n && i < TERN_MAX_DIMS; i++) {
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

static tern_tensor *input_of(const struct op_cases *c, struct tern_context *ctx, const json_t *spec)
{
    struct tern_meta m = {.ndim = 0};
    if (!meta_of(spec, &m))
        return NULL;
    const void *data = json_object_get(spec, "at") ? stored(c, spec, &m) : NULL;
    void *made = NULL;
    if (!data) {
        made = malloc((size_t)tern_meta_numel(&m) * tern_dtype_size(m.dtype) + 1);
        if (!made || json_object_get(spec, "at")) {
            free(made);
            return NULL;
        }
        generate(spec, &m, made);
    }
    tern_tensor *x = tern_tensor_create(ctx, m.dtype, m.ndim, m.shape, data ? data : made);
    free(made);
    size_t i;
    json_t *step;
    json_array_foreach(json_object_get(spec, "view"), i, step)
        x = view_step(x, step);
    return x;
}

struct call {
    enum tern_op op;
    struct tern_op_info info;
    tern_tensor *in[TERN_MAX_INPUTS];
    int n_in;
    union tern_op_attrs attrs;
};

/* The inputs belong to the open scope. */
static bool prepare(const struct op_cases *c, const json_t *row, struct tern_context *ctx, struct call *call, char *message, size_t size)
{
    const json_t *in = json_object_get(row, "in");
    *call = (struct call){.op = tern_op_find(text_of(row, "op")), .n_in = (int)json_array_size(in)};
    if (call->op == TERN_OP_COUNT || call->n_in > TERN_MAX_INPUTS)
        return say(message, size, "%s: the table names op \"%s\" with %d inputs", text_of(row, "name"), text_of(row, "op"), call->n_in);
    call->info = tern_op_get(call->op);
    fill_attrs(json_object_get(row, "attrs"), &call->info, &call->attrs);
    for (int i = 0; i < call->n_in; i++) {
        const json_t *spec = json_array_get(in, (size_t)i);
        call->in[i] = json_is_null(spec) ? NULL : input_of(c, ctx, spec);
        if (!call->in[i] && !json_is_null(spec))
            return say(message, size, "%s: input %d could not be made: %s", text_of(row, "name"), i, tern_error(ctx));
    }
    return true;
}

/* ---- comparison ---- */

struct limit {
    bool bits;
    double absolute, relative, scaled;
};

static struct limit limit_of(const struct op_cases *c, const json_t *row, enum tern_dtype dtype)
{
    const char *name = text_of(row, "limit");
    const json_t *v = json_object_get(json_object_get(c->limits, name), tern_dtype_name(dtype));
    return (struct limit){!v, number_of(json_array_get(v, 0)), number_of(json_array_get(v, 1)), number_of(json_array_get(v, 2))};
}

/* Largest finite magnitude. */
static double largest(enum tern_dtype dtype, const void *p, int64_t n)
{
    double m = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = fabs(tern_load(dtype, p, i));
        m = isfinite(v) && v > m ? v : m;
    }
    return m;
}

static bool compare(const struct op_cases *c, const json_t *row, const struct tern_meta *m, const void *found, char *message, size_t size)
{
    const char *name = text_of(row, "name");
    char a[TERN_META_TEXT], b[TERN_META_TEXT];
    struct tern_meta want = {.ndim = 0};
    const json_t *out = json_object_get(row, "out");
    const void *expected = meta_of(out, &want) ? stored(c, out, &want) : NULL;
    if (!expected)
        return say(message, size, "%s: the table's expected values are not there", name);
    if (want.dtype != m->dtype || !tern_meta_same_shape(&want, m))
        return say(message, size, "%s: expected %s, found %s", name, tern_meta_text(&want, a), tern_meta_text(m, b));
    struct limit l = limit_of(c, row, m->dtype);
    int64_t n = tern_meta_numel(m);
    size_t element = tern_dtype_size(m->dtype);
    double scale = l.scaled > 0 ? largest(m->dtype, expected, n) : 0;
    for (int64_t i = 0; i < n; i++) {
        double e = tern_load(m->dtype, expected, i), f = tern_load(m->dtype, found, i);
        bool same = !memcmp((const char *)expected + (size_t)i * element, (const char *)found + (size_t)i * element, element);
        double allowed = l.absolute + l.relative * fabs(e) + l.scaled * scale;
        if (same || (e != e && f != f))
            continue;
        if (l.bits || !isfinite(e) || !(fabs(f - e) <= allowed))
            return say(message, size, "%s: element %lld of %s: expected %.9g, found %.9g, limit %.3g", name, (long long)i,
                       tern_meta_text(m, a), e, f, l.bits ? 0 : allowed);
    }
    return true;
}

static bool refused_rightly(const json_t *row, struct tern_context *ctx, bool refused, char *message, size_t size)
{
    static const struct {
        const char *name;
        enum tern_status status;
    } known[] = {{"invalid", TERN_E_INVALID}, {"shape", TERN_E_SHAPE}, {"dtype", TERN_E_DTYPE}};
    enum tern_status expected = TERN_OK;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (!strcmp(text_of(row, "status"), known[i].name))
            expected = known[i].status;
    if (refused && tern_error_status(ctx) == expected && strstr(tern_error(ctx), text_of(row, "error")))
        return true;
    return say(message, size, "%s: expected %s \"%s\", found %s \"%s\"", text_of(row, "name"), text_of(row, "status"),
               text_of(row, "error"), refused ? tern_status_name(tern_error_status(ctx)) : "no error", tern_error(ctx));
}

/* ---- running ---- */

static enum op_case_result check_output(const struct op_cases *c, const json_t *row, tern_tensor *out, char *message, size_t size)
{
    struct tern_context *ctx = tern_tensor_context(out);
    size_t bytes = (size_t)tern_tensor_numel(out) * tern_dtype_size(out->meta.dtype);
    void *found = malloc(bytes + 1);
    bool good = found && tern_tensor_read(out, out->meta.dtype, found, bytes) == TERN_OK;
    if (!good)
        say(message, size, "%s: the output cannot be read: %s", text_of(row, "name"), tern_error(ctx));
    good = good && compare(c, row, &out->meta, found, message, size);
    free(found);
    return good ? OP_CASE_PASSED : OP_CASE_FAILED;
}

static enum op_case_result run_call(const struct op_cases *c, const json_t *row, struct tern_context *ctx, struct call *call,
                                    const struct op_case_options *o, char *message, size_t size)
{
    bool candidate = o->kernel && strcmp(o->kernel, "reference");
    const struct tern_kernel *k = candidate ? tern_kernel_find(ctx->device, o->kernel) : NULL;
    if (k && k->op != call->op)
        return OP_CASE_SKIPPED;
    for (int i = 1; i < call->n_in && o->constant; i++)
        if (call->in[i])
            call->in[i]->constant = true;
    if (o->kernel && tern_dispatch_force(ctx, o->kernel)) {
        say(message, size, "%s: %s", text_of(row, "name"), tern_error(ctx));
        return OP_CASE_FAILED;
    }
    tern_tensor *out = tern_op_call(ctx, call->op, call->in, call->n_in, &call->attrs);
    if (!out && candidate && tern_error_status(ctx) == TERN_E_UNSUPPORTED)
        return OP_CASE_SKIPPED;
    if (json_object_get(row, "error"))
        return refused_rightly(row, ctx, !out, message, size) ? OP_CASE_PASSED : OP_CASE_FAILED;
    if (!out) {
        say(message, size, "%s: expected a result, found %s", text_of(row, "name"), tern_error(ctx));
        return OP_CASE_FAILED;
    }
    return ctx->device->caps.computes ? check_output(c, row, out, message, size) : OP_CASE_SKIPPED;
}

enum op_case_result op_case_run(const struct op_cases *c, int i, struct tern_context *ctx, const struct op_case_options *options,
                                char *message, size_t size)
{
    static const struct op_case_options defaults = {NULL, false};
    const json_t *row = json_array_get(c->list, (size_t)i);
    struct call call;
    enum op_case_result result = OP_CASE_FAILED;
    message[0] = 0;
    tern_error_clear(ctx);
    tern_scope_begin(ctx);
    if (prepare(c, row, ctx, &call, message, size))
        result = run_call(c, row, ctx, &call, options ? options : &defaults, message, size);
    tern_error_clear(ctx);
    tern_dispatch_force(ctx, NULL);
    tern_scope_end(ctx, NULL);
    return result;
}

enum { GUARD = 64, GUARD_BYTE = 0xA5, FRESH_BYTE = 0xFF };

struct runner {
    op_case_runner run; /* NULL: the reference */
    void *user;
    bool skipped;
};

static bool run_by(struct runner *r, const struct call *call, const struct tern_kernel_args *a, char *message, size_t size)
{
    if (!r->run)
        call->info.reference(a);
    bool good = !r->run || r->run(a, r->user, message, size);
    r->skipped = r->skipped || (!good && !message[0]);
    return good;
}

/* Calls the reference, or what stands for it, with d's output strides and compares what it wrote. */
static bool reference_writes(const struct op_cases *c, const json_t *row, struct tern_context *ctx, const struct call *call,
                             const struct tern_op_desc *d, struct runner *r, char *message, size_t size)
{
    size_t element = tern_dtype_size(d->out.dtype), n = (size_t)tern_meta_numel(&d->out), bytes = n * element;
    unsigned char *memory = malloc(bytes + 2 * GUARD), *rows = malloc(bytes + 1);
    struct tern_buffer *b = memory ? tern_buffer_wrap(tern_host_device(ctx), memory, bytes + 2 * GUARD, NULL, NULL) : NULL;
    bool good = rows && b;
    if (good) {
        struct tern_kernel_args a = {.desc = d, .ctx = ctx, .out = {b, GUARD}};
        for (int i = 0; i < call->n_in; i++)
            if (call->in[i])
                a.in[i] = (struct tern_arg){call->in[i]->buffer, call->in[i]->offset};
        memset(memory, GUARD_BYTE, bytes + 2 * GUARD);
        memset(memory + GUARD, FRESH_BYTE, bytes);
        good = run_by(r, call, &a, message, size);
        for (size_t p = 0; p < n; p++)
            tern_copy_element(element, rows, (int64_t)p, memory + GUARD, tern_meta_offset(&d->out, (int64_t)p));
        good = good && compare(c, row, &d->out, rows, message, size);
        for (size_t p = 0; p < GUARD && good; p++)
            if (memory[p] != GUARD_BYTE || memory[GUARD + bytes + p] != GUARD_BYTE)
                good = say(message, size, "%s: memory outside the output was written", text_of(row, "name"));
    }
    tern_buffer_unref(&b);
    free(memory);
    free(rows);
    return good;
}

static bool run_reference(const struct op_cases *c, const json_t *row, struct tern_context *ctx, struct call *call, struct runner *r,
                          char *message, size_t size)
{
    struct tern_op_desc d, again;
    memset(&d, 0, sizeof(d));
    d.op = call->op;
    d.n_in = call->n_in;
    d.attrs = call->attrs;
    for (int i = 0; i < call->n_in; i++) {
        d.present[i] = call->in[i] != NULL;
        if (call->in[i])
            d.in[i] = call->in[i]->meta;
    }
    if (call->info.shape(ctx, &d))
        return json_object_get(row, "error") ? refused_rightly(row, ctx, true, message, size)
                                             : say(message, size, "%s: %s", text_of(row, "name"), tern_error(ctx));
    again = d; /* completed attributes stay as they are */
    if (call->info.shape(ctx, &again) || memcmp(&again, &d, sizeof(d)))
        return say(message, size, "%s: the shape rule changes what it has completed: %s", text_of(row, "name"), tern_error(ctx));
    if (!reference_writes(c, row, ctx, call, &d, r, message, size))
        return false;
    int64_t stride = 1;
    for (int i = 0; i < d.out.ndim; i++) {
        d.out.stride[i] = stride;
        stride *= d.out.shape[i] ? d.out.shape[i] : 1;
    }
    /* a runner may take the first layout alone */
    return reference_writes(c, row, ctx, call, &d, r, message, size) || r->skipped;
}

enum op_case_result op_case_run_by(const struct op_cases *c, int i, struct tern_context *ctx, op_case_runner run, void *user, char *message,
                                   size_t size)
{
    const json_t *row = json_array_get(c->list, (size_t)i);
    struct call call;
    struct runner r = {.run = run, .user = user, .skipped = run && op_case_is_error(c, i)};
    message[0] = 0;
    tern_error_clear(ctx);
    tern_scope_begin(ctx);
    bool good = !r.skipped && prepare(c, row, ctx, &call, message, size) && run_reference(c, row, ctx, &call, &r, message, size);
    tern_error_clear(ctx);
    tern_scope_end(ctx, NULL);
    return good ? OP_CASE_PASSED : r.skipped ? OP_CASE_SKIPPED : OP_CASE_FAILED;
}

enum op_case_result op_case_run_reference(const struct op_cases *c, int i, struct tern_context *ctx, char *message, size_t size)
{
    return op_case_run_by(c, i, ctx, NULL, NULL, message, size);
}
