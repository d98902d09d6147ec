/* The stage of small models: every golden run of a component against diffusers and transformers, in f32. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/suite.h"

/* NMSE of an output: as tests/test_components.c has it for the CPU, where about 1e-12 is usual. */
#define LIMIT 1e-8

static const char ending[] = ".safetensors", mark[] = "expected.";
static const struct {
    const char *name, *folder; /* of the model, under the suite's data */
} models[] = {{"sd1", "models/sd1"},
              {"sd1-heads", "models/sd1-heads"},
              {"sd1-inpaint", "models/sd1-inpaint"},
              {"sd1-mini", "formats/mini"},
              {"sd2", "models/sd2"},
              {"sdxl", "models/sdxl"}};
#define MODELS ((int)(sizeof(models) / sizeof(*models)))

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tern_check *)a)->name, ((const struct tern_check *)b)->name);
}

/* "unet.square" for each golden file of a model. */
static bool add_files(struct tern_conformance *c, int model, DIR *d)
{
    char name[256];
    int first = c->count;
    for (const struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n <= strlen(ending) || strcmp(e->d_name + n - strlen(ending), ending) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(n - strlen(ending)), e->d_name);
        const char *kept = tern_suite_keep(c, name);
        const struct tern_check check = {TERN_CONFORMANCE_MODELS, model, models[model].name, kept, "f32"};
        if (!kept || !tern_suite_add(c, &check))
            return false;
    }
    qsort(c->checks + first, (size_t)(c->count - first), sizeof(*c->checks), by_name);
    return true;
}

bool tern_models_add(struct tern_conformance *c)
{
    for (int i = 0; i < MODELS; i++) {
        char *folder = tern_sprintf(c->ctx, "%s/components/%s", c->data, models[i].name);
        if (!folder)
            return false;
        DIR *d = opendir(folder);
        tern_free(c->ctx, folder);
        const struct tern_check none = {TERN_CONFORMANCE_MODELS, -1, models[i].name, "components", "f32"};
        bool good = d ? add_files(c, i, d) : tern_suite_add(c, &none);
        if (d)
            closedir(d);
        if (!good)
            return false;
    }
    return true;
}

struct tern_pipeline *tern_suite_pipeline(struct tern_conformance *c, const char *model, enum tern_dtype dtype)
{
    char key[sizeof(c->pipeline_key)];
    snprintf(key, sizeof(key), "%s %s", tern_dtype_name(dtype), model);
    if (c->pipeline && !strcmp(key, c->pipeline_key))
        return c->pipeline;
    tern_pipeline_destroy(&c->pipeline);
    memcpy(c->pipeline_key, key, sizeof(key));
    c->pipeline = tern_pipeline_load(c->own, model, &(struct tern_pipeline_params){.dtype = dtype});
    return c->pipeline;
}

/* Splits a golden file: "expected.sample" is an output, "sample" an input. */
static bool split(struct tern_weights *all, struct tern_weights *inputs, struct tern_weights *expected)
{
    for (int64_t i = 0; all && inputs && expected && i < tern_weights_count(all); i++) {
        const char *name = tern_weights_name(all, i);
        bool output = !strncmp(name, mark, strlen(mark));
        if (tern_weights_add(output ? expected : inputs, output ? name + strlen(mark) : name, tern_weights_at(all, i)))
            return false;
    }
    return all && inputs && expected;
}

static bool outputs_agree(const struct tern_weights *out, const struct tern_weights *expected, struct tern_verdict *v)
{
    char a[TERN_META_TEXT], b[TERN_META_TEXT];
    if (tern_weights_count(out) != tern_weights_count(expected))
        return tern_verdict_fail(v, "expected %d outputs, found %d", (int)tern_weights_count(expected), (int)tern_weights_count(out));
    for (int64_t i = 0; i < tern_weights_count(expected); i++) {
        const char *name = tern_weights_name(expected, i);
        const tern_tensor *x = tern_weights_get(out, name), *y = tern_weights_at(expected, i);
        if (!x)
            return tern_verdict_fail(v, "output %s is not there", name);
        if (!tern_meta_same_shape(&x->meta, &y->meta))
            return tern_verdict_fail(v, "output %s: expected %s, found %s", name, tern_meta_text(&y->meta, a), tern_meta_text(&x->meta, b));
        double e = tern_tensor_nmse(x, y);
        v->error = fmax(v->error, e / LIMIT);
        if (!(e <= LIMIT))
            return tern_verdict_fail(v, "output %s, %s: NMSE %.3g, expected at most %g", name, tern_meta_text(&y->meta, a), e, LIMIT);
    }
    return true;
}

static void run_file(struct tern_conformance *c, const struct tern_check *check, const char *model, const char *path)
{
    char component[64];
    struct tern_context *ctx = c->own;
    struct tern_weights *all = tern_weights_open(ctx, path), *inputs = tern_weights_create(ctx), *expected = tern_weights_create(ctx);
    struct tern_pipeline *p = split(all, inputs, expected) ? tern_suite_pipeline(c, model, TERN_F32) : NULL;
    snprintf(component, sizeof(component), "%.*s", (int)strcspn(check->name, "."), check->name);
    struct tern_weights *out = p ? tern_pipeline_exec(p, component, inputs) : NULL;
    if (out)
        outputs_agree(out, expected, &c->verdict);
    else
        tern_verdict_fail(&c->verdict, "%s", tern_error(ctx));
    tern_weights_unref(&out);
    tern_weights_unref(&all);
    tern_weights_unref(&inputs);
    tern_weights_unref(&expected);
}

void tern_models_run(struct tern_conformance *c, const struct tern_check *check)
{
    struct tern_context *ctx = c->own;
    if (check->item < 0) {
        tern_verdict_skip(&c->verdict, "%s has no components/%s", c->data, check->group);
        return;
    }
    if (!ctx->device->caps.computes) {
        tern_verdict_skip(&c->verdict, "device %s computes nothing", ctx->device->name);
        return;
    }
    char *model = tern_sprintf(ctx, "%s/%s", c->data, models[check->item].folder);
    char *path = tern_sprintf(ctx, "%s/components/%s/%s%s", c->data, check->group, check->name, ending);
    if (model && path && tern_path_kind(model) != TERN_PATH_FOLDER)
        tern_verdict_skip(&c->verdict, "%s is not there", model);
    else if (model && path)
        run_file(c, check, model, path);
    else
        tern_verdict_fail(&c->verdict, "%s", tern_error(ctx));
    tern_free(ctx, model);
    tern_free(ctx, path);
    tern_error_clear(ctx);
}
