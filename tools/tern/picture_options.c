/* Options of txt2img, img2img and inpaint: the picture and its file, the model, how it is computed. */
#include "picture.h"

enum {
    OPT_WIDTH = OPT_OWN,
    OPT_HEIGHT,
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
    OPT_ON_CPU,
    OPT_PROFILE,
    OPT_OPTIMIZE,
};

const struct opt from_text_opts[] = {
    {OPT_WIDTH, 'W', "width", "N", "pixels, a multiple of 8, at most 8192 (default: the model's,\nwith --init-image that picture's)"},
    {OPT_HEIGHT, 'H', "height", "N", "likewise"},
    {OPT_INIT_IMAGE, 0, "init-image", "FILE", "start from this picture, as img2img does, or edit it"},
    {OPT_STRENGTH, 0, "strength", "X",
     "with --init-image: how much of it is painted anew, above 0\nand at most 1 (default 0.8, instruct-pix2pix 1)"},
    {0},
};

const struct opt from_image_opts[] = {
    {OPT_WIDTH, 'W', "width", "N", "pixels, a multiple of 8, at most 8192 (default: IMAGE's)"},
    {OPT_HEIGHT, 'H', "height", "N", "likewise; one of the two alone keeps the proportion"},
    {OPT_STRENGTH, 0, "strength", "X",
     "how much of IMAGE is painted anew, above 0 and at most 1\n(default: img2img 0.8, inpaint and instruct-pix2pix 1)"},
    {0},
};

_Static_assert(TERN_MAX_PICTURES == 64, "the help of --count says so");

const struct opt picture_opts[] = {
    {OPT_COUNT, 'b', "count", "N", "pictures to make together, 1 to 64 (default 1)"},
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
     "layer by layer at every step, too (default: sequential, or\nstream when --budget or a GPU's memory asks for it); or by\ncomponent:\n"
     "COMPONENT=HOW,..., of text_encoder, text_encoder_2, unet, vae\n(\"sequential,unet=stream,vae=none\")"},
    {OPT_ON_CPU, 0, "on-cpu", "NAMES",
     "components that compute on the CPU beside --device, with\ncommas between: of text_encoder, text_encoder_2, unet, vae"},
    {OPT_OPTIMIZE, 0, "optimize", "FOR",
     "speed, memory or quality: choose among --dtype, --deepcache,\n--offload and tiling by what is predicted, within --budget,\n"
     "and say what and why; options that are given stay"},
    {OPT_PROFILE, 0, "profile", "FILE.json",
     "what each kernel took, and its share of what the device\ncan do (roofline), for Chrome's or Perfetto's trace viewer"},
    {0},
};

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

int picture_apply(const struct opt *opt, const char *value, void *settings)
{
    struct picture_settings *s = settings;
    switch (opt->id) {
    case OPT_WIDTH:
        return value_side(opt, value, 8, &s->width);
    case OPT_HEIGHT:
        return value_side(opt, value, 8, &s->height);
    case OPT_COUNT:
        return value_int(opt, value, 1, TERN_MAX_PICTURES, &s->count);
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
    case OPT_OFFLOAD:
        return offload_apply(opt, value, &s->offload);
    case OPT_ON_CPU:
        return offload_on_cpu(opt, value, &s->on_cpu);
    case OPT_OPTIMIZE:
        return apply_optimize(opt, value, s);
    case OPT_PROFILE:
        s->profile = value;
        return GO_ON;
    default:
        return opt->id >= OPT_PROMPTS     ? prompt_apply(opt, value, s)
               : opt->id >= OPT_SAMPLING  ? sampling_apply(opt, value, s)
               : opt->id >= OPT_DEEPCACHE ? deepcache_apply(opt, value, &s->deepcache)
               : opt->id >= OPT_HIRES     ? hires_apply(opt, value, s)
               : opt->id >= OPT_XL        ? xl_apply(opt, value, &s->xl)
                                          : run_apply(opt, value, &s->run);
    }
}
