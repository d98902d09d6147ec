/* tern synth: a checkpoint of full size with random weights, to measure speed and memory without a download. */

#include "command.h"

enum { OPT_SINGLE = OPT_OWN, OPT_SEED };

struct settings {
    struct run_settings run;
    struct tern_synth_params synth;
};

static const struct opt opts[] = {
    {OPT_DTYPE, 0, "dtype", "TYPE", "of the weights: f16 (default) or f32"},
    {OPT_SINGLE, 0, "single-file", NULL, "OUT is one LDM-style .safetensors file, not a folder"},
    {OPT_SEED, 0, "seed", "N", "of the random weights (default 0)"},
    {0},
};

static int apply(const struct opt *opt, const char *value, void *settings)
{
    static const char *const dtypes[] = {"f16", "f32", NULL};
    struct settings *s = settings;
    bool given = true;
    int choice = 0, code = GO_ON;
    switch (opt->id) {
    case OPT_DTYPE:
        code = value_choice(opt, value, dtypes, &choice);
        s->synth.dtype = choice ? TERN_F32 : TERN_F16;
        return code;
    case OPT_SINGLE:
        s->synth.single_file = true;
        return GO_ON;
    case OPT_SEED:
        code = value_seed(opt, value, &s->synth.seed, &given);
        return given ? code : usage("option --seed: expected a whole number from 0, found \"%s\"", value);
    default:
        return run_apply(opt, value, &s->run);
    }
}

static int run(const struct command *command, int argc, char **argv)
{
    struct settings s = {.synth.dtype = TERN_F16};
    char **arguments;
    int count, code = options_parse(command, argc, argv, &s, &arguments, &count);
    if (code != GO_ON)
        return code;
    interrupt_catch();
    struct tern_context *ctx = run_open(&s.run, &code);
    if (!ctx)
        return code;
    s.synth.arch = arguments[0];
    interrupt_hold(true);
    code = tern_synth(ctx, arguments[1], &s.synth) ? library_failed(ctx, true) : DONE;
    interrupt_hold(false);
    if (code == DONE)
        run_wrote(&s.run, arguments[1], "%s, %s", arguments[0], tern_dtype_name(s.synth.dtype));
    tern_context_destroy(&ctx);
    return code;
}

const struct command synth_command = {
    .name = "synth",
    .arguments = "ARCH OUT",
    .summary = "Writes a full-size checkpoint with random weights.",
    .least = 2,
    .most = 2,
    .opts = {opts, talk_opts},
    .notes = "ARCH is sd15 (Stable Diffusion 1.5: 2.1 GB of f16, twice that of f32), sd2 (2.1: 2.6 GB),\n"
             "sdxl (XL base: 6.9 GB) or taiyi (1.x with a Chinese BERT, as a folder only: 2.1 GB). OUT appears when\n"
             "it is complete; a folder must be new or empty.\n",
    .apply = apply,
    .run = run,
};
