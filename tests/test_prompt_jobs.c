/* Pictures of prompts that change by step, are joined, long or weighted, and of textual inversions: latents against a loop in Python and
 * against diffusers. What is refused, what the infotext says, and that a plain prompt stays what it was. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "damage.h"
#include "job_cases.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/files/embedding.h"
#include "support.h"

#define DATA TERN_TEST_DATA "/prompts/"

static struct tern_context *ctx;
static struct tern_pipeline *p; /* sd1 */

static void set(struct tern_pipeline *to, const struct tern_prompt_embedding *list, int n)
{
    if (tern_pipeline_set_embeddings(to, list, n))
        fail_msg("%s", tern_error(ctx));
}

static const struct tern_prompt_embedding words[] = {{DATA "tiny-style.safetensors", NULL}, {DATA "learned.bin", "bad-one"}};
static const struct tern_prompt_embedding plain_words[] = {{DATA "learned.bin", NULL}, {DATA "a1111.pt", "my-style"}};

static const struct tern_prompt_embedding sd2_words[] = {{DATA "sd2-style.safetensors", NULL}};

static void latents_agree(void **state)
{
    (void)state;
    struct job_worst w = {0};
    json_t *rows = support_json("prompts/cases.json"), *row;
    struct tern_weights *expected = support_tensors(ctx, "prompts/latents");
    size_t i;
    json_array_foreach(rows, i, row) {
        struct job_case c = job_case_read(ctx, row, "prompts");
        char path[PATH_SIZE];
        const bool plain = !strncmp(c.name, "plain.", 6), sd1 = !strcmp(c.model, "sd1");
        struct tern_pipeline *of = sd1 ? p : model_load(ctx, model_path(c.model, path));
        if (plain || json_is_true(json_object_get(row, "embeddings")))
            set(of, !plain ? words : sd1 ? plain_words : sd2_words, !plain || sd1 ? 2 : 1);
        c.params.prompt_syntax = plain ? TERN_PROMPT_PLAIN : TERN_PROMPT_A1111;
        struct tern_images *images = job_run(ctx, of, &c.params);
        job_check_latents(images, expected, c.name, &w);
        w.cases++;
        tern_images_destroy(&images);
        set(of, NULL, 0);
        if (!sd1)
            tern_pipeline_destroy(&of);
        job_case_close(&c);
    }
    assert_true(w.cases >= 16);
    job_print_worst(&w);
    tern_weights_unref(&expected);
    json_decref(rows);
}

static struct tern_txt2img_params small(const char *prompt)
{
    return tern_txt2img_params(.prompt = prompt, .width = 48, .height = 40, .steps = 3, .sampler = TERN_SAMPLER_EULER, .seed = 7,
                               .prompt_syntax = TERN_PROMPT_A1111);
}

static bool same(const struct tern_txt2img_params *a, const struct tern_txt2img_params *b)
{
    struct tern_images *x = job_run(ctx, p, a), *y = job_run(ctx, p, b);
    const bool same = job_same(x, 0, y);
    tern_images_destroy(&x);
    tern_images_destroy(&y);
    return same;
}

/* Plain prompts read no syntax; without syntax both are the same bits. */
static void plain_prompts_stay_text(void **state)
{
    (void)state;
    struct tern_txt2img_params a = small("a (cat:1.3)"), b = a;
    b.prompt_syntax = TERN_PROMPT_PLAIN;
    assert_false(same(&a, &b));
    a.prompt = b.prompt = "a cat in the snow";
    assert_true(same(&a, &b));
    set(p, words, 2);
    assert_true(same(&a, &b)); /* none of them is named */
    b.prompt = "a tiny-style in the snow";
    assert_false(same(&a, &b));
    set(p, NULL, 0);
    a = b;
    a.prompt = "a [b:c:0.5] AND (d:2)";
    b.prompt = "a [b:c:0.5] AND (d:3)";
    assert_false(same(&a, &b));
}

