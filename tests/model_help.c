/* What the tests of whole models share. */
#include "model_help.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "graph/plan.h"
#include "support.h"

struct tern_context *model_context(const char *level, int threads)
{
    if (level)
        setenv("TERN_CPU_LEVEL", level, 1);
    else
        unsetenv("TERN_CPU_LEVEL");
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
    unsetenv("TERN_CPU_LEVEL");
    if (!ctx)
        fail_msg("no context: %s", tern_create_error());
    return ctx;
}

const char *model_path(const char *name, char out[PATH_SIZE])
{
    if (!strcmp(name, "demo"))
        snprintf(out, PATH_SIZE, "%s/models/demo", TERN_SOURCE_ROOT);
    else if (!strcmp(name, "sd1-mini"))
        snprintf(out, PATH_SIZE, "%s/formats/mini", TERN_TEST_DATA);
    else
        snprintf(out, PATH_SIZE, "%s/models/%s", TERN_TEST_DATA, name);
    return out;
}

struct tern_pipeline *model_load(struct tern_context *ctx, const char *path)
{
    struct tern_pipeline *p = tern_pipeline_load(ctx, path, NULL);
    if (!p)
        fail_msg("%s: %s", path, tern_error(ctx));
    return p;
}

struct tern_weights *model_exec(struct tern_pipeline *p, const char *component, const struct tern_weights *inputs)
{
    struct tern_weights *out = tern_pipeline_exec(p, component, inputs);
    if (!out)
        fail_msg("%s: %s", component, tern_error(tern_tensor_context(tern_weights_at(inputs, 0))));
    return out;
}

struct golden golden_open(struct tern_context *ctx, const char *path)
{
    static const char mark[] = "expected.";
    struct tern_weights *all = tern_weights_open(ctx, path);
    struct golden g = {tern_weights_create(ctx), tern_weights_create(ctx)};
    if (!all || !g.inputs || !g.expected)
        fail_msg("%s: %s", path, tern_error(ctx));
    for (int64_t i = 0; i < tern_weights_count(all); i++) {
        const char *name = tern_weights_name(all, i);
        bool output = !strncmp(name, mark, sizeof(mark) - 1);
        assert_int_equal(tern_weights_add(output ? g.expected : g.inputs, output ? name + sizeof(mark) - 1 : name, tern_weights_at(all, i)),
                         TERN_OK);
    }
    tern_weights_unref(&all);
    return g;
}

void golden_close(struct golden *g)
{
    tern_weights_unref(&g->inputs);
    tern_weights_unref(&g->expected);
}

double golden_output_error(const tern_tensor *a, const tern_tensor *b, const char *name, const char *what)
{
    int64_t n, m;
    if (!a)
        fail_msg("%s: output %s is not there", what, name);
    bool same = tern_tensor_ndim(a) == tern_tensor_ndim(b) && tern_tensor_dtype(a) == TERN_F32 &&
                !memcmp(tern_tensor_shape(a), tern_tensor_shape(b), (size_t)tern_tensor_ndim(b) * sizeof(int64_t));
    if (!same)
        fail_msg("%s: output %s has another shape or dtype", what, name);
    float *x = support_values(a, &n), *y = support_values(b, &m);
    double e = support_nmse(x, y, n);
    free(x);
    free(y);
    return e;
}

double golden_error(struct tern_pipeline *p, const char *component, const struct golden *g, const char *what)
{
    double worst = 0;
    struct tern_weights *out = model_exec(p, component, g->inputs);
    if (tern_weights_count(out) != tern_weights_count(g->expected))
        fail_msg("%s: %d outputs, expected %d", what, (int)tern_weights_count(out), (int)tern_weights_count(g->expected));
    for (int64_t i = 0; i < tern_weights_count(g->expected); i++) {
        const char *name = tern_weights_name(g->expected, i);
        double e = golden_output_error(tern_weights_get(out, name), tern_weights_at(g->expected, i), name, what);
        worst = e > worst ? e : worst;
    }
    tern_weights_unref(&out);
    return worst;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void golden_each_in(const char *data, void (*fn)(void *arg, const char *path, const char *component, const char *name), void *arg)
{
    static const char ending[] = ".safetensors";
    char folder[PATH_SIZE], path[2 * PATH_SIZE], component[64], *names[64];
    int n = 0;
    snprintf(folder, sizeof(folder), "%s/%s", TERN_TEST_DATA, data);
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) && n < 64;) {
        size_t length = strlen(e->d_name);
        if (length > strlen(ending) && !strcmp(e->d_name + length - strlen(ending), ending) &&
            strchr(e->d_name, '.') < e->d_name + length - strlen(ending))
            names[n++] = strndup(e->d_name, length - strlen(ending));
    }
    closedir(d);
    assert_true(n > 0);
    qsort(names, (size_t)n, sizeof(*names), by_name);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s%s", folder, names[i], ending);
        snprintf(component, sizeof(component), "%.*s", (int)strcspn(names[i], "."), names[i]);
        fn(arg, path, component, names[i]);
        free(names[i]);
    }
}

void golden_each(const char *model, void (*fn)(void *arg, const char *path, const char *component, const char *name), void *arg)
{
    char data[PATH_SIZE];
    snprintf(data, sizeof(data), "components/%s", model);
    golden_each_in(data, fn, arg);
}

static tern_tensor *made_up(struct tern_context *ctx, const struct tern_meta *m, int input)
{
    size_t n = (size_t)tern_meta_numel(m);
    float *v = malloc(n * sizeof(*v));
    assert_non_null(v);
    assert_int_equal(m->dtype, TERN_F32);
    for (size_t i = 0; i < n; i++)
        v[i] = input ? (float)(i * 13 % 67) / 33 - 1 : (float)(i * 37 % 101) / 50 - 1;
    tern_tensor *t = tern_tensor_create(ctx, m->dtype, m->ndim, m->shape, v);
    free(v);
    return t;
}

void model_inputs(struct tern_binding *b, tern_tensor **in)
{
    const struct tern_graph *g = tern_binding_plan(b)->graph;
    for (int i = 0; i < g->n_inputs; i++)
        in[i] = made_up(g->ctx, &g->values[g->inputs[i]].meta, i);
}

bool model_try_run(struct tern_binding *b, float *result, size_t bytes)
{
    const struct tern_graph *g = tern_binding_plan(b)->graph;
    tern_tensor *in[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
    model_inputs(b, in);
    bool good = !tern_failed(g->ctx) && !tern_plan_run(b, in, out) && !tern_tensor_read(out[0], TERN_F32, result, bytes);
    for (int i = 0; i < g->n_inputs; i++)
        tern_tensor_unref(&in[i]);
    for (int i = 0; i < g->n_outputs; i++)
        tern_tensor_unref(&out[i]);
    return good;
}

void model_run(struct tern_binding *b, float *result, size_t bytes)
{
    if (!model_try_run(b, result, bytes))
        fail_msg("%s", tern_error(tern_binding_plan(b)->ctx));
}
