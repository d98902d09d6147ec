/* --offload: one way for all components, or one for each. --on-cpu. */
#include <stdio.h>
#include <string.h>

#include "picture.h"

static const char *const components[] = {"text_encoder", "text_encoder_2", "unet", "vae", NULL};

static enum tern_offload *place_of(struct offload_options *o, int component)
{
    enum tern_offload *const places[] = {&o->components.text_encoder, &o->components.text_encoder_2, &o->components.unet,
                                         &o->components.vae};
    return places[component];
}

/* HOW, or COMPONENT=HOW */
static int apply_one(const struct opt *opt, const char *text, struct offload_options *o)
{
    static const char *const ways[] = {"none", "sequential", "stream", NULL};
    const char *equals = strchr(text, '=');
    char name[32];
    int way = 0, component = 0;
    snprintf(name, sizeof(name), "%.*s", equals ? (int)(equals - text) : 0, text);
    int code = equals ? value_choice(opt, name, components, &component) : GO_ON;
    code = code == GO_ON ? value_choice(opt, equals ? equals + 1 : text, ways, &way) : code;
    if (code == GO_ON)
        *(equals ? place_of(o, component) : &o->all) = (enum tern_offload)(TERN_OFFLOAD_NONE + way);
    return code;
}

/* Takes the part of the text up to the next comma; *at is behind that, NULL at the end. */
static void next_part(const char **at, char out[64])
{
    const char *comma = strchr(*at, ',');
    snprintf(out, 64, "%.*s", comma ? (int)(comma - *at) : 63, *at);
    *at = comma ? comma + 1 : NULL;
}

int offload_apply(const struct opt *opt, const char *text, struct offload_options *o)
{
    char one[64];
    int code = GO_ON;
    *o = (struct offload_options){.given = true};
    for (const char *at = text; at && code == GO_ON;) {
        next_part(&at, one);
        code = apply_one(opt, one, o);
    }
    return code;
}

/* COMPONENT, separated by commas */
int offload_on_cpu(const struct opt *opt, const char *text, const char **out)
{
    char one[64];
    int code = GO_ON, component;
    *out = text;
    for (const char *at = text; at && code == GO_ON;) {
        next_part(&at, one);
        code = value_choice(opt, one, components, &component);
    }
    return code;
}