/* The names that a file gives: its own, that inside, or what is asked for. */
static void embeddings_have_names(void **state)
{
    (void)state;
    static const struct tern_prompt_embedding a[] = {{DATA "a1111.pt", NULL}}, b[] = {{DATA "tiny-style.safetensors", "other"}},
                                              c[] = {{DATA "unnamed.pt", NULL}};
    const struct {
        const struct tern_prompt_embedding *list;
        const char *prompt;
    } rows[] = {{a, "a house a1111"}, {a, "a house inside"}, {b, "a house other"}, {c, "a house unnamed"}};
    struct tern_txt2img_params q = small(rows[0].prompt);
    struct tern_images *images[4];
    for (int i = 0; i < 4; i++) {
        set(p, rows[i].list, 1);
        q.prompt = rows[i].prompt;
        images[i] = job_run(ctx, p, &q);
        assert_true(job_same(images[0], 0, images[i])); /* all three files have the same vectors */
    }
    set(p, NULL, 0);
    q.prompt = rows[0].prompt;
    struct tern_images *without = job_run(ctx, p, &q);
    assert_false(job_same(images[0], 0, without));
    tern_images_destroy(&without);
    for (int i = 0; i < 4; i++)
        tern_images_destroy(&images[i]);
}

/* Two files with one name: the second one is called by the name inside. */
static void names_that_are_taken(void **state)
{
    (void)state;
    char folder[PATH_SIZE], bin[PATH_SIZE + 8], pt[PATH_SIZE + 8];
    lora_temporary(folder);
    snprintf(bin, sizeof(bin), "%s/x.bin", folder);
    snprintf(pt, sizeof(pt), "%s/x.pt", folder);
    assert_int_equal(symlink(DATA "learned.bin", bin) | symlink(DATA "a1111.pt", pt), 0);
    const struct tern_prompt_embedding a[] = {{bin, "one"}, {pt, "two"}}, b[] = {{bin, NULL}, {pt, NULL}}, c[] = {{pt, NULL}, {bin, NULL}},
                                       none[] = {{pt, "x"}, {bin, "<cat-toy>"}, {bin, NULL}};
    const struct {
        const struct tern_prompt_embedding *list;
        const char *prompt;
    } rows[][2] = {{{a, "a one, two"}, {b, "a x, inside"}},
                   {{a, "a one, one"}, {b, "a x, <cat-toy>"}},
                   {{a, "a one two"}, {c, "a <cat-toy> x"}},
                   {{a, "a two, two"}, {c, "a x, inside"}}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_images *images[2];
        for (int k = 0; k < 2; k++) {
            const struct tern_txt2img_params q = small(rows[i][k].prompt);
            set(p, rows[i][k].list, 2);
            images[k] = job_run(ctx, p, &q);
        }
        if (!job_same(images[0], 0, images[1]))
            fail_msg("\"%s\" is not \"%s\"", rows[i][1].prompt, rows[i][0].prompt);
        for (int k = 0; k < 2; k++)
            tern_images_destroy(&images[k]);
    }
    set(p, NULL, 0);
    assert_int_equal(tern_pipeline_set_embeddings(p, none, 3), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "another embedding with the name \"x\"");
    damage_remove(folder);
}

