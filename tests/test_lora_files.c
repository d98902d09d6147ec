/* LoRA files that are damaged, foreign or made for another model: a message that says what is wrong, and nothing changes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/files/architecture.h"
#include "models/files/lora.h"
#include "models/files/weights.h"
#include "support.h"

#define K "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k" /* (8, 40) */
#define C "lora_unet_down_blocks_0_resnets_0_conv1"                              /* (8, 8, 3, 3) */
#define X "lora_unet_down_blocks_0_attentions_0_proj_in"                         /* (8, 8, 1, 1) */
#define M "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_out_0" /* (24, 24), (24) */
#define N "lora_unet_down_blocks_0_resnets_0_norm1"                              /* (8), (8) */
#define P "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k"
#define META "lora_adapter_metadata"

struct tensor {
    const char *name;
    int ndim;
    int64_t shape[6];
    enum tern_dtype dtype;
};

/* A file of these tensors (ones) and one metadata value, and what is said of it. */
struct file {
    struct tensor tensor[5];
    const char *metadata;
    enum tern_status status; /* TERN_OK: it is taken */
    const char *parts[4];    /* of the error; TERN_OK: of what the log is told */
    const char *key;         /* of the metadata value; NULL: META */
};

static const struct file files[] = {
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}}, NULL, TERN_OK, {NULL}},
    {{{K ".lora_down.weight", 4, {2, 40, 1, 1}}, {K ".lora_up.weight", 4, {8, 2, 1, 1}}, {K ".alpha", 1, {1}}}, NULL, TERN_OK, {NULL}},
    {{{"lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", 2, {1, 40}},
      {"lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_up.weight", 2, {96, 1}}},
     NULL,
     TERN_OK,
     {NULL}},
    {{{"base_model.model.down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.lora_A.weight", 2, {2, 40}},
      {"base_model.model.down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.lora_B.weight", 2, {8, 2}}},
     NULL,
     TERN_OK,
     {NULL}},
    {{{"diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.lora_A.weight", 2, {2, 40}},
      {"diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.lora_B.weight", 2, {8, 2}}},
     NULL,
     TERN_OK,
     {NULL}},
    /* no LoRA */
    {{{"conv_in.weight", 4, {8, 4, 3, 3}}}, NULL, TERN_E_FORMAT, {"no LoRA", "\"conv_in.weight\"", "1 tensors"}},
    {{{NULL}}, NULL, TERN_E_FORMAT, {"no tensors"}},
    /* it fits in part: what does not is told */
    {{{K ".lora_down.weight", 2, {2, 40}},
      {K ".lora_up.weight", 2, {8, 2}},
      {"lora_te_text_model_encoder_layers_9_mlp_fc1.lora_down.weight", 2, {1, 40}},
      {"lora_unet_down_blocks_7_resnets_0_conv1.lora_up.weight", 2, {1, 40}}},
     NULL,
     TERN_OK,
     {"2 of its 4 tensors have no place", "\"lora_te_text_model_encoder_layers_9_mlp_fc1.lora_down.weight\"",
      "\"lora_unet_down_blocks_7_resnets_0_conv1.lora_up.weight\""}},
    {{{K ".diff", 2, {8, 40}}, {K ".diff_b", 1, {8}}}, NULL, TERN_OK, {"1 of its 2", K ".diff_b"}}, /* it has no bias */
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}, {P ".lora_B.bias", 1, {8}}},
     NULL,
     TERN_E_UNSUPPORTED,
     {"a bias of PEFT for a layer that has none", P ".lora_B.bias"}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}, {"emb_params", 2, {2, 40}}}, NULL, TERN_OK, {"\"emb_params\""}},
    /* of another architecture */
    {{{C ".lora_down.weight", 4, {2, 8, 3, 3}},
      {C ".lora_up.weight", 2, {8, 2}},
      {"lora_te2_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", 2, {1, 40}},
      {"lora_unet_input_blocks_4_1_transformer_blocks_1_attn1_to_k.lora_up.weight", 2, {1, 40}}},
     NULL,
     TERN_E_FORMAT,
     {"a LoRA for Stable Diffusion XL", "this model is Stable Diffusion 1"}},
    {{{K ".lora_down.weight", 2, {2, 1024}}, {K ".lora_up.weight", 2, {8, 2}}},
     NULL,
     TERN_E_FORMAT,
     {"a LoRA for Stable Diffusion 2", "this model is Stable Diffusion 1"}},
    {{{"lora_unet_double_blocks_0_img_attn_proj.lora_down.weight", 2, {2, 40}}}, NULL, TERN_E_FORMAT, {"a LoRA for Flux"}},
    {{{"transformer.transformer_blocks.0.attn.add_k_proj.lora_A.weight", 2, {2, 40}}},
     NULL,
     TERN_E_FORMAT,
     {"a LoRA for Stable Diffusion 3 or Flux", "this model is Stable Diffusion 1"}},
    {{{"lora_te2_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", 2, {1, 40}}},
     NULL,
     TERN_E_FORMAT,
     {"a LoRA for Stable Diffusion XL or its refiner, Stable Diffusion 3 or Flux"}},
    {{{"lora_unet_joint_blocks_0_x_block_mlp_fc1.lora_down.weight", 2, {2, 40}}}, NULL, TERN_E_FORMAT, {"a LoRA for Stable Diffusion 3"}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}},
     "sdxl_base_v1-0",
     TERN_E_FORMAT,
     {"a LoRA for Stable Diffusion XL"},
     "ss_base_model_version"},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}},
     "stable-diffusion-v2-768-v/lora",
     TERN_E_FORMAT,
     {"a LoRA for Stable Diffusion 2"},
     "modelspec.architecture"},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}}, "sd_v1", TERN_OK, {NULL}, "ss_base_model_version"},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}}, "my own", TERN_OK, {NULL}, "ss_base_model_version"},
    {{{"unet.nowhere.to_q.lora_A.weight", 2, {2, 40}}},
     NULL,
     TERN_E_FORMAT,
     {"PEFT", "none of its 1 tensors", "\"unet.nowhere.to_q.lora_A.weight\""}},
    {{{"unet.nowhere.to_q.lora.up.weight", 2, {2, 40}}},
     NULL,
     TERN_E_FORMAT,
     {"diffusers before PEFT", "\"unet.nowhere.to_q.lora.up.weight\""}},
    {{{K ".lora_down.weight", 2, {2, 48}}, {K ".lora_up.weight", 2, {8, 2}}},
     NULL,
     TERN_E_SHAPE,
     {K ".lora_down.weight\"", "expected (2, 40) f32", "found (2, 48) f32"}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {9, 2}}},
     NULL,
     TERN_E_SHAPE,
     {K ".lora_up.weight\"", "expected (8, 2) f32", "found (9, 2) f32"}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 3}}},
     NULL,
     TERN_E_SHAPE,
     {"expected (8, 2) f32", "found (8, 3) f32"}},
    {{{K ".lora_down.weight", 2, {0, 40}}, {K ".lora_up.weight", 2, {8, 0}}},
     NULL,
     TERN_E_SHAPE,
     {"expected (1, 40) f32", "found (0, 40) f32"}},
    {{{K ".lora_down.weight", 0, {0}}, {K ".lora_up.weight", 2, {8, 1}}}, NULL, TERN_E_SHAPE, {"found ()"}},
    {{{K ".lora_down.weight", 2, {2, 40}, TERN_I32}, {K ".lora_up.weight", 2, {8, 2}}}, NULL, TERN_E_SHAPE, {"found (2, 40) i32"}},
    {{{C ".lora_down.weight", 4, {2, 8, 1, 1}}, {C ".lora_up.weight", 4, {8, 2, 1, 1}}},
     NULL,
     TERN_E_SHAPE,
     {"expected (2, 8, 3, 3) f32", "found (2, 8, 1, 1) f32"}},
    {{{C ".lora_down.weight", 4, {2, 8, 1, 1}}, {C ".lora_up.weight", 4, {8, 2, 1, 1}}, {C ".lora_mid.weight", 4, {2, 3, 3, 3}}},
     NULL,
     TERN_E_SHAPE,
     {C ".lora_mid.weight\"", "expected (2, 2, 3, 3) f32", "found (2, 3, 3, 3) f32"}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}, {K ".lora_mid.weight", 4, {2, 2, 3, 3}}},
     NULL,
     TERN_E_SHAPE,
     {"only convolutions"}},
    /* incomplete */
    {{{K ".lora_down.weight", 2, {2, 40}}}, NULL, TERN_E_FORMAT, {K ".lora_down.weight\" stands alone", "up (B)"}},
    {{{K ".lora_up.weight", 2, {8, 2}}}, NULL, TERN_E_FORMAT, {"stands alone", "down (A)"}},
    {{{K ".alpha", 0, {0}}}, NULL, TERN_E_FORMAT, {"stands alone"}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}, {P ".lora_A.weight", 2, {2, 40}}},
     NULL,
     TERN_E_FORMAT,
     {"another one for the same place"}},
    /* LDM's names beside diffusers' */
    {{{K ".lora_down.weight", 2, {2, 40}},
      {K ".lora_up.weight", 2, {8, 2}},
      {"lora_unet_input_blocks_1_1_transformer_blocks_0_attn2_to_k.lora_down.weight", 2, {2, 40}},
      {"lora_unet_input_blocks_1_1_transformer_blocks_0_attn2_to_k.lora_up.weight", 2, {8, 2}}},
     NULL,
     TERN_OK,
     {"2 of its 4 tensors have LDM's names"}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}, {K ".alpha", 1, {2}}},
     NULL,
     TERN_E_SHAPE,
     {K ".alpha\"", "expected one number, found (2,) f32"}},
    /* other kinds of adapters: complete, of the right shapes, and not mixed */
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}, {K ".dora_scale", 2, {8, 1}}}, NULL, TERN_OK, {NULL}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}, {K ".dora_scale", 2, {1, 40}}}, NULL, TERN_OK, {NULL}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}, {K ".dora_scale", 2, {1, 8}}},
     NULL,
     TERN_E_SHAPE,
     {K ".dora_scale\"", "expected (1, 40) f32"}},
    {{{K ".dora_scale", 2, {8, 1}}}, NULL, TERN_E_FORMAT, {"stands alone"}},
    {{{K ".diff", 2, {8, 40}}, {K ".dora_scale", 2, {8, 1}}}, NULL, TERN_E_FORMAT, {"a magnitude beside other"}},
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}, {P ".lora_magnitude_vector", 1, {40}}},
     NULL,
     TERN_E_SHAPE,
     {"expected (8,) f32"}},
    {{{K ".hada_w1_a", 2, {8, 2}}, {K ".hada_w1_b", 2, {2, 40}}, {K ".hada_w2_a", 2, {8, 3}}, {K ".hada_w2_b", 2, {3, 40}}},
     NULL,
     TERN_OK,
     {NULL}},
    {{{K ".hada_w1_a", 2, {8, 2}}, {K ".hada_w1_b", 2, {2, 40}}, {K ".hada_w2_a", 2, {8, 3}}, {K ".hada_w2_b", 2, {2, 40}}},
     NULL,
     TERN_E_SHAPE,
     {K ".hada_w2_a\"", "expected (8, 2) f32"}},
    {{{K ".hada_w1_a", 2, {8, 2}}}, NULL, TERN_E_FORMAT, {K ".hada_w1_a\" stands alone", "other factor"}},
    {{{K ".hada_w1_a", 2, {8, 2}}, {K ".hada_w1_b", 2, {2, 40}}}, NULL, TERN_E_FORMAT, {"stands alone"}},
    {{{C ".hada_w1_a", 2, {2, 8}}, {C ".hada_w1_b", 2, {2, 8}}, {C ".hada_t1", 4, {2, 2, 3, 3}}}, NULL, TERN_E_FORMAT, {"other core"}},
    {{{K ".lokr_w1", 2, {8, 2}}}, NULL, TERN_E_FORMAT, {K ".lokr_w1\" stands alone", "lokr_w2"}},
    {{{K ".lokr_w2", 2, {8, 2}}}, NULL, TERN_E_FORMAT, {"stands alone", "lokr_w1"}},
    {{{K ".lokr_w1", 2, {3, 2}}, {K ".lokr_w2", 2, {2, 20}}}, NULL, TERN_E_SHAPE, {"3 x 2 divides no weight of (8, 40)"}},
    {{{K ".lokr_w1", 2, {4, 2}}, {K ".lokr_w2", 2, {2, 10}}}, NULL, TERN_E_SHAPE, {"expected (2, 20) f32"}},
    {{{K ".lokr_w1", 4, {4, 2, 2, 2}}, {K ".lokr_w2", 2, {2, 20}}}, NULL, TERN_E_SHAPE, {"expected (4, 2) f32"}},
    {{{K ".lokr_w1", 2, {0, 0}}, {K ".lokr_w2", 2, {8, 40}}}, NULL, TERN_E_SHAPE, {"found (0, 0)"}},
    {{{K ".lokr_w1", 2, {2, 2}}, {K ".lokr_w2_a", 2, {2, 4}}, {K ".lokr_w2_b", 2, {2, 20}}, {K ".lokr_t2", 4, {2, 2, 1, 1}}},
     NULL,
     TERN_E_SHAPE,
     {"only convolutions have a core"}},
    {{{K ".a1.weight", 2, {40, 2}}, {K ".a2.weight", 2, {2, 40}}, {K ".b1.weight", 2, {8, 2}}}, NULL, TERN_E_FORMAT, {"stands alone", "b2"}},
    {{{K ".a1.weight", 2, {40, 2}}, {K ".a2.weight", 2, {2, 40}}, {K ".b1.weight", 2, {8, 3}}, {K ".b2.weight", 2, {3, 40}}},
     NULL,
     TERN_E_SHAPE,
     {K ".a1.weight\"", "expected (40, 3) f32"}},
    {{{K ".a1.weight", 2, {2, 40}}, {K ".a2.weight", 2, {40, 2}}, {K ".b1.weight", 2, {2, 40}}, {K ".b2.weight", 2, {8, 3}}},
     NULL,
     TERN_E_SHAPE,
     {K ".b2.weight\"", "expected (8, 2) f32"}},
    {{{K ".a1.weight", 2, {1024, 2}}, {K ".a2.weight", 2, {2, 1024}}, {K ".b1.weight", 2, {8, 2}}, {K ".b2.weight", 2, {2, 1024}}},
     NULL,
     TERN_E_FORMAT,
     {"a LoRA for Stable Diffusion 2", "this model is Stable Diffusion 1"}},
    {{{K ".a1.weight", 2, {40, 2}},
      {K ".a2.weight", 2, {2, 40}},
      {K ".b1.weight", 2, {8, 2}},
      {K ".b2.weight", 2, {2, 40}},
      {K ".dora_scale", 2, {8, 1}}},
     NULL,
     TERN_E_FORMAT,
     {"a magnitude beside other"}},
    {{{K ".lora_down.weight", 2, {2, 40}}, {K ".lora_up.weight", 2, {8, 2}}, {K ".diff", 2, {8, 40}}},
     NULL,
     TERN_E_FORMAT,
     {K ".diff\"", "another kind of adapter"}},
    {{{K ".diff", 2, {40, 8}}}, NULL, TERN_E_SHAPE, {"expected (8, 40) f32"}},
    {{{M ".diff_b", 1, {24}}, {N ".w_norm", 1, {8}}, {N ".b_norm", 1, {8}}}, NULL, TERN_OK, {NULL}},
    {{{N ".w_norm", 1, {9}}}, NULL, TERN_E_SHAPE, {"expected (8,) f32"}},
    {{{N ".lora_down.weight", 2, {1, 8}}, {N ".lora_up.weight", 2, {8, 1}}}, NULL, TERN_E_SHAPE, {"belongs to a norm"}},
    {{{K ".weight", 1, {8}}, {K ".on_input", 0, {0}}}, NULL, TERN_E_SHAPE, {K ".weight\"", "expected (40,) f32"}}, /* ones: on input */
    {{{K ".weight", 1, {40}}, {K ".on_input", 0, {0}}}, NULL, TERN_OK, {NULL}},
    {{{K ".weight", 1, {40}}, {K ".on_input", 1, {2}}}, NULL, TERN_E_SHAPE, {"one number"}},
    {{{K ".on_input", 0, {0}}}, NULL, TERN_E_FORMAT, {"stands alone", "weight"}},
    {{{P ".oft_R.weight", 2, {2, 6}}}, NULL, TERN_E_UNSUPPORTED, {P ".oft_R.weight\"", "PEFT's OFT"}},
    {{{K ".oft_diag", 3, {2, 4, 4}}}, NULL, TERN_OK, {NULL}},
    {{{K ".oft_blocks", 3, {2, 4, 4}}, {K ".rescale", 1, {4}}}, NULL, TERN_E_SHAPE, {K ".rescale\"", "expected (8,) f32"}},
    {{{K ".oft_blocks", 3, {3, 3, 3}}}, NULL, TERN_E_SHAPE, {K ".oft_blocks\"", "(3, 3, 3) f32 turns no outputs", "(8, 40)"}},
    {{{K ".oft_blocks", 3, {2, 3, 4}}}, NULL, TERN_E_SHAPE, {"expected (2, 4, 4) f32"}},
    {{{K ".oft_blocks", 3, {1, 4, 4}}}, NULL, TERN_E_SHAPE, {"expected (2, 4, 4) f32"}},
    {{{K ".oft_blocks", 3, {0, 0, 0}}}, NULL, TERN_E_SHAPE, {"expected (8, 1, 1) f32"}},
    {{{K ".oft_blocks", 0, {0}}}, NULL, TERN_E_SHAPE, {"found ()"}},
    {{{K ".oft_blocks", 3, {2, 4, 4}, TERN_I32}}, NULL, TERN_E_SHAPE, {"found (2, 4, 4) i32"}},
    {{{K ".oft_blocks", 4, {3, 2, 4, 4}}}, NULL, TERN_E_SHAPE, {"turns no outputs"}}, /* two blocks have two factors at most */
    {{{K ".oft_blocks", 4, {1, 8, 1, 1}}}, NULL, TERN_E_SHAPE, {"turns no outputs"}},
    {{{K ".oft_blocks", 4, {40, 2, 4, 4}}}, NULL, TERN_E_SHAPE, {"turns no outputs"}},
    {{{K ".oft_diag", 4, {1, 2, 4, 4}}}, NULL, TERN_E_SHAPE, {"expected (2, 4, 4) f32"}},
    /* sizes of 1 left out or added: the form is another */
    {{{K ".oft_blocks", 2, {8, 1}}}, NULL, TERN_E_SHAPE, {K ".oft_blocks\"", "expected (8, 1, 1) f32", "found (8, 1) f32"}},
    {{{K ".oft_blocks", 6, {8, 1, 1, 1, 1, 1}}}, NULL, TERN_E_SHAPE, {"expected (8, 1, 1) f32"}},
    {{{K ".oft_diag", 4, {8, 1, 1, 1}}}, NULL, TERN_E_SHAPE, {K ".oft_diag\"", "expected (8, 1, 1) f32"}},
    {{{C ".lora_down.weight", 4, {2, 8, 1, 1}}, {C ".lora_up.weight", 2, {8, 2}}, {C ".lora_mid.weight", 5, {2, 2, 3, 3, 1}}},
     NULL,
     TERN_E_SHAPE,
     {C ".lora_mid.weight\"", "expected (2, 2, 3, 3) f32", "found (2, 2, 3, 3, 1) f32"}},
    {{{X ".lora_down.weight", 2, {2, 8}}, {X ".lora_up.weight", 2, {8, 2}}, {X ".lora_mid.weight", 2, {2, 2}}},
     NULL,
     TERN_E_SHAPE,
     {X ".lora_mid.weight\"", "expected (2, 2, 1, 1) f32", "found (2, 2) f32"}},
    {{{K ".oft_diag", 3, {2, 4, 4}}, {K ".oft_blocks", 3, {2, 4, 4}}}, NULL, TERN_E_FORMAT, {K ".oft_diag\"", "other rotations"}},
    {{{K ".rescale", 2, {8, 1}}}, NULL, TERN_E_FORMAT, {K ".rescale\" stands alone", "oft_blocks"}},
    {{{K ".oft_diag", 3, {2, 4, 4}}, {K ".dora_scale", 2, {8, 1}}}, NULL, TERN_E_FORMAT, {"a magnitude beside other"}},
    {{{K ".oft_blocks", 3, {2, 4, 4}}, {K ".alpha", 1, {2}}}, NULL, TERN_E_SHAPE, {K ".alpha\"", "expected one number"}},
    {{{N ".oft_blocks", 3, {2, 4, 4}}}, NULL, TERN_E_SHAPE, {"belongs to a norm"}},
    /* metadata */
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}}, "{\"unet.lora_alpha\": 4}", TERN_OK, {NULL}},
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}}, "{\"text_encoder.r\": 4}", TERN_OK, {NULL}},
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}}, "{broken", TERN_E_FORMAT, {META}},
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}}, "[1]", TERN_E_FORMAT, {META, "object"}},
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}},
     "{\"unet.lora_alpha\": \"x\"}",
     TERN_E_FORMAT,
     {"lora_alpha", "number"}},
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}},
     "{\"peft_type\": \"LOHA\"}",
     TERN_E_UNSUPPORTED,
     {"peft_type", "\"LOHA\""}},
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}},
     "{\"unet.alpha_pattern\": {\"a.*b\": 2}}",
     TERN_E_UNSUPPORTED,
     {"\"a.*b\"", "name of a module"}},
    {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}}, "{\"unet.alpha_pattern\": 3}", TERN_OK, {NULL}},
};

