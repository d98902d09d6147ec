/* LoRAs: the same outputs as diffusers for every form of file, weights that come back bit by bit, and bad files. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

static const struct tern_lora_strength blocks[] = {
    {"text_encoder", 0.25}, {"down", 0.5}, {"mid", 0}, {"up.1.0", 0.1}, {"up.1.1", 2}, {"up.1.2", -1}, {"up.2", 1.5},
};

#define BOTH                   \
    {                          \
        "unet", "text_encoder" \
    }
#define UNET   \
    {          \
        "unet" \
    }

/* The cases of tools/goldens/lora.py. */
static const struct lora_case f32_cases[] =
    {
        {"a-0.7", {{"a.safetensors", 0.7}}, BOTH},
        {"a-0.7", {{"a-kohya.safetensors", 0.7}}, BOTH},
        {"a-0.7", {{"a-ldm.safetensors", 0.7}}, BOTH},
        {"a-0.7", {{"a-old.bin", 0.7}}, BOTH},
        {"a-0.7", {{"a.safetensors", 0.4}, {"a-kohya.safetensors", 0.3}}, BOTH}, /* the same matrices twice */
        {"a-negative", {{"a.safetensors", -1.5}}, BOTH},
        {"conv-1", {{"conv.safetensors", 1}}, UNET},
        {"a-and-conv", {{"a.safetensors", 0.6}, {"conv.safetensors", 0.9}}, UNET},
        {"a-and-conv", {{"conv.safetensors", 0.9}, {"a-kohya.safetensors", 0.6}}, UNET},
        {"a-blocks", {{"a.safetensors", 1, blocks, 7}}, BOTH},
        {"mid-0.8", {{"mid.safetensors", 0.8}}, UNET},
},
                              f16_cases[] = {
                                  {"a-0.7-f16", {{"a.safetensors", 0.7}}, BOTH},
};

static void outputs_are_those_of_diffusers(void **state)
{
    char folder[PATH_SIZE];
    lora_wide_model("sd1", folder);
    lora_check_cases(folder, "lora", f32_cases, sizeof(f32_cases) / sizeof(*f32_cases));
    damage_remove(folder);
}

/* In a model of f16 the sums are rounded to f16, once. */
static void f16_models_get_f16(void **state)
{
    char path[PATH_SIZE];
    lora_check_cases(model_path("sd1", path), "lora", f16_cases, 1);
}

static void hundred_changes_leave_nothing(void **state)
{
    static const struct lora_spec all[] = {
        {"a.safetensors", 1}, {"conv.safetensors", 1}, {"a-kohya.safetensors", 1}, {"mid.safetensors", 1}};
    char path[PATH_SIZE];
    lora_leaves_nothing(model_path("sd1", path), all, 4, 100);
}

