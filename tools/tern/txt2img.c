/* tern txt2img, img2img and inpaint: their options. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture.h"

enum {
    OPT_PROMPT = OPT_OWN,
    OPT_NEGATIVE,
    OPT_WIDTH,
    OPT_HEIGHT,
    OPT_STEPS,
    OPT_CFG,
    OPT_IMAGE_CFG,
    OPT_SEED,
    OPT_SAMPLER,
    OPT_SCHEDULE,
    OPT_ETA,
    OPT_S_CHURN,
    OPT_S_TMIN,
    OPT_S_TMAX,
    OPT_S_NOISE,
    OPT_ENSD,
    OPT_DISCARD,
    OPT_COUNT,
    OPT_OUTPUT,
    OPT_INIT_IMAGE,
    OPT_STRENGTH,
    OPT_INIT_LATENTS,
    OPT_SAVE_LATENTS,
    OPT_GENERATOR,
    OPT_TOKENIZER,
    OPT_LORA,
    OPT_VAE,
    OPT_PREVIEW,
    OPT_PREVIEW_VAE,
    OPT_OFFLOAD,
    OPT_PROFILE,
    OPT_OPTIMIZE,
    OPT_SYNTAX,
    OPT_EMPHASIS,
    OPT_CLIP_SKIP,
    OPT_EMBEDDING,
    OPT_LORA_DIR,
    OPT_FROM,
};

static const struct opt prompt_opts[] = {
    {OPT_PROMPT, 'p', "prompt", "TEXT", "what the picture shows (needed, or --from; may be \"\")"},
    {OPT_FROM, 0, "from", "PICTURE",
     "repeat a picture: prompts, seed, size, sampler and so on are\nthose that tern or AUTOMATIC1111 wrote into it (PNG, JPEG,\n"
     "WebP); options that are given count instead"},
    {OPT_NEGATIVE, 'n', "negative", "TEXT", "what it does not show (SDXL: not given is not the same\nas empty)"},
    {OPT_SYNTAX, 0, "prompt-syntax", "NAME",
     "plain: prompts are text (default); a1111: (more), [less],\n(text:1.2), [from:to:when], [a|b], AND, BREAK and any length,\n"
     "as AUTOMATIC1111 reads them"},
    {OPT_EMPHASIS, 0, "emphasis", "NAME", "what (text:1.2) does: original (default), no-norm or ignore"},
    {OPT_CLIP_SKIP, 0, "clip-skip", "N",
     "the text encoder's layer that counts, from behind: 1 is the\nlast one (default). SD 2 and SDXL have their own: no effect"},
    {OPT_EMBEDDING, 0, "embedding", "FILE:NAME",
     "a textual inversion and its name in prompts (default: that\nof the file), as often as needed"},
    {OPT_LORA_DIR, 0, "lora-dir", "DIR", "where <lora:NAME:SCALE> in a prompt of a1111's syntax finds\nits file"},
    {0},
};

static const struct opt from_text_opts[] = {
    {OPT_WIDTH, 'W', "width", "N", "pixels, a multiple of 8, at most 8192 (default: the model's)"},
    {OPT_HEIGHT, 'H', "height", "N", "likewise"},
    {OPT_INIT_IMAGE, 0, "init-image", "FILE", "start from this picture, as img2img does, or edit it"},
    {OPT_STRENGTH, 0, "strength", "X", "with --init-image: how much of it is painted anew, above 0\nand at most 1 (default 0.8)"},
    {0},
};

static const struct opt from_image_opts[] = {
    {OPT_WIDTH, 'W', "width", "N", "pixels, a multiple of 8, at most 8192 (default: IMAGE's)"},
    {OPT_HEIGHT, 'H', "height", "N", "likewise; one of the two alone keeps the proportion"},
    {OPT_STRENGTH, 0, "strength", "X",
     "how much of IMAGE is painted anew, above 0 and at most 1\n(default: img2img 0.8, inpaint and instruct-pix2pix 1)"},
    {0},
};

static const struct opt picture_opts[] = {
    {OPT_STEPS, 0, "steps", "N", "sampling steps, 1 to 1000 (default 20)"},
    {OPT_CFG, 0, "cfg", "X", "guidance scale, 0 to 1000 (default 7.5, SDXL 5,\nthe model that ships with tern 4); at most 1: none"},
    {OPT_IMAGE_CFG, 0, "image-cfg", "X",
     "instruct-pix2pix: guidance scale of the picture, above 0\n(default 1.5); below 1: no guidance at all"},
    {OPT_SEED, 0, "seed", "N", "seed of the first picture, the next has N + 1 and so on;\n-1: random, and shown (default)"},
    {OPT_SAMPLER, 0, "sampler", "NAME",
     "ddim, pndm, euler, euler_a, dpm++2m, heun, lms, unipc, lcm,\ndpm2, dpm2_a, ddpm, tcd, dpm++2s_a, dpm++sde,\ndpm++2m_sde, "
     "dpm++2m_sde_heun, dpm++3m_sde, dpm_fast,\n"
     "dpm_adaptive (default: the model's); \"DPM++ 2M Karras\"\nand the like, too"},
    {OPT_SCHEDULE, 0, "schedule", "NAME",
     "default, karras, exponential, beta, sgm_uniform, simple,\nnormal, ddim_uniform or align_your_steps"},
    {OPT_ETA, 0, "eta", "X",
     "how much of its noise an ancestral, DPM or SDE sampler adds\n(default 1), or ddim (default 0), 0 to 10; tcd's gamma, 0 to "
     "1\n(default 0.3)"},
    {OPT_S_CHURN, 0, "s-churn", "X", "euler, heun, dpm2: noise before each step (sigma churn),\n0 to 1000 (default 0)"},
    {OPT_S_TMIN, 0, "s-tmin", "X", "the lowest noise level at which that is done (default 0)"},
    {OPT_S_TMAX, 0, "s-tmax", "X", "the highest one (default 0: no limit)"},
    {OPT_S_NOISE, 0, "s-noise", "X", "factor of the noise that steps add, 0 to 10 (default 1)"},
    {OPT_ENSD, 0, "ensd", "N", "eta noise seed delta: noise after the first is of the seed\nplus N (default 0: of the seed, going on)"},
    {OPT_DISCARD, 0, "discard-penultimate-sigma", NULL,
     "\nleave out the last noise level but one, of one step more;\nAUTOMATIC1111 does so for dpm2, dpm2_a and dpm++3m_sde"},
    {OPT_COUNT, 'b', "count", "N", "pictures to make together, 1 to 256 (default 1)"},
    {OPT_OUTPUT, 'o', "output", "FILE",
     ".png, .jpg, .jpeg or .webp (default out.png); with -b 2 or\nmore FILE out.png becomes out-1.png, out-2.png, ..."},
    {OPT_DTYPE, 0, "dtype", "TYPE",
     "to compute in: f32 (default), bf16, f16, auto: bf16 or f16\nwhere the device is made for it, or int8: the UNet's layers\nin int8, "
     "the rest as auto"},
    {OPT_WEIGHTS, 0, "weights", "TYPE", WEIGHTS_HELP},
    {OPT_RECIPE, 0, "recipe", "FILE", RECIPE_HELP},
    {OPT_INIT_LATENTS, 0, "init-latents", "FILE",
     "safetensors with \"latents\" (N, 4, H/8, W/8): unit noise\nthat is used instead of the seed's"},
    {OPT_SAVE_LATENTS, 0, "save-latents", "FILE", "safetensors: the latents after the last step"},
    {OPT_GENERATOR, 0, "generator", "KIND", "whose noise the seed gives: PyTorch's cpu (default) or cuda"},
    {OPT_TOKENIZER, 0, "tokenizer", "DIR", "a tokenizer folder instead of the model's"},
    {OPT_LORA, 0, "lora", "FILE:SCALE", LORA_HELP},
    {OPT_VAE, 0, "vae", "FILE", VAE_HELP},
    {OPT_PREVIEW, 0, "preview", "FILE:EVERY",
     "write what the picture becomes to FILE, after every so many\nmodel calls (default 1); the names are those of -o"},
    {OPT_PREVIEW_VAE, 0, "preview-vae", "FILE", "a TAESD that makes them, at full size (default: a linear map,\nat an eighth of it)"},
    {OPT_OFFLOAD, 0, "offload", "HOW",
     "none: weights stay in memory; sequential: each component\nleaves after its stage; stream: the UNet's weights are brought\n"
     "layer by layer at every step, too (default: sequential, or\nstream when --budget asks for it); or by component:\n"
     "COMPONENT=HOW,..., of text_encoder, text_encoder_2, unet, vae\n(\"sequential,unet=stream,vae=none\")"},
    {OPT_OPTIMIZE, 0, "optimize", "FOR",
     "speed, memory or quality: choose among --dtype, --deepcache,\n--offload and tiling by what is predicted, within --budget,\n"
     "and say what and why; options that are given stay"},
    {OPT_PROFILE, 0, "profile", "FILE.json",
     "what each kernel took, and its share of what the device\ncan do (roofline), for Chrome's or Perfetto's trace viewer"},
    {0},
};

#define NOTES_MODEL                                                                                 \
    "MODEL is a diffusers folder, a single .safetensors or .ckpt file, or left out (or \"demo\",\n" \
    "\"demo-zh\") for the demo model.\n"
#define NOTES_IMAGE                                                                               \
    "IMAGE is a PNG, JPEG or WebP file. Without -W and -H its own size counts, rounded down to\n" \
    "multiples of 8; above 2 million pixels they must be given.\n"

static int apply_side(const struct opt *opt, const char *text, int *out)
{
    int code = value_int(opt, text, 8, 8192, out);
    if (code == GO_ON && *out % 8)
        return usage("option --%s: expected a multiple of 8, found %d; %d and %d are near", opt->name, *out, *out / 8 * 8,
                     *out / 8 * 8 + 8);
    return code;
}

static int apply_sampler(const struct opt *opt, const char *text, struct picture_settings *s)
{
    enum tern_schedule schedule = TERN_SCHEDULE_DEFAULT;
    int code = value_sampler(opt, text, &s->sampler, &schedule);
    if (code == GO_ON && !s->schedule_given)
        s->schedule = schedule;
    return code;
}

static int apply_schedule(const struct opt *opt, const char *text, struct picture_settings *s)
{
    s->schedule_given = true;
    return value_schedule(opt, text, &s->schedule);
}

static int apply_cfg(const struct opt *opt, const char *text, struct picture_settings *s)
{
    int code = value_number(opt, text, 0, false, 1000, &s->cfg);
    if (code == GO_ON && s->cfg < 1)
        s->cfg = 1; /* as 0 means the default to the library, and all up to 1 is the same */
    return code;
}

