/* tern quantize: which layers of a model's UNet may compute in int8. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/quantize.h>
#include <unistd.h>

#include "quantize_report.h"

enum {
    OPT_PROMPT = OPT_OWN,
    OPT_PROMPTS,
    OPT_NEGATIVE,
    OPT_INIT_IMAGE,
    OPT_OUTPUT,
    OPT_REPORT,
    OPT_RESTART,
    OPT_BITS,
    OPT_CONV,
    OPT_LINEAR,
    OPT_ATTENTION,
    OPT_SLOWER,
    OPT_CONV_THRESHOLD,
    OPT_LINEAR_THRESHOLD,
    OPT_DENSITY,
    OPT_SMOOTH,
    OPT_SSIM,
    OPT_SPEEDUP,
    OPT_WIDTH,
    OPT_HEIGHT,
    OPT_STEPS,
    OPT_CFG,
    OPT_SEED,
    OPT_SAMPLER,
};

#define MOST_PROMPTS 1024
#define MARK "\xef\xbb\xbf" /* of UTF-8 */

struct settings {
    struct run_settings run;
    struct tern_quantize_params q;
    char *prompt[MOST_PROMPTS]; /* owned */
    int n_prompts;
    const char *output, *report, *image;
};

static const struct opt opts[] = {
    {OPT_PROMPT, 'p', "prompt", "TEXT",
     "a text to calibrate with, as often as needed: what is\nusually painted with the model (needed, or --prompts)"},
    {OPT_PROMPTS, 0, "prompts", "FILE", "texts to calibrate with, one a line"},
    {OPT_NEGATIVE, 'n', "negative", "TEXT", "what the pictures do not show"},
    {OPT_INIT_IMAGE, 0, "init-image", "FILE", "instruct-pix2pix: the picture that the texts edit (needed there)"},
    {OPT_OUTPUT, 'o', "output", "FILE", "the recipe to write (default recipe.json). FILE.state is\nthere while it is made"},
    {OPT_REPORT, 0, "report", "FILE.md", "a table of all layers, and the pictures without and with the\nrecipe beside it"},
    {OPT_RESTART, 0, "restart", NULL, "begin anew where an interrupted run would go on"},
    {OPT_BITS, 0, "bits", "N", "8; 4 bits are for weights alone: --weights int4 of other\ncommands, of tern convert, too"},
    {OPT_CONV, 0, "quantize-conv", NULL, "convolutions may be int8; with none of these three options\nall may"},
    {OPT_LINEAR, 0, "quantize-linear", NULL, "linear layers may be int8"},
    {OPT_ATTENTION, 0, "quantize-attention", NULL, "\nattention may be int8, all of it together"},
    {OPT_SLOWER, 0, "quantize-slower", NULL, "\nlayers that take longer in int8 may be int8, too: their\nweights take half of the memory"},
    {OPT_CONV_THRESHOLD, 0, "conv-mse-threshold", "X",
     "\nmost error of a convolution by itself: mean square of what\nthe latents differ by, over their variance (default 0.1)"},
    {OPT_LINEAR_THRESHOLD, 0, "linear-mse-threshold", "X", "\nlikewise of a linear layer, or of attention (default 0.1)"},
    {OPT_DENSITY, 0, "compute-density-threshold", "X", "\nleast operations for each byte that a layer moves\n(default 0: no limit)"},
    {OPT_SMOOTH, 0, "smooth-quant", "X",
     "\ndivide what norms give by factors of each channel, and\nmultiply the weights behind them: above 0 and below 1; 0.7\nleaves about a "
     "quarter less error on \"demo\" (default:\nnone)"},
    {OPT_SSIM, 0, "ssim", "X", "target: leave out layers until the pictures are that much\nlike those without, above 0 and below 1"},
    {OPT_SPEEDUP, 0, "speedup", "X",
     "target: the layers of least error that make a call of the\nUNet that many times faster, at least 1.0001"},
    {OPT_WIDTH, 'W', "width", "N",
     "pixels, a multiple of 8, 16 to 8192 (default: the model's);\nerrors are measured at a size of at most 256"},
    {OPT_HEIGHT, 'H', "height", "N", "likewise"},
    {OPT_STEPS, 0, "steps", "N", "sampling steps, 1 to 1000 (default 8)"},
    {OPT_CFG, 0, "cfg", "X", "guidance scale, 0 to 1000 (default: the model's); at most 1:\nnone"},
    {OPT_SEED, 0, "seed", "N", "seed of the first prompt, the next has N + 1 and so on\n(default 0)"},
    {OPT_SAMPLER, 0, "sampler", "NAME", "as of txt2img (default: the model's)"},
    {OPT_DTYPE, 0, "dtype", "TYPE", "of all that is not int8: f32, bf16, f16 or auto (default)"},
    {0},
};

