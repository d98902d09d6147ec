/* --from: what the infotext of a picture says, in the settings of a job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture.h"

static int read_picture(const char *path, struct picture_settings *s, const struct run_settings *run)
{
    struct run_settings quick = {.quiet = run->quiet, .json = run->json}; /* no device that has to be found first */
    int code = GO_ON;
    s->from_ctx = run_open(&quick, &code);
    if (!s->from_ctx)
        return code;
    struct tern_image *img = tern_image_load(s->from_ctx, path);
    if (!img)
        return library_failed(s->from_ctx, false);
    const char *text = tern_image_text(img, "parameters");
    if (!text)
        code = failed("%s: the picture has no infotext: expected a text \"parameters\" in a PNG, or an EXIF UserComment", path);
    else if (tern_infotext_read(s->from_ctx, text, &s->infotext))
        code = library_failed(s->from_ctx, false);
    tern_image_destroy(&img);
    return code;
}

int from_read(const char *path, const struct picture_settings *given, struct picture_settings *s)
{
    int code = read_picture(path, s, &given->run);
    if (code != GO_ON)
        return code;
    const struct tern_txt2img_params *p = &s->infotext.params;
    s->from = path;
    s->prompt = p->prompt;
    s->negative = p->negative_prompt;
    s->prompt_syntax = p->prompt_syntax;
    s->emphasis = p->emphasis;
    s->clip_skip = p->clip_skip;
    s->width = p->width / 8 * 8;
    s->height = p->height / 8 * 8;
    s->steps = p->steps ? p->steps : s->steps;
    s->cfg = p->cfg > 0 ? p->cfg : s->cfg;
    s->image_cfg = p->image_guidance_scale;
    s->seed = p->seed;
    s->seed_given = true;
    s->generator = p->generator;
    s->ensd = (int)p->ensd;
    s->strength = p->strength;
    deepcache_take(&s->deepcache, p);
    if (given->sampler == TERN_SAMPLER_DEFAULT) { /* another sampler has schedules and options of its own */
        s->sampler = p->sampler;
        s->schedule = p->schedule;
        s->sampler_options = p->sampler_options;
    }
    return GO_ON;
}

/* The name that the library gives a model in infotexts: of the file, without its ending. */
static bool is_model(const char *path, const char *name)
{
    path = path ? path : "demo";
    size_t n = strlen(path), k = strlen(name);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    return n - start >= k && !strncmp(path + start, name, k) && (n - start == k || path[start + k] == '.');
}

/* What of the picture this job does not follow, in one message. */
static void tell(const struct picture_settings *s, bool strength, bool image_cfg)
{
    const struct tern_infotext *t = &s->infotext;
    const struct {
        const char *name, *value;
    } more[] = {
        {"Model: ", t->model && !is_model(s->model, t->model) ? t->model : ""},
        {"Denoising strength", strength ? " (it was made by img2img)" : ""},
        {"Image CFG scale", image_cfg ? " (a picture was edited)" : ""},
        {"LoRAs (--lora-dir finds them): ", s->lora_dir || s->loras.count ? "" : t->loras},
        {"", t->ignored},
    };
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    for (size_t i = 0; out && i < sizeof(more) / sizeof(*more); i++)
        if (*more[i].value)
            fprintf(out, "%s%s%s", ftell(out) > 0 ? ", " : "", more[i].name, more[i].value);
    if (out)
        fclose(out);
    if (text && *text && s->run.json)
        event_send(json_pack("{s:s, s:s}", "event", "not_followed", "fields", text));
    else if (text && *text)
        fprintf(stderr, "tern: warning: %s: what is not followed of it: %s\n", s->from, text);
    free(text);
}

void from_fit(struct picture_settings *s, const struct picture_settings *given)
{
    const bool strength = !s->image && s->strength > 0 && given->strength == 0;
    const bool image_cfg = !s->image && s->image_cfg > 0 && given->image_cfg == 0;
    if (strength)
        s->strength = 0;
    if (image_cfg)
        s->image_cfg = 0;
    if (s->prompt_syntax == TERN_PROMPT_PLAIN && given->emphasis == TERN_EMPHASIS_ORIGINAL)
        s->emphasis = TERN_EMPHASIS_ORIGINAL;
    tell(s, strength, image_cfg);
}

void from_free(struct picture_settings *s)
{
    if (s->from_ctx)
        tern_infotext_free(s->from_ctx, &s->infotext);
    tern_context_destroy(&s->from_ctx);
}
