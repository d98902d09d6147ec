/* Parity of whole pictures with diffusers: every sampler, txt2img, img2img, inpainting. Pictures are the same bits again,
 * with another number of threads, in a batch, and from given noise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/context.h"
#include "damage.h"
#include "job_cases.h"
#include "model_help.h"
#include "models/pipelines/predict.h"
#include "support.h"
#include "xl_help.h"

/* All cases of a model. */
static void model_agrees(void **state)
{
    const char *model = *state;
    char path[PATH_SIZE];
    struct job_worst w = {0};
    size_t i;
    json_t *rows = support_json("pipelines/cases.json"), *row;
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_weights *latents = support_tensors(ctx, "pipelines/latents"), *pictures = support_tensors(ctx, "pipelines/pictures");
    struct tern_pipeline *p = model_load(ctx, model_path(model, path));
    json_array_foreach(rows, i, row) {
        struct job_case c = job_case_read(ctx, row, "pipelines");
        if (!strcmp(c.model, model))
            job_check_case(ctx, p, &c, latents, pictures, &w);
        job_case_close(&c);
    }
    assert_true(w.cases >= 8);
    job_print_worst(&w);
    tern_pipeline_destroy(&p);
    tern_weights_unref(&latents);
    tern_weights_unref(&pictures);
    tern_context_destroy(&ctx);
    json_decref(rows);
}

/* prompts.json: the ids that the pipelines were given. */
static void prompts_agree(void **state)
{
    char path[PATH_SIZE];
    size_t i;
    json_t *rows = support_json("pipelines/prompts.json"), *row;
    struct tern_context *ctx = model_context(NULL, 1);
    json_array_foreach(rows, i, row) {
        struct tern_pipeline *p = model_load(ctx, model_path(json_string_value(json_object_get(row, "model")), path));
        const json_t *ids = json_object_get(row, "ids");
        int64_t found[64];
        assert_int_equal(json_array_size(ids), tern_tokenizer_max_length(tern_pipeline_tokenizer(p, 0)));
        assert_int_equal(tern_tokenize_padded(tern_pipeline_tokenizer(p, 0), json_string_value(json_object_get(row, "text")), found),
                         TERN_OK);
        for (size_t k = 0; k < json_array_size(ids); k++)
            if (found[k] != json_integer_value(json_array_get(ids, k)))
                fail_msg("\"%s\": id %zu", json_string_value(json_object_get(row, "text")), k);
        tern_pipeline_destroy(&p);
    }
    tern_context_destroy(&ctx);
    json_decref(rows);
}

/* ---- the same bits */

struct pair {
    struct tern_context *ctx;
    struct tern_pipeline *p;
};

static struct pair open_sd1(const char *level, int threads)
{
    char path[PATH_SIZE];
    struct pair x = {model_context(level, threads), NULL};
    x.p = model_load(x.ctx, model_path("sd1", path));
    return x;
}

static void close_sd1(struct pair *x)
{
    tern_pipeline_destroy(&x->p);
    tern_context_destroy(&x->ctx);
}

/* A draw at every step, guidance, and sizes that no block divides. */
static struct tern_txt2img_params some_job(int count)
{
    return tern_txt2img_params(.prompt = "a red boat", .negative_prompt = "text", .width = 72, .height = 56, .steps = 4, .seed = 11,
                               .sampler = TERN_SAMPLER_EULER_A, .count = count);
}

static void again_is_the_same(void **state)
{
    struct pair x = open_sd1(NULL, 1);
    struct tern_txt2img_params q = some_job(1);
    struct tern_images *a = job_run(x.ctx, x.p, &q), *b = job_run(x.ctx, x.p, &q);
    assert_true(job_same(a, 0, b));
    q.seed++;
    struct tern_images *c = job_run(x.ctx, x.p, &q);
    assert_false(job_same(a, 0, c));
    tern_images_destroy(&a);
    tern_images_destroy(&b);
    tern_images_destroy(&c);
    close_sd1(&x);
}

