/* Whole pictures of the golden data. */
#include "job_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/context.h>

#include "support.h"

#define LATENTS_LIMIT 1e-6
#define PIXEL_LIMIT 1

static const char *text(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    return json_is_string(v) ? json_string_value(v) : NULL;
}

static int integer(const json_t *row, const char *key) { return (int)json_integer_value(json_object_get(row, key)); }

static struct tern_image *picture(struct tern_context *ctx, const json_t *row, const char *key, const char *folder)
{
    char path[1024];
    if (!text(row, key))
        return NULL;
    snprintf(path, sizeof(path), "%s/%s/%s", TERN_TEST_DATA, folder, text(row, key));
    struct tern_image *image = tern_image_load(ctx, path);
    if (!image)
        fail_msg("%s", tern_error(ctx));
    return image;
}

static double number(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

static void pair(const json_t *row, const char *key, int out[2])
{
    for (size_t i = 0; i < 2; i++)
        out[i] = (int)json_integer_value(json_array_get(json_object_get(row, key), i));
}

/* Parameters that few pipelines have. */
static void read_more(const json_t *row, struct tern_txt2img_params *q)
{
    q->image_guidance_scale = number(row, "image_guidance_scale");
    pair(row, "original_size", q->original_size);
    pair(row, "crops_coords_top_left", q->crops_coords_top_left);
    pair(row, "target_size", q->target_size);
    pair(row, "negative_original_size", q->negative_original_size);
    pair(row, "negative_crops_coords_top_left", q->negative_crops_coords_top_left);
    pair(row, "negative_target_size", q->negative_target_size);
    q->aesthetic_score = number(row, "aesthetic_score");
    q->negative_aesthetic_score = number(row, "negative_aesthetic_score");
    q->denoising_start = number(row, "denoising_start");
    q->denoising_end = number(row, "denoising_end");
    q->cache_interval = integer(row, "cache_interval");
    q->cache_branch_id = integer(row, "cache_branch_id");
    q->cache_center = integer(row, "cache_center");
    q->cache_pow = number(row, "cache_pow");
}

struct job_case job_case_read(struct tern_context *ctx, const json_t *row, const char *folder)
{
    struct job_case c = {.name = text(row, "name"), .model = text(row, "model")};
    c.init = picture(ctx, row, "init_image", folder);
    c.mask = picture(ctx, row, "mask_image", folder);
    c.params = (struct tern_txt2img_params){
        .prompt = text(row, "prompt"),
        .negative_prompt = text(row, "negative"),
        .width = integer(row, "width"),
        .height = integer(row, "height"),
        .steps = integer(row, "steps"),
        .cfg = number(row, "cfg"),
        .seed = (uint64_t)json_integer_value(json_object_get(row, "seed")),
        .sampler = tern_sampler_parse(text(row, "sampler"), NULL),
        .schedule = tern_schedule_parse(text(row, "schedule")),
        .count = integer(row, "batch"),
        .init_image = c.init,
        .mask_image = c.mask,
        .strength = number(row, "strength"),
    };
    read_more(json_object_get(row, "more"), &c.params);
    return c;
}

void job_case_close(struct job_case *c)
{
    tern_image_destroy(&c->init);
    tern_image_destroy(&c->mask);
}

struct tern_images *job_run(struct tern_context *ctx, struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    struct tern_images *images = tern_generate(p, params);
    if (!images)
        fail_msg("%s: %s", params->prompt ? params->prompt : "", tern_error(ctx));
    return images;
}

float *job_latents(const struct tern_images *images, int64_t *n)
{
    const tern_tensor *t = tern_images_latents(images);
    *n = tern_tensor_numel(t);
    float *out = malloc((size_t)*n * sizeof(*out));
    assert_non_null(out);
    assert_int_equal(tern_tensor_read(t, TERN_F32, out, (size_t)*n * sizeof(*out)), TERN_OK);
    return out;
}

bool job_same(const struct tern_images *a, int first, const struct tern_images *b)
{
    int64_t na, nb;
    float *la = job_latents(a, &na), *lb = job_latents(b, &nb);
    bool same = !memcmp(la + na / tern_images_count(a) * first, lb, (size_t)nb * sizeof(float));
    for (int i = 0; i < tern_images_count(b); i++) {
        const struct tern_image *x = tern_images_at(a, first + i), *y = tern_images_at(b, i);
        size_t size = 3 * (size_t)tern_image_width(x) * (size_t)tern_image_height(x);
        same = same && tern_image_width(x) == tern_image_width(y) && tern_image_height(x) == tern_image_height(y) &&
               !memcmp(tern_image_data(x), tern_image_data(y), size);
    }
    free(la);
    free(lb);
    return same;
}

void job_check_latents(const struct tern_images *images, const struct tern_weights *expected, const char *name, struct job_worst *w)
{
    int64_t n, m;
    float *x = job_latents(images, &n), *y = support_f32(expected, name, &m);
    assert_int_equal(n, m);
    double e = support_nmse(x, y, n);
    if (!(e <= LATENTS_LIMIT))
        fail_msg("%s: latents NMSE %.3g, expected at most %g", name, e, LATENTS_LIMIT);
    if (e >= w->latents) {
        w->latents = e;
        snprintf(w->name, sizeof(w->name), "%s", name);
    }
    free(x);
    free(y);
}

void job_check_picture(const struct tern_image *image, const uint8_t *expected, int width, int height, const char *name,
                       struct job_worst *w)
{
    int worst = 0;
    assert_int_equal(tern_image_width(image), width);
    assert_int_equal(tern_image_height(image), height);
    const uint8_t *found = tern_image_data(image);
    for (int64_t i = 0; i < (int64_t)3 * width * height; i++)
        worst = abs(found[i] - expected[i]) > worst ? abs(found[i] - expected[i]) : worst;
    if (worst > PIXEL_LIMIT)
        fail_msg("%s: a pixel differs by %d of 255", name, worst);
    w->pixel = worst > w->pixel ? worst : w->pixel;
}

static void check_pictures(const struct tern_images *images, const struct job_case *c, int width, int height, const tern_tensor *t,
                           struct job_worst *w)
{
    size_t size = 3 * (size_t)width * (size_t)height, count = (size_t)c->params.count;
    assert_non_null(t);
    assert_int_equal(tern_tensor_numel(t), count * size);
    uint8_t *expected = malloc(count * size);
    assert_int_equal(tern_tensor_read(t, TERN_U8, expected, count * size), TERN_OK);
    for (size_t i = 0; i < count; i++)
        job_check_picture(tern_images_at(images, (int)i), expected + i * size, width, height, c->name, w);
    free(expected);
}

void job_check_case(struct tern_context *ctx, struct tern_pipeline *p, struct job_case *c, const struct tern_weights *latents,
                    const struct tern_weights *pictures, struct job_worst *w)
{
    int width = c->params.width, height = c->params.height;
    if (strstr(c->name, "default-size"))
        c->params.width = c->params.height = 0;
    struct tern_images *images = job_run(ctx, p, &c->params);
    job_check_latents(images, latents, c->name, w);
    assert_int_equal(tern_images_count(images), c->params.count);
    if (pictures)
        check_pictures(images, c, width, height, tern_weights_get(pictures, c->name), w);
    tern_images_destroy(&images);
    w->cases++;
}

void job_print_worst(const struct job_worst *w)
{
    print_message("%d cases, worst NMSE of latents %.2g (%s), pixels differ by at most %d\n", w->cases, w->latents, w->name, w->pixel);
}
