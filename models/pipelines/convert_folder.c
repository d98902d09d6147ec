/* A checkpoint as a diffusers folder, which appears under its name when it is complete. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "core/context.h"
#include "core/files.h"
#include "core/json.h"
#include "models/files/checkpoint.h"
#include "models/files/detect.h"
#include "models/pipelines/convert.h"
#include "models/schedulers/scheduler.h"
#include "models/tokenizers/clip_files.h"

#define TOKENIZER_FILE ((size_t)64 << 20)
#define CLIP_IDS 49408

static enum tern_status add_tensor(struct tern_convert_list *l, const char *component, const char *name, tern_tensor *t)
{
    struct tern_convert_item *item = tern_convert_add(l, name, t);
    if (item)
        tern_convert_quantize(l, item, component, name);
    return tern_error_status(l->ctx);
}

static enum tern_status write_component(struct tern_folder *f, struct tern_checkpoint *cp, const char *component,
                                        const struct tern_convert_params *params)
{
    struct tern_convert_list l = {.ctx = f->ctx, .params = params};
    const char *folder = tern_folder_make(f, f->root, component);
    enum tern_status st =
        folder ? tern_folder_write_text(f, folder, "config.json", tern_checkpoint_config(cp, component)) : tern_error_status(f->ctx);
    const struct tern_weights *w = st ? NULL : tern_convert_open(&l, cp, component);
    for (int64_t i = 0; w && !st && i < tern_weights_count(w); i++)
        st = add_tensor(&l, component, tern_weights_name(w, i), tern_weights_at(w, i));
    const char *path =
        w && !st ? tern_folder_note(f, folder, component[0] == 't' ? "model.safetensors" : "diffusion_pytorch_model.safetensors") : NULL;
    st = path ? tern_convert_write(&l, path) : tern_error_status(f->ctx);
    tern_convert_free(&l);
    return st;
}

/* The files of a tokenizer's folder. */
static enum tern_status copy_files(struct tern_folder *f, const char *from, const char *to)
{
    DIR *d = opendir(from);
    enum tern_status st = d ? TERN_OK : tern_fail(f->ctx, TERN_E_IO, "%s: cannot be read: %s", from, strerror(errno));
    for (const struct dirent *e; !st && d && (e = readdir(d));) {
        size_t size = 0;
        char *path = tern_path_join(f->ctx, from, e->d_name);
        bool file = path && tern_path_kind(path) == TERN_PATH_FILE;
        char *bytes = file ? tern_read_file(f->ctx, path, TOKENIZER_FILE, &size) : NULL;
        if (bytes)
            st = tern_folder_write(f, to, e->d_name, bytes, size);
        else
            st = tern_error_status(f->ctx);
        tern_free(f->ctx, bytes);
        tern_free(f->ctx, path);
    }
    if (d)
        closedir(d);
    return st;
}

/* CLIP's, which single files do not hold. */
static enum tern_status write_clip(struct tern_folder *f, const char *to, bool open_clip)
{
    char *vocabulary = tern_clip_vocabulary_json(f->ctx), *merges = vocabulary ? tern_clip_merges_text(f->ctx) : NULL;
    enum tern_status st = merges ? tern_folder_write_text(f, to, "vocab.json", vocabulary) : tern_error_status(f->ctx);
    if (!st)
        st = tern_folder_write_text(f, to, "merges.txt", merges);
    if (!st)
        st = tern_folder_write_text(f, to, "special_tokens_map.json", tern_clip_special_tokens(open_clip));
    if (!st)
        st = tern_folder_write_text(f, to, "tokenizer_config.json", tern_clip_tokenizer_config(open_clip));
    tern_free(f->ctx, vocabulary);
    tern_free(f->ctx, merges);
    return st;
}

/* The value of a key of `o`, which is given up. */
static json_t *take_value(json_t *o, const char *key)
{
    json_t *value = json_incref(json_object_get(o, key));
    json_decref(o);
    return value;
}

static json_t *config_value(struct tern_context *ctx, const char *config, const char *where, const char *key)
{
    return take_value(tern_json_parse(ctx, config, strlen(config), where), key);
}

/* Tokenizer 0 or 1 of a text encoder; *there: it was written. */
static enum tern_status write_tokenizer(struct tern_folder *f, const struct tern_checkpoint *cp, int index, bool *there)
{
    static const char *const names[] = {"tokenizer", "tokenizer_2"}, *const encoders[] = {"text_encoder", "text_encoder_2"};
    const char *from = tern_checkpoint_tokenizer(cp, index), *config = tern_checkpoint_config(cp, encoders[index]);
    *there = false;
    if (!from && (!config || tern_checkpoint_layout(cp) != TERN_LAYOUT_SINGLE_FILE))
        return TERN_OK;
    json_t *ids = from ? NULL : config_value(f->ctx, config, cp->path, "vocab_size"),
           *act = from ? NULL : config_value(f->ctx, config, cp->path, "hidden_act");
    bool fits = from || json_integer_value(ids) == CLIP_IDS, open_clip = act && !strcmp(json_string_value(act), "gelu");
    json_decref(ids);
    json_decref(act);
    if (!fits) {
        tern_message(f->ctx, TERN_LOG_WARN, "%s: its text encoder has another vocabulary than CLIP's %d ids: the folder gets no tokenizer",
                     cp->path, CLIP_IDS);
        return TERN_OK;
    }
    const char *to = tern_folder_make(f, f->root, names[index]);
    *there = to;
    return !to ? tern_error_status(f->ctx) : from ? copy_files(f, from, to) : write_clip(f, to, open_clip);
}