static char folder[PATH_SIZE], path[2 * PATH_SIZE];
static struct tern_context *ctx;
static struct tern_pipeline *p;
static struct lora_print *plain;
static char told[1024]; /* what the log was told last */

static void listen(enum tern_log_level level, const char *message, void *user)
{
    if (level == TERN_LOG_WARN)
        snprintf(told, sizeof(told), "%s", message);
}

static void write_file(const struct file *f)
{
    struct tern_weights *w = tern_weights_create(ctx);
    for (int i = 0; i < 5 && f->tensor[i].name; i++) {
        const struct tensor *t = &f->tensor[i];
        tern_tensor *ones = tern_full(ctx, t->dtype, t->ndim, t->shape, 1);
        assert_int_equal(tern_weights_add(w, t->name, ones), TERN_OK);
        tern_tensor_unref(&ones);
    }
    if (f->metadata)
        assert_int_equal(tern_weights_add_metadata(w, f->key ? f->key : META, f->metadata), TERN_OK);
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
}

/* A value in each dtype; one that has no place is not told of. */
static void values_that_are_no_numbers_are_told(void **state)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    static const double values[] = {1, NAN, INFINITY, -INFINITY, 1};
    static const int64_t down[] = {2, 40}, up[] = {8, 2};
    for (int d = 0; d < 3; d++)
        for (int v = 0; v < 5; v++) {
            struct tern_weights *w = tern_weights_create(ctx);
            tern_tensor *a = tern_full(ctx, dtypes[d], 2, down, 1), *b = tern_full(ctx, dtypes[d], 2, up, values[v]);
            tern_tensor *nowhere = tern_full(ctx, dtypes[d], 1, down, v == 4 ? NAN : 1);
            assert_int_equal(tern_weights_add(w, K ".lora_down.weight", a), TERN_OK);
            assert_int_equal(tern_weights_add(w, K ".lora_up.weight", b), TERN_OK);
            assert_int_equal(tern_weights_add(w, "emb_params", nowhere), TERN_OK);
            assert_int_equal(tern_weights_save(w, path), TERN_OK);
            tern_weights_unref(&w);
            tern_tensor_unref(&a);
            tern_tensor_unref(&b);
            tern_tensor_unref(&nowhere);
            *told = 0;
            assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){.path = path, .scale = 1}, 1), TERN_OK);
            const bool said = strstr(told, path) && strstr(told, "\"" K ".lora_up.weight\" are NaN or infinite");
            if (said != (v > 0 && v < 4))
                fail_msg("%s, %g: \"%s\"", tern_dtype_name(dtypes[d]), values[v], told);
            assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
        }
}

