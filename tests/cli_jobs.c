/* The command tern at work: pictures, events, latents, components, and jobs that end early. */
#include "cli.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tern/context.h>
#include <tern/image.h>
#include <tern/weights.h>

static void test_pictures_are_made(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "a cat", "-n", "a dog", "--steps", "2", "--seed", "7", "-W", "64", "-H", "48"), 0);
    assert_string_equal(s->out, "");
    expect_text(s->err, "seed 7", "standard error");
    expect_text(s->err, "out.png: 64 x 48", "standard error");
    assert_int_equal(files("."), 1);
    EXPECT(s,
           RUN(s, "txt2img", MODEL, "-p", "a cat", "-n", "a dog", "--steps", "2", "--seed", "7", "-W", "64", "-H", "48", "-q", "-o",
               "b.png"),
           0);
    assert_string_equal(s->err, "");
    assert_true(same_bytes("out.png", "b.png"));
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "a cat", "--steps", "2", "--seed", "8", "-W", "64", "-H", "48", "-q", "-o", "c.png"), 0);
    assert_false(same_bytes("out.png", "c.png"));
    EXPECT(s, RUN(s, "info", "out.png"), 0);
    expect_text(s->out, "64 x 48", "info");
    expect_text(s->out, "a cat\nNegative prompt: a dog\nSteps: 2,", "info");
    expect_text(s->out, "Seed: 7", "info");

    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "", "--steps", "1", "-b", "2", "-o", "many.JPG", "-q", "-W", "32", "-H", "32"), 0);
    assert_true(file_size("many-1.JPG") > 100 && file_size("many-2.JPG") > 100);
    assert_int_equal(files("."), 5);
}

static void test_events(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "a cat", "--steps", "3", "--seed", "5", "-b", "2", "-W", "32", "-H", "32", "--json"), 0);
    assert_string_equal(s->err, "");
    int starts = 0, steps = 0, images = 0, dones = 0;
    for (char *rest = NULL, *line = strtok_r(s->out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *event = json_loads(line, 0, NULL);
        assert_non_null(event);
        const char *kind = json_string_value(json_object_get(event, "event"));
        if (!strcmp(kind, "start")) {
            starts++;
            assert_int_equal(json_integer_value(json_object_get(event, "seed")), 5);
            assert_int_equal(json_integer_value(json_object_get(event, "steps")), 3);
        } else if (!strcmp(kind, "progress")) {
            const char *stage = json_string_value(json_object_get(event, "stage"));
            steps += !strcmp(stage, "sample") && json_integer_value(json_object_get(event, "done")) > 0;
        } else if (!strcmp(kind, "image")) {
            char path[32];
            snprintf(path, sizeof(path), "out-%d.png", ++images);
            assert_string_equal(json_string_value(json_object_get(event, "path")), path);
            assert_int_equal(json_integer_value(json_object_get(event, "seed")), 4 + images);
            expect_text(json_string_value(json_object_get(event, "parameters")), "a cat", "parameters");
            assert_true(file_size(path) > 0);
        } else if (!strcmp(kind, "done")) {
            dones++;
            assert_true(json_integer_value(json_object_get(event, "memory_peak")) > 10000);
        }
        json_decref(event);
    }
    assert_int_equal(starts, 1);
    assert_true(steps >= 3);
    assert_int_equal(images, 2);
    assert_int_equal(dones, 1);
}

/* Reads the shape of a tensor in a file and its first value. */
static float first_value(const char *path, const char *name, int64_t shape[4])
{
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_weights *w = tern_weights_open(ctx, path);
    if (!w)
        fail_msg("%s", tern_error(ctx));
    tern_tensor *t = tern_weights_get(w, name);
    assert_non_null(t);
    assert_int_equal(tern_tensor_ndim(t), 4);
    for (int i = 0; i < 4; i++)
        shape[i] = tern_tensor_size(t, i);
    size_t size = (size_t)tern_tensor_numel(t) * sizeof(float);
    float *values = malloc(size), first;
    assert_int_equal(tern_tensor_read(t, TERN_F32, values, size), TERN_OK);
    first = values[0];
    free(values);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
    return first;
}

/* --vae is used, and refused when it is another model's. */
static void test_a_vae_from_a_file(void **state)
{
#define GOLDEN TERN_TEST_DATA "/components/sd2/vae_decoder.square.safetensors"
#define EXEC "exec", MODEL, "vae_decoder", "--inputs", "in.safetensors", "--outputs", "out.safetensors", "-q"
    struct state *s = *state;
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_weights *golden = tern_weights_open(ctx, GOLDEN), *in = tern_weights_create(ctx);
    assert_int_equal(tern_weights_add(in, "latent", tern_weights_get(golden, "latent")), TERN_OK);
    assert_int_equal(tern_weights_save(in, "in.safetensors"), TERN_OK);
    tern_weights_unref(&in);
    tern_weights_unref(&golden);
    tern_context_destroy(&ctx);
    int64_t shape[4];
    float want = first_value(GOLDEN, "expected.sample", shape);
    EXPECT(s, RUN(s, EXEC), 0);
    assert_true(fabsf(first_value("out.safetensors", "sample", shape) - want) > 1e-3f);
    EXPECT(s, RUN(s, EXEC, "--vae", TERN_TEST_DATA "/models/sd2/vae/diffusion_pytorch_model.safetensors"), 0);
    assert_true(fabsf(first_value("out.safetensors", "sample", shape) - want) < 1e-4f);
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "x", "--vae", TERN_TEST_DATA "/models/sdxl/vae"), 1);
    expect_text(s->err, "a VAE for another architecture", "txt2img");