/* A scope that the caller has open gets nothing of what belongs to the images. */
static void scopes_leave_latents(void **state)
{
    struct pair x = open_sd1(NULL, 1);
    struct tern_txt2img_params q = some_job(1);
    struct tern_images *a = job_run(x.ctx, x.p, &q);
    tern_scope_begin(x.ctx);
    struct tern_images *b = job_run(x.ctx, x.p, &q);
    size_t used = tern_memory_used(x.ctx);
    tern_scope_end(x.ctx, NULL);
    assert_int_equal(tern_memory_used(x.ctx), used);
    assert_true(job_same(a, 0, b));
    int64_t n;
    float *first = job_latents(a, &n), *second = job_latents(b, &n);
    assert_memory_equal(first, second, (size_t)n * sizeof(*first));
    free(first);
    free(second);
    tern_images_destroy(&a);
    tern_images_destroy(&b);
    close_sd1(&x);
}

/* Callbacks that leave a scope open, or end one more than they began, end the job and nothing else. */
static void step_opens(int step, int steps, const float *latents, int64_t count, void *user) { tern_scope_begin(user); }
static void step_ends(int step, int steps, const float *latents, int64_t count, void *user) { tern_scope_end(user, NULL); }
static void preview_opens(int step, int steps, int index, const struct tern_image *picture, void *user) { tern_scope_begin(user); }

static void kernel_opens(const char *component, const struct tern_step_profile *step, void *user) { tern_scope_begin(user); }
static void kernel_ends(const char *component, const struct tern_step_profile *step, void *user) { tern_scope_end(user, NULL); }

static bool cancel_opens(void *user)
{
    struct tern_context *const *ctx = user;
    tern_scope_begin(*ctx);
    return false;
}

static void progress_opens(const struct tern_progress *progress, void *user)
{
    struct tern_context *const *ctx = user;
    tern_scope_begin(*ctx);
}

static void callbacks_keep_to_their_scopes(void **state)
{
    struct pair x = open_sd1(NULL, 1);
    struct tern_txt2img_params q = some_job(1);
    q.on_step_user = q.on_preview_user = q.on_kernel_user = x.ctx;
    static const char *const said[] = {"on_step left 1 scope open", "tern_scope_end without", "on_preview left 1",
                                       "on_kernel left 1 scope open", "tern_scope_end without"};
    for (int i = 0; i < 5; i++) {
        q.on_step = i == 0 ? step_opens : i == 1 ? step_ends : NULL;
        q.on_preview = i == 2 ? preview_opens : NULL;
        q.on_kernel = i == 3 ? kernel_opens : i == 4 ? kernel_ends : NULL;
        assert_null(tern_generate(x.p, &q));
        support_error(x.ctx, TERN_E_INVALID, said[i]);
        assert_int_equal(x.ctx->scopes.depth, 0);
    }
    q.on_kernel = NULL;
    x.ctx->params.user = &x.ctx;
    for (int i = 0; i < 2; i++) {
        x.ctx->params.progress = i ? NULL : progress_opens;
        x.ctx->params.cancel = i ? cancel_opens : NULL;
        assert_null(tern_generate(x.p, &q));
        support_error(x.ctx, TERN_E_INVALID, i ? "callback left" : "the progress callback left 1 scope open");
        assert_int_equal(x.ctx->scopes.depth, 0);
    }
    close_sd1(&x);
}

static void no_preview(int step, int steps, int index, const struct tern_image *picture, void *user) {}