static void embeddings_of_sdxl(void **state)
{
    (void)state;
    static const struct tern_prompt_embedding list[] = {{DATA "xl-style.safetensors", NULL}};
    char path[PATH_SIZE];
    struct tern_pipeline *xl = model_load(ctx, model_path("sdxl", path));
    struct tern_txt2img_params q = small("a house xl-style");
    struct tern_images *without = job_run(ctx, xl, &q);
    set(xl, list, 1);
    struct tern_images *with = job_run(ctx, xl, &q);
    assert_false(job_same(with, 0, without));
    /* plain, the pooled text is taken at the last vector, as in diffusers; A1111 takes it at the end */
    q.prompt_syntax = TERN_PROMPT_PLAIN;
    struct tern_images *other = job_run(ctx, xl, &q);
    assert_false(job_same(with, 0, other));
    tern_images_destroy(&other);
    q.prompt_syntax = TERN_PROMPT_A1111;
    assert_int_equal(tern_pipeline_set_embeddings(xl, words, 1), TERN_E_SHAPE);
    support_error(ctx, TERN_E_SHAPE,
                  "an embedding of width 40 (another architecture); the text encoders of sdxl (Stable Diffusion XL) need 16 and 24");
    tern_images_destroy(&with);
    with = job_run(ctx, xl, &q); /* the former one is still set */
    assert_false(job_same(with, 0, without));
    tern_images_destroy(&with);
    tern_images_destroy(&without);
    tern_pipeline_destroy(&xl);
}

/* The names that cog-sdxl and diffusers' pivotal tuning give the two tensors, in their order. */
static void pairs_have_other_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"clip_l", "text_encoders_0"}, {"clip_g", "text_encoders_1"}};
    char folder[PATH_SIZE], path[PATH_SIZE + 32];
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/embeddings.pti", folder);
    struct tern_weights *from = tern_weights_open(ctx, DATA "xl-style.safetensors"), *to = tern_weights_create(ctx);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tern_weights_add(to, names[i][1], tern_weights_get(from, names[i][0])), TERN_OK);
    assert_int_equal(tern_weights_save(to, path), TERN_OK);
    struct tern_embedding_file f;
    if (tern_embedding_read(ctx, path, &f))
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(f.encoders, 2);
    assert_null(f.own_name);
    for (int i = 0; i < 2; i++) {
        float values[256];
        const tern_tensor *t = tern_weights_get(from, names[i][0]);
        const size_t size = (size_t)tern_tensor_numel(t) * sizeof(float);
        assert_true(size <= sizeof(values));
        assert_int_equal(f.width[i], i ? 24 : 16);
        assert_int_equal(f.vectors * f.width[i], tern_tensor_numel(t));
        assert_int_equal(tern_tensor_read(t, TERN_F32, values, size), TERN_OK);
        assert_memory_equal(values, f.values[i], size);
    }
    tern_embedding_free(&f);
    tern_weights_unref(&to);
    tern_weights_unref(&from);
    damage_remove(folder);
}

/* A job behind another one that ended there; the caller's. */
static struct tern_images *second(struct tern_txt2img_params q, const char *prompt)
{
    q.denoising_end = 0.6;
    struct tern_images *first = job_run(ctx, p, &q);
    q.denoising_end = 0;
    q.denoising_start = 0.6;
    q.init_latents = tern_images_latents(first);
    q.init_image = q.mask_image ? q.init_image : NULL; /* the latents are of it */
    q.prompt = prompt;
    struct tern_images *images = job_run(ctx, p, &q);
    tern_images_destroy(&first);
    return images;
}

/* One model in two parts paints what it paints at once. */
static void a_second_model_counts_on(void **state)
{
    (void)state;
    static const char *const prompts[] = {"a [cat:dog:0.5]", "a [cat|dog]"};
    for (int i = 0; i < 2; i++) {
        struct tern_txt2img_params q = small(prompts[i]);
        q.steps = 5;
        struct tern_images *whole = job_run(ctx, p, &q), *parts = second(q, q.prompt);
        if (!job_same(whole, 0, parts))
            fail_msg("%s: another picture", q.prompt);
        tern_images_destroy(&whole);
        tern_images_destroy(&parts);
    }
}

/* So does the noise, which the second model does not draw again: by samplers that know nothing of the steps before, cut between two. Where
 * all steps are of a picture, the first has drawn more. */