/* A factor of which 0 means 0, where the library takes it as its default. */
static int apply_factor(const struct opt *opt, const char *text, double *out)
{
    int code = value_number(opt, text, 0, false, 10, out);
    *out = *out == 0 ? -1 : *out;
    return code;
}

static int apply_sampler_option(const struct opt *opt, const char *text, struct picture_settings *s)
{
    struct tern_sampler_options *o = &s->sampler_options;
    switch (opt->id) {
    case OPT_ETA:
        return apply_factor(opt, text, &o->eta);
    case OPT_S_NOISE:
        return apply_factor(opt, text, &o->s_noise);
    case OPT_S_CHURN:
        return value_number(opt, text, 0, false, 1000, &o->s_churn);
    case OPT_S_TMIN:
        return value_number(opt, text, 0, false, 1e6, &o->s_tmin);
    case OPT_S_TMAX:
        return value_number(opt, text, 0, false, 1e6, &o->s_tmax);
    case OPT_DISCARD:
        o->discard_penultimate_sigma = true;
        return GO_ON;
    default:
        return value_int(opt, text, INT32_MIN, INT32_MAX, &s->ensd);
    }
}

static int apply_generator(const struct opt *opt, const char *text, struct picture_settings *s)
{
    static const char *const kinds[] = {"cpu", "cuda", NULL};
    int kind = 0, code = value_choice(opt, text, kinds, &kind);
    s->generator = kind ? TERN_GENERATOR_CUDA : TERN_GENERATOR_CPU;
    return code;
}

