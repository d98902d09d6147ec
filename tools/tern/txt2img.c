/* tern txt2img, img2img and inpaint: what they say of themselves, and their command lines. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "picture.h"

#define NOTES_MODEL                                                                                 \
    "MODEL is a diffusers folder, a single .safetensors or .ckpt file, or left out (or \"demo\",\n" \
    "\"demo-zh\") for the demo model.\n"
#define NOTES_IMAGE                                                                               \
    "IMAGE is a PNG, JPEG or WebP file. Without -W and -H its own size counts, rounded down to\n" \
    "multiples of 8; above 2 million pixels they must be given.\n"

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

/* Whether an argument can be a model, but no picture. */
static bool is_model(const char *path)
{
    static const char *const endings[] = {".safetensors", ".ckpt"};
    struct stat st;
    const bool there = !stat(path, &st);
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
        if (strlen(path) > strlen(endings[i]) && !strcasecmp(path + strlen(path) - strlen(endings[i]), endings[i]))
            return true;
    return there ? S_ISDIR(st.st_mode) : !strcmp(path, "demo") || !strcmp(path, "demo-zh");
}

/* The model before the pictures, as other commands have it, is told before it is read as one. */
static int check_order(const struct command *command, char **arguments, int images)
{
    for (int i = 0; i < images; i++)
        if (is_model(arguments[i]))
            return usage("expected %s, pictures first, found \"%s\" in place of %s, which looks like the model", command->arguments,
                         arguments[i], i ? "MASK" : "IMAGE");
    return GO_ON;
}

/* Pictures come first among the arguments, the model last; `images` is how many pictures there are. */
static int run_with(const struct command *command, int argc, char **argv, int images, struct picture_settings *s)
{
    char **arguments;
    struct picture_settings given = {0};
    int count, code = options_parse(command, argc, argv, s, &arguments, &count);
    if (code == GO_ON)
        code = check_order(command, arguments, images);
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
    if ((s->from ? &given : s)->xl.end > 0 && s->xl.refiner[0])
        return usage("option --denoising-end: not together with --refiner, which says where the first model ends");
    if (s->xl.loras.count && !s->xl.refiner[0])
        return usage("option --refiner-lora: works with --refiner only");
    if (s->xl.refiner[0] && hires_wanted(&s->hires))
        return usage("option --refiner: not together with --hires or --hires-size, whose second pass is of one model");
    if (s->preview_vae && !s->preview.path)
        return usage("option --preview-vae: works with --preview only");
    prompt_hint(s, (s->from ? &given : s)->prompt);
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
    .opts = {prompt_opts, from_text_opts, hires_opts, sampling_opts, picture_opts, deepcache_opts, xl_opts, run_opts, talk_opts},
    .notes = NOTES_MODEL,
    .apply = picture_apply,
    .run = run_txt2img,
};

const struct command img2img_command = {
    .name = "img2img",
    .arguments = "IMAGE [MODEL]",
    .summary = "Makes pictures from a picture and a text, or edits it (instruct-pix2pix).",
    .least = 1,
    .most = 2,
    .opts = {prompt_opts, from_image_opts, sampling_opts, picture_opts, deepcache_opts, xl_opts, run_opts, talk_opts},
    .notes = NOTES_IMAGE NOTES_MODEL,
    .apply = picture_apply,
    .run = run_img2img,
};

const struct command inpaint_command = {
    .name = "inpaint",
    .arguments = "IMAGE MASK [MODEL]",
    .summary = "Paints a part of a picture anew.",
    .least = 2,
    .most = 3,
    .opts = {prompt_opts, from_image_opts, sampling_opts, picture_opts, deepcache_opts, xl_opts, run_opts, talk_opts},
    .notes = "MASK is a picture, too: white is painted anew, black and what is transparent is kept.\n" NOTES_IMAGE NOTES_MODEL,
    .apply = picture_apply,
    .run = run_inpaint,
};
