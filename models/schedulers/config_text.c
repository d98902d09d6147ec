/* The text of scheduler_config.json: what Python writes is parsed, and what old files lack is corrected. */
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "models/schedulers/scheduler.h"

/* Stable Diffusion 1.5 */
static const char sd15[] = "{\"_class_name\": \"PNDMScheduler\", \"beta_end\": 0.012, \"beta_schedule\": \"scaled_linear\", "
                           "\"beta_start\": 0.00085, \"num_train_timesteps\": 1000, \"set_alpha_to_one\": false, "
                           "\"skip_prk_steps\": true, \"steps_offset\": 1, \"clip_sample\": false}";

/* Python writes Infinity, -Infinity and NaN, which are no JSON: puts them into quotes. Free with tern_free. */
static char *quote_words(struct tern_context *ctx, const char *text)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    char *out = tern_calloc(ctx, strlen(text) + 1, 2), *at = out;
    bool inside = false;
    while (out && *text) {
        size_t length = 0;
        for (size_t i = 0; !inside && !length && i < sizeof(words) / sizeof(words[0]); i++)
            if (strncmp(text, words[i], strlen(words[i])) == 0)
                length = strlen(words[i]);
        if (length) {
            *at++ = '"';
            memcpy(at, text, length);
            at += length;
            *at++ = '"';
            text += length;
            continue;
        }
        if (inside && *text == '\\' && text[1])
            *at++ = *text++;
        else if (*text == '"')
            inside = !inside;
        *at++ = *text++;
    }
    return out;
}

json_t *tern_scheduler_parse(struct tern_context *ctx, const char *text)
{
    char *quoted = quote_words(ctx, text ? text : sd15);
    json_t *config = quoted ? tern_json_parse(ctx, quoted, strlen(quoted), TERN_SCHEDULER_CONFIG) : NULL;
    tern_free(ctx, quoted);
    if (config && !json_is_object(config)) {
        tern_fail(ctx, TERN_E_FORMAT, TERN_SCHEDULER_CONFIG ": expected an object");
        json_decref(config);
        return NULL;
    }
    return config;
}

/* What becomes of one key. */
struct correction {
    const char *key;
    const char *from, *to;  /* values as JSON; "integer": any */
    const char *classes[3]; /* whose default is `from`, as the file's class name; none: any class */
};

/* A value that the file lacks is corrected for the class that the file names, `own`: from_config does not hand defaults on. A null is
 * no default: it is no 1, so it becomes one for every class, and neither true nor false, so it stays. */
static bool applies(const json_t *config, const struct correction *c, const char *own)
{
    const json_t *v = json_object_get(config, c->key);
    if (json_is_boolean(v))
        return !strcmp(c->from, json_is_true(v) ? "true" : "false");
    if (v)
        return (json_is_integer(v) || json_is_null(v)) && !strcmp(c->from, "integer");
    for (int i = 0; own && c->classes[i]; i++)
        if (!strcmp(own, c->classes[i]))
            return true;
    return own && !c->classes[0];
}

/* The class that the index or else the file names; NULL when the job asks for another one. */
static const char *own_class(const json_t *config, const char *index_class, enum tern_sampler sampler)
{
    const char *name = index_class ? index_class : json_string_value(json_object_get(config, "_class_name"));
    const struct tern_sampler_fns *fns = sampler == TERN_SAMPLER_DEFAULT ? NULL : tern_sampler_fns(sampler);
    return name && (sampler == TERN_SAMPLER_DEFAULT || (fns && !strcmp(fns->class_name, name))) ? name : NULL;
}

char *tern_scheduler_correct(struct tern_context *ctx, const char *text, const char *index_class, enum tern_sampler sampler, bool inpaint)
{
    static const struct correction offset = {"steps_offset", "integer", "1", {NULL}},
                                   clip = {"clip_sample", "true", "false", {"DDIMScheduler", "DDPMScheduler"}},
                                   prk = {"skip_prk_steps", "false", "true", {"PNDMScheduler"}};
    const struct correction *both[] = {&offset, inpaint ? &prk : &clip};
    json_t *config = tern_scheduler_parse(ctx, text);
    if (!config)
        return NULL;
    for (int i = 0; i < 2; i++)
        if (applies(config, both[i], own_class(config, index_class, sampler)))
            tern_json_set(&config, both[i]->key, tern_json_read(both[i]->to, strlen(both[i]->to), JSON_DECODE_ANY, NULL));
    char *dumped = config ? tern_json_dumps(config, JSON_COMPACT) : NULL, *out = dumped ? tern_strdup(ctx, dumped) : NULL;
    if (!dumped)
        tern_fail(ctx, TERN_E_NO_MEMORY, "out of memory: " TERN_SCHEDULER_CONFIG);
    free(dumped);
    json_decref(config);
    return out;
}
