/* tern convert: a checkpoint in another form or dtype. */
#include <stdlib.h>
#include <string.h>

#include "command.h"

enum { OPT_SINGLE = OPT_OWN, OPT_FOLDER };

struct settings {
    struct run_settings run;
    struct tern_convert_params convert;
};

static const struct opt opts[] = {
    {OPT_DTYPE, 0, "dtype", "TYPE",
     "of the weights: f32, f16 or bf16, rounded to nearest even\n(default: each keeps its own); int8: the UNet's layers as\ntxt2img "
     "--dtype "
     "int8 computes with them, the rest keeps\nits own"},
    {OPT_WEIGHTS, 0, "weights", "TYPE", "int8 or int4: layers of the UNet and the text encoders as\ntxt2img --weights keeps them"},
    {OPT_RECIPE, 0, "recipe", "FILE", "layers of the UNet in int8 that a recipe names\n(tern quantize)"},
    {OPT_SINGLE, 0, "single-file", NULL, "OUT is one LDM-style .safetensors file (default of a folder)"},
    {OPT_FOLDER, 0, "folder", NULL, "OUT is a diffusers folder (default of a single file)"},
    {0},
};

static int apply_form(const struct opt *opt, enum tern_convert_form form, struct settings *s)
{
    if (s->convert.form != TERN_CONVERT_OTHER && s->convert.form != form)
        return usage("option --%s: expected one of --single-file and --folder, found both", opt->name);
    s->convert.form = form;
    return GO_ON;
}

static int apply(const struct opt *opt, const char *value, void *settings)
{
    static const char *const dtypes[] = {"f32", "f16", "bf16", "int8", NULL};
    static const enum tern_dtype of[] = {TERN_F32, TERN_F16, TERN_BF16, TERN_F32};
    struct settings *s = settings;
    int choice = 0, code;
    switch (opt->id) {
    case OPT_DTYPE:
        code = value_choice(opt, value, dtypes, &choice);
        s->convert.dtype = of[choice];
        s->convert.change_dtype = choice < 3;
        s->convert.quantize = choice == 3 ? "*" : NULL;
        return code;
    case OPT_SINGLE:
        return apply_form(opt, TERN_CONVERT_SINGLE_FILE, s);
    case OPT_FOLDER:
        return apply_form(opt, TERN_CONVERT_FOLDER, s);
    default:
        return run_apply(opt, value, &s->run);
    }
}

/* One way to quantise. */
static int take_words(struct settings *s)
{
    const bool int8 = s->convert.quantize;
    if (int8 + (s->run.weights != NULL) + (s->run.recipe != NULL) > 1)
        return usage("options --dtype int8, --weights and --recipe: expected one of them");
    if (s->run.weights)
        s->convert.quantize = s->convert.text_encoder_quantize = s->run.weights;
    s->convert.recipe = s->run.recipe;
    return GO_ON;
}

/* The folder of the demo model, because tern_convert takes paths alone; for free. NULL with the error recorded, or without memory. */
static char *demo_path(struct tern_context *ctx)
{
    struct tern_pipeline *p = tern_pipeline_load(ctx, "demo", NULL);
    char *facts = p ? tern_pipeline_describe(p, true) : NULL;
    json_t *o = facts ? json_loads(facts, 0, NULL) : NULL;
    const char *path = json_string_value(json_object_get(o, "path"));
    char *copy = path ? strdup(path) : NULL;
    json_decref(o);
    tern_free_text(ctx, facts);
    tern_pipeline_destroy(&p);
    return copy;
}

static int convert(struct tern_context *ctx, const struct settings *s, const char *model, const char *out)
{
    const bool demo = !strcmp(model, "demo");
    char *path = demo ? demo_path(ctx) : NULL, bytes[BYTES_TEXT];
    if (demo && !path)
        return library_failed(ctx, false);
    interrupt_hold(true);
    int code = DONE;
    if (tern_convert(ctx, path ? path : model, out, &s->convert)) /* a model that is not there is no wrong usage, as in other commands */
        code = library_failed(ctx, tern_error_status(ctx) != TERN_E_NOT_FOUND);
    interrupt_hold(false);
    free(path);
    if (code == DONE)
        run_wrote(&s->run, out, "written, peak memory %s", bytes_text(tern_memory_peak(ctx), bytes));
    return code;
}

static int run(const struct command *command, int argc, char **argv)
{
    struct settings s = {0};
    char **arguments;
    int count, code = options_parse(command, argc, argv, &s, &arguments, &count);
    if (code == GO_ON)
        code = take_words(&s);
    if (code != GO_ON)
        return code;
    s.run.weights = s.run.recipe = NULL; /* of what is computed with nothing */
    interrupt_catch();
    struct tern_context *ctx = run_open(&s.run, &code);
    if (!ctx)
        return code;
    code = convert(ctx, &s, arguments[0], arguments[1]);
    tern_context_destroy(&ctx);
    return code;
}

const struct command convert_command = {
    .name = "convert",
    .arguments = "MODEL OUT",
    .summary = "Writes a model as a folder, as a single file, in another dtype, or quantised.",
    .least = 2,
    .most = 2,
    .opts = {opts, talk_opts},
    .notes = "MODEL is a diffusers folder or a single .safetensors or .ckpt file of SD 1.x, 2.x or SDXL, or \"demo\".\n"
             "OUT appears when it is complete. A folder in, a single file out, and the other way, unless an option says so.\n"
             "What is quantised needs no option where it is used, and stays so here; --dtype f32, f16 or bf16 without\n"
             "--weights or --recipe makes floats of it.\n",
    .apply = apply,
    .run = run,
};
