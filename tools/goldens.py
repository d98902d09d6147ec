"""Golden data for the C tests, from PyTorch, diffusers and transformers (environment: tools/goldens-venv).

usage: tools/goldens.py [--only PART]... [--check]
--check makes the parts in a temporary folder and compares them with tests/data, byte by byte."""
import argparse
import filecmp
import importlib
import os
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", DIFFUSERS_VERBOSITY="error")

# part -> (module, parts that it reads)
PARTS = {
    "random": ("random_numbers", ()),
    "schedulers": ("schedulers", ()),
    "ksamplers": ("ksamplers", ()),
    "models": ("models", ()),
    "components": ("components", ("models",)),
    "formats": ("formats", ("models",)),
    "tokenizers": ("tokenizers", ()),
    "pipelines": ("pipelines", ("models",)),
    "xl": ("xl", ("models", "pipelines")),
    "pix2pix": ("pix2pix", ("models", "pipelines")),
    "lcm": ("lcm", ("models", "pipelines")),
    "xl-negative": ("xl_negative", ("models", "pipelines", "xl")),
    "lora": ("lora", ("models",)),
    "lora-kinds": ("lora_kinds", ("models",)),
    "lora-rotations": ("lora_rotations", ("models",)),
    "lora-models": ("lora_models", ("models",)),
    "prompts": ("prompts", ("models",)),
    "penultimate": ("penultimate", ()),
    "hires": ("hires", ("models", "prompts")),
    "taesd": ("taesd", ("models", "pipelines")),
    "bk-sdm": ("bk_sdm", ("models", "pipelines")),
    "deepcache": ("deepcache", ("models", "pipelines")),
    "taiyi": ("taiyi", ("models",)),
    "infotext": ("infotexts", ()),
    "demo": ("demo", ()),
    "demo-sheet": ("demo_sheet", ()),
}


def make(names, root):
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        importlib.import_module(f"goldens.{PARTS[name][0]}").make(root)


def compare(names, made, kept):
    """Prints every file of the parts that is not the same in both folders; returns their number."""
    differ = 0
    for name in names:
        files = {p.relative_to(r) for r in (made, kept) for p in (r / name).rglob("*") if p.is_file()}
        for f in sorted(files):
            a, b = made / f, kept / f
            if not (a.exists() and b.exists() and filecmp.cmp(a, b, shallow=False)):
                print(f"{f}: {'differs' if a.exists() and b.exists() else 'new' if a.exists() else 'no longer made'}")
                differ += 1
    print(f"{differ} files differ")
    return differ


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    ap.add_argument("--check", action="store_true", help="compare with tests/data, write nothing there")
    ap.add_argument("--into", type=Path, help="write here instead of tests/data")
    args = ap.parse_args()

    import torch
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(False)

    from goldens.common import DATA
    names = args.only or list(PARTS)
    if not args.check:
        make(names, args.into or DATA)
        return 0
    with tempfile.TemporaryDirectory() as tmp:
        needed = [n for n in PARTS if n in names or any(n in PARTS[m][1] for m in names)]
        make(needed, Path(tmp))
        return 1 if compare(names, Path(tmp), DATA) else 0


if __name__ == "__main__":
    sys.exit(main())
