/* Latent consistency models, whose UNet is told the guidance scale and needs no negative rows: as diffusers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "damage.h"
#include "job_cases.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"
#include "xl_help.h"

struct model {
    char folder[PATH_SIZE];
    struct tern_context *ctx;
    struct tern_pipeline *p;
};

static struct model open_model(void)
{
    struct model m = {.ctx = model_context(NULL, 1)};
    xl_folder(m.ctx, "sd1-lcm", m.folder);
    m.p = model_load(m.ctx, m.folder);
    return m;
}

static void close_model(struct model *m)
{
    tern_pipeline_destroy(&m->p);
    tern_context_destroy(&m->ctx);
    damage_remove(m->folder);
}

static void pictures_agree(void **state)
{
    size_t i;
    json_t *rows = support_json("lcm/cases.json"), *row;
    struct job_worst w = {0};
    struct model m = open_model();
    struct tern_weights *latents = support_tensors(m.ctx, "lcm/latents"), *pictures = support_tensors(m.ctx, "lcm/pictures");
    json_array_foreach(rows, i, row) {
        struct job_case c = job_case_read(m.ctx, row, "pipelines");
        job_check_case(m.ctx, m.p, &c, latents, json_is_true(json_object_get(row, "pictures")) ? pictures : NULL, &w);
        job_case_close(&c);
    }
    assert_int_equal(w.cases, 5);
    job_print_worst(&w);
    tern_weights_unref(&latents);
    tern_weights_unref(&pictures);
    close_model(&m);
    json_decref(rows);
}

/* One call of the UNet with the embedding, of the name that diffusers gives it, and without. */
static void a_call_agrees(void **state)
{
    static const char *const names[] = {"sample", "timestep", "encoder_hidden_states", "timestep_cond"};
    struct model m = open_model();
    struct tern_weights *golden = support_tensors(m.ctx, "lcm/unet");
    for (int told = 0; told < 2; told++) {
        struct tern_weights *inputs = tern_weights_create(m.ctx);
        for (int i = 0; i < 3 + told; i++)
            assert_int_equal(tern_weights_add(inputs, names[i], tern_weights_get(golden, names[i])), TERN_OK);
        struct tern_weights *found = model_exec(m.p, "unet", inputs);
        int64_t n, k;
        float *a = support_f32(found, "sample", &n), *b = support_f32(golden, told ? "out" : "out.untold", &k);
        assert_int_equal(n, k);
        assert_true(support_nmse(a, b, n) <= 1e-8);
        free(a);
        free(b);
        tern_weights_unref(&found);
        tern_weights_unref(&inputs);
    }
    tern_weights_unref(&golden);
    close_model(&m);
}

/* Inputs that are not the model's. */
static void what_does_not_fit_is_refused(void **state)
{
    static const char *const names[] = {"sample", "timestep", "encoder_hidden_states"};
    char path[PATH_SIZE];
    struct model m = open_model();
    struct tern_weights *golden = support_tensors(m.ctx, "lcm/unet"), *inputs = tern_weights_create(m.ctx);
    for (int i = 0; i < 3; i++)
        tern_weights_add(inputs, names[i], tern_weights_get(golden, names[i]));
    tern_scope_begin(m.ctx);
    tern_weights_add(inputs, "timestep_cond", support_noise(m.ctx, 1, 2, (const int64_t[]){2, 13}, 1, TERN_F32));
    tern_scope_end(m.ctx, NULL);
    assert_null(tern_pipeline_exec(m.p, "unet", inputs));
    support_error(m.ctx, TERN_E_SHAPE, "timestep_cond: expected (1, 12)");
    tern_weights_add(inputs, "other", tern_weights_get(golden, "sample"));
    assert_null(tern_pipeline_exec(m.p, "unet", inputs));
    support_error(m.ctx, TERN_E_INVALID, "expected sample, timestep, encoder_hidden_states and timestep_cond");
    struct tern_pipeline *plain = model_load(m.ctx, model_path("sd1", path));
    assert_null(tern_pipeline_exec(plain, "unet", inputs));
    support_error(m.ctx, TERN_E_INVALID, "found another input, \"other\"");
    /* a scale below 1 is told to a model that is told the scale; to others it is no guidance */
    assert_true(tern_pipeline_cfg(m.p, 0.5) == 0.5 && tern_pipeline_cfg(m.p, TERN_CFG_ZERO) == TERN_CFG_ZERO);
    assert_true(tern_pipeline_cfg(plain, 0.5) == 1 && tern_pipeline_cfg(plain, 1.5) == 1.5);
    tern_pipeline_destroy(&plain);
    damage_json(m.folder, "text_encoder/config.json", "use_attention_mask", json_true());
    assert_null(tern_pipeline_load(m.ctx, m.folder, NULL));
    support_error(m.ctx, TERN_E_UNSUPPORTED, "\"use_attention_mask\" is true");
    damage_json(m.folder, "text_encoder/config.json", "use_attention_mask", json_false());
    damage_json(m.folder, "unet/config.json", "time_cond_proj_dim", json_integer(1 << 20));
    assert_null(tern_pipeline_load(m.ctx, m.folder, NULL));
    support_error(m.ctx, TERN_E_FORMAT, "time_cond_proj_dim");
    tern_weights_unref(&inputs);
    tern_weights_unref(&golden);
    close_model(&m);
}

