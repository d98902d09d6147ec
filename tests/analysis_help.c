#include "analysis_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model_help.h"
#include "support.h"

const char *const analysis_prompts[] = {"a red circle", "two cats"};

struct tern_quantize_params analysis_params(void)
{
    return tern_quantize_params(.prompts = analysis_prompts, .n_prompts = 2, .width = 32, .height = 32, .steps = 2, .seed = 4,
                                .quantize_slower = true);
}

static void watch(const struct tern_progress *p, void *user)
{
    struct analysis_stop *s = user;
    s->calls++;
    s->wrong = s->wrong || strcmp(p->stage, "quantize") != 0 || p->done > p->total;
    s->reached = (int)p->done;
}

static bool is_cancelled(void *user)
{
    const struct analysis_stop *s = user;
    return s->at && s->reached >= s->at;
}

void analysis_open_typed(struct analysis *f, const char *path, enum tern_dtype dtype)
{
    *f = (struct analysis){.stop = {0}};
    f->ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .progress = watch, .cancel = is_cancelled, .user = &f->stop});
    f->p = tern_pipeline_load(f->ctx, path, &(struct tern_pipeline_params){.dtype = dtype});
    if (!f->p)
        fail_msg("%s", tern_error(f->ctx));
}

void analysis_open_path(struct analysis *f, const char *path) { analysis_open_typed(f, path, 0); }

void analysis_open(struct analysis *f)
{
    char path[PATH_SIZE];
    analysis_open_path(f, model_path("sd1", path));
}

void analysis_close(struct analysis *f)
{
    tern_pipeline_destroy(&f->p);
    tern_context_destroy(&f->ctx);
}

struct tern_recipe *analysis_run(struct analysis *f, const struct tern_quantize_params *q)
{
    struct tern_recipe *r = tern_pipeline_quantize(f->p, q);
    if (!r)
        fail_msg("%s", tern_error(f->ctx));
    return r;
}

/* One weight of every row, or of every input channel, becomes `value`. */
static tern_tensor *set_first(struct tern_context *ctx, const struct tern_weights *w, const char *name, int64_t rows, int64_t stride,
                              int64_t width, float value)
{
    int64_t n;
    tern_tensor *old = tern_weights_get(w, name);
    float *values = support_f32(w, name, &n);
    tern_tensor *t = tern_tensor_create(ctx, tern_tensor_dtype(old), tern_tensor_ndim(old), tern_tensor_shape(old), NULL);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < width; k++)
            values[r * stride + k] = value;
    assert_int_equal(tern_tensor_write(t, TERN_F32, values, (size_t)n * sizeof(float)), TERN_OK);
    free(values);
    return t;
}

void analysis_change_last(const char *folder, float value, bool unread)
{
    char path[2 * PATH_SIZE];
    struct tern_context *ctx = support_context();
    snprintf(path, sizeof(path), "%s/unet/diffusion_pytorch_model.safetensors", folder);
    struct tern_weights *w = tern_weights_open(ctx, path);
    const int64_t *shape = tern_tensor_shape(tern_weights_get(w, "conv_out.weight"));
    tern_tensor *norm = set_first(ctx, w, "conv_norm_out.weight", 1, 1, 1, value),
                *other = unread ? set_first(ctx, w, "conv_out.weight", shape[0], shape[1] * 9, 9, 0)
                                : set_first(ctx, w, "conv_norm_out.bias", 1, 1, 1, 0);
    const struct tern_weights_change changes[] = {{"conv_norm_out.weight", norm},
                                                  {unread ? "conv_out.weight" : "conv_norm_out.bias", other}};
    struct tern_weights *changed = tern_weights_derive(w, changes, 2);
    assert_int_equal(tern_weights_save(changed, path), TERN_OK);
    tern_tensor_unref(&norm);
    tern_tensor_unref(&other);
    tern_weights_unref(&changed);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

void analysis_spoil(const char *folder) { analysis_change_last(folder, 10000, true); }
