/* Networks of small models by their plans, and their pictures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "arch_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

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
    assert_int_equal(tern_unet_conditions(m, &(double){timestep}, 1, 1, input(r, "text_embeds"), input(r, "time_ids"), &c), TERN_OK);
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

/* The ids of the prompt by each tokenizer, where the case tells them. */
static void check_ids(struct tern_pipeline *p, const json_t *row)
{
    size_t i, k;
    json_t *list = json_object_get(row, "ids"), *ids, *id;
    json_array_foreach(list, i, ids) {
        int64_t found[128];
        const struct tern_tokenizer *t = tern_pipeline_tokenizer(p, (int)i);
        assert_int_equal(tern_tokenizer_max_length(t), json_array_size(ids));
        assert_true(json_array_size(ids) <= 128);
        assert_int_equal(tern_tokenize_padded(t, json_string_value(json_object_get(row, "prompt")), found), TERN_OK);
        json_array_foreach(ids, k, id)
            assert_int_equal(found[k], json_integer_value(id));
    }
}

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
                check_ids(p, row);
                job_check_case(ctx, p, &c, latents, tern_weights_get(pictures, c.name) ? pictures : NULL, w); /* some have latents alone */
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