static int apply_optimize(const struct opt *opt, const char *text, struct picture_settings *s)
{
    static const char *const goals[] = {"speed", "memory", "quality", NULL}; /* enum tern_goal */
    int goal = 0, code = value_choice(opt, text, goals, &goal);
    s->optimize = goal + 1;
    return code;
}

/* Options that say how prompts are read. */
static int apply_prompt(const struct opt *opt, const char *value, struct picture_settings *s)
{
    static const char *const syntaxes[] = {"plain", "a1111", NULL}, *const kinds[] = {"original", "no-norm", "ignore", NULL};
    int choice = 0, code;
    switch (opt->id) {
    case OPT_SYNTAX:
        code = value_choice(opt, value, syntaxes, &choice);
        s->prompt_syntax = (enum tern_prompt_syntax)choice;
        return code;
    case OPT_EMPHASIS:
        code = value_choice(opt, value, kinds, &choice);
        s->emphasis = (enum tern_emphasis)choice;
        return code;
    case OPT_CLIP_SKIP:
        return value_int(opt, value, 1, 64, &s->clip_skip);
    case OPT_LORA_DIR:
        s->lora_dir = value;
        return GO_ON;
    case OPT_FROM:
        s->from = value;
        return GO_ON;
    default:
        return embedding_add(opt, value, &s->embeddings);
    }
}