static void noise_goes_on_in_a_second_model(void **state)
{
    (void)state;
    static const struct {
        enum tern_sampler sampler;
        double eta;
        int64_t ensd;
    } rows[] = {
        {TERN_SAMPLER_EULER_A, 0, 0},   {TERN_SAMPLER_EULER_A, 0, 31337}, {TERN_SAMPLER_DDIM, 0.5, 0},
        {TERN_SAMPLER_DPMPP_SDE, 0, 0}, {TERN_SAMPLER_LCM, 0, 0},
    };
    struct tern_image *picture = tern_image_create(ctx, 48, 40, NULL);
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
        struct tern_txt2img_params q = small("a cat");
        q.steps = 4;
        q.init_image = i % 2 ? picture : NULL;
        q.strength = i % 2;
        q.count = 2;
        q.sampler = rows[i / 2].sampler;
        q.sampler_options.eta = rows[i / 2].eta;
        q.ensd = rows[i / 2].ensd;
        struct tern_images *whole = job_run(ctx, p, &q), *parts = second(q, q.prompt);
        if (!job_same(whole, 0, parts))
            fail_msg("%s, ENSD %d, strength %g: another picture", tern_sampler_name(q.sampler), (int)q.ensd, q.strength);
        tern_images_destroy(&whole);
        tern_images_destroy(&parts);
    }
    tern_image_destroy(&picture);
}

/* Where both inpaint, from the first step of the strength: 6 of 10 steps, of which the second model does those from 2 on. */
static void a_second_model_counts_on_in_a_picture(void **state)
{
    (void)state;
    static uint8_t rgb[3 * 48 * 40];
    static const char *const rows[][2] = {{"a [cat:dog:1]", "a dog"}, {"a [cat:dog:5]", "a cat"}};
    memset(rgb, 255, sizeof(rgb) / 2);
    struct tern_image *picture = tern_image_create(ctx, 48, 40, NULL), *mask = tern_image_create(ctx, 48, 40, rgb);
    struct tern_txt2img_params q = small("a bird");
    q.steps = 10;
    q.strength = 0.6;
    q.init_image = picture;
    q.mask_image = mask;
    for (int i = 0; i < 2; i++) {
        struct tern_images *found = second(q, rows[i][0]), *expected = second(q, rows[i][1]);
        if (!job_same(found, 0, expected))
            fail_msg("%s is not %s", rows[i][0], rows[i][1]);
        tern_images_destroy(&found);
        tern_images_destroy(&expected);
    }
    tern_image_destroy(&picture);
    tern_image_destroy(&mask);
}

/* ---- what is refused */

static void refused_embedding(const struct tern_prompt_embedding *list, int n, enum tern_status status, const char *part)
{
    const size_t used = tern_memory_used(ctx);
    assert_int_equal(tern_pipeline_set_embeddings(p, list, n), status);
    support_error(ctx, status, part);
    assert_int_equal(tern_memory_used(ctx), used);
}

static void embeddings_are_checked(void **state)
{
    (void)state;
    const struct tern_prompt_embedding missing = {"/nowhere/x.pt", NULL}, none = {NULL, NULL}, xl = {DATA "xl-style.safetensors", NULL},
                                       model = {TERN_TEST_DATA "/models/sd1/unet/diffusion_pytorch_model.safetensors", NULL},
                                       blank = {DATA "learned.bin", "  "}, twice[] = {{DATA "learned.bin", "a"}, {DATA "a1111.pt", "a"}},
                                       evil = {TERN_TEST_DATA "/formats/foreign-global.ckpt", NULL};
    refused_embedding(&missing, 1, TERN_E_NOT_FOUND, "/nowhere/x.pt");
    refused_embedding(&none, 1, TERN_E_INVALID, "has no path");
    refused_embedding(&xl, 1, TERN_E_SHAPE,
                      "width 16 and 24 (Stable Diffusion XL or its refiner); the text encoder of sd1 (Stable Diffusion 1) needs 40");
    refused_embedding(&model, 1, TERN_E_FORMAT, "no embedding: expected emb_params");
    refused_embedding(&blank, 1, TERN_E_INVALID, "has no tokens");
    refused_embedding(twice, 2, TERN_E_INVALID, "another embedding with the name \"a\"");
    refused_embedding(&evil, 1, TERN_E_FORMAT, "posix.system");
    refused_embedding(NULL, 1, TERN_E_INVALID, "no list");
    refused_embedding(words, -1, TERN_E_INVALID, "found -1");
}

