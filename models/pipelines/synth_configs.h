/* The configuration files of published models in diffusers' form, for synthesised checkpoints. */
#ifndef TERN_MODELS_SYNTH_CONFIGS_H
#define TERN_MODELS_SYNTH_CONFIGS_H

/* ---- stable-diffusion-v1-5/stable-diffusion-v1-5 */

static const char sd15_index[] =
    "{\n  \"_class_name\": \"StableDiffusionPipeline\",\n  \"_diffusers_version\": \"0.30.0\",\n"
    "  \"scheduler\": [\"diffusers\", \"PNDMScheduler\"],\n  \"text_encoder\": [\"transformers\", \"CLIPTextModel\"],\n"
    "  \"unet\": [\"diffusers\", \"UNet2DConditionModel\"],\n  \"vae\": [\"diffusers\", \"AutoencoderKL\"],\n"
    "  \"safety_checker\": [null, null],\n  \"feature_extractor\": [null, null],\n  \"requires_safety_checker\": false\n}\n";

static const char sd15_unet[] =
    "{\n  \"_class_name\": \"UNet2DConditionModel\",\n  \"_diffusers_version\": \"0.30.0\",\n  \"sample_size\": 64,\n"
    "  \"in_channels\": 4,\n  \"out_channels\": 4,\n  \"block_out_channels\": [320, 640, 1280, 1280],\n  \"layers_per_block\": 2,\n"
    "  \"down_block_types\": [\"CrossAttnDownBlock2D\", \"CrossAttnDownBlock2D\", \"CrossAttnDownBlock2D\", \"DownBlock2D\"],\n"
    "  \"up_block_types\": [\"UpBlock2D\", \"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\"],\n"
    "  \"cross_attention_dim\": 768,\n  \"attention_head_dim\": 8,\n  \"norm_num_groups\": 32,\n  \"norm_eps\": 1e-05,\n"
    "  \"act_fn\": \"silu\",\n  \"downsample_padding\": 1,\n  \"flip_sin_to_cos\": true,\n  \"freq_shift\": 0\n}\n";

static const char sd15_vae[] =
    "{\n  \"_class_name\": \"AutoencoderKL\",\n  \"_diffusers_version\": \"0.30.0\",\n  \"sample_size\": 512,\n  \"in_channels\": 3,\n"
    "  \"out_channels\": 3,\n  \"latent_channels\": 4,\n  \"block_out_channels\": [128, 256, 512, 512],\n  \"layers_per_block\": 2,\n"
    "  \"down_block_types\": [\"DownEncoderBlock2D\", \"DownEncoderBlock2D\", \"DownEncoderBlock2D\", \"DownEncoderBlock2D\"],\n"
    "  \"up_block_types\": [\"UpDecoderBlock2D\", \"UpDecoderBlock2D\", \"UpDecoderBlock2D\", \"UpDecoderBlock2D\"],\n"
    "  \"norm_num_groups\": 32,\n  \"act_fn\": \"silu\",\n  \"scaling_factor\": 0.18215\n}\n";

static const char sd15_text_encoder[] =
    "{\n  \"architectures\": [\"CLIPTextModel\"],\n  \"model_type\": \"clip_text_model\",\n  \"vocab_size\": 49408,\n  \"hidden_size\": "
    "768,\n"
    "  \"intermediate_size\": 3072,\n  \"num_hidden_layers\": 12,\n  \"num_attention_heads\": 12,\n  \"max_position_embeddings\": 77,\n"
    "  \"hidden_act\": \"quick_gelu\",\n  \"layer_norm_eps\": 1e-05,\n  \"bos_token_id\": 49406,\n  \"eos_token_id\": 49407,\n"
    "  \"projection_dim\": 768\n}\n";

static const char sd15_scheduler[] =
    "{\n  \"_class_name\": \"PNDMScheduler\",\n  \"_diffusers_version\": \"0.30.0\",\n  \"beta_start\": 0.00085,\n  \"beta_end\": 0.012,\n"
    "  \"beta_schedule\": \"scaled_linear\",\n  \"num_train_timesteps\": 1000,\n  \"set_alpha_to_one\": false,\n  \"skip_prk_steps\": "
    "true,\n"
    "  \"steps_offset\": 1,\n  \"clip_sample\": false\n}\n";

/* ---- stabilityai/stable-diffusion-2-1 */

static const char sd2_index[] =
    "{\n  \"_class_name\": \"StableDiffusionPipeline\",\n  \"_diffusers_version\": \"0.30.0\",\n"
    "  \"scheduler\": [\"diffusers\", \"DDIMScheduler\"],\n  \"text_encoder\": [\"transformers\", \"CLIPTextModel\"],\n"
    "  \"unet\": [\"diffusers\", \"UNet2DConditionModel\"],\n  \"vae\": [\"diffusers\", \"AutoencoderKL\"],\n"
    "  \"safety_checker\": [null, null],\n  \"feature_extractor\": [null, null],\n  \"requires_safety_checker\": false\n}\n";

