/* tern exec: runs one component of a checkpoint on tensors from a file. */
#include <stdio.h>

#include "command.h"

enum { OPT_INPUTS = OPT_OWN, OPT_OUTPUTS, OPT_LORA, OPT_VAE };

struct settings {
    struct run_settings run;
    const char *inputs, *outputs;
    struct lora_options loras;
    const char *vae;
};

static const struct opt opts[] = {
    {OPT_INPUTS, 0, "inputs", "FILE", "safetensors with the component's inputs (needed)"},
    {OPT_OUTPUTS, 0, "outputs", "FILE", "safetensors to write (needed)"},
    {OPT_DTYPE, 0, "dtype", "TYPE",
     "to compute in: f32 (default), bf16, f16, auto: bf16 or f16\nwhere the device is made for it, or int8: the UNet's layers\nin int8, "
     "the rest as auto"},
    {OPT_WEIGHTS, 0, "weights", "TYPE", WEIGHTS_HELP},
    {OPT_RECIPE, 0, "recipe", "FILE", RECIPE_HELP},
    {OPT_LORA, 0, "lora", "FILE:SCALE", LORA_HELP},
    {OPT_VAE, 0, "vae", "FILE", VAE_HELP},
    {0},
};

static int apply(const struct opt *opt, const char *value, void *settings)
{
    struct settings *s = settings;
    if (opt->id == OPT_INPUTS)
        s->inputs = value;
    else if (opt->id == OPT_OUTPUTS)
        s->outputs = value;
    else if (opt->id == OPT_LORA)
        return lora_add(opt, value, &s->loras);
    else if (opt->id == OPT_VAE)
        s->vae = value;
    else
        return run_apply(opt, value, &s->run);
    return GO_ON;
}

/* Of the arguments only the component can be wrong usage; all else is a fault of a file. */
static int exec_failed(const struct tern_context *ctx) { return library_failed(ctx, tern_error_status(ctx) == TERN_E_NOT_FOUND); }

static int execute(struct tern_context *ctx, const struct settings *s, const char *model, const char *component)
{
    struct tern_pipeline *p = NULL;
    struct tern_weights *outputs = NULL, *inputs = tern_weights_open(ctx, s->inputs);
    int code = GO_ON;
    const struct tern_pipeline_params params = {.dtype = run_dtype(&s->run, ctx),
                                                .quantize = run_quantize(&s->run),
                                                .recipe = s->run.recipe,
                                                .text_encoder_quantize = run_text_quantize(&s->run),
                                                .vae = s->vae,
                                                .single_use = true};
    if (!inputs || !(p = tern_pipeline_load(ctx, model, &params)))
        code = library_failed(ctx, false);
    else if ((code = lora_set(ctx, p, &s->loras, NULL)) == GO_ON && !(outputs = tern_pipeline_exec(p, component, inputs)))
        code = exec_failed(ctx);
    if (outputs) {
        interrupt_hold(true);
        code = tern_weights_save(outputs, s->outputs) ? library_failed(ctx, false) : DONE;
        interrupt_hold(false);
    }
    if (code == DONE && s->run.json)
        event_send(json_pack("{s:s, s:I, s:I}", "event", "done", "tensors", (json_int_t)tern_weights_count(outputs), "memory_peak",
                             (json_int_t)tern_memory_peak(ctx)));
    tern_weights_unref(&outputs);
    tern_weights_unref(&inputs);
    tern_pipeline_destroy(&p);
    return code;
}

static int run_with(const struct command *command, int argc, char **argv, struct settings *s)
{
    char **arguments;
    int count, code = options_parse(command, argc, argv, s, &arguments, &count);
    if (code != GO_ON)
        return code;
    if (!s->inputs || !s->outputs)
        return usage("option --%s is missing; see 'tern exec --help'", s->inputs ? "outputs" : "inputs");
    code = output_check_other(s->outputs, s->inputs);
    if (code == GO_ON)
        code = output_check(s->outputs);
    if (code != GO_ON)
        return code;
    interrupt_catch();
    struct tern_context *ctx;
    do {
        ctx = run_open(&s->run, &code);
        if (ctx)
            code = execute(ctx, s, arguments[0], arguments[1]);
    } while (ctx && run_takes_over(&s->run, &ctx, code));
    tern_context_destroy(&ctx);
    run_end(&s->run);
    return code;
}

static int run(const struct command *command, int argc, char **argv)
{
    struct settings s = {.run.device = "auto"};
    int code = run_with(command, argc, argv, &s);
    lora_free(&s.loras);
    return code;
}

const struct command exec_command = {
    .name = "exec",
    .arguments = "MODEL COMPONENT",
    .summary = "Runs one component on tensors from a file.",
    .least = 2,
    .most = 2,
    .opts = {opts, run_opts, talk_opts},
    .notes = "MODEL is a diffusers folder, a single .safetensors or .ckpt file, or \"demo\".\n"
             "Tensors are named as in the forward() of diffusers and transformers:\n\n"
             "  text_encoder  input_ids (N, L) i64, may have attention_mask (N, L) -> last_hidden_state,\n"
             "                pooler_output, hidden_states.0 ...\n"
             "  text_encoder_2  SDXL's second: the same, with text_embeds for pooler_output\n"
             "  unet          sample (N, C, H, W), timestep (1) or (N), encoder_hidden_states (N, L, D),\n"
             "                SDXL also text_embeds (N, P), time_ids (N, 6), a model that is told the\n"
             "                guidance scale (LCM) may have timestep_cond (1, T) or (N, T) -> sample\n"
             "  vae_decoder   latent (N, 4, H, W), divided by the scaling factor -> sample (N, 3, 8H, 8W)\n"
             "  vae_encoder   sample (N, 3, H, W) in -1..1 -> mean, logvar; of a TAESD latents\n",
    .apply = apply,
    .run = run,
};