static enum tern_status set(const char *file, double scale)
{
    return tern_pipeline_set_loras(p, &(struct tern_lora){.path = file, .scale = scale}, 1);
}

static void is_unchanged(void)
{
    struct lora_print *now = lora_print(ctx, p);
    assert_true(lora_print_same(plain, now));
    lora_print_free(&now);
}

static void files_say_what_is_wrong(void **state)
{
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        const struct file *f = &files[i];
        write_file(f);
        *told = 0;
        enum tern_status st = set(path, 1);
        if (st != f->status)
            fail_msg("file %d: expected %s, found %s: %s", (int)i, tern_status_name(f->status), tern_status_name(st), tern_error(ctx));
        if (!st) {
            struct lora_print *now = lora_print(ctx, p);
            assert_false(lora_print_same(plain, now));
            lora_print_free(&now);
            assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
        }
        const char *said = st ? tern_error(ctx) : told;
        for (int k = 0; k < 4 && f->parts[k]; k++)
            if (!strstr(said, f->parts[k]) || !strstr(said, path))
                fail_msg("file %d: expected \"%s\" and the path in: %s", (int)i, f->parts[k], said);
        assert_int_equal(*told != 0, !st && f->parts[0]);
        tern_error_clear(ctx);
        is_unchanged();
    }
}

