/* Components on the CPU beside a GPU: they give the bits of a CPU, the others those of the device, and predictions hold. The argument is
 * the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "lora_help.h"
#include "model_help.h"
#include "room_help.h"
#include "support.h"

static const struct lora_spec lora[] = {{"a-kohya.safetensors", 0.8, NULL, 0}};

static struct tern_context *open_cpu(void)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2, .cache_dir = room_cache});
    assert_non_null(ctx);
    return ctx;
}

static struct tern_pipeline *load(struct tern_context *ctx, const char *model, const char *on_cpu, enum tern_dtype dtype)
{
    char path[PATH_SIZE];
    const struct tern_pipeline_params params = {.on_cpu = on_cpu, .dtype = dtype};
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path(model, path), &params);
    if (!p)
        fail_msg("%s", tern_error(ctx));
    return p;
}

/* A job from a text, or from a picture; its latents, and the picture. */
struct made {
    float *latents;
    int64_t n;
    struct tern_images *images;
};

static struct made paint(struct tern_context *ctx, struct tern_pipeline *p, struct tern_image *from, bool cached)
{
    const struct tern_txt2img_params q = {.prompt = "a boat",
                                          .negative_prompt = "rain",
                                          .width = 64,
                                          .height = 48,
                                          .steps = 4,
                                          .seed = 3,
                                          .sampler = TERN_SAMPLER_DDIM,
                                          .init_image = from,
                                          .cache_interval = cached ? 2 : 0};
    size_t predicted = 0;
    assert_int_equal(tern_generate_check(p, &q, &predicted), TERN_OK);
    tern_memory_reset_peak(ctx);
    struct made m = {.images = tern_generate(p, &q)};
    if (!m.images)
        fail_msg("%s", tern_error(ctx));
    print_message("predicted %zu, measured %zu\n", predicted, tern_memory_peak(ctx));
    assert_true(tern_memory_peak(ctx) <= predicted);
    m.latents = support_values(tern_images_latents(m.images), &m.n);
    return m;
}

static void close_made(struct made *m)
{
    free(m->latents);
    tern_images_destroy(&m->images);
}

static void same_bits(const struct made *a, const struct made *b)
{
    const struct tern_image *x = tern_images_at(a->images, 0), *y = tern_images_at(b->images, 0);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->latents, b->latents, (size_t)a->n * sizeof(float));
    assert_memory_equal(tern_image_data(x), tern_image_data(y), (size_t)(3 * tern_image_width(x) * tern_image_height(x)));
}

/* The plans that jobs have left lie where they should. */
static int plans_on_cpu(const struct tern_pipeline *p, const char *names)
{
    int found = 0;
    for (int i = 0; i < TERN_MAX_PLANNED; i++) {
        const struct tern_planned *e = &p->planned[i];
        if (!e->plan)
            continue;
        char name[32], all[80];
        snprintf(name, sizeof(name), ",%.*s,", !strncmp(e->stage.component, "vae", 3) ? 3 : 29, e->stage.component);
        snprintf(all, sizeof(all), ",%s,", names);
        const bool here = strstr(all, name);
        assert_ptr_equal(e->plan->device, here ? p->ctx->host : p->ctx->own);
        found += here;
    }
    assert_ptr_equal(p->ctx->device, p->ctx->own);
    return found;
}

/* All of a model: the bits of a context of the CPU, in every kind of job, and no weight on the device. */
static void all_on_the_cpu(void **state)
{
    static const char names[] = "text_encoder,text_encoder_2,unet,vae";
    static const char *const models[] = {"sd1", "sdxl"};
    struct tern_context *gpu = room_open(0, NULL), *cpu = open_cpu();
    for (int i = 0; i < 2; i++) {
        struct tern_pipeline *a = load(gpu, models[i], names, TERN_F32), *b = load(cpu, models[i], NULL, TERN_F32);
        for (int job = 0; job < 3; job++) {
            struct made first = paint(cpu, b, NULL, job == 1), x, y;
            struct tern_image *from = job == 2 ? tern_images_at(first.images, 0) : NULL;
            x = paint(gpu, a, from, job == 1);
            y = paint(cpu, b, from, job == 1);
            same_bits(&x, &y);
            close_made(&x);
            close_made(&y);
            close_made(&first);
        }
        assert_true(plans_on_cpu(a, names) >= 3);
        size_t at[2];
        room_count_weights(gpu, at);
        assert_int_equal(at[0] + at[1], 0);
        tern_pipeline_destroy(&a);
        tern_pipeline_destroy(&b);
    }
    /* what is f16 elsewhere is f32 there */
    struct tern_pipeline *a = load(gpu, "sd1", names, TERN_F16), *b = load(cpu, "sd1", NULL, TERN_F32);
    struct made x = paint(gpu, a, NULL, true), y = paint(cpu, b, NULL, true);
    same_bits(&x, &y);
    close_made(&x);
    close_made(&y);
    tern_pipeline_destroy(&a);
    tern_pipeline_destroy(&b);
    tern_context_destroy(&gpu);
    tern_context_destroy(&cpu);
}

