/* Every small model of the golden data by its architecture. */
#include "arch_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "models/pipelines/pipeline.h"
#include "support.h"
#include "xl_help.h"

const struct arch archs[] = {
    {"sd1", "components/sd1", "pipelines", {"txt2img.sd1.euler_a", "img2img.sd1.dpm++2m", "inpaint.sd1.ddim"}},
    {"sd1-heads", "components/sd1-heads", "pipelines", {"txt2img.sd1-heads.ddim"}},
    {"sd1-inpaint", "components/sd1-inpaint", "pipelines", {"inpaint.sd1-inpaint.ddim"}},
    {"sd2", "components/sd2", "pipelines", {"txt2img.sd2.ddim"}},
    {"sdxl", "components/sdxl", "xl", {"txt2img.sdxl.sizes", "inpaint.sdxl.euler"}},
    {"sdxl-inpaint", "xl/sdxl-inpaint/components", "xl", {"inpaint.sdxl-inpaint.euler"}},
    {"sdxl-refiner", "xl/sdxl-refiner/components", "xl", {"img2img.sdxl-refiner.euler"}},
    {"sdxl-turbo", NULL, "xl", {"txt2img.sdxl-turbo.2-steps"}},
    {"sdxl-lightning", NULL, "xl", {"txt2img.sdxl-lightning.4-steps"}},
    {"taesd", "taesd", "taesd", {"txt2img", "inpaint"}},
};
const int arch_count = sizeof(archs) / sizeof(*archs);

struct arch_model arch_open(struct tern_context *ctx, const struct arch *a)
{
    struct arch_model m = {.made = ""};
    char path[PATH_SIZE];
    const bool taesd = !strcmp(a->name, "taesd");
    if (!strncmp(a->name, "sdxl-", 5)) {
        xl_folder(ctx, a->name, m.made);
        snprintf(path, sizeof(path), "%s", m.made);
    } else {
        model_path(taesd ? "sd1" : a->name, path);
    }
    m.p = tern_pipeline_load(ctx, path, &(struct tern_pipeline_params){.vae = taesd ? TERN_TEST_DATA "/taesd/vae" : NULL});
    if (!m.p)
        fail_msg("%s: %s", a->name, tern_error(ctx));
    return m;
}

void arch_close(struct arch_model *m)
{
    tern_pipeline_destroy(&m->p);
    if (m->made[0])
        damage_remove(m->made);
}

/* ---- networks by their plans */

/* One run: what goes in, and the plan that it is for. */
struct run {
    struct tern_pipeline *p;
    const struct golden *g;
    struct tern_stage stage;
    tern_tensor *in[4];
};

static tern_tensor *input(const struct run *r, const char *name) { return tern_weights_get(r->g->inputs, name); }

/* Each of these is false when jobs have no plan for the inputs. */
static bool text_inputs(struct run *r)
{
    r->in[0] = input(r, "input_ids");
    r->stage.size.batch = (int)tern_tensor_size(r->in[0], 0);
    return !input(r, "attention_mask") && tern_tensor_size(r->in[0], 1) == tern_tokenizer_max_length(tern_pipeline_tokenizer(r->p, 0));
}

static void set_size(struct run *r, const tern_tensor *t, int scale)
{
    r->stage.size =
        (struct tern_graph_size){(int)tern_tensor_size(t, 0), (int)tern_tensor_size(t, 3) * scale, (int)tern_tensor_size(t, 2) * scale};
}

static bool unet_inputs(struct run *r)
{
    float timestep;
    struct tern_unet_conditions c;
    tern_tensor *t = input(r, "timestep");
    const struct tern_unet *m = tern_pipeline_unet(r->p);
    if (tern_tensor_numel(t) != 1)
        return false;
    assert_int_equal(tern_tensor_read(t, TERN_F32, &timestep, sizeof(timestep)), TERN_OK);
    assert_int_equal(tern_unet_conditions(m, &(double){timestep}, 1, input(r, "text_embeds"), input(r, "time_ids"), &c), TERN_OK);
    r->in[0] = input(r, "sample");
    r->in[1] = c.time;
    r->in[2] = input(r, "encoder_hidden_states");
    r->in[3] = c.added;
    r->stage.tokens = tern_tensor_size(r->in[2], 1);
    set_size(r, r->in[0], tern_pipeline_scale(r->p));
    return true;
}

