/* Converting checkpoints: folder to file to folder with the same bytes, dtypes, and nothing left behind by what fails. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weights_help.h"

#include "convert_help.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "damage.h"
#include "model_help.h"
#include "models/files/layout.h"
#include "models/files/weights.h"
#include "models/tokenizers/clip_files.h"
#include "support.h"
#include "xl_help.h"

static struct tern_context *context(void) { return model_context(NULL, 1); }

static void there_and_back_are_the_same_bytes(void **state)
{
    static const char *const models[] = {"sd2", "sdxl", "sd2"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct tern_context *ctx = context();
        char folder[PATH_SIZE], file[PATH_SIZE], back[PATH_SIZE], again[PATH_SIZE];
        convert_copy_model(models[i], folder);
        if (i == 2)
            xl_drop_mid_block(ctx, folder);
        convert_beside(folder, "one.safetensors", file);
        convert_beside(folder, "back", back);
        convert_beside(folder, "two.safetensors", again);
        convert_well(ctx, folder, file, NULL);
        convert_same_model(ctx, folder, file);
        convert_well(ctx, file, back, NULL);
        convert_same_model(ctx, folder, back);
        convert_well(ctx, file, again, &(struct tern_convert_params){.form = TERN_CONVERT_SINGLE_FILE});
        size_t n, m;
        uint8_t *x = help_read(file, &n), *y = help_read(again, &m);
        assert_true(n == m && !memcmp(x, y, n));
        free(x);
        free(y);
        tern_context_destroy(&ctx);
        damage_remove(folder);
    }
}

/* LDM names from the goldens' own conversion: the same tensors under the same names. */
static void a_single_file_is_that_of_the_goldens(void **state)
{
    struct fixture *f = *state;
    convert_well(f->ctx, FORMATS "mini", help_path(f, "mini.safetensors"), NULL);
    struct tern_weights *ours = help_open(f, help_path(f, "mini.safetensors")), *theirs = help_open(f, FORMATS "mini.safetensors");
    assert_int_equal(tern_weights_count(ours) + 1, tern_weights_count(theirs)); /* position_ids */
    for (int64_t i = 0; i < tern_weights_count(ours); i++) {
        const char *name = tern_weights_name(ours, i);
        tern_tensor *t = tern_weights_get(theirs, name);
        if (!t)
            fail_msg("%s: no such name", name);
        help_same_tensor(tern_weights_at(ours, i), t, name);
    }
    assert_string_equal(tern_weights_metadata(ours, "format"), "pt");
    tern_weights_unref(&ours);
    tern_weights_unref(&theirs);
}

static float half(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    float v = e ? ldexpf((float)(m | 1024), e - 25) : ldexpf((float)m, -24);
    return h >> 15 ? -v : v;
}