#undef EXEC
#undef GOLDEN
}

#define TAESD TERN_TEST_DATA "/taesd/vae"

/* Checks a profile: each component has a row, of which no bar begins before the one in front of it has ended. Which rows there are, as
 * bits. */
static unsigned rows_of_profile(const char *path)
{
    static const char *const components[] = {"text_encoder", "text_encoder_2", "unet", "vae_decoder", "preview_decoder"};
    double end[8] = {0};
    int row[5] = {0};
    size_t i;
    json_t *trace = json_load_file(path, 0, NULL), *bar;
    assert_true(json_array_size(trace) > 100);
    json_array_foreach(trace, i, bar) {
        const char *name = json_string_value(json_object_get(json_object_get(bar, "args"), "component"));
        const int tid = (int)json_integer_value(json_object_get(bar, "tid"));
        const double ts = json_number_value(json_object_get(bar, "ts"));
        assert_true(tid > 0 && tid < 8);
        for (int k = 0; k < 5; k++)
            row[k] = !strcmp(name, components[k]) ? tid : row[k];
        if (ts < end[tid] - 1)
            fail_msg("%s: a bar of %s at %g us, behind one that ends at %g us", path, name, ts, end[tid]);
        end[tid] = ts + json_number_value(json_object_get(bar, "dur"));
    }
    json_decref(trace);
    unsigned rows = 0;
    for (int k = 0; k < 5; k++) {
        for (int m = 0; m < k; m++)
            assert_true(!row[k] || row[k] != row[m]);
        rows |= row[k] ? 1u << k : 0;
    }
    return rows;
}

/* A preview of the last step by the decoder of the picture is the picture; a file that cannot be written ends no job. */
static void test_previews(void **state)
{
#define JOB "txt2img", MODEL, "-W", "48", "-H", "40", "--steps", "2", "--seed", "3", "-q", "-p", "x", "--sampler", "euler", "--cfg", "1"
    struct state *s = *state;
    EXPECT(s, RUN(s, JOB, "--vae", TAESD, "--save-latents", "plain", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, JOB, "--vae", TAESD, "--preview", "p:q.png:2", "--preview-vae", TAESD, "--save-latents", "shown", "-o", "b.png"), 0);
    assert_true(same_bytes("plain", "shown"));
    assert_true(file_size("p:q.png") > 1000);
    EXPECT(s, RUN(s, JOB, "-b", "2", "--preview", "r.png", "-o", "c.png"), 0);
    assert_true(file_size("r-1.png") > 0 && file_size("r-2.png") > 0);
    assert_int_equal(files("."), 9);
    EXPECT(s, RUN(s, JOB, "-b", "2", "--preview", "d.png", "-o", "d.png"), 2); /* both would be d-1.png and d-2.png */
    expect_text(s->err, "two outputs cannot have one name, d-1.png", "--preview");
    assert_int_equal(files("."), 9);
    EXPECT(s, RUN(s, JOB, "-b", "2", "--preview", "d-1.png", "-o", "d.png"), 0);
    assert_true(file_size("d-1-1.png") > 0 && file_size("d-1.png") > 0);
    assert_int_equal(files("."), 13);
    static const struct {
        const char *option, *value, *more, *message;
        int code;
    } rows[] = {
        {"--preview", "p.gif", NULL, "option --preview: expected a name that ends in .png", 2},
        {"--preview", "p.png:0", NULL, "option --preview: expected a whole number from 1 to 1000", 2},
        {"--preview", "absent/p.png", NULL, "absent/p.png: cannot be written", 1},
        {"--preview-vae", TAESD, NULL, "works with --preview only", 2},
        {"--preview-vae", "absent", "--preview=p.png", "absent: no such file or folder", 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        EXPECT(s, RUN(s, JOB, rows[i].option, rows[i].value, rows[i].more), rows[i].code);
        expect_text(s->err, rows[i].message, rows[i].option);
    }
    assert_int_equal(files("."), 13);
#undef JOB
}

static void write_noise(const char *path, int64_t count)
{
    struct tern_context *ctx = tern_context_create(NULL);
    float *noise = malloc((size_t)count * 4 * 6 * 8 * sizeof(float));
    for (int64_t i = 0; i < count * 4 * 6 * 8; i++)
        noise[i] = (float)((i * 7919 % 1000) / 500.0 - 1.0);
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 4, (int64_t[]){count, 4, 6, 8}, noise);
    struct tern_weights *w = tern_weights_create(ctx);
    assert_int_equal(tern_weights_add(w, "latents", t), TERN_OK);
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
    tern_tensor_unref(&t);
    tern_context_destroy(&ctx);
    free(noise);
}