static void add_ones(struct tern_weights *w, const char *name, int ndim)
{
    tern_tensor *ones = tern_full(ctx, TERN_F32, ndim, (const int64_t[]){2, 2}, 1);
    assert_int_equal(tern_weights_add(w, name, ones), TERN_OK);
    tern_tensor_unref(&ones);
}

/* Two parts have the module, and only the second, smaller one has a bias for it: a name that says no part means the first, for the bias
 * as for the matrices. */
static void a_module_lies_in_one_part(void **state)
{
    struct tern_weights *bases[TERN_LORA_PARTS] = {tern_weights_create(ctx), tern_weights_create(ctx)};
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof(name), "a.%d.weight", i);
        add_ones(bases[TERN_LORA_UNET], name, 2);
    }
    add_ones(bases[TERN_LORA_UNET], "x.weight", 2);
    add_ones(bases[TERN_LORA_TEXT], "x.bias", 1);
    add_ones(bases[TERN_LORA_TEXT], "x.weight", 2);
    write_file(&(struct file){{{"x.lora_A.weight", 2, {2, 2}}, {"x.lora_B.weight", 2, {2, 2}}, {"x.lora_B.bias", 1, {2}}}});
    struct tern_lora_file *f = tern_lora_open(ctx, path, TERN_SD1, bases);
    support_error(ctx, TERN_E_UNSUPPORTED, "x.lora_B.bias\": a bias of PEFT for a layer that has none");
    assert_null(f);
    for (int i = 0; i < 2; i++)
        tern_weights_unref(&bases[i]);
}