/* A process may go to another folder: components that leave and come back are those of relative paths, too. */
static void folders_may_be_left(void **state)
{
    char before[PATH_SIZE];
    struct pair x = open_sd1(NULL, 1);
    struct tern_txt2img_params q = some_job(1);
    struct tern_images *expected = job_run(x.ctx, x.p, &q);
    const struct tern_pipeline_params ways[] = {
        {.vae = "models/sd1/vae", .offload = TERN_OFFLOAD_SEQUENTIAL},
        {.preview_vae = "taesd/vae/diffusion_pytorch_model.safetensors", .tokenizer_dir = "models/sd1/tokenizer"},
    };
    q.on_preview = no_preview;
    assert_true(getcwd(before, sizeof(before)));
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        assert_int_equal(chdir(TERN_TEST_DATA), 0);
        struct tern_pipeline *p = tern_pipeline_load(x.ctx, "models/sd1", &ways[i]);
        assert_int_equal(chdir("/"), 0);
        for (int again = 0; again < 2; again++) {
            struct tern_images *images = job_run(x.ctx, p, &q);
            assert_true(job_same(expected, 0, images));
            tern_images_destroy(&images);
        }
        tern_pipeline_destroy(&p);
    }
    assert_int_equal(chdir(before), 0);
    tern_images_destroy(&expected);
    close_sd1(&x);
}

static void threads_do_not_matter(void **state)
{
    static const char *const levels[] = {NULL, MODEL_USUAL_LEVEL, "scalar"};
    for (int i = 0; i < 3; i++) {
        struct pair one = open_sd1(levels[i], 1), two = open_sd1(levels[i], 2), three = open_sd1(levels[i], 3);
        struct tern_txt2img_params q = some_job(2);
        struct tern_images *a = job_run(one.ctx, one.p, &q), *b = job_run(two.ctx, two.p, &q), *c = job_run(three.ctx, three.p, &q);
        assert_true(job_same(a, 0, b));
        assert_true(job_same(a, 0, c));
        tern_images_destroy(&a);
        tern_images_destroy(&b);
        tern_images_destroy(&c);
        close_sd1(&one);
        close_sd1(&two);
        close_sd1(&three);
    }
}

/* Picture i of a batch has the bits of a run alone with seed + i: the order of sums does not depend on the batch. */
static void batches_do_not_matter(void **state)
{
    static const char *const levels[] = {NULL, MODEL_USUAL_LEVEL, "scalar"};
    for (int i = 0; i < 3; i++) {
        struct pair x = open_sd1(levels[i], 1);
        struct tern_txt2img_params q = some_job(3);
        struct tern_images *all = job_run(x.ctx, x.p, &q);
        assert_int_equal(tern_images_count(all), 3);
        q.count = 1;
        for (int k = 0; k < 3; k++, q.seed++) {
            struct tern_images *one = job_run(x.ctx, x.p, &q);
            if (!job_same(all, k, one))
                fail_msg("level %s: picture %d of the batch is not that of its seed", levels[i] ? levels[i] : "best", k);
            tern_images_destroy(&one);
        }
        tern_images_destroy(&all);
        close_sd1(&x);
    }
}

static struct tern_images *run_in_groups(struct tern_pipeline *p, const struct tern_txt2img_params *q, int pictures)
{
    struct tern_context *ctx = p->ctx;
    const int64_t rows = q->prompt_syntax == TERN_PROMPT_A1111 ? 3 : 2,
                  level = p->unet_config.channels[0] * (q->width / 8) * (q->height / 8);
    ctx->device->caps.cache = (size_t)(4 * pictures * rows * level) * sizeof(float);
    struct tern_job j = {.p = p, .params = *q, .branches = (int)rows, .lh = q->height / 8, .lw = q->width / 8};
    assert_int_equal(tern_job_group(&j), pictures == 5 ? 3 : pictures);
    return job_run(ctx, p, q);
}

/* Six pictures in groups of one, two and three, where five would fit, too: they have to divide six. With prompts that change and are
 * joined, with sizes and pooled texts, with mask and picture behind the latents. */