static const char sd2_unet[] =
    "{\n  \"_class_name\": \"UNet2DConditionModel\",\n  \"_diffusers_version\": \"0.30.0\",\n  \"sample_size\": 96,\n"
    "  \"in_channels\": 4,\n  \"out_channels\": 4,\n  \"block_out_channels\": [320, 640, 1280, 1280],\n  \"layers_per_block\": 2,\n"
    "  \"down_block_types\": [\"CrossAttnDownBlock2D\", \"CrossAttnDownBlock2D\", \"CrossAttnDownBlock2D\", \"DownBlock2D\"],\n"
    "  \"up_block_types\": [\"UpBlock2D\", \"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\"],\n"
    "  \"cross_attention_dim\": 1024,\n  \"attention_head_dim\": [5, 10, 20, 20],\n  \"use_linear_projection\": true,\n"
    "  \"norm_num_groups\": 32,\n  \"norm_eps\": 1e-05,\n  \"act_fn\": \"silu\",\n  \"downsample_padding\": 1,\n"
    "  \"flip_sin_to_cos\": true,\n  \"freq_shift\": 0\n}\n";

/* A folder has the 23 layers that are used, a single file all 24. */
#define SD2_TEXT_ENCODER(layers)                                                                                                          \
    "{\n  \"architectures\": [\"CLIPTextModel\"],\n  \"model_type\": \"clip_text_model\",\n  \"vocab_size\": 49408,\n  \"hidden_size\": " \
    "1024,\n"                                                                                                                             \
    "  \"intermediate_size\": 4096,\n  \"num_hidden_layers\": " layers ",\n  \"num_attention_heads\": 16,\n"                              \
    "  \"max_position_embeddings\": 77,\n  \"hidden_act\": \"gelu\",\n  \"layer_norm_eps\": 1e-05,\n  \"bos_token_id\": 0,\n"             \
    "  \"eos_token_id\": 2,\n  \"pad_token_id\": 1,\n  \"projection_dim\": 512\n}\n"

static const char sd2_text_encoder[] = SD2_TEXT_ENCODER("23"), sd2_text_encoder_file[] = SD2_TEXT_ENCODER("24");

static const char sd2_scheduler[] =
    "{\n  \"_class_name\": \"DDIMScheduler\",\n  \"_diffusers_version\": \"0.8.0\",\n  \"beta_start\": 0.00085,\n  \"beta_end\": 0.012,\n"
    "  \"beta_schedule\": \"scaled_linear\",\n  \"num_train_timesteps\": 1000,\n  \"prediction_type\": \"v_prediction\",\n"
    "  \"set_alpha_to_one\": false,\n  \"skip_prk_steps\": true,\n  \"steps_offset\": 1,\n  \"clip_sample\": false\n}\n";

/* ---- stabilityai/stable-diffusion-xl-base-1.0 */

static const char sdxl_index[] =
    "{\n  \"_class_name\": \"StableDiffusionXLPipeline\",\n  \"_diffusers_version\": \"0.30.0\",\n"
    "  \"force_zeros_for_empty_prompt\": true,\n  \"scheduler\": [\"diffusers\", \"EulerDiscreteScheduler\"],\n"
    "  \"text_encoder\": [\"transformers\", \"CLIPTextModel\"],\n"
    "  \"text_encoder_2\": [\"transformers\", \"CLIPTextModelWithProjection\"],\n"
    "  \"unet\": [\"diffusers\", \"UNet2DConditionModel\"],\n  \"vae\": [\"diffusers\", \"AutoencoderKL\"]\n}\n";

static const char sdxl_unet[] =
    "{\n  \"_class_name\": \"UNet2DConditionModel\",\n  \"_diffusers_version\": \"0.30.0\",\n  \"sample_size\": 128,\n"
    "  \"in_channels\": 4,\n  \"out_channels\": 4,\n  \"block_out_channels\": [320, 640, 1280],\n  \"layers_per_block\": 2,\n"
    "  \"down_block_types\": [\"DownBlock2D\", \"CrossAttnDownBlock2D\", \"CrossAttnDownBlock2D\"],\n"
    "  \"up_block_types\": [\"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\", \"UpBlock2D\"],\n"
    "  \"cross_attention_dim\": 2048,\n  \"attention_head_dim\": [5, 10, 20],\n  \"transformer_layers_per_block\": [1, 2, 10],\n"
    "  \"use_linear_projection\": true,\n  \"addition_embed_type\": \"text_time\",\n  \"addition_time_embed_dim\": 256,\n"
    "  \"projection_class_embeddings_input_dim\": 2816,\n  \"norm_num_groups\": 32,\n  \"norm_eps\": 1e-05,\n  \"act_fn\": \"silu\",\n"
    "  \"downsample_padding\": 1,\n  \"flip_sin_to_cos\": true,\n  \"freq_shift\": 0\n}\n";