static json_t *row(const char *library, const char *class_name)
{
    return library ? json_pack("[s,s]", library, class_name) : json_pack("[n,n]");
}

static bool is_refiner(const struct tern_checkpoint *cp) { return !strcmp(cp->pipeline, "StableDiffusionXLImg2ImgPipeline"); }

/* The index of a single file. Without these keys a refiner's would be read as a base model's. */
static json_t *make_index(const struct tern_checkpoint *cp)
{
    json_t *o = json_pack("{s:s,s:s}", "_class_name", cp->pipeline, "_diffusers_version", "0.30.0");
    if (is_refiner(cp)) {
        tern_json_set(&o, "force_zeros_for_empty_prompt", json_false());
        tern_json_set(&o, "requires_aesthetics_score", json_true());
    }
    return o;
}

/* model_index.json: what the folder of the source has and was written, and null for the rest; a single file's is made up. */
static enum tern_status write_index(struct tern_folder *f, const struct tern_checkpoint *cp, const bool tokenizer[2])
{
    const char *text = tern_checkpoint_index(cp), *scheduler = tern_checkpoint_scheduler(cp), *key;
    json_t *o = text ? tern_json_parse(f->ctx, text, strlen(text), cp->path) : make_index(cp), *value;
    json_t *class_name = cp->scheduler_class ? json_string(cp->scheduler_class)
                         : scheduler         ? take_value(tern_scheduler_parse(f->ctx, scheduler), "_class_name")
                                             : NULL;
    if (tern_failed(f->ctx)) {
        json_decref(o);
        return tern_error_status(f->ctx);
    }
    void *next;
    bool ended = cp->scheduler_class && !class_name; /* memory did */
    json_object_foreach_safe(o, next, key, value)    /* what is not written, as a safety checker and its processor, is not there */
        if (*key != '_' && json_is_array(value) && json_array_size(value) == 2) ended |= json_object_set_new(o, key, row(NULL, NULL)) != 0;
    if (ended) {
        json_decref(o);
        o = NULL;
    }
    for (int i = 0; i < TERN_CONVERT_SETS; i++) {
        const char *component = tern_convert_components[i];
        if (tern_checkpoint_has(cp, component))
            tern_json_set(&o, component, row(component[0] == 't' ? "transformers" : "diffusers", tern_checkpoint_class(cp, component)));
    }
    if (class_name)
        tern_json_set(&o, "scheduler", row("diffusers", json_string_value(class_name)));
    for (int i = 0; i < 2; i++)
        if (tokenizer[i])
            tern_json_set(&o, i ? "tokenizer_2" : "tokenizer",
                          row("transformers", !text || !strstr(text, "BertTokenizer") ? "CLIPTokenizer" : "BertTokenizer"));
        else if (!text && !i && !is_refiner(cp))
            tern_json_set(&o, "tokenizer", row(NULL, NULL));
    json_decref(class_name);
    char *dumped = tern_detect_dump(f->ctx, o);
    enum tern_status st = dumped ? tern_folder_write_text(f, f->root, "model_index.json", dumped) : tern_error_status(f->ctx);
    tern_free(f->ctx, dumped);
    return st;
}

static enum tern_status write_all(struct tern_folder *f, struct tern_checkpoint *cp, const struct tern_convert_params *params)
{
    bool tokenizer[2] = {false, false};
    enum tern_status st = TERN_OK;
    for (int i = 0; !st && i < TERN_CONVERT_SETS; i++)
        if (tern_checkpoint_has(cp, tern_convert_components[i]))
            st = write_component(f, cp, tern_convert_components[i], params);
    if (!st && !tern_checkpoint_has(cp, "text_encoder") && !tern_checkpoint_has(cp, "text_encoder_2"))
        tern_message(
            f->ctx, TERN_LOG_WARN,
            "%s: no text encoder is found in it, under none of the names that are known: the folder gets none, and no prompt will be "
            "read with it",
            cp->path);
    const char *scheduler = st || !cp->scheduler ? NULL : tern_folder_make(f, f->root, "scheduler");
    if (!st && cp->scheduler)
        st = scheduler ? tern_folder_write_text(f, scheduler, "scheduler_config.json", cp->scheduler) : tern_error_status(f->ctx);
    for (int i = 0; i < 2 && !st; i++)
        st = write_tokenizer(f, cp, i, &tokenizer[i]);
    return st ? st : write_index(f, cp, tokenizer);
}

enum tern_status tern_convert_folder(struct tern_context *ctx, struct tern_checkpoint *cp, const char *out,
                                     const struct tern_convert_params *params)
{
    struct tern_folder f;
    enum tern_status st = tern_folder_open(&f, ctx, out);
    if (!st)
        st = write_all(&f, cp, params);
    return tern_folder_close(&f, st);
}