/* Tensors that the file names are new, all others are the very same. */
static void untouched_tensors_are_shared(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    tern_tensor *before[512];
    const struct tern_weights *w = tern_pipeline_weights(p, "unet");
    int64_t n = tern_weights_count(w), changed = 0;
    assert_true(n > 0 && n < 512);
    for (int64_t i = 0; i < n; i++)
        before[i] = tern_tensor_ref(tern_weights_at(w, i));
    lora_set(ctx, p, (struct lora_spec[]){{"a.safetensors", 0.5, blocks, 3}}, 1); /* mid: 0 */
    w = tern_pipeline_weights(p, "unet");
    assert_int_equal(tern_weights_count(w), n);
    for (int64_t i = 0; i < n; i++) {
        const char *name = tern_weights_name(w, i);
        bool named = (strstr(name, ".attn1.to_q.") || strstr(name, ".attn1.to_out.0.weight") || strstr(name, ".attn2.to_k.") ||
                      strstr(name, ".attn2.to_v.") || strstr(name, ".ff.net.2.weight")) &&
                     strncmp(name, "mid_block.", 10);
        assert_int_equal(tern_weights_at(w, i) != before[i], named);
        changed += named;
    }
    assert_int_equal(changed, 5 * 10);
    lora_set(ctx, p, (struct lora_spec[]){{"a.safetensors", 0}}, 1);
    w = tern_pipeline_weights(p, "unet");
    for (int64_t i = 0; i < n; i++) {
        assert_ptr_equal(tern_weights_at(w, i), before[i]);
        tern_tensor_unref(&before[i]);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* A file is read once, as long as it stays in the list and is not written. */
static void scales_read_nothing(void **state)
{
    char folder[PATH_SIZE], path[2 * PATH_SIZE], name[] = "lora.safetensors";
    struct stat st;
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    lora_temporary(folder);
    lora_copy("conv.safetensors", folder, name);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){.path = path, .scale = 1}, 1), TERN_OK);
    assert_int_equal(stat(path, &st), 0);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\0\0\0\0\0\0\0\1", 8, 0), 8); /* no file that could be read again */
    assert_int_equal(futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim}), 0);
    assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){.path = path, .scale = 0.5}, 1), TERN_OK);
    assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){.path = path, .scale = 0}, 1), TERN_OK);
    assert_int_equal(futimens(fd, (struct timespec[]){{1, 0}, {1, 0}}), 0);
    assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){.path = path, .scale = 1}, 1), TERN_E_FORMAT);
    tern_error_clear(ctx);
    close(fd);
    damage_remove(folder);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static void try_inside(int step, int steps, const float *latents, int64_t count, void *user)
{
    struct tern_pipeline *p = user;
    struct tern_context *ctx = tern_tensor_context(tern_weights_at(tern_pipeline_weights(p, "unet"), 0));
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "between jobs");
}

/* Pictures: the text encoder is dropped and made again with its LoRAs; the infotext names them; not during a job. */
static void pictures_have_them(void **state)
{
    char path[PATH_SIZE];
    float *first = NULL, *second = NULL, *plain = NULL;
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_txt2img_params q = {.prompt = "a cat", .steps = 2, .cfg = 2, .on_step = try_inside, .on_step_user = p};
    char *text = NULL;
    int64_t n = 0;
    plain = lora_latents(ctx, p, &q, &n, &text);
    assert_null(strstr(text, "lora"));
    free(text);
    lora_set(ctx, p, (struct lora_spec[]){{"a.safetensors", 0.75}, {"conv.safetensors", 0}}, 2);
    first = lora_latents(ctx, p, &q, &n, &text);
    assert_non_null(strstr(text, "a cat <lora:a:0.75>\n"));
    assert_null(strstr(text, "conv"));
    free(text);
    second = lora_latents(ctx, p, &q, &n, &text);
    free(text);
    assert_memory_equal(first, second, (size_t)n * sizeof(float));
    assert_true(support_nmse(first, plain, n) > 1e-3);
    lora_set(ctx, p, (struct lora_spec[]){{"a.safetensors", 0.7}}, 1);
    for (int i = 0; i < 2; i++) /* it was dropped; made anew in the scope of the first call */
        assert_true(lora_error(ctx, p, "lora", "text_encoder", "a-0.7-f16") <= LORA_LIMIT);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    free(first);
    free(second);
    free(plain);
}

