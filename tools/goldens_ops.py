"""The op case table tests/data/ops from PyTorch (environment: tools/goldens-venv): expected values are computed in
float64 and rounded once.

usage: tools/goldens_ops.py [--check | --matrix]
--check makes the table in memory and compares it with tests/data/ops, byte by byte.
--matrix prints which properties the cases of tests/data/ops have, op by op; exit code 1 when an op lacks one."""
import argparse
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "ops"


def build():
    import torch
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)

    from goldens_ops import errors, gaps, layout, lookups, pictures, pointwise, products, quantized, reductions, weight_only
    from goldens_ops.table import Table
    table = Table()
    for part in (pointwise, layout, reductions, products, pictures, lookups, errors):
        part.add(table)
    # What came later, in the order of its coming: seeds and stored values count on from case to case, so that a case further up
    # would change all behind it.
    for part in (reductions.add_group_norm_halves, errors.add_group_norm_halves, gaps.add, products.add_linear_geglu, errors.add_linear_geglu,
                 products.add_conv_halves, quantized.add, quantized.add_denormals, quantized.add_sdpa, weight_only.add,
                 quantized.add_winograd, weight_only.add_packed, weight_only.add_packed_errors, weight_only.add_packed_wide):
        part(table)
    return table.files()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--check", action="store_true", help="compare with tests/data/ops, write nothing")
    ap.add_argument("--matrix", action="store_true", help="print the properties of each op's cases, write nothing")
    args = ap.parse_args()
    if args.matrix:
        from goldens_ops.coverage import matrix
        table = json.loads((FOLDER / "cases.json").read_text())
        return 1 if matrix(table["cases"], (FOLDER / "values.bin").read_bytes()) else 0
    files, differ = build(), 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = FOLDER / name
        if not args.check:
            path.write_bytes(content)
        elif not path.exists() or path.read_bytes() != content:
            print(f"{name}: differs")
            differ = 1
    print(", ".join(f"{name} {len(content)} bytes" for name, content in files.items()))
    return differ


if __name__ == "__main__":
    sys.exit(main())