static int apply(const struct opt *opt, const char *value, void *settings)
{
    struct picture_settings *s = settings;
    switch (opt->id) {
    case OPT_PROMPT:
        s->prompt = value;
        return GO_ON;
    case OPT_NEGATIVE:
        s->negative = value;
        return GO_ON;
    case OPT_WIDTH:
        return apply_side(opt, value, &s->width);
    case OPT_HEIGHT:
        return apply_side(opt, value, &s->height);
    case OPT_STEPS:
        return value_int(opt, value, 1, 1000, &s->steps);
    case OPT_CFG:
        return apply_cfg(opt, value, s);
    case OPT_IMAGE_CFG:
        return value_number(opt, value, 0, true, 1000, &s->image_cfg);
    case OPT_SEED:
        return value_seed(opt, value, &s->seed, &s->seed_given);
    case OPT_SAMPLER:
        return apply_sampler(opt, value, s);
    case OPT_SCHEDULE:
        return apply_schedule(opt, value, s);
    case OPT_ETA:
    case OPT_S_CHURN:
    case OPT_S_TMIN:
    case OPT_S_TMAX:
    case OPT_S_NOISE:
    case OPT_ENSD:
    case OPT_DISCARD:
        return apply_sampler_option(opt, value, s);
    case OPT_COUNT:
        return value_int(opt, value, 1, 256, &s->count);
    case OPT_OUTPUT:
        s->output = value;
        return output_check_ending(opt, value);
    case OPT_INIT_IMAGE:
        s->image = value;
        return GO_ON;
    case OPT_STRENGTH:
        return value_number(opt, value, 0, true, 1, &s->strength);
    case OPT_INIT_LATENTS:
        s->init_latents = value;
        return GO_ON;
    case OPT_SAVE_LATENTS:
        s->save_latents = value;
        return GO_ON;
    case OPT_GENERATOR:
        return apply_generator(opt, value, s);
    case OPT_TOKENIZER:
        s->tokenizer = value;
        return GO_ON;
    case OPT_LORA:
        return lora_add(opt, value, &s->loras);
    case OPT_VAE:
        s->vae = value;
        return GO_ON;
    case OPT_PREVIEW:
        return preview_set(opt, value, &s->preview);
    case OPT_PREVIEW_VAE:
        s->preview_vae = value;
        return GO_ON;
    case OPT_SYNTAX:
    case OPT_EMPHASIS:
    case OPT_CLIP_SKIP:
    case OPT_EMBEDDING:
    case OPT_LORA_DIR:
    case OPT_FROM:
        return apply_prompt(opt, value, s);
    case OPT_OFFLOAD:
        return offload_apply(opt, value, &s->offload);
    case OPT_OPTIMIZE:
        return apply_optimize(opt, value, s);
    case OPT_PROFILE:
        s->profile = value;
        return GO_ON;
    default:
        return opt->id >= OPT_DEEPCACHE ? deepcache_apply(opt, value, &s->deepcache)
               : opt->id >= OPT_HIRES   ? hires_apply(opt, value, &s->hires)
               : opt->id >= OPT_XL      ? xl_apply(opt, value, &s->xl)
                                        : run_apply(opt, value, &s->run);
    }
}

static const struct picture_settings defaults = {.run.device = "auto", .output = "out.png", .steps = 20, .count = 1, .cfg = -1};

static void free_settings(struct picture_settings *s)
{
    lora_free(&s->loras);
    lora_free(&s->xl.loras);
    embedding_free(&s->embeddings);
    free(s->preview.path);
    from_free(s);
}

