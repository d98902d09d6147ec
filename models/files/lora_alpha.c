/* How strong a module of a LoRA is: alpha / rank. kohya's files have one alpha tensor a module; diffusers puts PEFT's
 * LoraConfig into the header, PEFT itself into adapter_config.json beside the file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/files.h"
#include "core/json.h"
#include "models/files/lora.h"
#include "models/files/weights.h"

/* The configuration of one part: keys of the object that begin with the prefix. */
struct config {
    const json_t *object; /* NULL: none */
    const char *prefix;   /* "unet." or "" */
    const char *where;
};

static const json_t *get(const struct config *c, const char *key)
{
    char name[64];
    snprintf(name, sizeof(name), "%s%s", c->prefix, key);
    const json_t *v = json_object_get(c->object, name);
    return json_is_null(v) ? NULL : v;
}

static bool has_prefix(const struct config *c)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)c->object, key, value)
        if (!strncmp(key, c->prefix, strlen(c->prefix)))
            return true;
    return false;
}

#define MOST_PATTERNS 16384 /* each is compared with each module */

/* A key of PEFT's alpha_pattern is a regular expression for the end of a module's name, behind a dot. What diffusers and PEFT
 * write are names; '^' stands for the beginning. Anything else is refused, by the key. */
static bool is_plain(const char *key)
{
    key += *key == '^';
    for (; *key; key++)
        if (strchr("[](){}*+?|^", *key) || (*key == '$' && key[1]) || (*key == '\\' && *++key != '.'))
            return false;
    return true;
}

/* CLIP's modules begin with "text_model." or not, as the version of transformers is. */
static const char *without_prefix(const char *module)
{
    const size_t n = strlen("text_model.");
    return strncmp(module, "text_model.", n) ? module : module + n;
}

static bool fits(const char *key, const char *module)
{
    char plain[256];
    bool whole = *key == '^';
    size_t n = 0, length = strlen(module);
    for (key += whole; *key && *key != '$' && n < sizeof(plain) - 1; key++)
        if (*key != '\\')
            plain[n++] = *key;
    if (*key && *key != '$') /* no module's name is that long */
        return false;
    plain[n] = 0;
    const char *end = without_prefix(plain);
    n = strlen(end);
    if (n > length || strcmp(module + length - n, end))
        return false;
    return n == length || (!whole && module[length - n - 1] == '.');
}

/* The alpha of a module that has no tensor for it; NAN: as large as its rank. */
static double configured_alpha(struct tern_lora_file *f, const struct config *c, const char *module)
{
    const json_t *patterns = get(c, "alpha_pattern"), *alpha = get(c, "lora_alpha");
    const char *key;
    json_t *value;
    if (json_object_size(patterns) > MOST_PATTERNS) {
        tern_fail(f->ctx, TERN_E_FORMAT, "%s: alpha_pattern: expected at most %d modules, found %zu", c->where, MOST_PATTERNS,
                  json_object_size(patterns));
        return NAN;
    }
    json_object_foreach((json_t *)(uintptr_t)patterns, key, value) {
        if (!is_plain(key)) {
            char text[TERN_PRINTABLE];
            tern_fail(f->ctx, TERN_E_UNSUPPORTED, "%s: alpha_pattern \"%s\": expected the name of a module", c->where,
                      tern_printable(key, strlen(key), text));
            return NAN;
        }
        if (fits(key, module)) {
            alpha = value;
            break;
        }
    }
    if (!alpha)
        return c->object ? 8 : NAN; /* LoraConfig's default */
    if (!json_is_number(alpha) || !isfinite(json_number_value(alpha)))
        tern_fail(f->ctx, TERN_E_FORMAT, "%s: lora_alpha: expected a number", c->where);
    return json_number_value(alpha);
}

static double tensor_alpha(struct tern_lora_file *f, int64_t i)
{
    const tern_tensor *t = tern_weights_at(f->weights, i);
    char name[TERN_PRINTABLE], found[TERN_META_TEXT];
    float alpha = NAN;
    tern_printable(tern_weights_name(f->weights, i), strlen(tern_weights_name(f->weights, i)), name);
    if (tern_tensor_numel(t) != 1) {
        struct tern_meta m = tern_meta_make(tern_tensor_dtype(t), tern_tensor_ndim(t), tern_tensor_shape(t));
        tern_fail(f->ctx, TERN_E_SHAPE, "%s: tensor \"%s\": expected one number, found %s", f->path, name, tern_meta_text(&m, found));
    } else if (tern_tensor_read(t, TERN_F32, &alpha, sizeof(alpha)) == TERN_OK && !isfinite(alpha)) {
        tern_fail(f->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": expected a finite number", f->path, name);
    }
    return alpha;
}

/* The module's name: the tensor's without ".weight". */
static bool module_name(const char *tensor, char *out, size_t size)
{
    tensor = without_prefix(tensor);
    size_t n = strlen(tensor) - strlen(".weight");
    if (n >= size)
        return false;
    memcpy(out, tensor, n);
    out[n] = 0;
    return true;
}

