"""tests/data/lora-kinds: LyCORIS' kinds of adapters, DoRA in both conventions and biases, for the model sd1.

LyCORIS' formulas are written anew here, in double precision; DoRA by PEFT's names, and biases, are what PEFT computes."""
import torch
from diffusers import StableDiffusionPipeline
from peft.utils import get_peft_model_state_dict

from .common import fresh, generator, write_tensors
from .lora import add, metadata, pipeline, run, write_case

UNET = {  # module -> what it is
    "linear": "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k",
    "wide": "up_blocks.2.attentions.1.transformer_blocks.0.ff.net.0.proj",
    "square": "mid_block.attentions.0.transformer_blocks.0.attn1.to_out.0",
    "conv": "down_blocks.1.resnets.0.conv1",
    "core": "up_blocks.1.resnets.1.conv2",
    "point": "down_blocks.0.attentions.1.proj_in",
    "group_norm": "mid_block.resnets.0.norm1",
    "layer_norm": "up_blocks.1.attentions.0.transformer_blocks.0.norm2",
}
TEXT = {"fc": "text_model.encoder.layers.1.mlp.fc1", "out": "text_model.encoder.layers.0.self_attn.out_proj",
        "norm": "text_model.encoder.layers.2.layer_norm1"}


class Maker:
    """Random factors that are exact in f16, under a module's name in kohya's form, and what the file holds."""

    def __init__(self, pipe, seed):
        self.pipe, self.g, self.file, self.deltas = pipe, generator(seed), {}, []

    def at(self, part, module):
        self.part, self.module = part, module
        self.stem = f"lora_{'unet' if part == 'unet' else 'te'}_{module.replace('.', '_')}"
        return self.net().weight.double()

    def net(self):
        net = getattr(self.pipe, self.part)
        name = self.module if hasattr(net, "text_model") or self.part == "unet" else self.module.removeprefix("text_model.")
        return net.get_submodule(name)

    def factor(self, name, shape, size=1.0):
        t = (size * torch.randn(shape, generator=self.g)).half()
        self.file[f"{self.stem}.{name}"] = t
        return t.double()

    def number(self, name, value):
        self.file[f"{self.stem}.{name}"] = torch.tensor(float(value))
        return value

    def given(self, name, value):
        self.file[f"{self.stem}.{name}"] = value.half()
        return value.half().double()

    def change(self, delta, leaf="weight"):
        """delta: a function of the strength and of the parameter in double precision."""
        self.deltas.append((getattr(self.net(), leaf), delta))


def flat(w):
    return w.reshape(len(w), -1)


def tucker(core, a, b):
    """Factors (r, out) and (q, in) around a core (r, q, kh, kw)."""
    return torch.einsum("rqkl,ro,qi->oikl", core, a, b)


def loha_delta(m, w, rank, core=False, size=0.5):
    pairs = []
    for k in "12":
        if core:
            a, b = m.factor(f"hada_w{k}_a", (rank, len(w)), size), m.factor(f"hada_w{k}_b", (rank, w.shape[1]), size)
            pairs.append(tucker(m.factor(f"hada_t{k}", (rank, rank, *w.shape[2:]), size), a, b))
        else:
            a, b = m.factor(f"hada_w{k}_a", (len(w), rank), size), m.factor(f"hada_w{k}_b", (rank, flat(w).shape[1]), size)
            pairs.append((a @ b).reshape(w.shape))
    return pairs[0] * pairs[1]


def loha(pipe):
    m = Maker(pipe, 11)
    for part, module, rank, alpha, core in (
            ("unet", UNET["linear"], 3, 2, False), ("unet", UNET["wide"], 2, None, False), ("unet", UNET["conv"], 2, 3, False),
            ("unet", UNET["core"], 4, 1, True), ("unet", UNET["point"], 2, 1, False), ("text_encoder", TEXT["fc"], 2, 1, False)):
        w = m.at(part, module)
        d = loha_delta(m, w, rank, core) * (1 if alpha is None else m.number("alpha", alpha) / rank)
        m.change(lambda s, w, d=d: w + s * d)
    return m


