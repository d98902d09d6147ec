"""Pixels to colour classes."""
import numpy as np

from .table import COLORS, DARK, MARKS, SHAPE_COLORS, SKY, TINTS


def hsv(rgb):
    """(..., 3) in 0..255 -> hue 0..360, saturation, value 0..1.  What is almost black has little saturation."""
    x = rgb.astype(np.float32) / 255
    high, low = x.max(-1), x.min(-1)
    d = high - low + 1e-6
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    hue = np.where(high == r, ((g - b) / d) % 6, np.where(high == g, (b - r) / d + 2, (r - g) / d + 4)) * 60
    return hue, (high - low) / np.maximum(high, DARK), high


def _inside(hue, sat, val, limits):
    h0, h1, s0, s1, v0, v1 = limits
    near = (hue >= h0) & (hue <= h1) if h0 <= h1 else (hue >= h0) | (hue <= h1)
    return near & (sat >= s0) & (sat <= s1) & (val >= v0) & (val <= v1)


class Pixels:
    """A picture (256, 256, 3) uint8 seen through the tint of a time of day; None: plain shapes, no tint."""

    def __init__(self, picture, time):
        self._classes = {**COLORS, **MARKS, **({} if time else SHAPE_COLORS)}
        self._hsv = hsv(np.clip(picture / np.array(TINTS[time or 'plain'], np.float32), 0, 255))

    def mask(self, name):
        """(256, 256) bool: the pixels of a colour or mark class."""
        return _inside(*self._hsv, self._classes[name])


def time_of_day(picture):
    def median(rows):
        return np.median(rows.reshape(-1, 3).astype(np.float32), 0)
    high, low = median(picture[slice(*SKY['rows'])]), median(picture[slice(*SKY['low_rows'])])
    if high @ np.array((.3, .59, .11)) < SKY['night_luma']:
        return 'night'
    return 'day' if high[2] - high[0] >= SKY['day_blue'] and low[2] - low[0] > SKY['day_low_blue'] else 'sunset'
