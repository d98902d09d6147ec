"""Contact sheets."""
import numpy as np
from PIL import Image


def save_sheet(pictures, path, columns=4):
    """Pictures (H, W, 3) uint8 of one size, row by row, as one PNG."""
    blank = np.zeros_like(pictures[0])
    rows = [list(pictures[k:k + columns]) for k in range(0, len(pictures), columns)]
    rows[-1] += [blank] * (columns - len(rows[-1]))
    Image.fromarray(np.concatenate([np.concatenate(r, 1) for r in rows], 0)).save(path, optimize=True)
