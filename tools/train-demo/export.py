"""Checkpoint to diffusers folders in f16: OUT (English), OUT/zh (Chinese text side; shares UNet, VAE and scheduler),
OUT/manifest.json (sizes and checksums).

python export.py --work W --out OUT [--f32]
"""
import argparse
import json
import pathlib
import shutil

import torch
from diffusers import AutoencoderKL
from safetensors.torch import load_file, save_file

from manifest import write_manifest
from models import load_tokenizers, make_scheduler, make_text_encoders, make_unet

LIMIT = 20_000_000  # bytes, everything


def load_parts(work, averaged=True):
    """UNet, CLIP, BERT, VAE as trained."""
    unet = make_unet()
    clip, bert = make_text_encoders(*load_tokenizers(work))
    saved = torch.load(work / 'denoiser.pt', weights_only=False, map_location='cpu')
    for name, module in (('unet', unet), ('clip', clip), ('bert', bert)):
        module.load_state_dict(saved[name])
    if averaged:
        with torch.no_grad():
            for p, q in zip([*unet.parameters(), *clip.parameters(), *bert.parameters()], saved['average']):
                p.copy_(q)
    return unet, clip, bert, AutoencoderKL.from_pretrained(work / 'vae'), saved['state']


def _index(text_encoder, tokenizer):
    none = [None, None]
    return {'_class_name': 'StableDiffusionPipeline', 'feature_extractor': none, 'image_encoder': none, 'safety_checker': none,
            'requires_safety_checker': False, 'scheduler': ['diffusers', 'DDIMScheduler'], 'text_encoder': ['transformers', text_encoder],
            'tokenizer': ['transformers', tokenizer], 'unet': ['diffusers', 'UNet2DConditionModel'], 'vae': ['diffusers', 'AutoencoderKL']}


def _write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + '\n', encoding='utf-8')


def _old_clip_names(path):
    """Newer transformers leave out the prefix that every Stable Diffusion checkpoint has."""
    weights = load_file(path)
    save_file({k if k.startswith('text_model.') else 'text_model.' + k: v for k, v in weights.items()}, path, metadata={'format': 'pt'})


def _drop_paths(folder):
    """No path of this machine may stay in a config."""
    for path in folder.rglob('*.json'):
        value = json.loads(path.read_text(encoding='utf-8'))
        if isinstance(value, dict) and value.pop('_name_or_path', None) is not None:
            _write_json(path, value)


def export(work, out, dtype=torch.float16):
    """Writes the folder; returns its size in bytes and the state of the training."""
    unet, clip, bert, vae, state = load_parts(work)
    new = out.with_name(out.name + '.new')
    shutil.rmtree(new, ignore_errors=True)
    (new / 'zh').mkdir(parents=True)
    for module, name in ((vae, 'vae'), (unet, 'unet'), (clip, 'text_encoder'), (bert, 'zh/text_encoder')):
        module.to(dtype).save_pretrained(new / name)
    _old_clip_names(new / 'text_encoder/model.safetensors')
    shutil.copytree(work / 'tokenizer', new / 'tokenizer')
    shutil.copytree(work / 'tokenizer_zh', new / 'zh/tokenizer')
    make_scheduler().save_pretrained(new / 'scheduler')
    _write_json(new / 'model_index.json', _index('CLIPTextModel', 'CLIPTokenizer'))
    _write_json(new / 'zh/model_index.json', _index('BertModel', 'BertTokenizer'))
    _drop_paths(new)
    write_manifest(new)
    shutil.rmtree(out, ignore_errors=True)
    new.rename(out)
    return sum(p.stat().st_size for p in out.rglob('*') if p.is_file()), state


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--work', required=True, type=pathlib.Path)
    ap.add_argument('--out', required=True, type=pathlib.Path)
    ap.add_argument('--f32', action='store_true')
    args = ap.parse_args()
    size, state = export(args.work, args.out, torch.float32 if args.f32 else torch.float16)
    print(f"{size / 1e6:.2f} MB after {state['samples']} samples")
    if size > LIMIT and not args.f32:
        raise SystemExit(f'more than {LIMIT / 1e6:.0f} MB')


if __name__ == '__main__':
    main()