static void test_latents_go_in_and_out(void **state)
{
    struct state *s = *state;
    int64_t shape[4];
    write_noise("noise.safetensors", 1);
#define COMMON "txt2img", MODEL, "-p", "a cat", "--steps", "2", "-W", "64", "-H", "48", "-q", "--sampler", "ddim"
    EXPECT(s, RUN(s, COMMON, "--init-latents", "noise.safetensors", "--save-latents", "a.safetensors", "--seed", "1", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, COMMON, "--init-latents", "noise.safetensors", "--save-latents", "b.safetensors", "--seed", "2", "-o", "b.png"), 0);
    EXPECT(s, RUN(s, COMMON, "--save-latents", "c.safetensors", "--seed", "1", "-o", "c.png"), 0);
    float a = first_value("a.safetensors", "latents", shape);
    assert_int_equal(shape[0], 1);
    assert_int_equal(shape[1], 4);
    assert_int_equal(shape[2], 6);
    assert_int_equal(shape[3], 8);
    assert_true(a == first_value("b.safetensors", "latents", shape)); /* the seed counts for nothing then */
    assert_true(a != first_value("c.safetensors", "latents", shape));
    write_noise("two.safetensors", 2);
    EXPECT(s, RUN(s, COMMON, "--init-latents", "two.safetensors"), 1);
    expect_text(s->err, "(2, 4, 6, 8)", "shape");
#undef COMMON
}

struct pixels {
    uint8_t rgb[40 * 24 * 3];
};

static void read_pixels(const char *path, struct pixels *out)
{
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_image *img = tern_image_load(ctx, path);
    assert_int_equal(tern_image_width(img) * tern_image_height(img) * 3, sizeof(out->rgb));
    memcpy(out->rgb, tern_image_data(img), sizeof(out->rgb));
    tern_image_destroy(&img);
    tern_context_destroy(&ctx);
}

static void test_img2img_and_inpaint(void **state)
{
    static const char image[] = TERN_TEST_DATA "/images/webp-lossless.webp"; /* 40 x 24 */
    struct state *s = *state;
    EXPECT(s, RUN(s, "img2img", image, MODEL, "-p", "a cat", "--steps", "4", "--seed", "1", "--strength", "0.5", "-o", "a.png"), 0);
    expect_text(s->err, "a.png: 40 x 24", "img2img");
    EXPECT(s,
           RUN(s, "txt2img", MODEL, "--init-image", image, "-p", "a cat", "--steps", "4", "--seed", "1", "--strength", "0.5", "-o",
               "b.png"),
           0);
    assert_true(same_bytes("a.png", "b.png"));
    EXPECT(s, RUN(s, "img2img", image, MODEL, "-p", "a cat", "--steps", "2", "-W", "80", "-o", "c.png"), 0);
    expect_text(s->err, "c.png: 80 x 48", "width alone");
    EXPECT(s, RUN(s, "img2img", image, MODEL, "-p", "a cat", "--steps", "2", "-H", "48", "-o", "c.png"), 0);
    expect_text(s->err, "c.png: 80 x 48", "height alone");
    EXPECT(s, RUN(s, "inpaint", image, image, MODEL, "-p", "a cat", "--steps", "2", "-o", "d.webp"), 0);
    expect_text(s->err, "d.webp: 40 x 24", "inpaint");

    /* A black mask keeps everything, a white one nothing. */
    struct tern_context *ctx = tern_context_create(NULL);
    uint8_t white_pixels[8 * 8 * 3];
    memset(white_pixels, 255, sizeof(white_pixels));
    struct tern_image *black = tern_image_create(ctx, 8, 8, NULL), *white = tern_image_create(ctx, 8, 8, white_pixels);
    assert_int_equal(tern_image_save(black, "black.png"), TERN_OK);
    assert_int_equal(tern_image_save(white, "white.png"), TERN_OK);
    tern_image_destroy(&black);
    tern_image_destroy(&white);
    tern_context_destroy(&ctx);
    EXPECT(s, RUN(s, "inpaint", image, "black.png", MODEL, "-p", "a cat", "--steps", "2", "--seed", "1", "-o", "kept.png"), 0);
    EXPECT(s, RUN(s, "inpaint", image, "black.png", MODEL, "-p", "a dog", "--steps", "2", "--seed", "1", "-o", "kept-2.png"), 0);
    EXPECT(s, RUN(s, "inpaint", image, "white.png", MODEL, "-p", "a cat", "--steps", "2", "--seed", "1", "-o", "new.png"), 0);
    struct pixels kept, kept_2, fresh;
    read_pixels("kept.png", &kept);
    read_pixels("kept-2.png", &kept_2);
    read_pixels("new.png", &fresh);
    assert_memory_equal(kept.rgb, kept_2.rgb, sizeof(kept.rgb));
    assert_memory_not_equal(kept.rgb, fresh.rgb, sizeof(kept.rgb));
}