static const char sdxl_vae[] =
    "{\n  \"_class_name\": \"AutoencoderKL\",\n  \"_diffusers_version\": \"0.30.0\",\n  \"sample_size\": 1024,\n  \"in_channels\": 3,\n"
    "  \"out_channels\": 3,\n  \"latent_channels\": 4,\n  \"block_out_channels\": [128, 256, 512, 512],\n  \"layers_per_block\": 2,\n"
    "  \"down_block_types\": [\"DownEncoderBlock2D\", \"DownEncoderBlock2D\", \"DownEncoderBlock2D\", \"DownEncoderBlock2D\"],\n"
    "  \"up_block_types\": [\"UpDecoderBlock2D\", \"UpDecoderBlock2D\", \"UpDecoderBlock2D\", \"UpDecoderBlock2D\"],\n"
    "  \"norm_num_groups\": 32,\n  \"act_fn\": \"silu\",\n  \"force_upcast\": true,\n  \"scaling_factor\": 0.13025\n}\n";

static const char sdxl_text_encoder[] =
    "{\n  \"architectures\": [\"CLIPTextModel\"],\n  \"model_type\": \"clip_text_model\",\n  \"vocab_size\": 49408,\n  \"hidden_size\": "
    "768,\n"
    "  \"intermediate_size\": 3072,\n  \"num_hidden_layers\": 12,\n  \"num_attention_heads\": 12,\n  \"max_position_embeddings\": 77,\n"
    "  \"hidden_act\": \"quick_gelu\",\n  \"layer_norm_eps\": 1e-05,\n  \"bos_token_id\": 0,\n  \"eos_token_id\": 2,\n"
    "  \"pad_token_id\": 1,\n  \"projection_dim\": 768\n}\n";

static const char sdxl_text_encoder_2[] =
    "{\n  \"architectures\": [\"CLIPTextModelWithProjection\"],\n  \"model_type\": \"clip_text_model\",\n  \"vocab_size\": 49408,\n"
    "  \"hidden_size\": 1280,\n  \"intermediate_size\": 5120,\n  \"num_hidden_layers\": 32,\n  \"num_attention_heads\": 20,\n"
    "  \"max_position_embeddings\": 77,\n  \"hidden_act\": \"gelu\",\n  \"layer_norm_eps\": 1e-05,\n  \"bos_token_id\": 0,\n"
    "  \"eos_token_id\": 2,\n  \"pad_token_id\": 1,\n  \"projection_dim\": 1280\n}\n";

static const char sdxl_scheduler[] =
    "{\n  \"_class_name\": \"EulerDiscreteScheduler\",\n  \"_diffusers_version\": \"0.19.0.dev0\",\n  \"beta_start\": 0.00085,\n"
    "  \"beta_end\": 0.012,\n  \"beta_schedule\": \"scaled_linear\",\n  \"num_train_timesteps\": 1000,\n"
    "  \"interpolation_type\": \"linear\",\n  \"prediction_type\": \"epsilon\",\n  \"timestep_spacing\": \"leading\",\n"
    "  \"steps_offset\": 1,\n  \"use_karras_sigmas\": false\n}\n";

/* ---- IDEA-CCNL/Taiyi-Stable-Diffusion-1B-Chinese-v0.1: Stable Diffusion 1.4 with a Chinese BERT */

static const char taiyi_index[] =
    "{\n  \"_class_name\": \"StableDiffusionPipeline\",\n  \"_diffusers_version\": \"0.30.0\",\n"
    "  \"scheduler\": [\"diffusers\", \"PNDMScheduler\"],\n  \"text_encoder\": [\"transformers\", \"BertModel\"],\n"
    "  \"tokenizer\": [\"transformers\", \"BertTokenizer\"],\n  \"unet\": [\"diffusers\", \"UNet2DConditionModel\"],\n"
    "  \"vae\": [\"diffusers\", \"AutoencoderKL\"],\n"
    "  \"safety_checker\": [null, null],\n  \"feature_extractor\": [null, null],\n  \"requires_safety_checker\": false\n}\n";

static const char taiyi_text_encoder[] =
    "{\n  \"architectures\": [\"BertModel\"],\n  \"model_type\": \"bert\",\n  \"vocab_size\": 21128,\n  \"hidden_size\": 768,\n"
    "  \"intermediate_size\": 3072,\n  \"num_hidden_layers\": 12,\n  \"num_attention_heads\": 12,\n  \"max_position_embeddings\": 512,\n"
    "  \"type_vocab_size\": 2,\n  \"hidden_act\": \"gelu\",\n  \"layer_norm_eps\": 1e-12,\n  \"pad_token_id\": 0\n}\n";

static const char taiyi_tokenizer[] =
    "{\n  \"tokenizer_class\": \"BertTokenizer\",\n  \"model_max_length\": 512,\n  \"do_lower_case\": true,\n"
    "  \"tokenize_chinese_chars\": true,\n  \"pad_token\": \"[PAD]\",\n  \"unk_token\": \"[UNK]\",\n  \"cls_token\": \"[CLS]\",\n"
    "  \"sep_token\": \"[SEP]\",\n  \"mask_token\": \"[MASK]\"\n}\n";

#endif
