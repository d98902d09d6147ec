/* What the system counts as resident while a picture is made whose text encoder is by far the largest part: it is there while prompts are
 * read, and gone before sampling begins; streamed, it never is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/files.h"
#include "core/tensor.h"
#include "model_help.h"
#include "support.h"

#define WIDE 200000                                             /* of the layers between; 40 on their other sides */
#define WEIGHTS ((size_t)6 * WIDE * 40 * sizeof(float))         /* two matrices in each of three layers */
#define ACTIVATIONS ((size_t)2 * 2 * 32 * WIDE * sizeof(float)) /* of two texts: a result, and what is made of it */

static size_t resident(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_true(f && fscanf(f, "%*d %ld", &pages) == 1);
    fclose(f);
    return (size_t)(pages * sysconf(_SC_PAGESIZE));
}

/* Its configuration with the wider layers. */
static void write_config(struct tern_context *ctx, const char *from, const char *to)
{
    static const char key[] = "\"intermediate_size\": ";
    char *text = tern_read_file(ctx, from, 1 << 16, NULL), *at = text ? strstr(text, key) : NULL;
    FILE *f = fopen(to, "w");
    assert_true(at && f);
    fprintf(f, "%.*s%s%d%s", (int)(at - text), text, key, WIDE, at + strlen(key) + strspn(at + strlen(key), "0123456789"));
    fclose(f);
    tern_free(ctx, text);
}

/* Its weights: small, and not all the same. */
static tern_tensor *widen(struct tern_context *ctx, const tern_tensor *t, bool first)
{
    const int64_t n = tern_tensor_ndim(t) == 1 ? WIDE : (int64_t)WIDE * 40;
    const int64_t shape[] = {tern_tensor_ndim(t) == 1 || first ? WIDE : 40, first ? 40 : WIDE};
    float *values = malloc((size_t)n * sizeof(*values));
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)(i % 17 - 8) * 1e-4f;
    tern_tensor *wide = tern_tensor_create(ctx, TERN_F32, tern_tensor_ndim(t), shape, values);
    free(values);
    return wide;
}

static void write_weights(struct tern_context *ctx, const char *from, const char *to)
{
    struct tern_weights *old = tern_weights_open(ctx, from), *new = tern_weights_create(ctx);
    for (int64_t i = 0; i < tern_weights_count(old); i++) {
        const char *name = tern_weights_name(old, i);
        const bool first = strstr(name, "mlp.fc1") != NULL, wide = first || strstr(name, "mlp.fc2.weight");
        tern_tensor *t = wide ? widen(ctx, tern_weights_at(old, i), first) : tern_tensor_ref(tern_weights_at(old, i));
        assert_int_equal(tern_weights_add(new, name, t), TERN_OK);
        tern_tensor_unref(&t);
    }
    assert_int_equal(tern_weights_save(new, to), TERN_OK);
    tern_weights_unref(&old);
    tern_weights_unref(&new);
}

