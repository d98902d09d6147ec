#!/usr/bin/env python3
"""tests/data/images/ssim.json: the SSIM of made-up pictures, by scipy's convolution with whole windows.

usage: tools/goldens_ssim.py [--into FOLDER]      (environment: tools/goldens-venv)
Each row: width, height, first state, how far the second picture may be away, SSIM. The pictures follow from the state, as
tests/test_ssim.c makes them."""
import argparse
import json
from pathlib import Path

import numpy as np
from scipy.signal import convolve2d

ROWS = [(11, 11, 1, 0), (11, 11, 2, 255), (64, 48, 3, 4), (48, 64, 4, 40), (37, 90, 5, 255), (17, 11, 6, 1), (11, 23, 7, 90)]


def pictures(width, height, state, away):
    """Stripes, and what a linear congruential generator adds to them."""
    a, b = (np.zeros((height, width, 3), np.int64) for _ in range(2))
    for i in range(height * width * 3):
        state = (state * 1664525 + 1013904223) % 2**32
        a.reshape(-1)[i] = (i // 3 % width * 5 + i // 3 // width * 3 + (state >> 28)) % 256
        b.reshape(-1)[i] = min(255, a.reshape(-1)[i] + (state >> 16) % (away + 1))
    return a.astype(np.float64), b.astype(np.float64)


def ssim(a, b):
    """Of one channel."""
    x = np.arange(11) - 5
    g = np.exp(-(x[:, None] ** 2 + x[None, :] ** 2) / (2 * 1.5**2))
    g /= g.sum()
    mean = lambda v: convolve2d(v, g, mode="valid")  # noqa: E731
    ma, mb = mean(a), mean(b)
    va, vb, cov = mean((a) ** 2) - ma**2, mean(b**2) - mb**2, mean(a * b) - ma * mb
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return ((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))).mean()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--into", type=Path, default=Path(__file__).parent.parent / "tests/data/images")
    into = ap.parse_args().into
    rows = []
    for row in ROWS:
        a, b = pictures(*row)
        rows.append([*row, float(np.mean([ssim(a[..., c], b[..., c]) for c in range(3)]))])
    (into / "ssim.json").write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