static float brain(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* No bf16 is nearer to the value than its own; of two the even one counts. */
static void dtypes_are_rounded_to_nearest(void **state)
{
    static const char part[] = "unet/diffusion_pytorch_model.safetensors";
    struct fixture *f = *state;
    char out[PATH_SIZE], file[PATH_SIZE];
    int64_t ties = 0;
    convert_beside(f->folder, "half", out);
    convert_well(f->ctx, TERN_TEST_DATA "/models/sd2", out,
                 &(struct tern_convert_params){.form = TERN_CONVERT_FOLDER, .change_dtype = true, .dtype = TERN_BF16});
    convert_beside(out, part, file);
    struct tern_weights *a = help_open(f, TERN_TEST_DATA "/models/sd2/unet/diffusion_pytorch_model.safetensors"), *b = help_open(f, file);
    assert_int_equal(tern_weights_count(a), tern_weights_count(b));
    for (int64_t k = 0; k < tern_weights_count(a); k++) {
        const tern_tensor *from = tern_weights_at(a, k), *to = tern_weights_at(b, k);
        const uint16_t *x = tern_tensor_host(from);
        const uint16_t *y = tern_tensor_host(to);
        assert_true(from->meta.dtype == TERN_F16 && to->meta.dtype == TERN_BF16);
        for (int64_t i = 0; i < tern_tensor_numel(from); i++) {
            float v = half(x[i]), error = fabsf(brain(y[i]) - v);
            assert_true(error <= fabsf(brain((uint16_t)(y[i] + 1)) - v) && error <= fabsf(brain((uint16_t)(y[i] - 1)) - v));
            bool tie = error > 0 && (error == fabsf(brain((uint16_t)(y[i] + 1)) - v) || error == fabsf(brain((uint16_t)(y[i] - 1)) - v));
            assert_true(!tie || !(y[i] & 1));
            ties += tie;
        }
    }
    assert_true(ties > 1000);
    tern_weights_unref(&a);
    tern_weights_unref(&b);
}

/* What a folder that comes from a file needs beside weights: it paints what the file paints. */
static void pictures_are_the_same(void **state)
{
    (void)state;
    struct tern_context *ctx = context();
    char folder[PATH_SIZE], file[PATH_SIZE], tokenizer[PATH_SIZE];
    convert_copy_model("sd2", folder);
    convert_beside(folder, "one.safetensors", file);
    convert_beside(folder, "tokenizer", tokenizer);
    convert_well(ctx, folder, file, NULL);
    const char *paths[] = {folder, file};
    uint8_t pixels[2][64 * 64 * 3];
    for (int i = 0; i < 2; i++) {
        struct tern_pipeline *p = tern_pipeline_load(ctx, paths[i], &(struct tern_pipeline_params){.tokenizer_dir = tokenizer});
        if (!p)
            fail_msg("%s", tern_error(ctx));
        struct tern_image *img = tern_txt2img(p, &tern_txt2img_params(.prompt = "a cat", .width = 64, .height = 64, .steps = 2, .seed = 3));
        assert_non_null(img);
        memcpy(pixels[i], tern_image_data(img), sizeof(pixels[i]));
        tern_image_destroy(&img);
        tern_pipeline_destroy(&p);
    }
    assert_memory_equal(pixels[0], pixels[1], sizeof(pixels[0]));
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* The header of the UNet's own file says it. */
static void say_of_unet(struct tern_context *ctx, const char *folder, const char *prediction)
{
    char path[PATH_SIZE];
    convert_beside(folder, "unet/diffusion_pytorch_model.safetensors", path);
    struct tern_weights *from = tern_weights_open(ctx, path), *to = tern_weights_create(ctx);
    assert_non_null(from);
    for (int64_t i = 0; i < tern_weights_count(from); i++)
        assert_int_equal(tern_weights_add(to, tern_weights_name(from, i), tern_weights_at(from, i)), TERN_OK);
    assert_int_equal(tern_weights_add_metadata(to, "modelspec.prediction_type", prediction), TERN_OK);
    assert_int_equal(tern_weights_save(to, path), TERN_OK);
    tern_weights_unref(&to);
    tern_weights_unref(&from);
}

/* Single files say what the scheduler predicts, SDXL's also that it goes down to no signal. What the components' own files say of it does
 * not count: they may be older than the scheduler. */
static void what_is_predicted_is_kept(void **state)
{
    static const struct {
        const char *model, *predicts, *before, *said;
    } cases[] = {{"sdxl", "v_prediction", NULL, "v"},
                 {"sd2", "epsilon", "v", "epsilon"},
                 {"sd2", "v_prediction", "epsilon", "v"},
                 {"sd2", "sample", NULL, NULL}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct tern_context *ctx = context();
        char folder[PATH_SIZE], file[PATH_SIZE], back[PATH_SIZE];
        convert_copy_model(cases[i].model, folder);
        damage_json(folder, "scheduler/scheduler_config.json", "prediction_type", json_string(cases[i].predicts));
        damage_json(folder, "scheduler/scheduler_config.json", "rescale_betas_zero_snr", json_boolean(!i));
        if (cases[i].before)
            say_of_unet(ctx, folder, cases[i].before);
        convert_beside(folder, "one.safetensors", file);
        convert_beside(folder, "back", back);
        convert_well(ctx, folder, file, NULL);
        convert_well(ctx, file, back, NULL);
        struct tern_weights *w = tern_weights_open(ctx, file);
        const char *said = tern_weights_metadata(w, "modelspec.prediction_type");
        assert_true(cases[i].said ? said && !strcmp(said, cases[i].said) : !said);
        tern_weights_unref(&w);
        struct tern_checkpoint *cp = tern_checkpoint_open(ctx, back);
        assert_non_null(cp);
        json_t *scheduler = json_loads(tern_checkpoint_scheduler(cp), 0, NULL);
        if (cases[i].said)
            assert_string_equal(json_string_value(json_object_get(scheduler, "prediction_type")), cases[i].predicts);
        assert_int_equal(json_is_true(json_object_get(scheduler, "rescale_betas_zero_snr")), !i);
        json_decref(scheduler);
        tern_checkpoint_close(&cp);
        tern_context_destroy(&ctx);
        damage_remove(folder);
    }
}

/* The class that counts is the index's, also in what is written. */
static void the_class_of_the_scheduler_is_kept(void **state)
{
    (void)state;
    struct tern_context *ctx = context();
    char folder[PATH_SIZE], copy[PATH_SIZE];
    convert_copy_model("sd1", folder);
    damage_json(folder, "model_index.json", "scheduler", json_pack("[s,s]", "diffusers", "EulerDiscreteScheduler"));
    convert_beside(folder, "copy", copy);
    convert_well(ctx, folder, copy, &(struct tern_convert_params){.form = TERN_CONVERT_FOLDER});
    struct tern_checkpoint *cp = tern_checkpoint_open(ctx, copy);
    assert_non_null(cp);
    assert_string_equal(tern_checkpoint_scheduler_class(cp), "EulerDiscreteScheduler");
    tern_checkpoint_close(&cp);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Python's -Infinity, which diffusers writes and JSON has not, is read by all; a folder gets the file as it is, and an index that named no
 * scheduler the file's class. */
static void a_scheduler_of_python_is_read(void **state)
{
    static const char text[] = "{\"_class_name\": \"DPMSolverMultistepScheduler\", \"prediction_type\": \"v_prediction\",\n"
                               " \"lambda_min_clipped\": -Infinity}";
    (void)state;
    struct tern_context *ctx = context();
    char folder[PATH_SIZE], file[PATH_SIZE], copy[PATH_SIZE];
    size_t size;
    convert_copy_model("sd2", folder);
    damage_json(folder, "model_index.json", "scheduler", NULL);
    damage_text(folder, "scheduler/scheduler_config.json", text, strlen(text));
    convert_beside(folder, "one.safetensors", file);
    convert_beside(folder, "copy", copy);
    convert_well(ctx, folder, file, NULL);
    struct tern_weights *w = tern_weights_open(ctx, file);
    assert_string_equal(tern_weights_metadata(w, "modelspec.prediction_type"), "v");
    tern_weights_unref(&w);
    convert_well(ctx, folder, copy, &(struct tern_convert_params){.form = TERN_CONVERT_FOLDER});
    char *written = damage_read(copy, "scheduler/scheduler_config.json", &size);
    assert_string_equal(written, text);
    free(written);
    struct tern_checkpoint *cp = tern_checkpoint_open(ctx, copy);
    assert_non_null(cp);
    assert_string_equal(tern_checkpoint_scheduler_class(cp), "DPMSolverMultistepScheduler");
    tern_checkpoint_close(&cp);
    struct tern_pipeline *p = tern_pipeline_load(ctx, folder, NULL);
    char *said = tern_pipeline_describe(p, true);
    assert_non_null(said);
    assert_non_null(strstr(said, "\"lambda_min_clipped\": \"-Infinity\""));
    tern_free(ctx, said);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* A folder from a refiner's file says what the published one's index says; diffusers takes a key that is absent for the base model's. */
static void a_refiner_stays_one(void **state)
{
    (void)state;
    struct tern_context *ctx = context();
    char folder[PATH_SIZE], file[PATH_SIZE], back[PATH_SIZE], path[PATH_SIZE];
    convert_copy_refiner(ctx, folder);
    convert_beside(folder, "one.safetensors", file);
    convert_beside(folder, "back", back);
    convert_well(ctx, folder, file, NULL);
    convert_well(ctx, file, back, NULL);
    convert_same_model(ctx, folder, back);
    convert_beside(back, "model_index.json", path);
    json_t *index = json_load_file(path, 0, NULL);
    assert_true(json_is_false(json_object_get(index, "force_zeros_for_empty_prompt")));
    assert_true(json_is_true(json_object_get(index, "requires_aesthetics_score")));
    json_decref(index);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* What no prompt needs is left out, whether it has weights or a configuration alone: diffusers reads a row of null as none. */
static void a_safety_checker_is_left_out(void **state)
{
    static const char weights[] = "safety_checker/model.safetensors";
    (void)state;
    struct tern_context *ctx = context();
    char folder[PATH_SIZE], copy[PATH_SIZE], path[PATH_SIZE];
    convert_copy_model("sd1", folder);
    damage_json(folder, "model_index.json", "safety_checker", json_pack("[s,s]", "stable_diffusion", "StableDiffusionSafetyChecker"));
    damage_json(folder, "model_index.json", "feature_extractor", json_pack("[s,s]", "transformers", "CLIPImageProcessor"));
    convert_beside(folder, "safety_checker", path);
    assert_int_equal(mkdir(path, 0777), 0);
    damage_text(folder, "safety_checker/config.json", "{}", 2);
    convert_beside(folder, "copy", copy);
    for (int with = 0; with < 2; with++) {
        if (with) {
            size_t size;
            char *some = damage_read(folder, "vae/diffusion_pytorch_model.safetensors", &size);
            damage_text(folder, weights, some, size);
            free(some);
        }
        convert_well(ctx, folder, copy, &(struct tern_convert_params){.form = TERN_CONVERT_FOLDER});
        convert_same_model(ctx, folder, copy);
        convert_beside(copy, "safety_checker", path);
        assert_int_equal(access(path, F_OK), -1);
        convert_beside(copy, "model_index.json", path);
        json_t *index = json_load_file(path, 0, NULL), *none = json_pack("[n,n]");
        assert_true(json_equal(json_object_get(index, "safety_checker"), none));
        assert_true(json_equal(json_object_get(index, "feature_extractor"), none));
        assert_string_equal(json_string_value(json_array_get(json_object_get(index, "unet"), 1)), "UNet2DConditionModel");
        json_decref(index);
        json_decref(none);
        damage_remove(copy);
    }
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

static void listen(enum tern_log_level level, const char *message, void *user)
{
    if (level == TERN_LOG_WARN)
        snprintf(user, PATH_SIZE, "%s", message);
}

/* A file whose text encoder has names that nobody knows, or the names that are known. */
static void a_text_encoder_that_is_not_found_is_told(void **state)
{
    static const char known[] = "cond_stage_model.", start[] = "conditioner_x.";
    struct fixture *f = *state;
    char told[PATH_SIZE], file[PATH_SIZE], out[PATH_SIZE], name[256];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .log = listen, .user = told});
    snprintf(file, sizeof(file), "%s", help_path(f, "x.safetensors"));
    snprintf(out, sizeof(out), "%s", help_path(f, "x"));
    for (int unknown = 0; unknown < 2; unknown++) {
        struct tern_weights *from = tern_weights_open(ctx, FORMATS "mini.safetensors"), *to = tern_weights_create(ctx);
        for (int64_t i = 0; i < tern_weights_count(from); i++) {
            const char *old = tern_weights_name(from, i);
            const bool other = unknown && !strncmp(old, known, strlen(known));
            snprintf(name, sizeof(name), "%s%s", other ? start : "", other ? old + strlen(known) : old);
            assert_int_equal(tern_weights_add(to, name, tern_weights_at(from, i)), TERN_OK);
        }
        assert_int_equal(tern_weights_save(to, file), TERN_OK);
        tern_weights_unref(&to);
        tern_weights_unref(&from);
        *told = 0;
        convert_well(ctx, file, out, NULL);
        assert_int_equal(strstr(told, "no text encoder is found") != NULL, unknown);
        damage_remove(out);
    }
    tern_context_destroy(&ctx);
}

/* transformers finds "<|STARTOFTEXT|>" in a text only where its files say that special tokens are normalized. */
static void check_special_tokens(const char *text, const char *pad)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token"};
    json_t *o = json_loads(text, 0, NULL);
    assert_non_null(o);
    for (int i = 0; i < 3; i++) {
        const json_t *token = json_object_get(o, names[i]);
        assert_string_equal(json_string_value(json_object_get(token, "content")), i ? "<|endoftext|>" : "<|startoftext|>");
        assert_true(json_is_true(json_object_get(token, "normalized")));
        assert_true(json_is_false(json_object_get(token, "single_word")));
    }
    assert_string_equal(json_string_value(json_object_get(o, "pad_token")), pad);
    json_decref(o);
}

/* vocab.json and merges.txt that are written read as the vocabulary inside the library. */
static void the_tokenizer_that_is_written_is_the_one_inside(void **state)
{
    static const char *const texts[] = {"a photo of an astronaut, 8k!", "K\xc3\xa4tzchen \xe7\x8c\xab \xf0\x9f\x98\x80",
                                        "supercalifragilistic 12345", "<|STARTOFTEXT|>'s a <|endofText|>"};
    struct fixture *f = *state;
    char *vocabulary = tern_clip_vocabulary_json(f->ctx), *merges = tern_clip_merges_text(f->ctx);
    assert_true(vocabulary && merges);
    for (int open_clip = 0; open_clip < 2; open_clip++) {
        char folder[PATH_SIZE];
        check_special_tokens(tern_clip_special_tokens(open_clip), open_clip ? "!" : "<|endoftext|>");
        check_special_tokens(tern_clip_tokenizer_config(open_clip), open_clip ? "!" : "<|endoftext|>");
        snprintf(folder, sizeof(folder), "%s", f->folder);
        const char *const files[][2] = {{"vocab.json", vocabulary},
                                        {"merges.txt", merges},
                                        {"special_tokens_map.json", tern_clip_special_tokens(open_clip)},
                                        {"tokenizer_config.json", tern_clip_tokenizer_config(open_clip)}};
        for (int i = 0; i < 4; i++)
            help_file(f, files[i][0], files[i][1], strlen(files[i][1]));
        struct tern_tokenizer *inside = tern_tokenizer_clip(f->ctx, open_clip ? 0 : 49407), *read = tern_tokenizer_load(f->ctx, folder);
        if (!inside || !read)
            fail_msg("%s", tern_error(f->ctx));
        assert_int_equal(tern_tokenizer_max_length(inside), tern_tokenizer_max_length(read));
        for (int i = 0; i < 4; i++) {
            int64_t a[77], b[77];
            assert_int_equal(tern_tokenize_padded(inside, texts[i], a), TERN_OK);
            assert_int_equal(tern_tokenize_padded(read, texts[i], b), TERN_OK);
            assert_memory_equal(a, b, sizeof(a));
        }
        tern_tokenizer_destroy(&inside);
        tern_tokenizer_destroy(&read);
    }
    tern_free_text(f->ctx, vocabulary);
    tern_free_text(f->ctx, merges);
}

/* What a process of the same number left is in nobody's way: it is not this one's. */
static void a_folder_that_was_left_half_written_does_not_matter(void **state)
{
    struct fixture *f = *state;
    char out[PATH_SIZE], left[PATH_SIZE + 64];
    convert_beside(f->folder, "out", out);
    snprintf(left, sizeof(left), "%s.%ld-0.part", out, (long)getpid());
    assert_int_equal(mkdir(left, 0777), 0);
    convert_well(f->ctx, FORMATS "mini.safetensors", out, &(struct tern_convert_params){.form = TERN_CONVERT_FOLDER});
    assert_int_equal(convert_entries(left), 2);
    assert_int_equal(rmdir(left), 0);
    damage_remove(out);
}

static void a_full_disk_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    char out[PATH_SIZE];
    struct rlimit old, small;
    snprintf(out, sizeof(out), "%s/out", f->folder);
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){20000, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 0; i < 2; i++) {
        enum tern_status st = tern_convert(f->ctx, i ? FORMATS "mini.safetensors" : FORMATS "mini", out, NULL);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(st, TERN_E_IO);
        support_error(f->ctx, TERN_E_IO, "could not be written: File too large");
        assert_int_equal(convert_entries(f->folder), 2);
        setrlimit(RLIMIT_FSIZE, &small);
    }
    setrlimit(RLIMIT_FSIZE, &old);
}

static bool cancel(void *user) { return ++*(int *)user > 40; }

static void a_cancelled_job_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    char out[PATH_SIZE];
    int calls = 0;
    snprintf(out, sizeof(out), "%s/out", f->folder);
    struct tern_context *ctx =
        tern_context_create(&(struct tern_context_params){.device = "cpu", .threads = 1, .cancel = cancel, .user = &calls});
    assert_int_equal(tern_convert(ctx, FORMATS "mini.safetensors", out, NULL), TERN_E_CANCELLED);
    tern_context_destroy(&ctx);
    assert_int_equal(convert_entries(f->folder), 2);
}