/* A tag in the infotext is read up to the next ':' or '>'; it has the scales that a tag can say. */
static void tags_can_be_read_back(void **state)
{
    char model[PATH_SIZE], folder[PATH_SIZE], path[2 * PATH_SIZE];
    (void)state;
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", model));
    lora_temporary(folder);
    lora_copy("mid.safetensors", folder, "a:b<c>d\n.e.safetensors");
    snprintf(path, sizeof(path), "%s/a:b<c>d\n.e.safetensors", folder);
    const struct tern_lora_strength two[] = {{"text_encoders", 0.5}, {"unet", 0.75}}, turned[] = {{"unet", 0.75}, {"text_encoders", 0.5}},
                                    more[] = {{"text_encoders", 0.5}, {"down", 0.75}};
    const struct tern_lora loras[] = {{.path = path, .scale = 0.5}, {path, 0.25},      {path, 2, two, 2}, {path, 2, turned, 2},
                                      {path, 2, two + 1, 1},        {path, 4, two, 1}, {path, 2, more, 2}};
    assert_int_equal(tern_pipeline_set_loras(p, loras, 7), TERN_OK);
    char *text = tern_pipeline_lora_text(p);
    assert_string_equal(text, " <lora:a_b_c_d_.e:0.5> <lora:a_b_c_d_.e:0.25> <lora:a_b_c_d_.e:1:1.5> <lora:a_b_c_d_.e:1:1.5>"
                              " <lora:a_b_c_d_.e:2:1.5> <lora:a_b_c_d_.e:2:4> <lora:a_b_c_d_.e:2>");
    tern_free_text(ctx, text);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* Each allocation of a change fails once: a status, and the pipeline is as it was. */
static void no_memory_changes_nothing(void **state)
{
    char path[PATH_SIZE];
    struct support_allocator memory = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&memory)});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1-inpaint", path));
    struct lora_print *before = lora_print(ctx, p);
    const struct lora_spec list[] = {{"inpaint", 1, blocks, 2}};
    char folder[PATH_SIZE], file[2 * PATH_SIZE];
    lora_temporary(folder);
    snprintf(file, sizeof(file), "%s/x.safetensors", folder);
    lora_synthesise(ctx, p, file);
    const struct tern_lora lora = {file, 1, list[0].blocks, list[0].n_blocks};
    int failures = 0;
    for (long at = 1;; at++) {
        tern_memory_trim(ctx); /* so that what is kept for reuse does not hide a place */
        memory.count = 0;
        memory.fail_at = at;
        enum tern_status st = tern_pipeline_set_loras(p, &lora, 1);
        memory.fail_at = 0;
        if (st == TERN_OK)
            break;
        assert_int_equal(st, TERN_E_NO_MEMORY);
        tern_error_clear(ctx);
        failures++;
        if (at % 16 == 1) {
            struct lora_print *now = lora_print(ctx, p);
            assert_true(lora_print_same(before, now));
            lora_print_free(&now);
        }
    }
    print_message("%d allocations failed\n", failures);
    assert_true(failures > 100);
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
    struct lora_print *after = lora_print(ctx, p);
    assert_true(lora_print_same(before, after));
    lora_print_free(&before);
    lora_print_free(&after);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    damage_remove(folder);
    assert_int_equal(memory.live, 0);
}

#define IDS 32 /* of sd1's text encoder; 3 layers give 5 outputs */

/* last_hidden_state by a plan with the pipeline's weights of now; free(). */
static float *run_plan(struct tern_context *ctx, struct tern_pipeline *p, struct tern_plan *plan, tern_tensor *ids, int64_t *n)
{
    tern_tensor *out[5] = {NULL};
    struct tern_binding *b = tern_plan_bind(plan, tern_pipeline_weights(p, "text_encoder"));
    if (!b || tern_plan_run(b, &ids, out))
        fail_msg("%s", tern_error(ctx));
    *n = tern_tensor_numel(out[0]);
    float *values = malloc((size_t)*n * sizeof(*values));
    assert_int_equal(tern_tensor_read(out[0], TERN_F32, values, (size_t)*n * sizeof(*values)), TERN_OK);
    for (int i = 0; i < 5; i++)
        tern_tensor_unref(&out[i]);
    tern_binding_unref(&b);
    return values;
}