/* Its predictions hold guidance already: guided once more between prompts they would hold it twice. */
static void prompts_are_not_composed(void **state)
{
    static const char *const prompts[] = {"a red boat AND a tree", "a red boat :1.1"};
    struct model m = open_model();
    struct tern_txt2img_params q = {.steps = 1, .width = 32, .height = 32, .prompt_syntax = TERN_PROMPT_A1111};
    for (int i = 0; i < 2; i++) {
        q.prompt = prompts[i];
        assert_null(tern_txt2img(m.p, &q));
        support_error(m.ctx, TERN_E_INVALID, "prompt: AND and a weight behind a text are guidance, which the UNet");
    }
    close_model(&m);
}

/* diffusers' pipelines of Stable Diffusion 1, the one for inpainting alike, correct an old steps_offset, those of latent consistency models
 * and of SDXL take the file as it is: as a configuration that the job is given. */
static void scheduler_files_count_as_they_are(void **state)
{
    static const char config[] = "{\"_class_name\": \"DDIMScheduler\", \"beta_schedule\": \"scaled_linear\", \"beta_start\": 0.00085, "
                                 "\"beta_end\": 0.012, \"clip_sample\": true, \"steps_offset\": 0}";
    static const struct {
        const char *model;
        bool inpaints, corrected;
    } rows[] = {{"sd1", false, true}, {"sd1-lcm", false, false}, {"sd1-lcm", true, true}, {"sdxl", false, false}};
    struct tern_context *ctx = model_context(NULL, 1);
    uint8_t white[40 * 40 * 3];
    memset(white, 255, sizeof(white));
    struct tern_image *picture = tern_image_create(ctx, 40, 40, white);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char folder[PATH_SIZE];
        struct tern_images *images[2];
        if (strstr(rows[i].model, "lcm"))
            xl_folder(ctx, rows[i].model, folder);
        else
            damage_copy(rows[i].model, folder);
        damage_json(folder, "model_index.json", "scheduler", NULL);
        damage_text(folder, "scheduler/scheduler_config.json", config, sizeof(config) - 1);
        struct tern_pipeline *p = model_load(ctx, folder);
        struct tern_txt2img_params q = tern_txt2img_params(.prompt = "a cat", .width = 40, .height = 40, .steps = 3, .seed = 1);
        if (rows[i].inpaints)
            q.init_image = q.mask_image = picture;
        for (int k = 0; k < 2; k++) {
            q.schedule_config = k ? config : NULL;
            images[k] = job_run(ctx, p, &q);
        }
        assert_int_equal(job_same(images[0], 0, images[1]), !rows[i].corrected);
        for (int k = 0; k < 2; k++)
            tern_images_destroy(&images[k]);
        tern_pipeline_destroy(&p);
        damage_remove(folder);
    }
    tern_image_destroy(&picture);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_agree),
        cmocka_unit_test(a_call_agrees),
        cmocka_unit_test(prompts_are_not_composed),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(scheduler_files_count_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