def lokr_delta(m, w, a, c, first=0, second=0, core=False, size=0.3):
    """first and second: the ranks of the two matrices, 0: whole ones."""
    b, d, k = len(w) // a, w.shape[1] // c, w.shape[2:]
    if first:
        w1 = m.factor("lokr_w1_a", (a, first), size) @ m.factor("lokr_w1_b", (first, c))
    else:
        w1 = m.factor("lokr_w1", (a, c), size)
    if core:
        w2 = tucker(m.factor("lokr_t2", (second, second, *k)), m.factor("lokr_w2_a", (second, b), size), m.factor("lokr_w2_b", (second, d), size))
    elif second:
        w2 = (m.factor("lokr_w2_a", (b, second), size) @ m.factor("lokr_w2_b", (second, d * k.numel()))).reshape(b, d, *k)
    else:
        w2 = m.factor("lokr_w2", (b, d, *k), size)
    return torch.einsum("ac,bd...->abcd...", w1, w2).reshape(w.shape)


def lokr(pipe):
    m = Maker(pipe, 12)
    for part, module, a, c, first, second, core, alpha in (
            ("unet", UNET["linear"], 2, 4, 0, 0, False, 7),  # both whole: alpha does not count
            ("unet", UNET["wide"], 8, 2, 0, 2, False, 3), ("unet", UNET["square"], 2, 2, 1, 1, False, 2),
            ("unet", UNET["conv"], 4, 2, 0, 0, False, None), ("unet", UNET["point"], 2, 4, 2, 0, False, 1),
            ("unet", UNET["core"], 2, 4, 0, 2, True, 1), ("unet", "up_blocks.0.resnets.0.conv1", 4, 4, 0, 2, False, 1),
            ("text_encoder", TEXT["out"], 4, 5, 0, 2, False, 3)):
        w = m.at(part, module)
        d = lokr_delta(m, w, a, c, first, second, core)
        if alpha is not None:
            m.number("alpha", alpha)
            d = d * (alpha / (second or first) if first or second else 1)
        m.change(lambda s, w, d=d: w + s * d)
    return m


def whole(pipe):
    m = Maker(pipe, 13)
    for part, module in (("unet", UNET["square"]), ("unet", UNET["conv"]), ("text_encoder", TEXT["fc"])):
        w = m.at(part, module)
        for name, leaf, like in (("diff", "weight", w), ("diff_b", "bias", m.net().bias)):
            d = m.factor(name, like.shape, 0.2)
            m.change(lambda s, w, d=d: w + s * d, leaf)
    for part, module in (("unet", UNET["group_norm"]), ("unet", UNET["layer_norm"]), ("text_encoder", TEXT["norm"])):
        w = m.at(part, module)
        for name, leaf in (("w_norm", "weight"), ("b_norm", "bias")):
            d = m.factor(name, w.shape, 0.5)
            m.change(lambda s, w, d=d: w + s * d, leaf)
    return m


def ia3(pipe):
    m = Maker(pipe, 14)
    for module, on_input in ((UNET["linear"], 0), (UNET["wide"], 1), (UNET["conv"], 0), (UNET["core"], 1)):
        w = m.at("unet", module)
        n = w.shape[1 if on_input else 0]
        v = m.factor("weight", (n,) if w.dim() == 2 else (1, n, 1, 1), 0.5)
        m.file[f"{m.stem}.on_input"] = torch.tensor(on_input)
        v = v.reshape((1, n) if on_input else (n, 1)).reshape((1, n, 1, 1)[:w.dim()] if on_input else (n, 1, 1, 1)[:w.dim()])
        m.change(lambda s, w, v=v: w * (1 + s * v))
    return m


def norm(w, on_input):
    dims = [d for d in range(w.dim()) if d != (1 if on_input else 0)]
    return w.square().sum(dims, keepdim=True).sqrt()


def dora_scale(pipe):
    """LyCORIS' DoRA, a number for each output or for each input, on LoRA, LoHa and LoKr. What the strength multiplies is the whole
    difference, as in AUTOMATIC1111, ComfyUI and lycoris.functional."""
    m = Maker(pipe, 15)
    for part, module, kind, on_input in (
            ("unet", UNET["linear"], "lora", False), ("unet", UNET["wide"], "lora", True), ("unet", UNET["conv"], "lora", False),
            ("unet", UNET["core"], "loha", True), ("unet", UNET["square"], "lokr", True), ("unet", UNET["point"], "lora", True),
            ("text_encoder", TEXT["fc"], "lora", False)):
        w = m.at(part, module)
        m.number("alpha", 1)
        if kind == "lora":
            down, up = m.factor("lora_down.weight", (2, *w.shape[1:]), 0.5), m.factor("lora_up.weight", (len(w), 2, *[1] * (w.dim() - 2)), 0.5)
            d = (flat(up) @ flat(down)).reshape(w.shape) / 2
        else:
            d = loha_delta(m, w, 2) / 2 if kind == "loha" else lokr_delta(m, w, 2, 2, 0, 1)
        magnitude = m.given("dora_scale", norm(w, on_input) * (1 + 0.3 * torch.randn(norm(w, on_input).shape, generator=m.g)))
        m.change(lambda s, w, d=d, g=magnitude, i=on_input: w + s * (g * (w + d) / norm(w + d, i) - w))
    return m


