/* How the names of a LoRA file's tensors end. */
#include "models/files/lora_endings.h"

#include <stdio.h>
#include <string.h>

#include "models/files/weights.h"

static const char kohya[] = "kohya", peft[] = "PEFT", diffusers[] = "diffusers before PEFT", lycoris[] = "LyCORIS";

/* The longer of two endings stands first. */
static const struct tern_lora_ending endings[] = {
    {".lora_down.weight", TERN_LORA_DOWN, TERN_LORA_OF_WEIGHT, kohya},
    {".lora_up.weight", TERN_LORA_UP, TERN_LORA_OF_WEIGHT, kohya},
    {".lora_mid.weight", TERN_LORA_MID, TERN_LORA_OF_WEIGHT, kohya},
    {".alpha", TERN_LORA_ALPHA, TERN_LORA_OF_WEIGHT, NULL},
    {".dora_scale", TERN_LORA_DORA_SCALE, TERN_LORA_OF_WEIGHT, NULL},
    {".lora_A.weight", TERN_LORA_DOWN, TERN_LORA_OF_WEIGHT, peft},
    {".lora_B.weight", TERN_LORA_UP, TERN_LORA_OF_WEIGHT, peft},
    {".lora_B.bias", TERN_LORA_UP_BIAS, TERN_LORA_OF_BIAS, peft},
    {".lora_A.default.weight", TERN_LORA_DOWN, TERN_LORA_OF_WEIGHT, peft},
    {".lora_B.default.weight", TERN_LORA_UP, TERN_LORA_OF_WEIGHT, peft},
    {".lora_B.default.bias", TERN_LORA_UP_BIAS, TERN_LORA_OF_BIAS, peft},
    {".lora_magnitude_vector", TERN_LORA_MAGNITUDE, TERN_LORA_OF_WEIGHT, peft},
    {".lora_magnitude_vector.weight", TERN_LORA_MAGNITUDE, TERN_LORA_OF_WEIGHT, peft},
    {".lora_magnitude_vector.default.weight", TERN_LORA_MAGNITUDE, TERN_LORA_OF_WEIGHT, peft},
    {".lora.down.weight", TERN_LORA_DOWN, TERN_LORA_OF_WEIGHT, diffusers},
    {".lora.up.weight", TERN_LORA_UP, TERN_LORA_OF_WEIGHT, diffusers},
    {"_lora.down.weight", TERN_LORA_DOWN, TERN_LORA_OF_WEIGHT, diffusers},
    {"_lora.up.weight", TERN_LORA_UP, TERN_LORA_OF_WEIGHT, diffusers},
    {".lora_linear_layer.down.weight", TERN_LORA_DOWN, TERN_LORA_OF_WEIGHT, diffusers},
    {".lora_linear_layer.up.weight", TERN_LORA_UP, TERN_LORA_OF_WEIGHT, diffusers},
    {".hada_w1_a", TERN_LORA_HADA_W1_A, TERN_LORA_OF_WEIGHT, lycoris},
    {".hada_w1_b", TERN_LORA_HADA_W1_B, TERN_LORA_OF_WEIGHT, lycoris},
    {".hada_t1", TERN_LORA_HADA_T1, TERN_LORA_OF_WEIGHT, lycoris},
    {".hada_w2_a", TERN_LORA_HADA_W2_A, TERN_LORA_OF_WEIGHT, lycoris},
    {".hada_w2_b", TERN_LORA_HADA_W2_B, TERN_LORA_OF_WEIGHT, lycoris},
    {".hada_t2", TERN_LORA_HADA_T2, TERN_LORA_OF_WEIGHT, lycoris},
    {".lokr_w1", TERN_LORA_KRON_W1, TERN_LORA_OF_WEIGHT, lycoris},
    {".lokr_w1_a", TERN_LORA_KRON_W1_A, TERN_LORA_OF_WEIGHT, lycoris},
    {".lokr_w1_b", TERN_LORA_KRON_W1_B, TERN_LORA_OF_WEIGHT, lycoris},
    {".lokr_w2", TERN_LORA_KRON_W2, TERN_LORA_OF_WEIGHT, lycoris},
    {".lokr_w2_a", TERN_LORA_KRON_W2_A, TERN_LORA_OF_WEIGHT, lycoris},
    {".lokr_w2_b", TERN_LORA_KRON_W2_B, TERN_LORA_OF_WEIGHT, lycoris},
    {".lokr_t2", TERN_LORA_KRON_T2, TERN_LORA_OF_WEIGHT, lycoris},
    {".a1.weight", TERN_LORA_GLORA_A1, TERN_LORA_OF_WEIGHT, lycoris},
    {".a2.weight", TERN_LORA_GLORA_A2, TERN_LORA_OF_WEIGHT, lycoris},
    {".b1.weight", TERN_LORA_GLORA_B1, TERN_LORA_OF_WEIGHT, lycoris},
    {".b2.weight", TERN_LORA_GLORA_B2, TERN_LORA_OF_WEIGHT, lycoris},
    {".bm.weight", TERN_LORA_GLORA_BM, TERN_LORA_OF_WEIGHT, lycoris},
    {".diff", TERN_LORA_DIFF, TERN_LORA_OF_WEIGHT, lycoris},
    {".diff_b", TERN_LORA_DIFF, TERN_LORA_OF_BIAS, lycoris},
    {".w_norm", TERN_LORA_DIFF, TERN_LORA_OF_WEIGHT, lycoris},
    {".b_norm", TERN_LORA_DIFF, TERN_LORA_OF_BIAS, lycoris},
    {".on_input", TERN_LORA_ON_INPUT, TERN_LORA_OF_WEIGHT, lycoris},
    {".oft_blocks", TERN_LORA_OFT_BLOCKS, TERN_LORA_OF_WEIGHT, lycoris},
    {".oft_diag", TERN_LORA_OFT_DIAG, TERN_LORA_OF_WEIGHT, lycoris},
    {".rescale", TERN_LORA_RESCALE, TERN_LORA_OF_WEIGHT, lycoris},
    {".oft_R.weight", TERN_LORA_ROLES, TERN_LORA_OF_NOTHING, "PEFT's OFT"},
    {".boft_R", TERN_LORA_ROLES, TERN_LORA_OF_NOTHING, "PEFT's BOFT"},
    {".lokr_t1", TERN_LORA_ROLES, TERN_LORA_OF_NOTHING, "LoKr with a core in its first matrix"},
};
static const struct tern_lora_ending factor = {".weight", TERN_LORA_FACTOR, TERN_LORA_OF_WEIGHT, lycoris}; /* beside an on_input */

const struct tern_lora_ending *tern_lora_find_ending(const struct tern_weights *w, const char *name, size_t *length)
{
    char sibling[512];
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
        size_t k = strlen(endings[i].text);
        if (n > k && !strcmp(name + n - k, endings[i].text)) {
            *length = n - k;
            return &endings[i];
        }
    }
    *length = n > strlen(factor.text) ? n - strlen(factor.text) : 0;
    if (!*length || *length >= sizeof(sibling) - 16 || strcmp(name + *length, factor.text))
        return NULL;
    snprintf(sibling, sizeof(sibling), "%.*s.on_input", (int)*length, name);
    return tern_weights_get(w, sibling) ? &factor : NULL;
}