/* The rank of a module that alpha is divided by; 0: alpha does not count. */
static double rank_of(const struct tern_lora_file *f, const struct tern_lora_module *m)
{
    const int64_t *t = m->tensor;
    int64_t rows = 0;
    if (m->kind == TERN_LORA_LOW_RANK)
        rows = t[TERN_LORA_DOWN];
    else if (m->kind == TERN_LORA_HADAMARD)
        rows = t[TERN_LORA_HADA_W1_B];
    else if (m->kind == TERN_LORA_GENERALISED)
        rows = t[m->turned ? TERN_LORA_GLORA_B1 : TERN_LORA_GLORA_B2];
    else if (m->kind == TERN_LORA_KRONECKER) /* none where both matrices are whole */
        rows = t[TERN_LORA_KRON_W2_B] ? t[TERN_LORA_KRON_W2_B] : t[TERN_LORA_KRON_W1_B];
    return rows ? (double)tern_tensor_size(tern_weights_at(f->weights, rows - 1), 0) : 0;
}

static void read_part(struct tern_lora_file *f, enum tern_lora_part part, const struct tern_weights *base, const struct config *c)
{
    char name[512];
    bool stabilised = json_is_true(get(c, "use_rslora")); /* alpha / sqrt(rank) [Kalajdzievski 2023] */
    for (int64_t i = 0; i < f->part[part].count && !tern_failed(f->ctx); i++) {
        struct tern_lora_module *m = &f->part[part].module[i];
        double rank = rank_of(f, m), alpha = NAN;
        m->scale = 1;
        if (m->kind == TERN_LORA_ORTHOGONAL && m->tensor[TERN_LORA_ALPHA] && m->tensor[TERN_LORA_OFT_BLOCKS])
            m->constraint =
                fmax(tensor_alpha(f, m->tensor[TERN_LORA_ALPHA] - 1), 0) * (double)tern_tensor_size(tern_weights_at(base, i), 0);
        if (m->kind == TERN_LORA_NONE || rank == 0)
            continue;
        if (m->tensor[TERN_LORA_ALPHA])
            alpha = tensor_alpha(f, m->tensor[TERN_LORA_ALPHA] - 1);
        else if (c->object && module_name(tern_weights_name(base, i), name, sizeof(name)))
            alpha = configured_alpha(f, c, name);
        if (!isnan(alpha))
            m->scale = alpha / (c->object && stabilised && !m->tensor[TERN_LORA_ALPHA] ? sqrt(rank) : rank);
    }
    for (int64_t i = 0; i < f->part[part].count; i++) {
        struct tern_lora_module *m = &f->part[part].module[i];
        if (m->kind == TERN_LORA_WHOLE && m->tensor[TERN_LORA_UP_BIAS])
            m->scale = f->part[part].module[m->weight].scale;
    }
}

/* PEFT has other adapters under the same names, with other keys for their strength. */
static enum tern_status check_config(struct tern_lora_file *f, const json_t *config, const char *where)
{
    char text[TERN_PRINTABLE];
    const char *type = json_string_value(json_object_get(config, "peft_type"));
    if (config && !json_is_object(config))
        return tern_fail(f->ctx, TERN_E_FORMAT, "%s: expected a JSON object", where);
    if (type && strcmp(type, "LORA"))
        return tern_fail(f->ctx, TERN_E_UNSUPPORTED, "%s: peft_type: expected LORA, found \"%s\"", where,
                         tern_printable(type, strlen(type), text));
    return tern_error_status(f->ctx);
}

/* The JSON object that describes the file's adapters, and *where it stands, for tern_free; NULL when there is none, or with the error
 * recorded. */
static json_t *read_config(struct tern_lora_file *f, char **where, bool *prefixed)
{
    static const char key[] = "lora_adapter_metadata";
    const char *text = tern_weights_metadata(f->weights, key);
    *prefixed = text != NULL;
    if (text) {
        *where = tern_sprintf(f->ctx, "%s: %s", f->path, key);
        return *where ? tern_json_parse(f->ctx, text, strlen(text), *where) : NULL;
    }
    const char *first = tern_weights_name(f->weights, 0);
    if (!first || strncmp(first, "base_model.model.", strlen("base_model.model.")))
        return NULL;
    const char *slash = strrchr(f->path, '/');
    int folder = slash ? (int)(slash - f->path + 1) : 0;
    *where = tern_sprintf(f->ctx, "%.*sadapter_config.json", folder, f->path);
    return *where && tern_path_kind(*where) == TERN_PATH_FILE ? tern_json_load(f->ctx, *where) : NULL;
}

enum tern_status tern_lora_read_alphas(struct tern_lora_file *f, struct tern_weights *const bases[TERN_LORA_PARTS])
{
    static const char *const prefixes[] = {
        [TERN_LORA_UNET] = "unet.", [TERN_LORA_TEXT] = "text_encoder.", [TERN_LORA_TEXT_2] = "text_encoder_2."};
    char *where = NULL;
    bool prefixed;
    json_t *config = read_config(f, &where, &prefixed);
    enum tern_status st = check_config(f, config, where);
    for (int part = 0; part < TERN_LORA_PARTS && !st; part++) {
        struct config c = {config, prefixed ? prefixes[part] : "", where};
        if (config && !has_prefix(&c))
            c.object = NULL; /* nothing about this part */
        read_part(f, (enum tern_lora_part)part, bases[part], &c);
        st = tern_error_status(f->ctx);
    }
    json_decref(config);
    tern_free(f->ctx, where);
    return st;
}