/* The options once more, over what the picture of --from says. *given: what the command line said alone. */
static int parse_over_picture(const struct command *command, int argc, char **argv, struct picture_settings *s,
                              struct picture_settings *given, char ***arguments, int *count)
{
    *given = *s;
    free_settings(s);
    *s = defaults;
    int code = from_read(given->from, given, s);
    optind = 0; /* getopt begins anew */
    return code == GO_ON ? options_parse(command, argc, argv, s, arguments, count) : code;
}

/* Pictures come first among the arguments, the model last; `images` is how many pictures there are. */
static int run_with(const struct command *command, int argc, char **argv, int images, struct picture_settings *s)
{
    char **arguments;
    struct picture_settings given = {0};
    int count, code = options_parse(command, argc, argv, s, &arguments, &count);
    if (code == GO_ON && s->from)
        code = parse_over_picture(command, argc, argv, s, &given, &arguments, &count);
    if (code != GO_ON)
        return code;
    if (!s->prompt)
        return usage("option --prompt is missing, or --from; see 'tern %s --help'", command->name);
    if (images > 0)
        s->image = arguments[0];
    if (images > 1)
        s->mask = arguments[1];
    if (count > images)
        s->model = arguments[images];
    if (s->from)
        from_fit(s, &given);
    if (s->strength > 0 && !s->image)
        return usage("option --strength: works with --init-image only");
    if (s->image_cfg > 0 && !s->image)
        return usage("option --image-cfg: works with --init-image only");
    if (s->emphasis && s->prompt_syntax != TERN_PROMPT_A1111)
        return usage("option --emphasis: works with --prompt-syntax a1111 only");
    if (s->lora_dir && s->prompt_syntax != TERN_PROMPT_A1111 && !s->from)
        return usage("option --lora-dir: works with --prompt-syntax a1111 only; --lora names files");
    if (s->xl.loras.count && !s->xl.refiner[0])
        return usage("option --refiner-lora: works with --refiner only");
    if (s->preview_vae && !s->preview.path)
        return usage("option --preview-vae: works with --preview only");
    code = deepcache_check(&s->deepcache);
    code = code == GO_ON ? hires_check(&s->hires) : code;
    return code == GO_ON ? picture_make(s) : code;
}

static int run(const struct command *command, int argc, char **argv, int images)
{
    struct picture_settings s = defaults;
    int code = run_with(command, argc, argv, images, &s);
    free_settings(&s);
    return code;
}

static int run_txt2img(const struct command *command, int argc, char **argv) { return run(command, argc, argv, 0); }
static int run_img2img(const struct command *command, int argc, char **argv) { return run(command, argc, argv, 1); }
static int run_inpaint(const struct command *command, int argc, char **argv) { return run(command, argc, argv, 2); }

const struct command txt2img_command = {
    .name = "txt2img",
    .arguments = "[MODEL]",
    .summary = "Makes pictures from a text.",
    .least = 0,
    .most = 1,
    .opts = {prompt_opts, from_text_opts, hires_opts, picture_opts, deepcache_opts, xl_opts, run_opts, talk_opts},
    .notes = NOTES_MODEL,
    .apply = apply,
    .run = run_txt2img,
};

const struct command img2img_command = {
    .name = "img2img",
    .arguments = "IMAGE [MODEL]",
    .summary = "Makes pictures from a picture and a text, or edits it (instruct-pix2pix).",
    .least = 1,
    .most = 2,
    .opts = {prompt_opts, from_image_opts, picture_opts, deepcache_opts, xl_opts, run_opts, talk_opts},
    .notes = NOTES_IMAGE NOTES_MODEL,
    .apply = apply,
    .run = run_img2img,
};

const struct command inpaint_command = {
    .name = "inpaint",
    .arguments = "IMAGE MASK [MODEL]",
    .summary = "Paints a part of a picture anew.",
    .least = 2,
    .most = 3,
    .opts = {prompt_opts, from_image_opts, picture_opts, deepcache_opts, xl_opts, run_opts, talk_opts},
    .notes = "MASK is a picture, too: white is painted anew, black is kept.\n" NOTES_IMAGE NOTES_MODEL,
    .apply = apply,
    .run = run_inpaint,
};
