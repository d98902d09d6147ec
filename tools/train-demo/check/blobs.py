"""Groups of pixels and what can be measured on them."""
import numpy as np

from .table import GROUPS


def spread(mask, rx, ry):
    """Dilation by a box of (2 rx + 1) x (2 ry + 1)."""
    for axis, r in ((1, rx), (0, ry)):
        out, done = mask.copy(), 0
        while done < r:  # each pass doubles the reach
            step = min(done + 1, r - done)
            grown = out.copy()
            if axis:
                grown[:, step:] |= out[:, :-step]
                grown[:, :-step] |= out[:, step:]
            else:
                grown[step:] |= out[:-step]
                grown[:-step] |= out[step:]
            out, done = grown, done + step
        mask = out
    return mask


def label(mask):
    """Connected groups (4 neighbours): (H, W) int, 0 outside, and their number.  Runs of a row, joined by union-find."""
    parent, previous, out = [0], [], np.zeros(mask.shape, int)

    def root(k):
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    for y, row in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row.view(np.int8), [0]))))
        runs = []
        for x0, x1 in zip(edges[0::2], edges[1::2]):
            touching = [root(k) for a, b, k in previous if a < x1 and x0 < b]
            if touching:
                k = min(touching)
                for t in touching:
                    parent[t] = k
            else:
                k = len(parent)
                parent.append(k)
            out[y, x0:x1] = k
            runs.append((x0, x1, k))
        previous = runs
    roots = np.array([root(k) for k in range(len(parent))])
    names, compact = np.unique(roots, return_inverse=True)
    return compact[out], len(names) - 1


def fill_holes(mask):
    """The mask with every background group that does not touch the edge of the picture."""
    groups, n = label(np.pad(~mask, 1, constant_values=True))
    return (groups != groups[0, 0])[1:-1, 1:-1]


class Blob:
    def __init__(self, mask):
        ys, xs = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        self.y0, self.y1, self.x0, self.x1 = ys[0], ys[-1] + 1, xs[0], xs[-1] + 1
        self.mask = mask[self.y0:self.y1, self.x0:self.x1]
        self.height, self.width = self.mask.shape
        self.x, self.y = (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2
        self.area = int(self.mask.sum())
        self.fill = self.area / self.mask.size
        self.aspect = self.width / self.height

    def share(self, other, x0, y0, x1, y1):
        """Share of the pixels of mask `other` in a window relative to the box (0..1 inside it)."""
        xs = [min(max(int(self.x0 + v * self.width), 0), other.shape[1]) for v in (x0, x1)]
        ys = [min(max(int(self.y0 + v * self.height), 0), other.shape[0]) for v in (y0, y1)]
        part = other[ys[0]:ys[1], xs[0]:xs[1]]
        return float(part.mean()) if part.size else 0.


def without_specks(mask):
    """Opening by a 3 x 3 box: strokes of one or two pixels go away."""
    return spread(~spread(~mask, 1, 1), 1, 1)


def groups(mask, reach):
    """Blobs of a mask, largest first; parts nearer than `reach` (x, y) are one blob."""
    mask = without_specks(mask)
    names, n = label(spread(mask, int(reach[0] + 1) // 2, int(reach[1] + 1) // 2))
    names = np.where(mask, names, 0)
    sizes = np.bincount(names.ravel(), minlength=n + 1)
    found = [Blob(names == k) for k in range(1, n + 1) if sizes[k] >= GROUPS['least_part']]
    return sorted(found, key=lambda b: -b.area)