FORMULAS = {"loha": loha, "lokr": lokr, "whole": whole, "ia3": ia3, "dora-scale": dora_scale}
# case -> {file: scale}; the table of tests/test_lora_kinds.c
CASES = {"loha-0.8": {"loha": 0.8}, "lokr-0.7": {"lokr": 0.7}, "whole-0.6": {"whole": 0.6}, "ia3-0.5": {"ia3": 0.5},
         "dora-scale-1": {"dora-scale": 1.0}, "dora-scale-0.6": {"dora-scale": 0.6},
         "all": {"loha": 0.5, "lokr": -0.4, "whole": 0.3, "ia3": 0.6, "dora-scale": 0.7}}
WITH_TEXT = {"whole-0.6", "dora-0.6", "all"}


def run_formulas(root, files, formulas):
    """Each file's change is of the checkpoint's weight; the changes are added."""
    pipe = pipeline(root)
    sums = {}
    for name, scale in files.items():
        for p, change in formulas[name](pipe).deltas:
            base = p.detach().clone().double() if p not in sums else sums[p][0]
            sums[p] = (base, sums.get(p, (base, 0))[1] + change(scale, base) - base)
    for p, (base, delta) in sums.items():
        p.copy_((base + delta).float())
    return run(pipe)


def add_dora(pipe):
    """PEFT's DoRA with magnitudes that are not those at the start."""
    add(pipe.unet, "a", 21, r=2, lora_alpha=3, target_modules=[UNET[k] for k in ("linear", "wide", "conv", "point")], use_dora=True)
    add(pipe.text_encoder, "a", 22, r=3, lora_alpha=2, target_modules=["layers.1.mlp.fc1", "layers.0.self_attn.out_proj"], use_dora=True)
    g = generator(23)
    for net in (pipe.unet, pipe.text_encoder):
        for key, p in net.named_parameters():
            if "lora_magnitude_vector" in key:
                p.copy_((p * (1 + 0.3 * torch.randn(p.shape, generator=g))).half())


def add_biases(pipe):
    add(pipe.unet, "a", 24, r=2, lora_alpha=5, target_modules=[UNET[k] for k in ("square", "wide", "core", "point")], lora_bias=True)
    g = generator(25)
    for key, p in pipe.unet.named_parameters():
        if "lora_B.a.bias" in key:
            p.copy_((0.3 * torch.randn(p.shape, generator=g)).half())


def save_peft(pipe, folder, name, text):
    def state(net):
        return {k: v.half() for k, v in get_peft_model_state_dict(net, adapter_name="a").items()}

    more = {"text_encoder_lora_layers": state(pipe.text_encoder),
            "text_encoder_lora_adapter_metadata": metadata(pipe.text_encoder)} if text else {}
    StableDiffusionPipeline.save_lora_weights(folder, state(pipe.unet), weight_name=f"{name}.safetensors",
                                              unet_lora_adapter_metadata=metadata(pipe.unet), **more)
    (folder / f"{name}.safetensors").chmod(0o644)


def make(root):
    folder = fresh(root / "lora-kinds")
    plain = pipeline(root)
    for name, formula in FORMULAS.items():
        write_tensors(folder / f"{name}.safetensors", formula(plain).file)
    for name, files in CASES.items():
        outs = run_formulas(root, files, FORMULAS)
        write_case(folder, name, {p: o for p, o in outs.items() if p == "unet" or name in WITH_TEXT}, plain.text_encoder)
    for name, adapt, scales, text in (("dora", add_dora, (1.0, 0.6), True), ("biases", add_biases, (0.7,), False)):
        pipe = pipeline(root)
        adapt(pipe)
        save_peft(pipe, folder, name, text)
        for scale in scales:
            pipe.set_adapters(["a"], [scale])
            outs = run(pipe)
            write_case(folder, f"{name}-{scale:g}", {p: o for p, o in outs.items() if p == "unet" or f"{name}-{scale:g}" in WITH_TEXT}, pipe.text_encoder)