/* Any components: the same picture but for other sums. */
static void any_components(void **state)
{
    static const char *const places[] = {"text_encoder_2", "unet", "text_encoder,unet", "vae,text_encoder_2"};
    struct tern_context *gpu = room_open(0, NULL);
    struct tern_pipeline *plain = load(gpu, "sdxl", NULL, TERN_F32);
    struct made expected = paint(gpu, plain, NULL, false);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        struct tern_pipeline *p = load(gpu, "sdxl", places[i], TERN_F32);
        struct made m = paint(gpu, p, NULL, false);
        assert_true(support_nmse(m.latents, expected.latents, m.n) < 1e-8);
        assert_true(plans_on_cpu(p, places[i]) >= 1);
        close_made(&m);
        tern_pipeline_destroy(&p);
    }
    close_made(&expected);
    tern_pipeline_destroy(&plain);
    tern_context_destroy(&gpu);
}

/* A plan of the device runs while another thread's calls go to the CPU, or a callback's. */
static void plans_run_where_they_are(void **state)
{
    room_compute_expected();
    struct tern_context *ctx = room_open(0, NULL);
    struct room_unet u = room_open_unet(ctx);
    struct tern_device *former = tern_device_go(ctx, ctx->host);
    for (int run = 0; run < 3; run++) /* plain, captured, replayed */
        room_expect_bits(&u);
    tern_device_go(ctx, former);
    room_close_unet(&u);
    tern_context_destroy(&ctx);
}

/* Text encoders and VAE: with LoRAs, too, and again without. */
static void ends_on_the_cpu(void **state)
{
    static const char names[] = "text_encoder,vae";
    struct tern_context *gpu = room_open(0, NULL);
    struct tern_pipeline *a = load(gpu, "sd1", names, TERN_F32), *b = load(gpu, "sd1", NULL, TERN_F32);
    struct made before = paint(gpu, a, NULL, false), plain = paint(gpu, b, NULL, false);
    assert_true(support_nmse(before.latents, plain.latents, plain.n) < 1e-8);
    assert_int_equal(plans_on_cpu(a, names), 2);
    assert_int_equal(plans_on_cpu(b, ""), 0);
    for (int i = 0; i < 2; i++)
        lora_set(gpu, i ? b : a, lora, 1);
    struct made x = paint(gpu, a, NULL, false), y = paint(gpu, b, NULL, false);
    assert_true(support_nmse(x.latents, y.latents, y.n) < 1e-8);
    assert_true(support_nmse(x.latents, before.latents, y.n) > 1e-6); /* the LoRA counts */
    lora_set(gpu, a, NULL, 0);
    struct made after = paint(gpu, a, NULL, false);
    same_bits(&after, &before);
    close_made(&before);
    close_made(&plain);
    close_made(&x);
    close_made(&y);
    close_made(&after);
    tern_pipeline_destroy(&a);
    tern_pipeline_destroy(&b);
    tern_context_destroy(&gpu);
}