/* One compiled plan serves the model with and without LoRAs. */
static void a_plan_takes_derived_sets(void **state)
{
    char path[PATH_SIZE];
    int64_t values[IDS], n = 0, m = 0;
    for (int i = 0; i < IDS; i++)
        values[i] = 3 * i % 40;
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_graph *g = tern_pipeline_graph(p, "text_encoder", NULL);
    struct tern_plan *plan = g ? tern_plan_compile(g, NULL) : NULL;
    if (!plan)
        fail_msg("%s", tern_error(ctx));
    tern_graph_destroy(&g);
    tern_tensor *ids = tern_tensor_create(ctx, TERN_I64, 2, (const int64_t[]){1, IDS}, values);
    struct tern_weights *in = tern_weights_create(ctx);
    assert_int_equal(tern_weights_add(in, "input_ids", ids), TERN_OK);
    float *before = run_plan(ctx, p, plan, ids, &n);
    lora_set(ctx, p, (struct lora_spec[]){{"a.safetensors", 0.7}}, 1);
    float *with = run_plan(ctx, p, plan, ids, &n);
    struct tern_weights *out = model_exec(p, "text_encoder", in);
    float *want = support_f32(out, "last_hidden_state", &m);
    assert_int_equal(n, m);
    assert_true(support_nmse(with, want, n) <= 1e-10);
    assert_true(support_nmse(before, want, n) > 1e-3);
    lora_set(ctx, p, NULL, 0);
    float *after = run_plan(ctx, p, plan, ids, &n);
    assert_memory_equal(before, after, (size_t)n * sizeof(float));
    float *all[] = {before, with, want, after};
    for (int i = 0; i < 4; i++)
        free(all[i]);
    tern_weights_unref(&out);
    tern_weights_unref(&in);
    tern_tensor_unref(&ids);
    tern_plan_unref(&plan);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

struct stop {
    struct tern_context *ctx;
    struct tern_pipeline *p;
    int asked, at; /* stop when asked for that time; 0: never */
};

static bool stop_at(void *user)
{
    struct stop *s = user;
    if (!s->p)
        return false;
    assert_int_equal(tern_pipeline_set_loras(s->p, NULL, 0), TERN_E_INVALID); /* a call inside of the call */
    tern_error_clear(s->ctx);
    return ++s->asked == s->at;
}

/* A cancel at any op of a change: the status, and the pipeline is as it was. */
static void cancel_changes_nothing(void **state)
{
    char path[PATH_SIZE], file[PATH_SIZE];
    struct stop s = {NULL, NULL, 0, 0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = stop_at, .user = &s});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct lora_print *before = lora_print(ctx, p);
    snprintf(file, sizeof(file), "%s/lora/mid.safetensors", TERN_TEST_DATA);
    const struct tern_lora lora = {.path = file, .scale = 1};
    s.ctx = ctx;
    do {
        s.p = p;
        s.asked = 0;
        s.at++;
        enum tern_status st = tern_pipeline_set_loras(p, &lora, 1);
        s.p = NULL;
        assert_int_equal(st, s.asked < s.at ? TERN_OK : TERN_E_CANCELLED);
        tern_error_clear(ctx);
        struct lora_print *now = lora_print(ctx, p);
        assert_int_equal(lora_print_same(before, now), st != TERN_OK);
        lora_print_free(&now);
    } while (s.asked == s.at);
    assert_true(s.at > 20);
    lora_print_free(&before);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* The memory of a job is predicted with what LoRAs made, whether the text encoder is there or not. */
static void memory_is_predicted(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    const struct tern_txt2img_params q = {.prompt = "a cat", .steps = 1, .width = 256, .height = 256}; /* tensors outweigh plans */
    lora_set(ctx, p, (struct lora_spec[]){{"a.safetensors", 1}, {"conv.safetensors", 1}}, 2);
    for (int i = 0; i < 2; i++) {
        size_t predicted = 0;
        assert_int_equal(tern_generate_check(p, &q, &predicted), TERN_OK);
        tern_memory_trim(ctx);
        tern_memory_reset_peak(ctx);
        struct tern_images *images = tern_generate(p, &q);
        assert_non_null(images);
        double off = (double)tern_memory_peak(ctx) / (double)predicted - 1;
        print_message("predicted %zu, measured %+.2f %%\n", predicted, 100 * off);
        assert_true(fabs(off) < 0.03);
        tern_images_destroy(&images);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* A caller's open scope owns nothing of the pipeline. */
static void scopes_do_not_matter(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct lora_print *before = lora_print(ctx, p);
    tern_scope_begin(ctx);
    lora_set(ctx, p, (struct lora_spec[]){{"a.safetensors", 0.7}}, 1);
    tern_scope_end(ctx, NULL);
    assert_true(lora_error(ctx, p, "lora", "unet", "a-0.7-f16") <= LORA_LIMIT);
    tern_scope_begin(ctx);
    lora_set(ctx, p, NULL, 0);
    tern_scope_end(ctx, NULL);
    struct lora_print *after = lora_print(ctx, p);
    assert_true(lora_print_same(before, after));
    lora_print_free(&before);
    lora_print_free(&after);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static void sets_derive(void **state)
{
    const int64_t two[] = {2}, three[] = {3};
    struct tern_context *ctx = support_context();
    tern_tensor *a = tern_tensor_create(ctx, TERN_F32, 1, two, (const float[]){1, 2}), *b = tern_tensor_create(ctx, TERN_F32, 1, two, NULL),
                *c = tern_tensor_create(ctx, TERN_F32, 1, three, NULL), *h = tern_tensor_create(ctx, TERN_F16, 1, two, NULL);
    struct tern_weights *base = tern_weights_create(ctx);
    tern_weights_add(base, "y", a);
    tern_weights_add(base, "x", b);
    struct tern_weights *same = tern_weights_derive(base, NULL, 0);
    assert_ptr_equal(same, base);
    tern_weights_unref(&same);
    struct tern_weights *w = tern_weights_derive(base, &(struct tern_weights_change){"y", b}, 1);
    assert_int_equal(tern_weights_count(w), 2);
    assert_ptr_equal(tern_weights_get(w, "x"), b);
    assert_ptr_equal(tern_weights_get(w, "y"), b);
    assert_ptr_equal(tern_weights_get(base, "y"), a);
    tern_weights_unref(&w);
    const struct {
        struct tern_weights_change change[2];
        int n;
        enum tern_status status;
        const char *part;
    } bad[] = {
        {{{"z", a}}, 1, TERN_E_NOT_FOUND, "\"z\""},
        {{{"x", c}}, 1, TERN_E_SHAPE, "expected (2,) f32, found (3,) f32"},
        {{{"x", h}}, 1, TERN_E_DTYPE, "expected (2,) f32, found (2,) f16"},
        {{{"x", a}, {"x", b}}, 2, TERN_E_INVALID, "changed twice"},
        {{{"x", NULL}}, 1, TERN_E_INVALID, "without a tensor"},
        {{{NULL, a}}, 1, TERN_E_INVALID, "without a name"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_null(tern_weights_derive(base, bad[i].change, bad[i].n));
        support_error(ctx, bad[i].status, bad[i].part);
    }
    assert_null(tern_weights_derive(base, NULL, 3));
    support_error(ctx, TERN_E_INVALID, "found 3 that are NULL");
    assert_null(tern_weights_derive(base, bad[0].change, -1));
    support_error(ctx, TERN_E_INVALID, "at least 0 changes, found -1");
    tern_tensor *all[] = {a, b, c, h};
    for (int i = 0; i < 4; i++)
        tern_tensor_unref(&all[i]);
    tern_weights_unref(&base);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_derive),
        cmocka_unit_test(outputs_are_those_of_diffusers),
        cmocka_unit_test(f16_models_get_f16),
        cmocka_unit_test(untouched_tensors_are_shared),
        cmocka_unit_test(hundred_changes_leave_nothing),
        cmocka_unit_test(scales_read_nothing),
        cmocka_unit_test(pictures_have_them),
        cmocka_unit_test(tags_can_be_read_back),
        cmocka_unit_test(scopes_do_not_matter),
        cmocka_unit_test(no_memory_changes_nothing),
        cmocka_unit_test(cancel_changes_nothing),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(a_plan_takes_derived_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