/* ---- prompts */

static int add_prompt(struct settings *s, const char *text)
{
    if (s->n_prompts == MOST_PROMPTS)
        return usage("option --prompt: at most %d texts", MOST_PROMPTS);
    s->prompt[s->n_prompts] = strdup(text);
    return s->prompt[s->n_prompts++] ? GO_ON : failed("out of memory");
}

/* Empty lines are not prompts, and the mark that editors of Windows put before UTF-8 is none of a prompt's letters. */
static int read_prompts(struct settings *s, const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t size = 0;
    int code = GO_ON, before = s->n_prompts;
    if (!file)
        return failed("%s: cannot be opened: %s", path, strerror(errno));
    for (bool first = true; code == GO_ON && getline(&line, &size, file) >= 0; first = false) {
        const char *text = line + (first && !strncmp(line, MARK, strlen(MARK)) ? strlen(MARK) : 0);
        line[strcspn(line, "\r\n")] = 0;
        if (*text)
            code = add_prompt(s, text);
    }
    if (code == GO_ON && !feof(file)) /* without memory for a line there is no error in the file */
        code = failed("%s: cannot be read: %s", path, strerror(errno));
    else if (code == GO_ON && s->n_prompts == before)
        code = failed("%s: expected prompts, one a line, found none", path);
    free(line);
    fclose(file);
    return code;
}

/* ---- options */

/* Of a number that 0 means the default of to the library: the least there is. */
static int apply_least(const struct opt *opt, const char *text, double most, double *out)
{
    int code = value_number(opt, text, 0, false, most, out);
    *out = *out > 0 ? *out : 1e-300;
    return code;
}

static int apply_target(const struct opt *opt, const char *text, struct settings *s)
{
    const bool ssim = opt->id == OPT_SSIM;
    int code = ssim ? value_part(opt, text, &s->q.ssim) : value_number(opt, text, 1.0001, false, 100, &s->q.speedup);
    return code == GO_ON && s->q.ssim > 0 && s->q.speedup > 0
               ? usage("option --%s: expected one of --ssim and --speedup, found both", opt->name)
               : code;
}

static int apply_job(const struct opt *opt, const char *value, struct settings *s)
{
    bool given;
    int code;
    switch (opt->id) {
    case OPT_WIDTH:
        return value_side(opt, value, 16, &s->q.width);
    case OPT_HEIGHT:
        return value_side(opt, value, 16, &s->q.height);
    case OPT_STEPS:
        return value_int(opt, value, 1, 1000, &s->q.steps);
    case OPT_CFG:
        code = value_number(opt, value, 0, false, 1000, &s->q.cfg);
        s->q.cfg = s->q.cfg == 0 ? TERN_CFG_ZERO : s->q.cfg;
        return code;
    case OPT_SEED:
        code = value_seed(opt, value, &s->q.seed, &given);
        return given ? code : usage("option --seed: expected a whole number from 0, found \"%s\"", value);
    case OPT_SAMPLER:
        return value_sampler(opt, value, &s->q.sampler, &s->q.schedule, false);
    default:
        return run_apply(opt, value, &s->run);
    }
}

/* Pictures lie beside it, with names that begin as its own without the ending. */
static int apply_report(const struct opt *opt, const char *value, struct settings *s)
{
    const size_t n = strlen(value);
    s->report = value;
    return n > 3 && !strcmp(value + n - 3, ".md") ? GO_ON
                                                  : usage("option --%s: expected a name that ends in .md, found \"%s\"", opt->name, value);
}

static int apply(const struct opt *opt, const char *value, void *settings)
{
    struct settings *s = settings;
    switch (opt->id) {
    case OPT_PROMPT:
        return add_prompt(s, value);
    case OPT_PROMPTS:
        return read_prompts(s, value);
    case OPT_NEGATIVE:
        s->q.negative_prompt = value;
        return GO_ON;
    case OPT_INIT_IMAGE:
        s->image = value;
        return GO_ON;
    case OPT_OUTPUT:
        s->output = value;
        return GO_ON;
    case OPT_REPORT:
        return apply_report(opt, value, s);
    case OPT_RESTART:
        s->q.restart = true;
        return GO_ON;
    case OPT_BITS:
        return value_int(opt, value, 8, 8, &s->q.bits);
    case OPT_CONV:
        s->q.quantize_conv = true;
        return GO_ON;
    case OPT_LINEAR:
        s->q.quantize_linear = true;
        return GO_ON;
    case OPT_ATTENTION:
        s->q.quantize_attention = true;
        return GO_ON;
    case OPT_SLOWER:
        s->q.quantize_slower = true;
        return GO_ON;
    case OPT_CONV_THRESHOLD:
        return apply_least(opt, value, 1e6, &s->q.conv_mse_threshold);
    case OPT_LINEAR_THRESHOLD:
        return apply_least(opt, value, 1e6, &s->q.linear_mse_threshold);
    case OPT_DENSITY:
        return value_number(opt, value, 0, false, 1e9, &s->q.compute_density_threshold);
    case OPT_SMOOTH:
        return value_part(opt, value, &s->q.smooth_quant);
    case OPT_SSIM:
    case OPT_SPEEDUP:
        return apply_target(opt, value, s);
    default:
        return apply_job(opt, value, s);
    }
}

