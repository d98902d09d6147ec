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
        code = library_failed_in(s->from_ctx, path);
    tern_image_destroy(&img);
    return code;
}

/* What SDXL was told. The scores are its refiner's if there was one. */
static void read_xl(const struct tern_txt2img_params *p, struct xl_options *x)
{
    const bool two = p->refiner.name;
    memcpy(x->original_size, p->original_size, sizeof(x->original_size));
    memcpy(x->crop, p->crops_coords_top_left, sizeof(x->crop));
    memcpy(x->target_size, p->target_size, sizeof(x->target_size));
    memcpy(x->negative_original_size, p->negative_original_size, sizeof(x->negative_original_size));
    memcpy(x->negative_crop, p->negative_crops_coords_top_left, sizeof(x->negative_crop));
    memcpy(x->negative_target_size, p->negative_target_size, sizeof(x->negative_target_size));
    x->score = two ? p->refiner.aesthetic_score : p->aesthetic_score;
    x->negative_score = two ? p->refiner.negative_aesthetic_score : p->negative_aesthetic_score;
    x->refiner_start = two ? p->denoising_end : 0;
    x->end = two ? 0 : p->denoising_end;
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
    s->seed_given = s->infotext.has_seed;
    s->generator = p->generator;
    s->ensd = (int)p->ensd;
    s->strength = p->strength;
    deepcache_take(&s->deepcache, p);
    s->hires = p->hires;
    s->run.dtype = s->infotext.dtype;
    s->run.quantize = s->infotext.quantize;
    s->run.text_encoder_quantize = s->infotext.text_encoder_quantize;
    read_xl(p, &s->xl);
    if (given->sampler == TERN_SAMPLER_DEFAULT) { /* another sampler has schedules and options of its own */
        s->sampler = p->sampler;
        s->schedule = p->schedule;
        s->sampler_options = p->sampler_options;
    } else if (s->hires.hr_sampler == TERN_SAMPLER_DEFAULT) { /* so it is for a second pass that has the first one's */
        s->hires.hr_schedule = TERN_SCHEDULE_DEFAULT;
        s->hires.hr_discard_penultimate_sigma = s->hires.hr_k_diffusion_levels = 0;
    }
    return GO_ON;
}

/* Whether `name` is that of a file or folder, with its ending or without; A1111 may have written a hash in brackets behind it. */
static bool is_named(const char *path, const char *name)
{
    const char *hash = strstr(name, " [");
    size_t n = strlen(path), k = hash ? (size_t)(hash - name) : strlen(name);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    return n - start >= k && !strncmp(path + start, name, k) && (n - start == k || path[start + k] == '.');
}

/* Whether the command line gives a textual inversion of that name. */
static bool has_embedding(const struct embedding_options *e, const char *name, size_t size)
{
    for (int i = 0; i < e->count; i++) {
        const struct tern_prompt_embedding *a = &e->embedding[i];
        const char *slash = strrchr(a->path, '/'), *file = slash ? slash + 1 : a->path, *own = a->name ? a->name : file;
        if (!strncmp(own, name, size) && (!own[size] || (!a->name && own[size] == '.')))
            return true;
    }
    return false;
}

/* All of a list "name: hash, name: hash". */
static bool has_embeddings(const struct embedding_options *e, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        if (!has_embedding(e, list, strcspn(list, ":,")))
            return false;
        list += n;
        list += strspn(list, ", ");
    }
    return true;
}

void from_tell(const struct picture_settings *s, const char *of, const char *what)
{
    if (s->run.json)
        event_send(json_pack("{s:s, s:s}", "event", "not_followed", "fields", what));
    else
        warn("%s: what is not followed of it: %s", of, what);
}

/* Whether a list "Name: value, ..." has that field. */
static bool lists(const char *list, const char *field)
{
    const size_t n = strlen(field);
    for (const char *at = list; (at = strstr(at, field)); at += n)
        if (at[n] == ':' && (at == list || (at >= list + 2 && at[-1] == ' ' && at[-2] == ',')))
            return true;
    return false;
}

/* What of the size is not followed, or "": sides of pictures are multiples of 8, unless the command line gives them. */
static void tell_size(const struct picture_settings *s, const struct picture_settings *given, char *out, size_t size)
{
    const int w = s->infotext.params.width, h = s->infotext.params.height;
    *out = 0;
    if ((w % 8 && !given->width) || (h % 8 && !given->height))
        snprintf(out, size, ": %dx%d (no multiple of 8)", w, h);
}

/* What of the picture this job does not follow, in one message. */
static void tell(const struct picture_settings *s, const struct picture_settings *given, bool seed, bool strength, bool image_cfg,
                 bool hires)
{
    const struct tern_infotext *t = &s->infotext;
    const char *refiner = t->params.refiner.name;
    char rounded[64];
    tell_size(s, given, rounded, sizeof(rounded));
    const struct {
        const char *name, *value;
    } more[] = {
        {"Model: ", t->model && !is_named(s->model ? s->model : "demo", t->model) ? t->model : ""},
        {"VAE (--vae gives it): ", t->vae && !(s->vae && is_named(s->vae, t->vae)) ? t->vae : ""},
        {"Refiner (--refiner gives it): ", refiner && !(*s->xl.refiner && is_named(s->xl.refiner, refiner)) ? refiner : ""},
        {"TI hashes (--embedding gives the files): ", has_embeddings(&s->embeddings, t->embeddings) ? "" : t->embeddings},
        {"Seed", seed ? " (it has none)" : ""},
        {"Size", rounded},
        {"Denoising strength", strength ? " (it was made by img2img)" : ""},
        {"Hires", hires ? " (it was made by txt2img)" : ""},
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
    if (text && *text)
        from_tell(s, s->from, s->run.json ? text : message_clean(text, ""));
    free(text);
}

void from_fit(struct picture_settings *s, const struct picture_settings *given)
{
    const bool seed = !s->infotext.has_seed && !given->seed_given && !lists(s->infotext.ignored, "Seed");
    const bool strength = !s->image && s->strength > 0 && given->strength == 0;
    const bool image_cfg = !s->image && s->image_cfg > 0 && given->image_cfg == 0;
    if (strength)
        s->strength = 0;
    if (image_cfg)
        s->image_cfg = 0;
    if (s->prompt_syntax == TERN_PROMPT_PLAIN && given->emphasis == TERN_EMPHASIS_ORIGINAL)
        s->emphasis = TERN_EMPHASIS_ORIGINAL;
    bool hires = s->image && hires_wanted(&s->hires) && !hires_wanted(&given->hires);
    if (hires)
        s->hires = (struct tern_hires){0};
    if (s->infotext.params.refiner.name && !*s->xl.refiner) { /* the base alone is told no scores */
        s->xl.score = given->xl.score;
        s->xl.negative_score = given->xl.negative_score;
    }
    tell(s, given, seed, strength, image_cfg, hires);
}

void from_free(struct picture_settings *s)
{
    if (s->from_ctx)
        tern_infotext_free(s->from_ctx, &s->infotext);
    tern_context_destroy(&s->from_ctx);
}
