/* The configuration files of Stable Diffusion 1.5 in diffusers' form, for synthesised checkpoints. */
#ifndef TERN_MODELS_SYNTH_CONFIGS_H
#define TERN_MODELS_SYNTH_CONFIGS_H

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

#endif