/* ---- the run */

static int quantize(struct tern_context *ctx, struct settings *s, const char *model, struct report *report)
{
    struct tern_image *image = s->image ? tern_image_load(ctx, s->image) : NULL;
    struct tern_pipeline *p = tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.dtype = run_dtype(&s->run, ctx)});
    s->q.init_image = image;
    struct tern_recipe *recipe = p ? tern_pipeline_quantize(p, &s->q) : NULL;
    int code =
        recipe ? GO_ON
               : library_failed(ctx, p && tern_error_status(ctx) == TERN_E_INVALID); /* a tokenizer that is not there is no wrong usage */
    if (recipe) {
        interrupt_hold(true);
        code = tern_recipe_save(recipe, s->output) ? library_failed(ctx, false) : GO_ON;
        interrupt_hold(false);
    }
    if (code == GO_ON && s->report)
        code = report_write(report, recipe, s->report);
    if (code == GO_ON) {
        unlink(s->q.state); /* not before: a full disk would cost what took hours to measure */
        report_tell(&s->run, recipe, s->output);
    }
    if (code == FAILED && p && !s->run.quiet && !access(s->q.state, F_OK))
        fprintf(stderr, "tern: what was measured is kept in %s; the same command goes on there, or one with another target\n", s->q.state);
    tern_recipe_destroy(&recipe);
    tern_pipeline_destroy(&p);
    tern_image_destroy(&image);
    return code == GO_ON ? DONE : code;
}

static int run_with(const struct command *command, int argc, char **argv, struct settings *s)
{
    char **arguments, state[4096];
    struct report report = {.path = NULL};
    int count, code = options_parse(command, argc, argv, s, &arguments, &count);
    if (code != GO_ON)
        return code;
    if (!s->n_prompts)
        return usage(
            "option --prompt is missing, or --prompts: calibration needs texts, best those that are usually painted with the model");
    if (s->run.quantize)
        return usage("option --dtype: expected f32, bf16, f16 or auto, found \"int8\": that is what is measured");
    if ((size_t)snprintf(state, sizeof(state), "%s.state", s->output) >= sizeof(state))
        return failed("%s: cannot be written: the name is too long", s->output);
    code = output_check_all((const char *const[]){s->output, s->report, state}, 3);
    if (code != GO_ON)
        return code;
    s->q.state = state;
    s->q.keep_state = true;
    s->q.prompts = (const char *const *)s->prompt;
    s->q.n_prompts = s->n_prompts;
    report.path = s->report;
    s->q.on_picture = s->report ? report_picture : NULL;
    s->q.on_picture_user = &report;
    interrupt_catch();
    struct tern_context *ctx = report.ctx = run_open(&s->run, &code);
    if (ctx)
        code = quantize(ctx, s, arguments[0], &report);
    if (ctx && code == CANCELLED && !s->run.quiet && !access(state, F_OK))
        fprintf(stderr, "tern: the same command goes on where it was, by %s\n", state);
    tern_context_destroy(&ctx);
    return code;
}

static int run(const struct command *command, int argc, char **argv)
{
    struct settings *s = calloc(1, sizeof(*s));
    if (!s)
        return failed("out of memory");
    s->run.dtype = TERN_DTYPE_COUNT;
    s->output = "recipe.json";
    int code = run_with(command, argc, argv, s);
    for (int i = 0; i < s->n_prompts; i++)
        free(s->prompt[i]);
    free(s);
    return code;
}

const struct command quantize_command = {
    .name = "quantize",
    .arguments = "MODEL",
    .summary = "Finds the layers that may compute in int8, and writes a recipe of them.",
    .least = 1,
    .most = 1,
    .opts = {opts, run_opts, talk_opts},
    .notes = "MODEL is a diffusers folder, a single .safetensors or .ckpt file, or \"demo\". The recipe is for every model of\n"
             "its architecture: 'tern txt2img --recipe FILE'. Without a target all layers below their thresholds are int8 that\n"
             "do not take longer so.\n"
             "What was measured is left in FILE.state by Ctrl-C, by a target that cannot be reached, and where FILE cannot be\n"
             "written; the same command goes on there, or one with another target.\n",
    .apply = apply,
    .run = run,
};