static bool decoder_inputs(struct run *r)
{
    r->in[0] = input(r, "latent");
    set_size(r, r->in[0], tern_pipeline_scale(r->p));
    return true;
}

static bool encoder_inputs(struct run *r)
{
    r->in[0] = input(r, "sample");
    set_size(r, r->in[0], 1);
    return !(r->stage.size.width % tern_pipeline_scale(r->p)) && !(r->stage.size.height % tern_pipeline_scale(r->p));
}

/* The number of an output of a plan by the name that it has eagerly; -1: the plan ends before it. */
static int output_number(const char *component, const char *name)
{
    int layer;
    if (!strcmp(name, "text_embeds") || !strcmp(name, "pooler_output"))
        return -1;
    if (sscanf(name, "hidden_states.%d", &layer) == 1)
        return layer + 1;
    return !strcmp(component, "vae_encoder") && !strcmp(name, "logvar");
}

static double plan_error(struct run *r, const char *what)
{
    double worst = 0;
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    struct tern_binding *b = tern_pipeline_binding(r->p, &r->stage);
    if (!b || tern_plan_run(b, r->in, out))
        fail_msg("%s: %s", what, tern_error(r->p->ctx));
    for (int64_t i = 0; i < tern_weights_count(r->g->expected); i++) {
        const char *name = tern_weights_name(r->g->expected, i);
        int number = output_number(r->stage.component, name);
        double e = number < 0 ? 0 : golden_output_error(out[number], tern_weights_at(r->g->expected, i), name, what);
        worst = e > worst ? e : worst;
    }
    tern_binding_unref(&b);
    return worst;
}

double arch_plan_error(struct tern_pipeline *p, const char *component, const struct golden *g, const char *what)
{
    static const struct {
        const char *name;
        bool (*inputs)(struct run *);
    } table[] = {{"text_encoder", text_inputs},
                 {"text_encoder_2", text_inputs},
                 {"unet", unet_inputs},
                 {"vae_decoder", decoder_inputs},
                 {"vae_encoder", encoder_inputs}};
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (!strcmp(component, table[i].name)) {
            struct run r = {.p = p, .g = g, .stage.component = table[i].name};
            tern_scope_begin(p->ctx);
            double e = table[i].inputs(&r) ? plan_error(&r, what) : -1;
            tern_scope_end(p->ctx, NULL);
            return e;
        }
    fail_msg("%s: there is no component %s", what, component);
    return 0;
}

/* ---- pictures */

void arch_check_pictures(struct tern_context *ctx, struct tern_pipeline *p, const struct arch *a, struct job_worst *w)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "%s/latents", a->cases);
    struct tern_weights *latents = support_tensors(ctx, path);
    snprintf(path, sizeof(path), "%s/pictures", a->cases);
    struct tern_weights *pictures = support_tensors(ctx, path);
    snprintf(path, sizeof(path), "%s/cases.json", a->cases);
    json_t *rows = support_json(path), *row;
    for (int i = 0; i < 4 && a->pictures[i]; i++) {
        size_t k;
        int found = 0;
        json_array_foreach(rows, k, row) {
            struct job_case c = job_case_read(ctx, row, "pipelines");
            c.params.cfg = c.params.cfg > 0 ? c.params.cfg : 1; /* to the library 0 is the default; all up to 1 is no guidance */
            if (!strcmp(c.name, a->pictures[i])) {
                job_check_case(ctx, p, &c, latents, pictures, w);
                found++;
            }
            job_case_close(&c);
        }
        if (found != 1)
            fail_msg("%s: %d cases %s", a->name, found, a->pictures[i]);
    }
    tern_weights_unref(&latents);
    tern_weights_unref(&pictures);
    json_decref(rows);
}