/* An error leaves the LoRAs that were set. */
static void errors_keep_the_former(void **state)
{
    write_file(&files[0]);
    assert_int_equal(set(path, 1), TERN_OK);
    struct lora_print *with = lora_print(ctx, p);
    assert_int_equal(set("/nowhere/x.safetensors", 1), TERN_E_NOT_FOUND);
    tern_error_clear(ctx);
    struct lora_print *now = lora_print(ctx, p);
    assert_true(lora_print_same(with, now));
    lora_print_free(&with);
    lora_print_free(&now);
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
    is_unchanged();
}

static void damaged_files_are_refused(void **state)
{
    static const char *const names[] = {"a.safetensors", "a-old.bin"};
    for (int k = 0; k < 2; k++) {
        char from[PATH_SIZE];
        size_t n;
        snprintf(from, sizeof(from), "%s/lora", TERN_TEST_DATA);
        char *data = damage_read(from, names[k], &n);
        for (size_t cut = 0; cut < n; cut += cut < 64 ? 1 : 997) {
            damage_text(folder, "x.safetensors", data, cut);
            assert_int_not_equal(set(path, 1), TERN_OK);
            tern_error_clear(ctx);
        }
        free(data);
    }
    is_unchanged();
}

static void arguments_are_checked(void **state)
{
    const struct {
        struct tern_lora lora;
        int n;
        const char *part;
    } cases[] = {
        {{path, NAN}, 1, "scale"},
        {{path, INFINITY}, 1, "scale"},
        {{NULL, 1}, 1, "no path"},
        {{path, 1, &(struct tern_lora_strength){"down.3", 1}, 1}, 1, "\"down.3\""},
        {{path, 1, &(struct tern_lora_strength){"down.2.5", 1}, 1}, 1, "\"down.2.5\""},
        {{path, 1, &(struct tern_lora_strength){"dow", 1}, 1}, 1, "\"dow\""},
        {{path, 1, &(struct tern_lora_strength){"", 1}, 1}, 1, "\"\""},
        {{path, 1, &(struct tern_lora_strength){NULL, 1}, 1}, 1, "no block"},
        {{path, 1, &(struct tern_lora_strength){"mid", NAN}, 1}, 1, "\"mid\""},
        {{path, 1, NULL, 2}, 1, "blocks"},
        {{path, 1, &(struct tern_lora_strength){"mid", 1}, -1}, 1, "blocks"},
        {{path, 1}, -1, "at most 256"},
        {{path, 1}, 257, "at most 256"},
    };
    write_file(&files[0]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(tern_pipeline_set_loras(p, &cases[i].lora, cases[i].n), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, cases[i].part);
    }
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 1), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "no list");
    assert_int_equal(tern_pipeline_set_loras(NULL, NULL, 0), TERN_E_INVALID);
    assert_int_equal(set(folder, 1), TERN_E_IO);
    tern_error_clear(ctx);
    is_unchanged();
}

