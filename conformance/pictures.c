/* The stage of pictures: those of tools/contact-sheet, painted by the device, against diffusers' of the same model and noise. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conformance/suite.h"
#include "core/json.h"
#include "models/pipelines/pipeline.h"

static const struct {
    enum tern_dtype dtype;
    const char *name;
    double psnr; /* at least, in dB, to the picture in f32 */
} kinds[] = {{TERN_F32, "f32", 40}, {TERN_F16, "f16", 30}, {TERN_BF16, "bf16", 30}};
#define KINDS ((int)(sizeof(kinds) / sizeof(*kinds)))
static const char folder[] = "demo-sheet";

/* cases.json; false only with an error recorded in c->ctx. */
static bool load_rows(struct tern_conformance *c)
{
    char *path = tern_sprintf(c->ctx, "%s/%s/cases.json", c->data, folder);
    if (path && tern_path_kind(path) == TERN_PATH_FILE)
        c->demo = tern_json_load(c->ctx, path);
    if (c->demo && !json_is_array(c->demo))
        tern_fail(c->ctx, TERN_E_FORMAT, "%s: expected a list of pictures", path);
    tern_free(c->ctx, path);
    return !tern_failed(c->ctx);
}

bool tern_pictures_add(struct tern_conformance *c)
{
    if (!load_rows(c))
        return false;
    const json_t *row;
    size_t i;
    for (int k = 0; k < KINDS; k++) {
        const struct tern_check none = {TERN_CONFORMANCE_PICTURES, -1, "demo", "pictures", kinds[k].name};
        if (!c->demo && !tern_suite_add(c, &none))
            return false;
        json_array_foreach(c->demo, i, row) {
            const struct tern_check check = {TERN_CONFORMANCE_PICTURES, (int)i, "demo", tern_json_word(row, "name"), kinds[k].name};
            if (!tern_suite_add(c, &check))
                return false;
        }
    }
    return true;
}

static bool pictures_agree(const struct tern_image *found, const struct tern_image *expected, double least, struct tern_verdict *v)
{
    int w = tern_image_width(expected), h = tern_image_height(expected);
    const uint8_t *a = tern_image_data(found), *b = tern_image_data(expected);
    double sum = 0, n = 3.0 * w * h;
    if (tern_image_width(found) != w || tern_image_height(found) != h)
        return tern_verdict_fail(v, "expected %d x %d pixels, found %d x %d", w, h, tern_image_width(found), tern_image_height(found));
    for (int64_t i = 0; i < (int64_t)3 * w * h; i++)
        sum += (double)(a[i] - b[i]) * (a[i] - b[i]);
    /* the root mean square error as a share of the largest that is allowed */
    double allowed = 255 * pow(10, -least / 20), off = sqrt(sum / n);
    v->error = off / allowed;
    return off <= allowed || tern_verdict_fail(v, "PSNR %.1f dB, expected at least %g", 20 * log10(255 / off), least);
}

static void paint(struct tern_conformance *c, const json_t *row, enum tern_dtype dtype, double least, const char *path)
{
    struct tern_context *ctx = c->own;
    const char *model = tern_json_word(row, "model");
    struct tern_image *expected = tern_image_load(ctx, path), *found = NULL;
    struct tern_pipeline *p = expected ? tern_suite_pipeline(c, *model ? "demo-zh" : "demo", dtype) : NULL;
    if (p)
        found = tern_txt2img(p, &tern_txt2img_params(.prompt = tern_json_word(row, "prompt"), .width = tern_image_width(expected),
                                                     .height = tern_image_height(expected), .sampler = TERN_SAMPLER_DDIM,
                                                     .steps = (int)json_integer_value(json_object_get(row, "steps")),
                                                     .cfg = json_number_value(json_object_get(row, "cfg")),
                                                     .seed = (uint64_t)json_integer_value(json_object_get(row, "seed"))));
    if (found)
        pictures_agree(found, expected, least, &c->verdict);
    else
        tern_verdict_fail(&c->verdict, "%s", tern_error(ctx));
    tern_image_destroy(&found);
    tern_image_destroy(&expected);
}

static bool demo_model_is_there(struct tern_context *ctx)
{
    char *path = tern_demo_path(ctx, "demo");
    tern_free(ctx, path);
    return path != NULL;
}

void tern_pictures_run(struct tern_conformance *c, const struct tern_check *check)
{
    struct tern_context *ctx = c->own;
    const json_t *row = json_array_get(c->demo, (size_t)check->item);
    int k = 0;
    while (k < KINDS - 1 && strcmp(check->way, kinds[k].name))
        k++;
    if (check->item < 0)
        tern_verdict_skip(&c->verdict, "%s has no %s", c->data, folder);
    else if (!ctx->device->caps.computes)
        tern_verdict_skip(&c->verdict, "device %s computes nothing", ctx->device->name);
    else if (!demo_model_is_there(ctx))
        tern_verdict_skip(&c->verdict, "%s", tern_error(ctx));
    else {
        char *path = tern_sprintf(ctx, "%s/%s/%s", c->data, folder, tern_json_word(row, "picture"));
        if (path)
            paint(c, row, kinds[k].dtype, kinds[k].psnr, path);
        else
            tern_verdict_fail(&c->verdict, "%s", tern_error(ctx));
        tern_free(ctx, path);
    }
    tern_error_clear(ctx);
}
