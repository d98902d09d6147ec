/* Other kinds of adapters than LoRA: LoHa, LoKr, IA3, whole differences, DoRA, OFT, BOFT, biases, against their formulas and PEFT. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "support.h"

#define FOLDER "../lora-kinds/"
#define LOHA FOLDER "loha.safetensors"
#define LOKR FOLDER "lokr.safetensors"
#define WHOLE FOLDER "whole.safetensors"
#define IA3 FOLDER "ia3.safetensors"
#define DORA_SCALE FOLDER "dora-scale.safetensors"
#define DORA FOLDER "dora.safetensors"
#define BIASES FOLDER "biases.safetensors"
#define OFT "../lora-rotations/oft.safetensors"
#define BOFT "../lora-rotations/boft.safetensors"

/* The cases of tools/goldens/lora_kinds.py. */
static const struct lora_case cases[] = {
    {"loha-0.8", {{LOHA, 0.8}}, {"unet"}},
    {"lokr-0.7", {{LOKR, 0.7}}, {"unet"}},
    {"whole-0.6", {{WHOLE, 0.6}}, {"unet", "text_encoder"}},
    {"ia3-0.5", {{IA3, 0.5}}, {"unet"}},
    {"dora-scale-1", {{DORA_SCALE, 1}}, {"unet"}},
    {"dora-scale-0.6", {{DORA_SCALE, 0.6}}, {"unet"}},
    {"all", {{LOHA, 0.5}, {LOKR, -0.4}, {WHOLE, 0.3}, {IA3, 0.6}, {DORA_SCALE, 0.7}}, {"unet", "text_encoder"}},
    {"all", {{DORA_SCALE, 0.7}, {IA3, 0.6}, {WHOLE, 0.3}, {LOKR, -0.4}, {LOHA, 0.5}}, {"unet", "text_encoder"}}, /* in any order */
    {"dora-1", {{DORA, 1}}, {"unet"}},
    {"dora-0.6", {{DORA, 0.6}}, {"unet", "text_encoder"}},
    {"biases-0.7", {{BIASES, 0.7}}, {"unet"}},
};

/* The cases of tools/goldens/lora_rotations.py. */
static const struct lora_case rotations[] = {
    {"oft-0.6", {{OFT, 0.6}}, {"unet"}},
    {"boft-1", {{BOFT, 1}}, {"unet"}},
    {"rotations", {{OFT, 0.5}, {BOFT, -0.4}, {LOHA, 0.3}}, {"unet", "text_encoder"}},
    {"rotations", {{LOHA, 0.3}, {BOFT, -0.4}, {OFT, 0.5}}, {"unet", "text_encoder"}}, /* in any order */
};

static void outputs_are_those_of_the_formulas(void **state)
{
    char folder[PATH_SIZE];
    lora_wide_model("sd1", folder);
    lora_check_cases(folder, "lora-kinds", cases, sizeof(cases) / sizeof(*cases));
    lora_check_cases(folder, "lora-rotations", rotations, sizeof(rotations) / sizeof(*rotations));
    damage_remove(folder);
}

static void hundred_changes_leave_nothing(void **state)
{
    static const struct lora_spec all[] = {{LOHA, 1}, {LOKR, 1},   {WHOLE, 1}, {IA3, 1}, {DORA_SCALE, 1},
                                           {DORA, 1}, {BIASES, 1}, {OFT, 1},   {BOFT, 1}};
    char path[PATH_SIZE];
    const int n = sizeof(all) / sizeof(*all);
    for (int i = 0; i < n; i++)
        lora_leaves_nothing(model_path("sd1", path), &all[i], 1, 100);
    lora_leaves_nothing(model_path("sd1", path), all, n, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_those_of_the_formulas),
        cmocka_unit_test(hundred_changes_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