/* sd1 with another text encoder. */
static void write_model(char folder[PATH_SIZE])
{
    static const char *const same[] = {"model_index.json", "scheduler", "tokenizer", "unet", "vae"};
    char path[PATH_SIZE], from[2 * PATH_SIZE], to[2 * PATH_SIZE];
    const char *tmp = getenv("TMPDIR");
    struct tern_context *ctx = tern_context_create(NULL);
    model_path("sd1", path);
    snprintf(folder, PATH_SIZE, "%s/tern-resident-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
        snprintf(from, sizeof(from), "%s/%s", path, same[i]);
        snprintf(to, sizeof(to), "%s/%s", folder, same[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    snprintf(to, sizeof(to), "%s/text_encoder", folder);
    assert_int_equal(mkdir(to, 0700), 0);
    snprintf(from, sizeof(from), "%s/text_encoder/config.json", path);
    snprintf(to, sizeof(to), "%s/text_encoder/config.json", folder);
    write_config(ctx, from, to);
    snprintf(from, sizeof(from), "%s/text_encoder/model.safetensors", path);
    snprintf(to, sizeof(to), "%s/text_encoder/model.safetensors", folder);
    write_weights(ctx, from, to);
    tern_context_destroy(&ctx);
}

static void remove_model(const char *folder)
{
    static const char *const names[] = {"text_encoder/config.json",
                                        "text_encoder/model.safetensors",
                                        "text_encoder",
                                        "model_index.json",
                                        "scheduler",
                                        "tokenizer",
                                        "unet",
                                        "vae",
                                        ""};
    char path[2 * PATH_SIZE];
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(remove(path), 0);
    }
}

/* Resident bytes: before, the most while the text encoder runs, when sampling begins, the most from then on; of two jobs the more. */
struct watch {
    size_t before, text, sampling, after;
};

static void watch_progress(const struct tern_progress *p, void *user)
{
    struct watch *w = user;
    const size_t now = resident();
    if (!strcmp(p->stage, "sample") && !w->sampling)
        w->sampling = now;
    if (w->sampling && now > w->after)
        w->after = now;
}

static void watch_kernels(const char *component, const struct tern_step_profile *step, void *user)
{
    struct watch *w = user;
    const size_t now = resident();
    if (!strcmp(component, "text_encoder") && now > w->text)
        w->text = now;
}

static struct watch paint(const char *folder, enum tern_offload text, size_t budget, struct tern_images **images)
{
    struct watch w = {0};
    struct tern_context *ctx =
        tern_context_create(&(struct tern_context_params){.threads = 2, .budget = budget, .progress = watch_progress, .user = &w});
    struct tern_pipeline *p = tern_pipeline_load(ctx, folder, &(struct tern_pipeline_params){.offload_components.text_encoder = text});
    struct tern_device_peak peak;
    assert_int_equal(tern_device_peak(ctx, &peak), TERN_OK); /* takes memory for a moment */
    w.before = resident();
    const struct tern_txt2img_params q = {
        .prompt = "a", .width = 64, .height = 64, .steps = 2, .seed = 3, .on_kernel = watch_kernels, .on_kernel_user = &w};
    *images = p ? tern_generate(p, &q) : NULL;
    const struct watch first = w;
    w = (struct watch){.before = first.before};
    struct tern_images *again = *images ? tern_generate(p, &q) : NULL; /* with all plans and what is still bound */
    if (!again)
        fail_msg("%s", tern_error(ctx));
    tern_images_destroy(&again);
    w.text = first.text > w.text ? first.text : w.text;
    w.sampling = first.sampling > w.sampling ? first.sampling : w.sampling;
    w.after = first.after > w.after ? first.after : w.after;
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    print_message("%.1f MiB before, %.1f while prompts are read, %.1f when sampling begins, %.1f at most then\n",
                  (double)w.before / (1 << 20), (double)w.text / (1 << 20), (double)w.sampling / (1 << 20), (double)w.after / (1 << 20));
    return w;
}

static bool same(const struct tern_images *a, const struct tern_images *b)
{
    const tern_tensor *x = tern_images_latents(a), *y = tern_images_latents(b);
    return !memcmp(tern_tensor_host(x), tern_tensor_host(y), (size_t)tern_tensor_numel(x) * sizeof(float));
}

static void the_text_encoder_leaves(void **state)
{
    const size_t slack = 16 << 20;
    char folder[PATH_SIZE];
    struct tern_images *expected, *images;
    write_model(folder);
    struct watch w = paint(folder, TERN_OFFLOAD_AUTO, 0, &expected);
    assert_true(w.text > w.before + WEIGHTS * 9 / 10);
    assert_true(w.sampling < w.before + slack && w.after < w.before + slack);
    w = paint(folder, TERN_OFFLOAD_NONE, 0, &images); /* stays */
    assert_true(w.sampling > w.before + WEIGHTS * 9 / 10);
    assert_true(same(images, expected));
    tern_images_destroy(&images);
    for (int i = 0; i < 2; i++) { /* as it is told, and as the budget says */
        const size_t budget = (WEIGHTS + ACTIVATIONS) / 4 * 3;
        w = paint(folder, i ? TERN_OFFLOAD_AUTO : TERN_OFFLOAD_STREAM, i ? budget : 0, &images);
        assert_true(w.text < w.before + WEIGHTS / 3 + ACTIVATIONS);
        assert_true(w.sampling < w.before + slack && w.after < w.before + slack);
        assert_true(same(images, expected));
        tern_images_destroy(&images);
    }
    tern_images_destroy(&expected);
    remove_model(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_text_encoder_leaves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