/* tern_pipeline_exec goes there, too; what is computed in f16 is f32 there. */
static void exec_gives_the_bits_of_the_cpu(void **state)
{
    struct tern_context *gpu = room_open(0, NULL), *cpu = open_cpu();
    struct tern_pipeline *a = load(gpu, "sd1", "text_encoder", TERN_F16), *b = load(cpu, "sd1", NULL, TERN_F32);
    const int64_t shape[] = {1, 32};
    int64_t ids[32];
    struct tern_weights *out[2];
    for (int i = 0; i < 32; i++)
        ids[i] = i % 40;
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = i ? cpu : gpu;
        struct tern_weights *in = tern_weights_create(ctx);
        tern_tensor *t = tern_tensor_create(ctx, TERN_I64, 2, shape, ids);
        tern_weights_add(in, "input_ids", t);
        tern_tensor_unref(&t);
        out[i] = model_exec(i ? b : a, "text_encoder", in);
        tern_weights_unref(&in);
    }
    int64_t n, m;
    float *x = support_values(tern_weights_get(out[0], "last_hidden_state"), &n),
          *y = support_values(tern_weights_get(out[1], "last_hidden_state"), &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, (size_t)n * sizeof(float));
    free(x);
    free(y);
    tern_weights_unref(&out[0]);
    tern_weights_unref(&out[1]);
    tern_pipeline_destroy(&a);
    tern_pipeline_destroy(&b);
    tern_context_destroy(&gpu);
    tern_context_destroy(&cpu);
}

/* How a job lives where the device has `room` and nothing of the host's memory (0: as it is), and what it is to take. */
struct life {
    bool tiles, streams, held; /* held: by the room */
    size_t all, device;
};

static struct life choose(const char *on_cpu, size_t room)
{
    struct tern_job j;
    struct life l;
    const struct tern_txt2img_params q = {.prompt = "x", .width = 256, .height = 256, .steps = 1};
    struct tern_context *ctx = room_open(0, NULL);
    struct tern_pipeline *p = load(ctx, "demo", on_cpu, TERN_F32);
    struct tern_job_peak peak;
    if (room) {
        ctx->own->caps.memory = room;
        ctx->own->caps.host_share = 0;
    }
    assert_int_equal(tern_job_prepare(&j, p, &q), TERN_OK);
    if (tern_job_choose_offload(&j, &l.all))
        fail_msg("%s", tern_error(ctx));
    l.tiles = j.arena;
    l.streams = j.resident;
    l.held = j.budget;
    j.by_device = true;
    assert_int_equal(tern_job_predict_peak(&j, &peak), TERN_OK);
    l.device = peak.most;
    tern_job_destroy(&j);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return l;
}

/* The VAE is the largest: on the CPU it takes nothing of the device's room, and so stays whole. */
static void the_room_is_the_devices(void **state)
{
    const struct life free = choose("text_encoder,vae", 0);
    print_message("%zu bytes, %zu of them on the device\n", free.all, free.device);
    assert_true(free.device < free.all && !free.held);
    const size_t room = free.device + (64 << 10);
    const struct life beside = choose("text_encoder,vae", room), alone = choose(NULL, room);
    assert_true(!beside.held && !beside.tiles && !beside.streams);
    assert_true(alone.held && alone.tiles);
    const struct life little = choose("text_encoder,vae", free.device - (free.device >> 3)); /* the UNet has less than it takes */
    assert_true(little.held && little.streams);
}

static void other_names_are_refused(void **state)
{
    static const char *const names[] = {"clip", "text_encoder,,vae", "vae,unet2", ",", "VAE", "vae,", ""};
    char path[PATH_SIZE];
    struct tern_context *ctx = open_cpu();
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        assert_null(tern_pipeline_load(ctx, model_path("sd1", path), &(struct tern_pipeline_params){.on_cpu = names[i]}));
        support_error(ctx, TERN_E_INVALID, "on_cpu: expected text_encoder, text_encoder_2, unet and vae");
    }
    struct tern_pipeline *p = load(ctx, "sd1", "vae,text_encoder_2", TERN_F32);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(int argc, char **argv)
{
    room_device = argc > 1 ? argv[1] : "opencl";
    const struct CMUnitTest tests[] = {
        ROOM_CASE(all_on_the_cpu),
        ROOM_CASE(any_components),
        ROOM_CASE(plans_run_where_they_are),
        ROOM_CASE(ends_on_the_cpu),
        ROOM_CASE(exec_gives_the_bits_of_the_cpu),
        ROOM_CASE(the_room_is_the_devices),
        ROOM_CASE(other_names_are_refused),
    };
    return cmocka_run_group_tests_name("place", tests, room_group_setup, room_group_teardown);
}