/* The file of the inputs is never written over, by whatever name. */
static void test_inputs_are_no_outputs(void **state)
{
    static const char *const names[] = {"noise.safetensors", "./noise.safetensors", "link", "hard"};
    struct state *s = *state;
    write_noise("noise.safetensors", 1);
    write_noise("kept.safetensors", 1);
    assert_int_equal(symlink("noise.safetensors", "link") || link("noise.safetensors", "hard"), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        EXPECT(s, RUN(s, "exec", "absent", "unet", "--inputs", "noise.safetensors", "--outputs", names[i]), 2); /* before any work */
        expect_text(s->err, "expected another name for the output than for the input", names[i]);
    }
    assert_true(same_bytes("noise.safetensors", "kept.safetensors"));
    EXPECT(s, RUN(s, "exec", "absent", "unet", "--inputs", "noise.safetensors", "--outputs", "kept.safetensors"), 1);
    expect_text(s->err, "absent", "another file");
}

/* A file of inputs: ids (1, 2), or zeros as latents, and perhaps one more. */
static void write_inputs(const char *path, const char *name, int64_t id, const char *more)
{
    struct tern_context *ctx = tern_context_create(NULL);
    const float zeros[4 * 6 * 8] = {0};
    tern_tensor *t = id ? tern_tensor_create(ctx, TERN_I64, 2, (int64_t[]){1, 2}, (int64_t[]){0, id})
                        : tern_tensor_create(ctx, TERN_F32, 4, (int64_t[]){1, 4, 6, 8}, zeros);
    struct tern_weights *w = tern_weights_create(ctx);
    assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
    if (more)
        assert_int_equal(tern_weights_add(w, more, t), TERN_OK);
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
    tern_tensor_unref(&t);
    tern_context_destroy(&ctx);
}

/* What is wrong in the file of the inputs is a failure, an unknown component is wrong usage. */
static void test_inputs_that_are_wrong(void **state)
{
    static const struct {
        const char *component, *name;
        int64_t id;
        const char *more;
        int code;
        const char *part;
    } rows[] = {
        {"vae_decoder", "latents", 0, NULL, 1, "vae_decoder: input \"latent\" is missing"},
        {"vae_decoder", "latent", 0, "sample", 1, "vae_decoder: expected latent, found another input, \"sample\""},
        {"vae_encoder", "sample", 0, NULL, 1, "sample: expected (N, 3, H, W)"},
        {"text_encoder", "input_ids", 1 << 20, NULL, 1, "1048576"},
        {"hand", "latent", 0, NULL, 2, "expected text_encoder, unet, vae_decoder or vae_encoder"},
        {"text_encoder_2", "input_ids", 1, NULL, 2, "has no component \"text_encoder_2\""},
    };
    struct state *s = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        write_inputs("in.safetensors", rows[i].name, rows[i].id, rows[i].more);
        EXPECT(s, RUN(s, "exec", MODEL, rows[i].component, "--inputs", "in.safetensors", "--outputs", "no.safetensors"), rows[i].code);
        expect_text(s->err, rows[i].part, rows[i].component);
    }
    EXPECT(s, RUN(s, "exec", MODEL, "vae_decoder", "--inputs", "absent.safetensors", "--outputs", "no.safetensors"), 1);
    assert_int_equal(file_size("no.safetensors"), 0);
}