static void odd_tensors_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum tern_dtype dtype;
        int ndim;
        int64_t shape[3];
        double value;
        enum tern_status status;
        const char *part;
    } rows[] = {
        {"emb_params", TERN_F32, 2, {1, 40}, 0.5, TERN_OK, NULL},
        {"<x>", TERN_F16, 1, {40}, 0.5, TERN_OK, NULL},
        {"emb_params", TERN_F32, 2, {1, 768}, 1, TERN_E_SHAPE, "width 768 (Stable Diffusion 1)"},
        {"emb_params", TERN_F32, 3, {1, 1, 40}, 1, TERN_E_SHAPE, "(V, D) or (D), found (1, 1, 40) f32"},
        {"emb_params", TERN_F32, 2, {0, 40}, 1, TERN_E_SHAPE, "found (0, 40) f32"},
        {"emb_params", TERN_I64, 2, {1, 40}, 1, TERN_E_SHAPE, "found (1, 40) i64"},
        {"emb_params", TERN_F32, 2, {1, 40}, HUGE_VAL, TERN_E_FORMAT, "no finite numbers"},
    };
    char folder[PATH_SIZE], path[PATH_SIZE + 32];
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/x.safetensors", folder);
    const struct tern_prompt_embedding list = {path, NULL};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_weights *w = tern_weights_create(ctx);
        float values[1024];
        for (int k = 0; k < 1024; k++)
            values[k] = (float)rows[i].value;
        tern_tensor *t = tern_tensor_create(ctx, rows[i].dtype, rows[i].ndim, rows[i].shape, NULL);
        if (tern_tensor_numel(t))
            assert_int_equal(tern_tensor_write(t, TERN_F32, values, (size_t)tern_tensor_numel(t) * sizeof(float)), TERN_OK);
        assert_int_equal(tern_weights_add(w, rows[i].name, t), TERN_OK);
        assert_int_equal(tern_weights_save(w, path), TERN_OK);
        tern_tensor_unref(&t);
        tern_weights_unref(&w);
        if (rows[i].status)
            refused_embedding(&list, 1, rows[i].status, rows[i].part);
        else
            set(p, &list, 1);
        set(p, NULL, 0);
    }
    damage_remove(folder);
}

static void refused(const struct tern_txt2img_params *q, enum tern_status status, const char *part)
{
    const size_t used = tern_memory_used(ctx);
    assert_int_equal(tern_generate_check(p, q, NULL), status);
    support_error(ctx, status, part);
    assert_null(tern_generate(p, q));
    support_error(ctx, status, part);
    assert_int_equal(tern_memory_used(ctx), used);
}

static void prompts_are_checked(void **state)
{
    (void)state;
    char long_text[8192] = "", joined[1024] = "a";
    struct tern_txt2img_params q = small("\xff");
    refused(&q, TERN_E_INVALID, "prompt");
    q = small("x");
    q.negative_prompt = "a \xc3(";
    refused(&q, TERN_E_INVALID, "negative prompt");
    q = small("(x:1.2.3)");
    refused(&q, TERN_E_INVALID, "(text:1.2.3): the weight is no finite number");
    for (int i = 0; i < 40; i++)
        strcat(joined, " AND a");
    q = small(joined);
    refused(&q, TERN_E_INVALID, "more than 32 texts are joined");
    q = small("a AND b AND c");
    q.count = 64;
    refused(&q, TERN_E_INVALID, "4 rows each for 64 pictures");
    for (int i = 0; i < 4000; i++)
        strcat(long_text, "1 ");
    q = small(long_text);
    refused(&q, TERN_E_INVALID, "more than 128 chunks of 30 tokens");
    q = small("x");
    q.clip_skip = 4;
    refused(&q, TERN_E_INVALID, "clip_skip: expected 1..3, the layers of the text encoder, found 4");
    q.clip_skip = -1;
    refused(&q, TERN_E_INVALID, "found -1");
    q = small("x");
    q.prompt_syntax = (enum tern_prompt_syntax)2;
    refused(&q, TERN_E_INVALID, "2 and 0 are no such values");
    q = small("x");
    q.emphasis = (enum tern_emphasis)3;
    refused(&q, TERN_E_INVALID, "1 and 3 are no such values");
}