static void groups_do_not_matter(void **state)
{
    static const char *const models[] = {"sd1", "sd1", "sdxl", "sd1-inpaint"};
    static const int pictures[] = {1, 2, 3, 5};
    for (int m = 0; m < 4; m++) {
        char path[PATH_SIZE];
        struct tern_context *ctx = model_context(NULL, 1);
        struct tern_pipeline *p = model_load(ctx, model_path(models[m], path));
        struct tern_txt2img_params q = some_job(6);
        uint8_t rgb[3 * 72 * 56] = {0};
        memset(rgb, 0xc0, sizeof(rgb) / 2);
        struct tern_image *picture = tern_image_create(ctx, q.width, q.height, rgb);
        if (m == 1) {
            q.prompt_syntax = TERN_PROMPT_A1111;
            q.prompt = "a [red:blue:0.5] boat AND the sea :0.5";
        }
        if (m == 3)
            q.init_image = q.mask_image = picture;
        struct tern_images *all = run_in_groups(p, &q, 6);
        for (int i = 0; i < 4; i++) {
            struct tern_images *parts = run_in_groups(p, &q, pictures[i]);
            if (!job_same(all, 0, parts))
                fail_msg("%s: six pictures in groups of %d are not those of one group", models[m], pictures[i]);
            tern_images_destroy(&parts);
        }
        tern_images_destroy(&all);
        tern_image_destroy(&picture);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

static void count_encoder(const char *component, const struct tern_step_profile *step, void *user)
{
    int *steps = user;
    *steps += !strcmp(component, "vae_encoder");
}

/* What pictures of a batch start from is encoded once; the masked picture is not, where the UNet is not told it. */
static void pictures_are_encoded_once(void **state)
{
    struct pair x = open_sd1(NULL, 1);
    uint8_t rgb[3 * 72 * 56] = {0};
    int steps[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct tern_txt2img_params q = some_job(i ? 3 : 1);
        q.init_image = tern_image_create(x.ctx, q.width, q.height, rgb);
        q.mask_image = i ? q.init_image : NULL;
        q.on_kernel = count_encoder;
        q.on_kernel_user = &steps[i];
        struct tern_images *images = job_run(x.ctx, x.p, &q);
        tern_images_destroy(&images);
        struct tern_image *picture = (struct tern_image *)(uintptr_t)q.init_image;
        tern_image_destroy(&picture);
    }
    assert_true(steps[0] > 0);
    assert_int_equal(steps[0], steps[1]);
    close_sd1(&x);
}

static void given_noise_is_the_seeds(void **state)
{
    struct pair x = open_sd1(NULL, 1);
    struct tern_txt2img_params q = some_job(1);
    q.sampler = TERN_SAMPLER_HEUN; /* draws nothing after the start */
    struct tern_images *a = job_run(x.ctx, x.p, &q);
    struct tern_generator g;
    float noise[4 * 7 * 9];
    tern_generator_seed(&g, TERN_GENERATOR_CPU, q.seed);
    tern_generator_randn(&g, noise, 4 * 7 * 9);
    q.init_latents = tern_tensor_create(x.ctx, TERN_F32, 4, (const int64_t[]){1, 4, 7, 9}, noise);
    q.seed = 1234;
    struct tern_images *b = job_run(x.ctx, x.p, &q);
    assert_true(job_same(a, 0, b));
    tern_tensor_unref(&q.init_latents);
    tern_images_destroy(&a);
    tern_images_destroy(&b);
    close_sd1(&x);
}

/* CUDA's generator is another one, but as reproducible. */
static void generators_differ(void **state)
{
    struct pair x = open_sd1(NULL, 1);
    struct tern_txt2img_params q = some_job(1);
    struct tern_images *cpu = job_run(x.ctx, x.p, &q);
    q.generator = TERN_GENERATOR_CUDA;
    struct tern_images *a = job_run(x.ctx, x.p, &q), *b = job_run(x.ctx, x.p, &q);
    assert_true(job_same(a, 0, b));
    assert_false(job_same(a, 0, cpu));
    tern_images_destroy(&cpu);
    tern_images_destroy(&a);
    tern_images_destroy(&b);
    close_sd1(&x);
}

/* diffusers' pipelines of Stable Diffusion do not read it. */
static void vaes_have_no_shift(void **state)
{
    char folder[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_txt2img_params q = tern_txt2img_params(.prompt = "a house", .width = 32, .height = 32, .steps = 2, .seed = 3);
    struct tern_images *images[2];
    damage_copy("sd1", folder);
    for (int shifted = 0; shifted < 2; shifted++) {
        damage_json(folder, "vae/config.json", "shift_factor", shifted ? json_real(0.5) : json_null());
        struct tern_pipeline *p = model_load(ctx, folder);
        images[shifted] = job_run(ctx, p, &q);
        tern_pipeline_destroy(&p);
    }
    assert_true(job_same(images[0], 0, images[1]));
    tern_images_destroy(&images[0]);
    tern_images_destroy(&images[1]);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* f16 and bf16 compute the same pictures, to their precision: the mean over many jobs, since those of eight differ by a tenth. A sanitizer
 * is too slow for so many, and looks for something else. */
static void half_precision_is_near(void **state)
{
    enum { DTYPES = 2 };
    const int jobs = support_is_watched() ? 2 : 200, spread = support_is_watched() ? 2 : 1;
    static const enum tern_dtype dtypes[DTYPES] = {TERN_F16, TERN_BF16};
    static const double limits[DTYPES] = {1e-4, 2e-3};
    double sum[DTYPES] = {0};
    char path[PATH_SIZE];
    struct pair x = open_sd1(NULL, 1);
    struct tern_pipeline *halves[DTYPES];
    for (int i = 0; i < DTYPES; i++) {
        halves[i] = tern_pipeline_load(x.ctx, model_path("sd1", path), &(struct tern_pipeline_params){.dtype = dtypes[i]});
        assert_non_null(halves[i]);
    }
    for (int k = 0; k < jobs; k++) {
        struct tern_txt2img_params q = some_job(1);
        int64_t n;
        q.seed += (uint64_t)k;
        struct tern_images *a = job_run(x.ctx, x.p, &q);
        float *exact = job_latents(a, &n);
        for (int i = 0; i < DTYPES; i++) {
            struct tern_images *b = job_run(x.ctx, halves[i], &q);
            float *rounded = job_latents(b, &n);
            double e = support_nmse(rounded, exact, n);
            assert_true(e > 0);
            sum[i] += e;
            free(rounded);
            tern_images_destroy(&b);
        }
        free(exact);
        tern_images_destroy(&a);
    }
    for (int i = 0; i < DTYPES; i++) {
        print_message("%s: NMSE of latents against f32, mean of %d jobs: %.3g\n", tern_dtype_name(dtypes[i]), jobs, sum[i] / jobs);
        assert_true(sum[i] / jobs <= spread * limits[i]);
        tern_pipeline_destroy(&halves[i]);
    }
    close_sd1(&x);
}

/* An old file of DDIM, without the keys that diffusers' pipelines correct, is as one with the right ones. */
static void old_schedulers_are_corrected(void **state)
{
    static const char *const file = "scheduler/scheduler_config.json";
    char folder[PATH_SIZE];
    damage_copy("sd1", folder);
    damage_json(folder, file, "_class_name", json_string("DDIMScheduler"));
    damage_json(folder, "model_index.json", "scheduler", json_pack("[s,s]", "diffusers", "DDIMScheduler"));
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_images *images[2];
    for (int i = 0; i < 2; i++) {
        damage_json(folder, file, "steps_offset", i ? NULL : json_integer(1));
        damage_json(folder, file, "clip_sample", i ? NULL : json_false());
        struct tern_pipeline *p = model_load(ctx, folder);
        struct tern_txt2img_params q = some_job(1);
        q.sampler = TERN_SAMPLER_DEFAULT;
        images[i] = job_run(ctx, p, &q);
        tern_pipeline_destroy(&p);
    }
    assert_true(job_same(images[0], 0, images[1]));
    tern_images_destroy(&images[0]);
    tern_images_destroy(&images[1]);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Of the class in model_index.json, as diffusers' from_pretrained: whatever class the configuration has or has not, its values are read
 * as by a configuration of that class. Without a row in the index, the
 * configuration's class. A class that is not there is refused, but for a job that names its sampler. */
static void index_names_the_scheduler(void **state)
{
    static const struct {
        const char *index, *file;
    } rows[] = {
        {"DDIMScheduler", "DDIMScheduler"}, {"DDIMScheduler", "EulerDiscreteScheduler"}, {"DDIMScheduler", NULL}, {NULL, "DDIMScheduler"}};
    char folder[PATH_SIZE];
    struct tern_images *images[4];
    damage_copy("sd1", folder);
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_txt2img_params q = some_job(1);
    q.sampler = TERN_SAMPLER_DEFAULT;
    damage_json(folder, "scheduler/scheduler_config.json", "clip_sample", NULL); /* corrected for a file of DDIM alone */
    for (int i = 0; i < 4; i++) {
        const char *c = rows[i].index, *f = rows[i].file;
        damage_json(folder, "model_index.json", "scheduler", c ? json_pack("[s,s]", "diffusers", c) : NULL);
        damage_json(folder, "scheduler/scheduler_config.json", "_class_name", f ? json_string(f) : NULL);
        struct tern_pipeline *p = model_load(ctx, folder);
        images[i] = job_run(ctx, p, &q);
        tern_pipeline_destroy(&p);
        if (i)
            assert_true(job_same(images[0], 0, images[i]));
    }
    damage_json(folder, "model_index.json", "scheduler", json_pack("[s,s]", "diffusers", "KDPM3DiscreteScheduler"));
    struct tern_pipeline *p = model_load(ctx, folder);
    assert_null(tern_txt2img(p, &q));
    support_error(ctx, TERN_E_UNSUPPORTED,
                  "model_index.json: \"scheduler\": KDPM3DiscreteScheduler is not available; choose a sampler: ddim");
    q.sampler = TERN_SAMPLER_DDIM;
    tern_images_destroy(&images[1]);
    images[1] = job_run(ctx, p, &q);
    tern_pipeline_destroy(&p);
    for (int i = 0; i < 4; i++)
        tern_images_destroy(&images[i]);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* The last warning. */
static char warning[256];
static void keep_warning(enum tern_log_level level, const char *message, void *user)
{
    (void)user;
    if (level == TERN_LOG_WARN)
        snprintf(warning, sizeof(warning), "%s", message);
}

static void loads_with(struct tern_context *ctx, const char *model, const char *part)
{
    warning[0] = 0;
    struct tern_pipeline *p = model_load(ctx, model);
    tern_pipeline_destroy(&p);
    if (part ? !strstr(warning, part) : warning[0] != 0)
        fail_msg("%s: expected %s, found %s", model, part ? part : "no warning", warning);
}

/* Models of classes whose pipelines do no more than tern's load without a word; others say what is left out. */
static void what_is_left_out_is_said(void **state)
{
    static const char *const plain[] = {"StableDiffusionImg2ImgPipeline", "StableDiffusionInpaintPipeline", "AltDiffusionPipeline",
                                        "StableDiffusionInstructPix2PixPipeline", "LatentConsistencyModelImg2ImgPipeline"},
                             *const models[] = {"sd1",          "sd1-heads",    "sd1-inpaint", "sd1-mini",     "sd2",        "sdxl",
                                                "sdxl-inpaint", "sdxl-refiner", "sd1-pix2pix", "sdxl-pix2pix", "sdxl-cosxl", "sd1-lcm"};
    static const char index[] = "model_index.json";
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .log = keep_warning});
    char folder[PATH_SIZE];
    for (int i = 0; i < 12; i++) {
        if (i < 6)
            damage_copy(models[i], folder);
        else
            xl_folder(ctx, models[i], folder);
        loads_with(ctx, folder, NULL);
        damage_remove(folder);
    }
    loads_with(ctx, "demo", NULL);
    loads_with(ctx, "demo-zh", NULL);
    damage_copy("sd1", folder);
    for (int i = 0; i < 5; i++) {
        damage_json(folder, index, "_class_name", json_string(plain[i]));
        loads_with(ctx, folder, NULL);
    }
    damage_json(folder, index, "_class_name", json_string("StableDiffusionPAGPipeline"));
    loads_with(ctx, folder, "a StableDiffusionPAGPipeline is painted as a StableDiffusionPipeline, without what it does besides");
    damage_json(folder, index, "_class_name", NULL);
    damage_json(folder, index, "image_encoder", json_pack("[s,s]", "transformers", "CLIPVisionModelWithProjection"));
    char path[PATH_SIZE + 16];
    snprintf(path, sizeof(path), "%s/image_encoder", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    damage_text(folder, "image_encoder/config.json", "{}", 2);
    loads_with(ctx, folder, "its image_encoder is not used: there are no IP-Adapters");
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* A config from before diffusers 0.9 that says less than 64, as one number: diffusers' StableDiffusionPipeline takes 64. */
static void old_sizes(void **state)
{
    static const struct {
        const char *version;
        bool list;
        int size, side; /* side: at 1/8 */
    } rows[] = {{"0.6.0", false, 32, 512},      {"0.8.1", false, 8, 512},  {"0.6.0", true, 32, 256},
                {"0.6.0", false, 96, 768},      {"0.9.0", false, 32, 256}, {"0.20.0", false, 8, 64},
                {"0.9.0.dev0", false, 32, 256}, {"1.0", false, 32, 256},   {NULL, false, 32, 256}};
    char folder[PATH_SIZE], said[64];
    (void)state;
    damage_copy("sd1", folder);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_context *ctx = model_context(NULL, 1);
        const int size = rows[i].size;
        damage_json(folder, "unet/config.json", "_diffusers_version", rows[i].version ? json_string(rows[i].version) : json_integer(0));
        damage_json(folder, "unet/config.json", "sample_size", rows[i].list ? json_pack("[ii]", size, size) : json_integer(size));
        struct tern_pipeline *p = model_load(ctx, folder);
        char *text = tern_pipeline_describe(p, false);
        snprintf(said, sizeof(said), "own size %d x %d", rows[i].side, rows[i].side);
        if (!text || !strstr(text, said))
            fail_msg("row %zu: expected %s, found %s", i, said, text ? text : tern_error(ctx));
        tern_free_text(ctx, text);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
    damage_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"sd1", model_agrees, NULL, NULL, (void *)(uintptr_t) "sd1"},
        {"sd1-heads", model_agrees, NULL, NULL, (void *)(uintptr_t) "sd1-heads"},
        {"sd1-inpaint", model_agrees, NULL, NULL, (void *)(uintptr_t) "sd1-inpaint"},
        {"sd2", model_agrees, NULL, NULL, (void *)(uintptr_t) "sd2"},
        {"sdxl", model_agrees, NULL, NULL, (void *)(uintptr_t) "sdxl"},
        cmocka_unit_test(prompts_agree),
        cmocka_unit_test(again_is_the_same),
        cmocka_unit_test(scopes_leave_latents),
        cmocka_unit_test(old_sizes),
        cmocka_unit_test(callbacks_keep_to_their_scopes),
        cmocka_unit_test(folders_may_be_left),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(batches_do_not_matter),
        cmocka_unit_test(groups_do_not_matter),
        cmocka_unit_test(pictures_are_encoded_once),
        cmocka_unit_test(given_noise_is_the_seeds),
        cmocka_unit_test(generators_differ),
        cmocka_unit_test(old_schedulers_are_corrected),
        cmocka_unit_test(index_names_the_scheduler),
        cmocka_unit_test(what_is_left_out_is_said),
        cmocka_unit_test(vaes_have_no_shift),
        cmocka_unit_test(half_precision_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