static void test_components_ids_and_facts(void **state)
{
    struct state *s = *state;
    int64_t shape[4];
    write_noise("noise.safetensors", 1);
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_weights *in = tern_weights_open(ctx, "noise.safetensors"), *out = tern_weights_create(ctx);
    assert_int_equal(tern_weights_add(out, "latent", tern_weights_get(in, "latents")), TERN_OK);
    assert_int_equal(tern_weights_save(out, "in.safetensors"), TERN_OK);
    tern_weights_unref(&in);
    tern_weights_unref(&out);
    tern_context_destroy(&ctx);
    EXPECT(s, RUN(s, "exec", MODEL, "vae_decoder", "--inputs", "in.safetensors", "--outputs", "out.safetensors"), 0);
    first_value("out.safetensors", "sample", shape);
    assert_int_equal(shape[0], 1);
    assert_int_equal(shape[1], 3);
    assert_int_equal(shape[2], 48);
    assert_int_equal(shape[3], 64);

    EXPECT(s, RUN(s, "tokenize", MODEL, ""), 0);
    char *empty = strdup(s->out);
    EXPECT(s, RUN(s, "tokenize", MODEL "/tokenizer", ""), 0);
    assert_string_equal(s->out, empty);
    int begin, end, used;
    assert_int_equal(sscanf(empty, "%d %d%n", &begin, &end, &used), 2);
    assert_string_equal(empty + used, "\n"); /* the begin and the end token, and nothing else */
    free(empty);
    EXPECT(s, RUN(s, "tokenize", MODEL, "--", "-a cat"), 0);

    EXPECT(s, RUN(s, "info", MODEL), 0);
    expect_text(s->out, "unet", "info");
    EXPECT(s, RUN(s, "info", MODEL, "--json"), 0);
    json_t *facts = json_loads(s->out, 0, NULL);
    assert_true(json_is_object(facts));
    json_decref(facts);
    assert_int_equal(symlink(MODEL, "model\xff"), 0); /* JSON has no such name */
    EXPECT(s, RUN(s, "info", "model\xff", "--json"), 0);
    expect_text(s->out, "\"path\": null", "info");
    assert_int_equal(remove("model\xff"), 0);
    EXPECT(s, RUN(s, "info", MODEL "/vae/diffusion_pytorch_model.safetensors", "--json"), 0);
    facts = json_loads(s->out, 0, NULL);
    assert_true(json_is_object(facts));
    json_decref(facts);
    EXPECT(s, RUN(s, "devices"), 0);
    assert_int_equal(strncmp(s->out, "cpu", 3), 0);
}

static void test_a_tokenizer_json_is_named(void **state)
{
    static const char vocabulary[] =
        "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0, \"boat\": 1, \"[CLS]\": 2, \"[SEP]\": 3, "
        "\"cat\": 4, \"[PAD]\": 5, \"[MASK]\": 6}}}";
    struct state *s = *state;
    write_file("tokenizer.json", vocabulary, strlen(vocabulary));
    const char *const named[] = {"tokenizer.json", "./tokenizer.json", "."};
    for (int i = 0; i < 3; i++) {
        EXPECT(s, RUN(s, "tokenize", named[i], "cat boat"), 0);
        assert_string_equal(s->out, "2 4 1 3\n");
    }
    assert_int_equal(remove("tokenizer.json"), 0);
    EXPECT(s, RUN(s, "tokenize", "tokenizer.json", "cat"), 1);
    expect_text(s->err, "tokenizer.json: expected a tokenizer folder, found nothing", "absent");
}

static void test_demo_model(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "txt2img", "-p", "a red circle", "--steps", "2", "--seed", "1", "-q"), 0);
    EXPECT(s, RUN(s, "txt2img", "demo", "-p", "a red circle", "--steps", "2", "--seed", "1", "-q", "-o", "b.png"), 0);
    assert_true(same_bytes("out.png", "b.png"));
    EXPECT(s, RUN(s, "info", "demo"), 0);
}

static void test_full_disk(void **state)
{
    struct state *s = *state;
    static const char *const names[] = {"full.png", "full.jpg", "full.webp"};
    for (size_t i = 0; i < 3; i++) {
        write_file(names[i], "old", 3);
        s->file_limit = 600;
        EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "x", "--steps", "1", "-W", "128", "-H", "128", "-q", "-o", names[i]), 1);
        expect_text(s->err, names[i], "full disk");
        assert_int_equal(files("."), 1);
        assert_int_equal(file_size(names[i]), 3);
        unlink(names[i]);
    }
}

static void nap(void) { nanosleep(&(struct timespec){0, 5000000}, NULL); }

static void test_interrupt(void **state)
{
    struct state *s = *state;
    pid_t pid = cli_start(s, (const char *const[]){"txt2img", MODEL, "-p", "x", "--steps", "1000", "--sampler", "euler", "-W", "128", "-H",
                                                   "128", "--save-latents", "l.safetensors", NULL});
    for (int i = 0; i < 6000 && !has_text(".stderr", "sample 1/"); i++)
        nap();
    assert_true(has_text(".stderr", "sample 1/"));
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    assert_int_equal(kill(pid, SIGINT), 0);
    EXPECT(s, cli_finish(s, pid), 130);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec < 10);
    expect_text(s->err, "cancelled", "Ctrl-C");
    assert_int_equal(files("."), 0);

    pid = cli_start(s, (const char *const[]){"txt2img", MODEL, "-p", "x", "--steps", "1000", "--sampler", "euler", "-W", "128", "-H", "128",
                                             "--json", NULL});
    for (int i = 0; i < 6000 && !has_text(".stdout", "\"sample\",\"done\":1"); i++)
        nap();
    assert_int_equal(kill(pid, SIGINT), 0);
    kill(pid, SIGINT);
    EXPECT(s, cli_finish(s, pid), 130);
    assert_int_equal(files("."), 0);
}