/* ---- the rest */

static void infotexts_tell_what_counts(void **state)
{
    (void)state;
    static const struct {
        const char *prompt;
        enum tern_emphasis emphasis;
        int clip_skip;
        const char *part, *absent;
    } rows[] = {
        {"a (cat:1.2) [dog|bird] AND b", TERN_EMPHASIS_ORIGINAL, 0, "a (cat:1.2) [dog|bird] AND b\nSteps: 3", "Clip skip"},
        {"a", TERN_EMPHASIS_ORIGINAL, 2, "Model: sd1, Clip skip: 2, RNG: CPU, Version", "Emphasis"},
        {"(a)", TERN_EMPHASIS_NO_NORM, 1, "RNG: CPU, Emphasis: No norm, Version", "Clip skip"},
        {"[a]", TERN_EMPHASIS_IGNORE, 0, "RNG: CPU, Emphasis: Ignore, Version", "Pad"},
        {"[a:b:2]", TERN_EMPHASIS_NO_NORM, 0, "RNG: CPU, Version", "Emphasis"}, /* no text has them */
        {"a", TERN_EMPHASIS_NO_NORM, 0, "RNG: CPU, Version", "Emphasis"},
        {"a BREAK b", TERN_EMPHASIS_ORIGINAL, 0, "RNG: CPU, Pad conds: True, Version", "Emphasis"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_txt2img_params q = small(rows[i].prompt);
        q.emphasis = rows[i].emphasis;
        q.clip_skip = rows[i].clip_skip;
        struct tern_images *images = job_run(ctx, p, &q);
        const char *text = tern_image_text(tern_images_at(images, 0), "parameters");
        if (!strstr(text, rows[i].part) || strstr(text, rows[i].absent))
            fail_msg("\"%s\": expected \"%s\" and no \"%s\"", text, rows[i].part, rows[i].absent);
        tern_images_destroy(&images);
    }
}

static char told[512]; /* what the log was told, up to its first comma each */

static void listen(enum tern_log_level level, const char *message, void *user)
{
    (void)user;
    const char *number = strstr(message, " has ");
    if (level == TERN_LOG_WARN && number)
        snprintf(told + strlen(told), sizeof(told) - strlen(told), "%.*s %d; ", (int)strcspn(message, ","), message, atoi(number + 5));
}

/* A digit is a token, <toy> three vectors; the text encoder reads 32. */
static void texts_that_are_cut_are_told(void **state)
{
    (void)state;
    static const struct {
        int prompt, negative, second, second_negative; /* digits; of the second pass 0: those of the first */
        const char *word;                              /* behind the prompt's digits */
        double cfg, second_cfg;
        enum tern_prompt_syntax syntax;
        const char *told;
    } rows[] = {
        {30, 30, 0, 0, "", 5, 0, TERN_PROMPT_PLAIN, ""},
        {31, 1, 0, 0, "", 5, 0, TERN_PROMPT_PLAIN, "prompt: cut off 33; "},
        {3, 40, 0, 0, "", 5, 0, TERN_PROMPT_PLAIN, "negative prompt: cut off 42; "},
        {3, 40, 0, 0, "", 1, 0, TERN_PROMPT_PLAIN, ""},
        {31, 40, 0, 0, "", 5, 0, TERN_PROMPT_A1111, ""},
        {31, 40, 31, 40, "<toy>", 5, 5, TERN_PROMPT_A1111, ""},
        {27, 30, 0, 0, "<toy>", 5, 0, TERN_PROMPT_PLAIN, ""},
        {28, 31, 0, 0, "<toy>", 5, 0, TERN_PROMPT_PLAIN, "prompt: cut off 33; negative prompt: cut off 33; "},
        {29, 31, 0, 0, "<toy>", 1, 0, TERN_PROMPT_PLAIN, "prompt: cut off 34; "},
        {31, 32, 30, 30, "", 5, 5, TERN_PROMPT_PLAIN, "prompt: cut off 33; negative prompt: cut off 34; "},
        {30, 30, 31, 40, "", 5, 5, TERN_PROMPT_PLAIN, "hires prompt: cut off 33; hires negative prompt: cut off 42; "},
        {30, 33, 30, 33, "", 5, 5, TERN_PROMPT_PLAIN, "negative prompt: cut off 35; "},
        {30, 33, 0, 0, "", 1, 5, TERN_PROMPT_PLAIN, "hires negative prompt: cut off 35; "},
        {29, 30, 32, 30, "<toy>", 5, 5, TERN_PROMPT_PLAIN, "prompt: cut off 34; hires prompt: cut off 34; "},
    };
    char path[PATH_SIZE], texts[4][128];
    struct tern_context *own = tern_context_create(&(struct tern_context_params){.log = listen});
    struct tern_pipeline *of = model_load(own, model_path("sd1", path));
    assert_int_equal(
        tern_pipeline_set_embeddings(of, &(struct tern_prompt_embedding){TERN_TEST_DATA "/prompts/tiny-style.safetensors", "<toy>"}, 1),
        TERN_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const int digits[] = {rows[i].prompt, rows[i].negative, rows[i].second, rows[i].second_negative};
        for (int k = 0; k < 4; k++)
            snprintf(texts[k], sizeof(texts[k]), "%.*s%s", digits[k], "0000000000000000000000000000000000000000", k ? "" : rows[i].word);
        struct tern_txt2img_params q = small(texts[0]);
        q.negative_prompt = texts[1];
        q.cfg = rows[i].cfg;
        q.prompt_syntax = rows[i].syntax;
        if (rows[i].second_cfg > 0)
            q.hires =
                (struct tern_hires){.hr_scale = 1.2, .hr_cfg = rows[i].second_cfg, .hr_prompt = texts[2], .hr_negative_prompt = texts[3]};
        *told = 0;
        struct tern_images *images = job_run(own, of, &q);
        if (strcmp(told, rows[i].told))
            fail_msg("row %d: \"%s\"; expected \"%s\"", (int)i, told, rows[i].told);
        tern_images_destroy(&images);
    }
    tern_pipeline_destroy(&of);
    tern_context_destroy(&own);
}

static int setup(void **state)
{
    char path[PATH_SIZE];
    (void)state;
    ctx = support_context();
    p = model_load(ctx, model_path("sd1", path));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_agree),
        cmocka_unit_test(plain_prompts_stay_text),
        cmocka_unit_test(embeddings_have_names),
        cmocka_unit_test(embeddings_of_sdxl),
        cmocka_unit_test(pairs_have_other_names),
        cmocka_unit_test(embeddings_are_checked),
        cmocka_unit_test(odd_tensors_are_refused),
        cmocka_unit_test(prompts_are_checked),
        cmocka_unit_test(infotexts_tell_what_counts),
        cmocka_unit_test(names_that_are_taken),
        cmocka_unit_test(texts_that_are_cut_are_told),
        cmocka_unit_test(a_second_model_counts_on),
        cmocka_unit_test(noise_goes_on_in_a_second_model),
        cmocka_unit_test(a_second_model_counts_on_in_a_picture),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