/* alpha / rank of each way to say it: the same as a file whose B is multiplied by it. */
static void alphas_are_read(void **state)
{
    static const struct {
        const char *metadata, *adapter_config;
        double scale;
        bool far; /* the name is long */
    } cases[] = {
        {NULL, NULL, 1},
        {"{\"unet.lora_alpha\": 1, \"unet.r\": 2}", NULL, 0.5},
        {"{\"unet.r\": 2}", NULL, 4}, /* LoraConfig's alpha is 8 */
        {"{\"unet.lora_alpha\": 1, \"unet.alpha_pattern\": {\"attn2.to_q\": 7, \"attn2.to_k\": 6}}", NULL, 3},
        {"{\"unet.lora_alpha\": 1, \"unet.alpha_pattern\": {\"^attn2.to_k\": 6}}", NULL, 0.5},
        {"{\"unet.lora_alpha\": 1, \"unet.alpha_pattern\": {\"n2.to_k\": 6}}", NULL, 0.5},
        {"{\"unet.lora_alpha\": 1, \"unet.alpha_pattern\": {\"^down_blocks.0.attentions.0.transformer_blocks.0.attn2\\\\.to_k$\": 6}}",
         NULL, 3},
        {"{\"unet.lora_alpha\": 4.0, \"unet.use_rslora\": true}", NULL, 2.8284271247461903},
        {NULL, "{\"lora_alpha\": 5, \"r\": 2}", 2.5},
        {NULL, "{\"lora_alpha\": 5, \"r\": 2}", 2.5, true},
    };
    char far[2000];
    int n = snprintf(far, sizeof(far), "%s", folder);
    while (n < 1500)
        n += snprintf(far + n, sizeof(far) - (size_t)n, "/.");
    snprintf(far + n, sizeof(far) - (size_t)n, "/x.safetensors");
    struct file f = {{{P ".lora_A.weight", 2, {2, 40}}, {P ".lora_B.weight", 2, {8, 2}}}, NULL, TERN_OK, {NULL}};
    write_file(&files[0]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        write_file(&files[0]);
        assert_int_equal(set(path, cases[i].scale), TERN_OK);
        struct lora_print *want = lora_print(ctx, p);
        f.metadata = cases[i].metadata;
        write_file(cases[i].adapter_config ? &files[3] : &f);
        if (cases[i].adapter_config)
            damage_text(folder, "adapter_config.json", cases[i].adapter_config, strlen(cases[i].adapter_config));
        assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
        assert_int_equal(set(cases[i].far ? far : path, 1), TERN_OK);
        struct lora_print *now = lora_print(ctx, p);
        if (!lora_print_same(want, now))
            fail_msg("case %d: another scale than %g", (int)i, cases[i].scale);
        lora_print_free(&want);
        lora_print_free(&now);
    }
    damage_delete(folder, "adapter_config.json");
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
}

static int setup(void **state)
{
    char model[PATH_SIZE];
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/x.safetensors", folder);
    ctx = tern_context_create(&(struct tern_context_params){.log = listen});
    assert_non_null(ctx);
    p = model_load(ctx, model_path("sd1", model));
    plain = lora_print(ctx, p);
    return 0;
}

static int teardown(void **state)
{
    lora_print_free(&plain);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    damage_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_say_what_is_wrong),
        cmocka_unit_test(a_module_lies_in_one_part),
        cmocka_unit_test(errors_keep_the_former),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(values_that_are_no_numbers_are_told),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(alphas_are_read),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