/* --lora, once and twice, with blocks; a scale of 0 changes nothing. */
static void test_loras(void **state)
{
#define LORA TERN_TEST_DATA "/lora/a.safetensors"
#define PICTURE "txt2img", MODEL, "-p", "a cat", "--steps", "2", "-W", "40", "-H", "24", "-q", "--seed", "1"
    struct state *s = *state;
    EXPECT(s, RUN(s, PICTURE, "-o", "plain.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--lora", LORA ":0", "-o", "off.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--lora", LORA ":1:unet=0,text_encoder=0", "-o", "nowhere.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--lora", LORA ":0.5", "--json", "-o", "half.png"), 0);
    expect_text(s->out, "a cat <lora:a:0.5>", "--json");
    EXPECT(s, RUN(s, PICTURE, "--lora", LORA, "--lora", LORA ":-.5", "--json", "-o", "both.png"), 0);
    expect_text(s->out, "a cat <lora:a:1> <lora:a:-0.5>", "--json");
    assert_true(same_bytes("plain.png", "off.png"));
    assert_false(same_bytes("plain.png", "half.png"));
    static struct pixels plain, nowhere;
    read_pixels("plain.png", &plain);
    read_pixels("nowhere.png", &nowhere);
    assert_memory_equal(plain.rgb, nowhere.rgb, sizeof(plain.rgb));
    assert_int_equal(symlink(LORA, "a\xff\nb.safetensors"), 0); /* a name that is no UTF-8, with a line end */
    EXPECT(s, RUN(s, PICTURE, "--lora", "a\xff\nb.safetensors", "--json", "-o", "odd.png"), 0);
    expect_text(s->out, "a cat <lora:a?_b:1>\\nSteps", "--json");
    EXPECT(s, RUN(s, PICTURE, "--lora", "absent.safetensors:1", "-o", "no.png"), 1);
    expect_text(s->err, "absent.safetensors", "--lora");
    EXPECT(s, RUN(s, PICTURE, "--lora", LORA ":1:down.9=1", "-o", "no.png"), 2);
    expect_text(s->err, "down.9", "--lora");
    EXPECT(s,
           RUN(s, "exec", MODEL, "vae_decoder", "--inputs", LORA, "--outputs", "no.safetensors", "--lora",
               MODEL "/vae/diffusion_pytorch_model.safetensors"),
           1);
    expect_text(s->err, "no LoRA", "--lora");
    assert_int_equal(file_size("no.png"), 0);
}

#define XL TERN_TEST_DATA "/models/sdxl"

