/* Models from differences. */
#include "xl_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/context.h>

#include "core/files.h"
#include "damage.h"
#include "model_help.h"
#include "models/files/layout.h"
#include "models/files/ldm.h"

#define UNET "unet/diffusion_pytorch_model.safetensors"

/* Folders below tests/data: where its differences are, and those of its UNet. */
struct place {
    const char *name, *base, *own, *unet;
};

static struct place place_of(const char *name)
{
    static const struct place others[] = {
        {"sd1-pix2pix", "sd1", "pix2pix/sd1-pix2pix", "pix2pix/sd1-pix2pix"},
        {"sdxl-pix2pix", "sdxl", "pix2pix/sdxl-pix2pix", "pix2pix/sdxl-pix2pix"},
        {"sd1-lcm", "sd1", "lcm/sd1-lcm", "lcm/sd1-lcm"},
        {"sdxl-cosxl", "sdxl", "pix2pix/sdxl-cosxl", "pix2pix/sdxl-pix2pix"},
    };
    static char own[64];
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (!strcmp(name, others[i].name))
            return others[i];
    snprintf(own, sizeof(own), "xl/%s", name);
    return (struct place){name, "sdxl", own, own};
}

/* Puts tests/data/<at>/<from> in the place of a file of the copy; false when there is no such file. */
static bool replace(const char *at, const char *from, const char *folder, const char *to)
{
    char path[2 * PATH_SIZE];
    size_t size;
    snprintf(path, sizeof(path), TERN_TEST_DATA "/%s/%s", at, from);
    if (tern_path_kind(path) != TERN_PATH_FILE)
        return false;
    char *text = damage_read(TERN_TEST_DATA, path + strlen(TERN_TEST_DATA) + 1, &size);
    damage_text(folder, to, text, size);
    free(text);
    return true;
}

/* The UNet of the copy, but for the tensors that differ or are new. */
static void change_unet(struct tern_context *ctx, const char *at, const char *folder)
{
    char path[2 * PATH_SIZE];
    snprintf(path, sizeof(path), TERN_TEST_DATA "/%s/unet.safetensors", at);
    struct tern_weights *differ = tern_weights_open(ctx, path), *w = tern_weights_create(ctx);
    snprintf(path, sizeof(path), "%s/" UNET, folder);
    struct tern_weights *old = tern_weights_open(ctx, path);
    assert_non_null(differ);
    assert_non_null(old);
    for (int64_t i = 0; i < tern_weights_count(old); i++) {
        const char *name = tern_weights_name(old, i);
        tern_tensor *other = tern_weights_get(differ, name);
        assert_int_equal(tern_weights_add(w, name, other ? other : tern_weights_at(old, i)), TERN_OK);
    }
    for (int64_t i = 0; i < tern_weights_count(differ); i++)
        if (!tern_weights_get(old, tern_weights_name(differ, i)))
            assert_int_equal(tern_weights_add(w, tern_weights_name(differ, i), tern_weights_at(differ, i)), TERN_OK);
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&old);
    tern_weights_unref(&differ);
    tern_weights_unref(&w);
}

void xl_drop_tensors(struct tern_context *ctx, const char *folder, const char *first)
{
    char path[2 * PATH_SIZE];
    snprintf(path, sizeof(path), "%s/" UNET, folder);
    struct tern_weights *whole = tern_weights_open(ctx, path), *rest = tern_weights_create(ctx);
    assert_non_null(whole);
    for (int64_t i = 0; i < tern_weights_count(whole); i++)
        if (strncmp(tern_weights_name(whole, i), first, strlen(first)))
            assert_int_equal(tern_weights_add(rest, tern_weights_name(whole, i), tern_weights_at(whole, i)), TERN_OK);
    assert_true(tern_weights_count(rest) < tern_weights_count(whole));
    assert_int_equal(tern_weights_save(rest, path), TERN_OK);
    tern_weights_unref(&whole);
    tern_weights_unref(&rest);
}

void xl_drop_mid_block(struct tern_context *ctx, const char *folder)
{
    xl_drop_tensors(ctx, folder, "mid_block.");
    damage_json(folder, "unet/config.json", "mid_block_type", json_null());
}

/* The index names the class of the folder's scheduler_config.json. */
static void name_scheduler(const char *folder)
{
    size_t size;
    char *text = damage_read(folder, "scheduler/scheduler_config.json", &size);
    json_t *config = json_loadb(text, size, 0, NULL);
    damage_json(folder, "model_index.json", "scheduler", json_pack("[s,O]", "diffusers", json_object_get(config, "_class_name")));
    json_decref(config);
    free(text);
}

void xl_folder(struct tern_context *ctx, const char *name, char *folder)
{
    const struct place at = place_of(name);
    damage_copy(at.base, folder);
    replace(at.own, "model_index.json", folder, "model_index.json");
    if (replace(at.own, "scheduler_config.json", folder, "scheduler/scheduler_config.json"))
        name_scheduler(folder);
    if (replace(at.unet, "unet.json", folder, "unet/config.json"))
        change_unet(ctx, at.unet, folder);
    if (!strcmp(name, "sdxl-refiner")) {
        damage_delete(folder, "text_encoder");
        damage_delete(folder, "tokenizer");
    }
}

/* Those of text-2.safetensors; the refiner has that encoder as its first. */
static void add_text_2(struct tern_context *ctx, struct tern_weights *to, bool refiner)
{
    static const char prefix[] = "conditioner.embedders.1.model.";
    char name[TERN_LDM_NAME];
    struct tern_weights *text = tern_weights_open(ctx, XL_DATA "text-2.safetensors");
    assert_non_null(text);
    for (int64_t i = 0; i < tern_weights_count(text); i++) {
        const char *old = tern_weights_name(text, i);
        snprintf(name, sizeof(name), "conditioner.embedders.%d.model.%s", !refiner, old + sizeof(prefix) - 1);
        assert_int_equal(tern_weights_add(to, name, tern_weights_at(text, i)), TERN_OK);
    }
    tern_weights_unref(&text);
}

struct tern_weights *xl_single(struct tern_context *ctx, const char *name, const char *folder)
{
    static const char *const components[] = {"unet", "vae", "text_encoder"};
    bool refiner = !strcmp(name, "sdxl-refiner");
    const struct tern_ldm_sizes sizes = {2, 1, 1, 4, 0, refiner ? TERN_LDM_REFINER : TERN_LDM_XL};
    char ldm[TERN_LDM_NAME];
    struct tern_checkpoint *cp = tern_checkpoint_open(ctx, folder);
    struct tern_weights *out = tern_weights_create(ctx);
    if (!cp)
        fail_msg("%s", tern_error(ctx));
    for (int k = 0; k < (refiner ? 2 : 3); k++) {
        struct tern_weights *w = tern_checkpoint_weights(cp, components[k]);
        for (int64_t i = 0; i < tern_weights_count(w); i++) {
            if (!tern_ldm_name(&sizes, components[k], tern_weights_name(w, i), ldm))
                fail_msg("%s: no LDM name for %s", name, tern_weights_name(w, i));
            assert_int_equal(tern_weights_add(out, ldm, tern_weights_at(w, i)), TERN_OK);
        }
        tern_weights_unref(&w);
    }
    add_text_2(ctx, out, refiner);
    tern_checkpoint_close(&cp);
    return out;
}
