/* Whether a VAE by itself is of the architecture that a model has, by their configurations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/json.h"
#include "models/files/checkpoint.h"

/* What two VAEs must share for the latents of one to be read by the other, with diffusers' defaults. */
struct facts {
    int64_t latent;
    int levels;
    double scaling;
    bool tiny; /* TAESD: it reads latents as they are, of whatever scaling */
};

static struct facts read_facts(const json_t *config)
{
    const json_t *latent = json_object_get(config, "latent_channels"), *scaling = json_object_get(config, "scaling_factor"),
                 *tiny = json_object_get(config, "decoder_block_out_channels"),
                 *channels = tiny ? tiny : json_object_get(config, "block_out_channels");
    return (struct facts){
        .latent = json_is_integer(latent) ? json_integer_value(latent) : 4,
        .levels = json_is_array(channels) ? (int)json_array_size(channels) : 1,
        .scaling = json_is_number(scaling) ? json_number_value(scaling) : 0.18215,
        .tiny = tiny,
    };
}

static const char *name_of(const struct facts *f)
{
    if (f->latent == 16 && f->levels == 4)
        return " (as of Stable Diffusion 3 or Flux)";
    if (f->latent != 4 || f->levels != 4)
        return "";
    return fabs(f->scaling - 0.18215) < 1e-6   ? " (as of Stable Diffusion 1 or 2)"
           : fabs(f->scaling - 0.13025) < 1e-6 ? " (as of Stable Diffusion XL)"
                                               : "";
}

static void describe(const struct facts *f, bool told, char *out, size_t size)
{
    char scaling[40] = "";
    if (told && !f->tiny)
        snprintf(scaling, sizeof(scaling), ", scaling factor %g", f->scaling);
    snprintf(out, size, "%lld latent channels at 1/%g%s%s", (long long)f->latent, ldexp(1, f->levels - 1), scaling, name_of(f));
}

static enum tern_status compare(struct tern_checkpoint *cp, const json_t *own, const json_t *model, bool told)
{
    char found[160], expected[160];
    const struct facts a = read_facts(own), b = read_facts(model);
    told = told && !a.tiny && !b.tiny;
    if (a.latent == b.latent && a.levels == b.levels && (!told || fabs(a.scaling - b.scaling) <= 1e-6 * fabs(b.scaling)))
        return TERN_OK;
    describe(&a, told, found, sizeof(found));
    describe(&b, told, expected, sizeof(expected));
    return tern_fail(cp->ctx, TERN_E_FORMAT, "%s: a VAE for another architecture: it has %s, the model's own %s", cp->path, found,
                     expected);
}

/* A configuration's flag that is true unless it says otherwise. */
static bool flag(const json_t *config, const char *name)
{
    const json_t *value = json_object_get(config, name);
    return !value || json_is_true(value);
}

/* The configuration of a file: the model's, where its sizes and layers are the same; else what was recognised, with the model's scaling. */
static enum tern_status borrow(struct tern_checkpoint *cp, json_t *own, const json_t *model, const char *text)
{
    static const char *const sizes[] = {"block_out_channels", "layers_per_block"}, *const scaling[] = {"scaling_factor", "shift_factor"};
    static const char *const layers[] = {"use_quant_conv", "use_post_quant_conv", "mid_block_add_attention"};
    bool same = true, ended = false;
    for (int i = 0; i < 3; i++)
        same = same && flag(own, layers[i]) == flag(model, layers[i]);
    for (int i = 0; i < 2; i++) {
        same = same && json_equal(json_object_get(own, sizes[i]), json_object_get(model, sizes[i]));
        json_t *value = json_object_get(model, scaling[i]);
        if (value)
            ended |= json_object_set(own, scaling[i], value) != 0;
    }
    char *dumped = same || ended ? NULL : tern_json_dumps(own, 0);
    if (!same && !dumped)
        return tern_fail(cp->ctx, TERN_E_NO_MEMORY, "no memory for a configuration text");
    char *config = tern_strdup(cp->ctx, same ? text : dumped);
    free(dumped);
    if (!config)
        return tern_error_status(cp->ctx);
    tern_free(cp->ctx, cp->components[0].config);
    cp->components[0].config = config;
    return TERN_OK;
}

static json_t *parsed(const char *text) { return text ? tern_json_read(text, strlen(text), 0, NULL) : NULL; }

enum tern_status tern_vae_fit(struct tern_checkpoint *cp, const struct tern_checkpoint *model)
{
    const char *text = tern_checkpoint_config(model, "vae");
    json_t *own = parsed(tern_checkpoint_config(cp, "vae")), *other = parsed(text);
    bool file = cp->layout == TERN_LAYOUT_SINGLE_FILE;
    enum tern_status st = TERN_OK;
    if (json_is_object(own) && json_is_object(other)) { /* what is damaged is told by who builds the VAE */
        st = compare(cp, own, other, !file);
        if (!st && file && !read_facts(own).tiny && !read_facts(other).tiny)
            st = borrow(cp, own, other, text);
    }
    json_decref(own);
    json_decref(other);
    return st;
}