/* Without -q, so that the first model's steps would be told. */
static void refiners_are_refused_before_the_first_model_paints(struct state *s)
{
    static const struct {
        const char *refiner, *option, *error;
    } cases[] = {
        {XL, "--aesthetic-score=7", "--aesthetic-score: sdxl is not told that"},
        {XL, "--negative-aesthetic-score=0", "--aesthetic-score: sdxl is not told that"}, /* not the default */
        {XL ":0.9995", "--seed=1", "--denoising-start 0.9995 and --denoising-end 0 of 5 steps leave no step to do"},
        {TERN_TEST_DATA "/models/sd1-inpaint", "--seed=1", "sd1-inpaint is an inpainting model"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        EXPECT(s, RUN(s, "txt2img", XL, "-p", "a cat", "--steps", "5", "-o", "x.png", "--refiner", cases[i].refiner, cases[i].option), 2);
        expect_text(s->err, cases[i].error, cases[i].refiner);
        assert_null(strstr(s->err, "sample"));
    }
}

/* With a black mask the latents are those of the picture, with one model or two. */
static void what_a_mask_keeps_a_refiner_keeps(struct state *s)
{
#define INPAINT(...)                                                                                                                  \
    RUN(s, "inpaint", TERN_TEST_DATA "/images/webp-lossless.webp", "black-8x8.png", XL, "-p", "a cat", "--steps", "5", "--seed", "1", \
        "-q", "-o", "x.png", __VA_ARGS__)
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_image *black = tern_image_create(ctx, 8, 8, NULL);
    assert_int_equal(tern_image_save(black, "black-8x8.png"), TERN_OK);
    tern_image_destroy(&black);
    tern_context_destroy(&ctx);
    EXPECT(s, INPAINT("--save-latents", "one"), 0);
    EXPECT(s, INPAINT("--save-latents", "two", "--refiner", XL ":0.6"), 0);
    assert_true(same_bytes("one", "two"));
#undef INPAINT
}
#undef XL

/* --offload in its three ways and --profile change no picture; the profile is JSON that names every stage and tells each kernel's
 * share of the roofline. */
/* What auto takes is one of the two, and level scalar has no bf16. */
/* The same model twice paints what it paints alone. */
static void test_two_models(void **state)
{
#define XL TERN_TEST_DATA "/models/sdxl"
#define XL_LORA TERN_TEST_DATA "/lora-models/sdxl.safetensors"
#define WITH(...) RUN(s, "txt2img", XL, "-p", "a cat", "--steps", "5", "--seed", "7", "-W", "40", "-H", "48", "-q", __VA_ARGS__)
    struct state *s = *state;
    EXPECT(s, WITH("-o", "alone.png", "--save-latents", "alone"), 0);
    EXPECT(s, WITH("-o", "half.png", "--denoising-end", "0.6", "--save-latents", "half.safetensors"), 0);
    assert_false(same_bytes("alone", "half.safetensors"));
    EXPECT(s, WITH("-o", "rest.png", "--denoising-start", "0.6", "--init-latents", "half.safetensors", "--save-latents", "rest"), 0);
    assert_true(same_bytes("alone", "rest"));
    EXPECT(s, WITH("-o", "two.png", "--refiner", XL ":0.6", "--save-latents", "two"), 0);
    assert_true(same_bytes("alone", "two"));
    EXPECT(s, WITH("-o", "x.png", "--refiner", XL ":0.6", "--profile", "profile.json"), 0); /* the second's bars behind the first's */
    assert_int_equal(rows_of_profile("profile.json"), 1 | 2 | 4 | 8);
    EXPECT(s, WITH("-o", "x.png", "--preview", "p.png:1", "--preview-vae", TAESD, "--profile", "profile.json"), 0);
    assert_int_equal(rows_of_profile("profile.json"), 1 | 2 | 4 | 8 | 16);
    EXPECT(s, WITH("-o", "x.png", "--refiner", XL ":0.2", "--refiner", XL, "--save-latents", "last", "--json"), 0);
    expect_text(s->out, "Refiner switch at: 0.8", "the last --refiner counts, with what stands behind it");
    EXPECT(s, WITH("-o", "x.png", "--refiner", XL, "--hires", "2"), 2);
    expect_text(s->err, "option --refiner: not together with --hires", "--hires");
    EXPECT(s, RUN(s, "txt2img", XL, "--from", "two.png", "--refiner", XL, "-o", "again.png", "-q"), 0);
    assert_true(same_bytes("two.png", "again.png"));
    assert_string_equal(s->err, "");
    EXPECT(s, RUN(s, "txt2img", XL, "--from", "two.png", "-o", "again.png", "-q", "--save-latents", "two"), 0);
    expect_text(s->err, "what is not followed of it: Refiner (--refiner gives it): sdxl\n", "no refiner");
    assert_true(same_bytes("alone", "two"));
    EXPECT(s, RUN(s, "info", "two.png"), 0);
    expect_text(s->out, "Model: sdxl, RNG: CPU, Refiner: sdxl, Refiner switch at: 0.6, Version", "text");
    EXPECT(s, WITH("-o", "x.png", "--denoising-start", "0.6"), 2);
    expect_text(s->err, "--denoising-start: expected the latents of the first model in --init-latents", "two models");
    EXPECT(s, WITH("-o", "x.png", "--refiner", "none"), 1);
    expect_text(s->err, "none: no such file or folder", "--refiner");
    refiners_are_refused_before_the_first_model_paints(s);
    what_a_mask_keeps_a_refiner_keeps(s);

    /* The refiner's LoRAs are its own: as its part of the steps alone has them. */
    EXPECT(s,
           WITH("-o", "rest.png", "--denoising-start", "0.6", "--init-latents", "half.safetensors", "--lora", XL_LORA ":0.7",
                "--save-latents", "rest"),
           0);
    EXPECT(s,
           WITH("-o", "two.png", "--refiner", XL ":0.6", "--refiner-lora", XL_LORA ":0.5", "--refiner-lora", XL_LORA ":.2:unet=1",
                "--save-latents", "two"),
           0);
    assert_false(same_bytes("alone", "two"));
    EXPECT(s, WITH("-o", "two.png", "--refiner", XL ":0.6", "--refiner-lora", XL_LORA ":0.7", "--json", "--save-latents", "two"), 0);
    assert_true(same_bytes("rest", "two"));
    assert_non_null(strstr(s->out, "a cat\\nSteps")); /* its infotext has no place for them */
    EXPECT(s, WITH("-o", "first.png", "--refiner", XL ":0.6", "--lora", XL_LORA ":0.7", "--save-latents", "first"), 0);
    assert_false(same_bytes("first", "two"));
    EXPECT(s, WITH("-o", "x.png", "--refiner-lora", XL_LORA), 2);
    expect_text(s->err, "works with --refiner only", "--refiner-lora");
    EXPECT(s, WITH("-o", "x.png", "--refiner", XL, "--refiner-lora", "none.safetensors"), 1);
    expect_text(s->err, "none.safetensors", "--refiner-lora");

    EXPECT(s,
           WITH("-o", "same.png", "--original-size", "40x48", "--target-size", "40x48", "--crops-coords-top-left", "0,0", "--save-latents",
                "same"),
           0);
    assert_true(same_bytes("alone", "same"));
    EXPECT(s, WITH("-o", "other.png", "--original-size", "48x40", "--crops-coords-top-left", "0,8", "--save-latents", "other"), 0);
    assert_false(same_bytes("alone", "other"));
    EXPECT(s, RUN(s, "txt2img", XL, "--from", "other.png", "-o", "again.png", "-q"), 0);
    assert_true(same_bytes("other.png", "again.png"));
    EXPECT(s, WITH("-o", "same.png", "--negative-original-size", "40x48", "--negative-target-size", "40x48", "--save-latents", "same"), 0);
    assert_true(same_bytes("alone", "same"));
    EXPECT(s,
           WITH("-o", "other.png", "--negative-original-size", "40x48", "--negative-target-size", "40x48",
                "--negative-crops-coords-top-left", "8,0", "--save-latents", "other"),
           0);
    assert_false(same_bytes("alone", "other"));
    EXPECT(s, RUN(s, "txt2img", XL, "--from", "other.png", "-o", "again.png", "-q"), 0);
    assert_true(same_bytes("other.png", "again.png"));
    EXPECT(s, WITH("-o", "x.png", "--negative-target-size", "40x48"), 2);
    expect_text(s->err, "--negative-target-size: txt2img expects", "both or none");
    EXPECT(s, WITH("-o", "x.png", "--aesthetic-score", "5"), 2);
    expect_text(s->err, "--aesthetic-score: sdxl is not told that", "--aesthetic-score");
#undef WITH
#undef XL_LORA
#undef XL
}

static void test_auto_dtype(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, PICTURE, "--dtype", "f32", "-o", "f32.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--dtype", "bf16", "-o", "bf16.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--dtype", "auto", "-o", "auto.png"), 0);
    assert_false(same_bytes("f32.png", "bf16.png"));
    assert_true(same_bytes("auto.png", "f32.png") != same_bytes("auto.png", "bf16.png"));
    setenv("TERN_CPU_LEVEL", "scalar", 1);
    EXPECT(s, RUN(s, PICTURE, "--dtype", "f32", "-o", "plain.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--dtype", "auto", "-o", "auto.png"), 0);
    unsetenv("TERN_CPU_LEVEL");
    assert_true(same_bytes("auto.png", "plain.png"));
}

