"""The parts of the demo model, all plain diffusers and transformers classes.

Sizes are chosen for 20 MB in f16 altogether; the UNet has cross attention at 16 x 16 and 8 x 8.
"""
import pathlib

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from safetensors.torch import load_file
from transformers import BertConfig, BertModel, BertTokenizer, CLIPTextConfig, CLIPTextModel, CLIPTokenizer

TOKENS = 40  # length of every prompt, padded
WIDTH = 160  # of the text states
CHANNELS = (32, 80, 160)
HEADS = 4
TEXT_LAYERS = 3


def make_vae():
    """f8, four latent channels.  Two norm groups: with many, flat pictures lose their absolute colour."""
    channels = (16, 32, 64, 64)
    return AutoencoderKL(in_channels=3, out_channels=3, latent_channels=4, block_out_channels=channels, layers_per_block=1,
                         norm_num_groups=2, sample_size=256, down_block_types=('DownEncoderBlock2D',) * len(channels),
                         up_block_types=('UpDecoderBlock2D',) * len(channels))


def make_unet():
    return UNet2DConditionModel(
        sample_size=32, in_channels=4, out_channels=4, block_out_channels=CHANNELS, layers_per_block=1, norm_num_groups=8,
        cross_attention_dim=WIDTH, attention_head_dim=HEADS,  # diffusers reads this as the number of heads
        down_block_types=('DownBlock2D', 'CrossAttnDownBlock2D', 'CrossAttnDownBlock2D'),
        up_block_types=('CrossAttnUpBlock2D', 'CrossAttnUpBlock2D', 'UpBlock2D'))


def load_tokenizers(work):
    work = pathlib.Path(work)
    return CLIPTokenizer.from_pretrained(work / 'tokenizer'), BertTokenizer.from_pretrained(work / 'tokenizer_zh')


@torch.no_grad()
def _wave_positions(weight):
    """Starts learned positions (TOKENS, WIDTH) as sines and cosines with periods of 6 to 600 tokens.

    From the usual random start a small BERT stays a bag of words for a long time (README.md).
    """
    half = weight.shape[1] // 2
    angle = torch.arange(len(weight))[:, None] * 100. ** (-torch.arange(half) / half)
    weight.copy_(.1 * torch.cat([angle.sin(), angle.cos()], 1))


def make_text_encoders(clip_tokenizer, bert_tokenizer):
    """(CLIP for English, BERT for Chinese)."""
    t = clip_tokenizer
    clip = CLIPTextModel(CLIPTextConfig(
        vocab_size=len(t), hidden_size=WIDTH, intermediate_size=4 * WIDTH, projection_dim=WIDTH, num_hidden_layers=TEXT_LAYERS,
        num_attention_heads=4, max_position_embeddings=TOKENS, hidden_act='quick_gelu',
        bos_token_id=t.bos_token_id, eos_token_id=t.eos_token_id, pad_token_id=t.pad_token_id))
    bert = BertModel(BertConfig(
        vocab_size=len(bert_tokenizer), hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=TEXT_LAYERS,
        num_attention_heads=4, max_position_embeddings=TOKENS, hidden_dropout_prob=0., attention_probs_dropout_prob=0.,
        initializer_range=.07))
    _wave_positions(bert.embeddings.position_embeddings.weight)
    return clip, bert


def half_copy(module, device):
    """The module in bf16 and channels-last on the device: what runs, beside f32 weights for the optimizer."""
    return module.to(device).bfloat16().to(memory_format=torch.channels_last)


def make_scheduler(**config):
    """v-prediction.  beta_end is above SD's .012: the latents are flat and few (32 x 32), so the large shapes
    show through more noise; here the last step keeps 1.5 % of the signal's amplitude instead of 7 %."""
    return DDIMScheduler(**{**dict(
        num_train_timesteps=1000, beta_start=.00085, beta_end=.02, beta_schedule='scaled_linear', clip_sample=False,
        set_alpha_to_one=False, steps_offset=1, prediction_type='v_prediction'), **config})


def load_exported(folder, unet, clip, bert):
    """Weights of an exported folder (export.py) into the given modules."""
    folder = pathlib.Path(folder)
    unet.load_state_dict(load_file(folder / 'unet/diffusion_pytorch_model.safetensors'))
    bert.load_state_dict(load_file(folder / 'zh/text_encoder/model.safetensors'))
    names = set(clip.state_dict())
    weights = load_file(folder / 'text_encoder/model.safetensors')
    clip.load_state_dict({k if k in names else k.removeprefix('text_model.'): v for k, v in weights.items()})