/* Allocations of a conversion fail in turn, folder to file and back, with the same dtype and with another one. What is allocated for each
 * tensor is so often that one in seven is enough: another one of it each time. */
static void failed_allocations_are_reported(void **state)
{
    static const struct tern_convert_params same = {.change_dtype = false}, other = {.change_dtype = true, .dtype = TERN_BF16};
    static const struct {
        const char *model;
        const struct tern_convert_params *params;
    } rows[] = {{FORMATS "mini", &same}, {FORMATS "mini.safetensors", &other}, {FORMATS "mini.ckpt", &same}};
    struct fixture *f = *state;
    struct support_allocator a = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&a)});
    char out[PATH_SIZE];
    convert_beside(f->folder, "out", out);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        enum tern_status st = TERN_E_NO_MEMORY;
        int failures = 0;
        const size_t used = tern_memory_used(ctx);
        for (long n = 1; st; n += n < 500 ? 1 : 7, failures++) {
            tern_memory_trim(ctx); /* what is kept for reuse takes no allocation */
            a.fail_at = a.count + n;
            st = tern_convert(ctx, rows[i].model, out, rows[i].params);
            a.fail_at = 0;
            if (st && st != TERN_E_NO_MEMORY)
                fail_msg("%s, allocation %ld: %s", rows[i].model, n, tern_error(ctx));
            tern_error_clear(ctx);
            assert_int_equal(convert_entries(f->folder), st ? 2 : 3);
            tern_memory_trim(ctx);
            assert_int_equal(tern_memory_used(ctx), used);
        }
        assert_true(failures > 800);
        print_message("%s: %d allocations failed in turn\n", rows[i].model + strlen(FORMATS), failures);
        damage_remove(out);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(a.live, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back_are_the_same_bytes),
        cmocka_unit_test(pictures_are_the_same),
        cmocka_unit_test(what_is_predicted_is_kept),
        cmocka_unit_test(the_class_of_the_scheduler_is_kept),
        cmocka_unit_test(a_scheduler_of_python_is_read),
        cmocka_unit_test(a_refiner_stays_one),
        cmocka_unit_test(a_safety_checker_is_left_out),
        TEST(a_single_file_is_that_of_the_goldens),
        TEST(a_text_encoder_that_is_not_found_is_told),
        TEST(dtypes_are_rounded_to_nearest),
        TEST(the_tokenizer_that_is_written_is_the_one_inside),
        TEST(a_folder_that_was_left_half_written_does_not_matter),
        TEST(a_full_disk_leaves_nothing),
        TEST(a_cancelled_job_leaves_nothing),
        TEST(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
