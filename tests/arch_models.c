/* The list of architectures, and the models that are made of others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "arch_help.h"
#include "damage.h"
#include "support.h"
#include "xl_help.h"

const struct arch archs[] = {
    {"sd1", "components/sd1", "pipelines", {"txt2img.sd1.euler_a", "img2img.sd1.dpm++2m", "inpaint.sd1.ddim"}},
    {"sd1-heads", "components/sd1-heads", "pipelines", {"txt2img.sd1-heads.ddim"}},
    {"sd1-inpaint", "components/sd1-inpaint", "pipelines", {"inpaint.sd1-inpaint.ddim"}},
    {"sd1-lcm", NULL, "lcm", {"lcm", "img2img"}},
    {"sd1-pix2pix", NULL, "pix2pix", {"sd1.euler"}},
    {"bk-sdm", "bk-sdm", "bk-sdm", {"txt2img", "batch2"}},
    {"sd2", "components/sd2", "pipelines", {"txt2img.sd2.ddim"}},
    {"sdxl", "components/sdxl", "xl", {"txt2img.sdxl.sizes", "inpaint.sdxl.euler"}},
    {"sdxl-inpaint", "xl/sdxl-inpaint/components", "xl", {"inpaint.sdxl-inpaint.euler"}},
    {"sdxl-refiner", "xl/sdxl-refiner/components", "xl", {"img2img.sdxl-refiner.euler"}},
    {"sdxl-turbo", NULL, "xl", {"txt2img.sdxl-turbo.2-steps"}},
    {"sdxl-lightning", NULL, "xl", {"txt2img.sdxl-lightning.4-steps"}},
    {"sdxl-pix2pix", NULL, "pix2pix", {"xl.euler"}},
    {"sdxl-cosxl", NULL, "pix2pix", {"xl.cosxl"}},
    {"taesd", "taesd", "taesd", {"txt2img", "inpaint"}},
    {"taiyi", "taiyi", "taiyi", {"txt2img.taiyi"}},
    {"taiyi-xl", NULL, "taiyi", {"txt2img.taiyi-xl"}},
};
const int arch_count = sizeof(archs) / sizeof(*archs);

/* ---- models that are made of others */

#define TAIYI TERN_TEST_DATA "/taiyi/"

static void copy_taiyi(const char *from, const char *folder, const char *to)
{
    size_t size;
    char *text = damage_read(TAIYI, from, &size);
    damage_text(folder, to, text, size);
    free(text);
}

/* sd2 with a BERT, whose weights torch.save wrote. */
static void make_taiyi(char *folder)
{
    static const char *const files[] = {"text_encoder/config.json", "text_encoder/pytorch_model.bin", "tokenizer/vocab.txt",
                                        "tokenizer/tokenizer_config.json"};
    damage_copy("sd2", folder);
    damage_delete(folder, "text_encoder/model.safetensors");
    damage_delete(folder, "tokenizer/vocab.json");
    damage_delete(folder, "tokenizer/merges.txt");
    damage_delete(folder, "tokenizer/special_tokens_map.json");
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        copy_taiyi(files[i], folder, files[i]);
    damage_json(folder, "model_index.json", "text_encoder", json_pack("[s, s]", "transformers", "BertModel"));
    damage_json(folder, "model_index.json", "tokenizer", json_pack("[s, s]", "transformers", "BertTokenizer"));
}

static void make_bk_sdm(struct tern_context *ctx, char *folder)
{
    damage_copy("sd1", folder);
    xl_drop_mid_block(ctx, folder);
}

/* The tower's token embedding with the rows of the added tokens behind its own. */
static void add_rows(struct tern_context *ctx, const char *folder, const char *part, tern_tensor *rows)
{
    static const char embedding[] = "text_model.embeddings.token_embedding.weight";
    char path[2 * PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s/model.safetensors", folder, part);
    struct tern_weights *old = tern_weights_open(ctx, path), *all = tern_weights_create(ctx);
    assert_non_null(old);
    tern_scope_begin(ctx);
    for (int64_t i = 0; i < tern_weights_count(old); i++) {
        const char *name = tern_weights_name(old, i);
        tern_tensor *t = tern_weights_at(old, i), *both[] = {t, rows};
        assert_int_equal(tern_weights_add(all, name, strcmp(name, embedding) ? t : tern_cat(both, 2, 0)), TERN_OK);
    }
    assert_int_equal(tern_weights_save(all, path), TERN_OK);
    const int64_t vocabulary = tern_tensor_size(tern_weights_get(all, embedding), 0);
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&old);
    tern_weights_unref(&all);
    snprintf(path, sizeof(path), "%s/config.json", part);
    damage_json(folder, path, "vocab_size", json_integer(vocabulary));
}

/* sdxl with Chinese characters as added tokens. */
static void make_taiyi_xl(char *folder)
{
    struct tern_context *ctx = support_context();
    struct tern_weights *rows = support_tensors(ctx, "taiyi/added_embeddings");
    damage_copy("sdxl", folder);
    copy_taiyi("added_tokens.json", folder, "tokenizer/added_tokens.json");
    copy_taiyi("added_tokens.json", folder, "tokenizer_2/added_tokens.json");
    for (int64_t i = 0; i < tern_weights_count(rows); i++)
        add_rows(ctx, folder, tern_weights_name(rows, i), tern_weights_at(rows, i));
    tern_weights_unref(&rows);
    tern_context_destroy(&ctx);
}

struct arch_model arch_open(struct tern_context *ctx, const struct arch *a)
{
    struct arch_model m = {.made = ""};
    char path[PATH_SIZE];
    const bool taesd = !strcmp(a->name, "taesd");
    if (!strncmp(a->name, "sdxl-", 5) || !strcmp(a->name, "sd1-pix2pix") || !strcmp(a->name, "sd1-lcm"))
        xl_folder(ctx, a->name, m.made);
    else if (!strcmp(a->name, "bk-sdm"))
        make_bk_sdm(ctx, m.made);
    else if (!strcmp(a->name, "taiyi"))
        make_taiyi(m.made);
    else if (!strcmp(a->name, "taiyi-xl"))
        make_taiyi_xl(m.made);
    if (m.made[0])
        snprintf(path, sizeof(path), "%s", m.made);
    else
        model_path(taesd ? "sd1" : a->name, path);
    m.p = tern_pipeline_load(ctx, path, &(struct tern_pipeline_params){.vae = taesd ? TERN_TEST_DATA "/taesd/vae" : NULL});
    if (!m.p)
        fail_msg("%s: %s", a->name, tern_error(ctx));
    return m;
}

void arch_close(struct arch_model *m)
{
    tern_pipeline_destroy(&m->p);
    if (m->made[0])
        damage_remove(m->made);
}
