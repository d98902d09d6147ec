"""tests/data/components: one forward of a network, inputs and outputs, f32 from the stored f16 weights."""
import collections

import torch

from .common import fresh, generator, write_tensors
from .models import MODELS, added_conditions, load

# name -> (batch, height, width, text tokens, timesteps)
UNET = {
    "square": (1, 8, 8, 16, [1]),
    "odd-13x9": (2, 13, 9, 9, [999, 3]),
    "wide-6x16-batch3": (3, 6, 16, 16, [749.25]),
    "tall-12x5-fractional": (2, 12, 5, 16, [0.5, 666.25]),
    "tiny-2x3": (1, 2, 3, 1, [500]),
}
# name -> (batch, height, width)
DECODER = {"square": (1, 4, 4), "odd-5x3": (1, 5, 3), "wide-2x4-batch3": (3, 2, 4)}
ENCODER = {"square": (1, 32, 32), "tall-56x16": (1, 56, 16), "wide-16x40-batch2": (2, 16, 40),
           "no-multiple-37x21": (1, 37, 21)}


class Draw:
    """Inputs of one case, one seed for each."""

    def __init__(self, seed):
        self.g = generator(seed)

    def normal(self, *shape):
        return torch.randn(shape, generator=self.g)

    def image(self, *shape):
        return torch.rand(shape, generator=self.g) * 2 - 1

    def ids(self, below, *shape):
        return torch.randint(below, shape, generator=self.g)


def unet_cases(net, draw):
    c = net.config
    for name, (n, h, w, length, times) in UNET.items():
        ins = {"sample": draw.normal(n, c.in_channels, h, w), "timestep": torch.tensor(times),
               "encoder_hidden_states": draw.normal(n, length, c.cross_attention_dim)}
        added = added_conditions(c, n, draw.g)
        yield f"unet.{name}", {**ins, **(added or {})}, {"sample": net(**ins, added_cond_kwargs=added).sample}


def vae_cases(net, draw):
    for name, (n, h, w) in DECODER.items():
        latent = draw.normal(n, net.config.latent_channels, h, w)
        yield f"vae_decoder.{name}", {"latent": latent}, {"sample": net.decode(latent).sample}
    for name, (n, h, w) in ENCODER.items():
        sample = draw.image(n, 3, h, w)
        d = net.encode(sample).latent_dist
        yield f"vae_encoder.{name}", {"sample": sample}, {"mean": d.mean, "logvar": d.logvar}


def text_ids(net, draw, rows, length, ends):
    """Begin token, words, an end token at each place of `ends` (None: no end), then padding as SD does."""
    vocab, pad = net.config.vocab_size, net.config.pad_token_id
    ids = draw.ids(vocab - 2, rows, length)
    ids[:, 0] = vocab - 2
    for row, end in zip(ids, ends):
        if end is not None:
            row[end:] = vocab - 1 if pad == 1 else pad
            row[end] = vocab - 1
    return ids


def text_cases(net, draw):
    most = net.config.max_position_embeddings
    cases = {"full": (1, most, [most - 1]), "padded-batch3": (3, most // 2, [most // 2 - 1, 4, 1]), "short": (2, 5, [4, 2]),
             "no-end": (2, most // 2, [None, 3]), "mask": (2, most // 2, [4, 6])}
    for name, (n, length, ends) in cases.items():
        ins = {"input_ids": text_ids(net, draw, n, length, ends)}
        if name == "mask":
            ins["attention_mask"] = (torch.arange(length)[None] <= torch.tensor(ends)[:, None]).long()
        out = net(**ins, output_hidden_states=True)
        states = {f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}
        pooled = {"text_embeds": out.text_embeds} if "text_embeds" in out else {"pooler_output": out.pooler_output}
        part = "text_encoder_2" if "text_embeds" in out else "text_encoder"
        yield f"{part}.{name}", ins, {"last_hidden_state": out.last_hidden_state, **pooled, **states}


CASES = {"unet": unet_cases, "vae": vae_cases, "text_encoder": text_cases, "text_encoder_2": text_cases}


def write_cases(folder, model, seed, most=9):
    """The first `most` cases of each component of a diffusers folder; `expected.` stands before the names of outputs."""
    fresh(folder)
    kept = collections.Counter()
    for n, (part, cases) in enumerate(CASES.items()):
        if not (model / part).exists():
            continue
        for name, ins, outs in cases(load(model, part), Draw(seed + n)):
            kept[name.split(".")[0]] += 1
            if kept[name.split(".")[0]] > most:
                continue
            assert all(torch.isfinite(v).all() and (v.numel() < 2 or v.float().std() > 0.01) for v in outs.values()), name
            write_tensors(folder / f"{name}.safetensors", {**ins, **{f"expected.{k}": v for k, v in outs.items()}})


def make(root):
    for n, (name, spec) in enumerate(MODELS.items()):
        write_cases(root / "components" / name, root / "models" / name, 1000 + 10 * n, spec.get("cases", 9))
