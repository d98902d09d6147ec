"""tests/data/lora-rotations: OFT and BOFT of LyCORIS and of kohya's scripts, for the model sd1.

The formulas are written anew, in double precision, with the whole matrix R of each module. The strength s multiplies R W - W."""
import torch

from .common import fresh, write_tensors
from .lora import pipeline, write_case
from .lora_kinds import TEXT, UNET, Maker, flat, loha, run_formulas


def cayley(blocks, alpha, out):
    """The rotations of skew matrices, whose norm all together is at most alpha x out."""
    q = blocks - blocks.transpose(-1, -2)
    length = q.norm()
    if alpha and length > alpha * out:
        q = q * (alpha * out / length)
    eye = torch.eye(q.shape[-1], dtype=q.dtype)
    return (eye + q) @ torch.linalg.inv(eye - q)


def diagonal(rotations):
    """OFT applies the transposed blocks."""
    return torch.block_diag(*[r.T for r in rotations])


def butterfly(rotations):
    """BOFT: factor i has its blocks on outputs whose numbers differ by 2^i n / 2 and by what is below n / 2."""
    whole = None
    for i, factor in enumerate(rotations):
        count, n, _ = factor.shape
        apart = 2 ** i * n // 2
        order = [group * 2 * apart + half * apart + at for group in range(count * n // (2 * apart)) for at in range(apart) for half in (0, 1)]
        shuffle = torch.eye(count * n, dtype=factor.dtype)[order]
        step = shuffle.T @ torch.block_diag(*factor) @ shuffle
        whole = step if whole is None else step @ whole
    return whole


def turned(w, r, rescale=None):
    out = (r @ flat(w)).reshape(w.shape)
    return out if rescale is None else out * rescale


def factors_of(m, w):
    return m.given("rescale", 1 + 0.3 * torch.randn([len(w)] + [1] * (w.dim() - 1), generator=m.g))


def oft(pipe):
    """Without and with a constraint that counts, one that does not, factors of the outputs, and rotations that are stored as such."""
    m = Maker(pipe, 31)
    for part, module, n, alpha, rescaled in (
            ("unet", UNET["linear"], 4, None, False), ("unet", UNET["square"], 6, 0.02, True), ("unet", UNET["conv"], 4, 0, True),
            ("unet", UNET["point"], 2, 1e-3, False), ("unet", UNET["core"], 8, 100, False), ("text_encoder", TEXT["fc"], 8, 0.01, False)):
        w = m.at(part, module)
        blocks = m.factor("oft_blocks", (len(w) // n, n, n), 0.4)
        r = diagonal(cayley(blocks, alpha if alpha is None else m.number("alpha", alpha), len(w)))
        m.change(lambda s, w, r=r, g=factors_of(m, w) if rescaled else None: w + s * (turned(w, r, g) - w))
    w = m.at("unet", UNET["wide"])
    stored = m.given("oft_diag", cayley(0.5 * torch.randn(len(w) // 4, 4, 4, generator=m.g, dtype=torch.double), None, len(w)))
    m.change(lambda s, w, r=diagonal(stored): w + s * (turned(w, r) - w))
    for key in [k for k in m.file if UNET["point"].replace(".", "_") in k]:  # kohya's name
        m.file[key.replace("lora_unet_", "oft_unet_")] = m.file.pop(key)
    return m


def boft(pipe):
    m = Maker(pipe, 32)
    for part, module, factors, n, alpha, rescaled in (
            ("unet", UNET["linear"], 2, 4, None, False), ("unet", UNET["square"], 3, 6, 0.03, True), ("unet", UNET["conv"], 4, 2, None, True),
            ("unet", UNET["core"], 1, 4, 0, False), ("text_encoder", TEXT["out"], 3, 10, None, False)):
        w = m.at(part, module)
        blocks = m.factor("oft_blocks", (factors, len(w) // n, n, n), 0.4)
        r = butterfly(cayley(blocks, alpha if alpha is None else m.number("alpha", alpha), len(w)))
        m.change(lambda s, w, r=r, g=factors_of(m, w) if rescaled else None: w + s * (turned(w, r, g) - w))
    return m


FORMULAS = {"oft": oft, "boft": boft, "loha": loha}
# case -> {file: scale}; the table of tests/test_lora_kinds.c
CASES = {"oft-0.6": {"oft": 0.6}, "boft-1": {"boft": 1.0}, "rotations": {"oft": 0.5, "boft": -0.4, "loha": 0.3}}
WITH_TEXT = {"rotations"}


def make(root):
    folder = fresh(root / "lora-rotations")
    plain = pipeline(root)
    for name in ("oft", "boft"):
        write_tensors(folder / f"{name}.safetensors", FORMULAS[name](plain).file)
    for name, files in CASES.items():
        outs = run_formulas(root, files, FORMULAS)
        write_case(folder, name, {p: o for p, o in outs.items() if p == "unet" or name in WITH_TEXT}, plain.text_encoder)
