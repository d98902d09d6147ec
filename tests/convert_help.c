/* Models to convert, and where they go. */
#include "convert_help.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "damage.h"
#include "model_help.h"
#include "models/files/layout.h"
#include "models/files/weights.h"
#include "support.h"
#include "weights_help.h"
#include "xl_help.h"

const char *const convert_components[4] = {"unet", "vae", "text_encoder", "text_encoder_2"};

/* A copy of a model that has the heads that a reader takes single files of such widths to have. */
void convert_copy_model(const char *model, char *folder)
{
    damage_copy(model, folder);
    damage_json(folder, "unet/config.json", "attention_head_dim", json_integer(1));
    damage_json(folder, "text_encoder/config.json", "num_attention_heads", json_integer(1));
    if (!strcmp(model, "sdxl"))
        damage_json(folder, "text_encoder_2/config.json", "num_attention_heads", json_integer(1));
}

void convert_copy_refiner(struct tern_context *ctx, char *folder)
{
    xl_folder(ctx, "sdxl-refiner", folder);
    damage_json(folder, "unet/config.json", "attention_head_dim", json_integer(1));
    damage_json(folder, "text_encoder_2/config.json", "num_attention_heads", json_integer(1));
}

int convert_entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

void convert_beside(const char *folder, const char *name, char *out)
{
    assert_true(snprintf(out, PATH_SIZE, "%s/%s", folder, name) < PATH_SIZE);
}

void convert_well(struct tern_context *ctx, const char *model, const char *out, const struct tern_convert_params *params)
{
    if (tern_convert(ctx, model, out, params))
        fail_msg("%s to %s: %s", model, out, tern_error(ctx));
}

void convert_same_model(struct tern_context *ctx, const char *a, const char *b)
{
    struct tern_checkpoint *x = tern_checkpoint_open(ctx, a), *y = tern_checkpoint_open(ctx, b);
    if (!x || !y)
        fail_msg("%s", tern_error(ctx));
    assert_string_equal(tern_checkpoint_pipeline(x), tern_checkpoint_pipeline(y));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tern_checkpoint_has(x, convert_components[i]), tern_checkpoint_has(y, convert_components[i]));
        if (!tern_checkpoint_has(x, convert_components[i]))
            continue;
        struct tern_weights *v = tern_checkpoint_weights(x, convert_components[i]), *w = tern_checkpoint_weights(y, convert_components[i]);
        if (!v || !w)
            fail_msg("%s", tern_error(ctx));
        help_same_weights(v, w);
        tern_weights_unref(&v);
        tern_weights_unref(&w);
    }
    tern_checkpoint_close(&x);
    tern_checkpoint_close(&y);
}