static void test_offload_and_profile(void **state)
{
    struct state *s = *state;
    size_t i;
    EXPECT(s, RUN(s, PICTURE, "-o", "all.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--offload", "none", "-o", "none.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--offload", "sequential", "--profile", "trace.json", "-o", "one.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--offload", "stream", "-o", "stream.png"), 0);
    EXPECT(s, RUN(s, PICTURE, "--offload", "none,text_encoder=stream,unet=stream,vae=sequential", "-o", "each.png"), 0);
    assert_true(same_bytes("all.png", "each.png"));
    assert_true(same_bytes("all.png", "none.png"));
    assert_true(same_bytes("all.png", "one.png"));
    assert_true(same_bytes("all.png", "stream.png"));
    json_t *trace = json_load_file("trace.json", 0, NULL);
    assert_true(json_array_size(trace) > 100);
    const char *first = json_string_value(json_object_get(json_object_get(json_array_get(trace, 0), "args"), "component"));
    assert_string_equal(first, "text_encoder");
    json_t *last = json_array_get(trace, json_array_size(trace) - 1);
    assert_string_equal(json_string_value(json_object_get(json_object_get(last, "args"), "component")), "vae_decoder");
    assert_true(json_number_value(json_object_get(json_object_get(last, "args"), "flops")) > 0);
    json_array_foreach(trace, i, last)
        assert_true(json_number_value(json_object_get(json_object_get(last, "args"), "roofline")) > 0);
    json_decref(trace);
    EXPECT(s, RUN(s, PICTURE, "--offload", "some", "-o", "no.png"), 2);
    expect_text(s->err, "none", "--offload");
    EXPECT(s, RUN(s, PICTURE, "--profile", "absent/trace.json", "-o", "no.png"), 1);
    expect_text(s->err, "absent/trace.json", "--profile");
    assert_int_equal(file_size("no.png"), 0);
}

int cli_job_tests(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_previews),
        TEST(test_pictures_are_made),
        TEST(test_events),
        TEST(test_a_vae_from_a_file),
        TEST(test_latents_go_in_and_out),
        TEST(test_img2img_and_inpaint),
        TEST(test_inputs_are_no_outputs),
        TEST(test_inputs_that_are_wrong),
        TEST(test_components_ids_and_facts),
        TEST(test_a_tokenizer_json_is_named),
        TEST(test_demo_model),
        TEST(test_loras),
        TEST(test_offload_and_profile),
        TEST(test_two_models),
        TEST(test_auto_dtype),
        TEST(test_full_disk),
        TEST(test_interrupt),
    };
    return cmocka_run_group_tests_name("cli jobs", tests, cli_setup, cli_teardown);
}
