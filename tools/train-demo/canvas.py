"""Anti-aliased drawing in a 256 x 256 unit square: the primitives that paint.py is written in.

Colours are (r, g, b) in 0..255.  Every fill is multiplied by the tint of the time of day, unless it is
`raw` (light sources, sky, plain shapes).  One random stream per picture gives all variation.
"""
import math
import random

import numpy as np
import skia

SIDE = 256  # units
TINTS = {'day': (1, 1, 1), 'sunset': (1, .92, .88), 'night': (.74, .76, .9)}
GLOOMY_TINT = .92


def mix(a, b, t):
    """Colour between a (t = 0) and b (t = 1)."""
    return tuple(x * (1 - t) + y * t for x, y in zip(a, b))


def jitter(rng, rgb, amount):
    return tuple(v + rng.uniform(-amount, amount) for v in rgb)


def _color4f(rgb, alpha=1.0):
    return skia.Color4f(*(max(0, min(1, v / 255)) for v in rgb), alpha)


def star_points(x, y, outer, inner, n=5):
    """Corners of a star with its first tip up."""
    return [(x + r * math.cos(a), y + r * math.sin(a))
            for k in range(2 * n) for r, a in [(inner if k % 2 else outer, -math.pi / 2 + k * math.pi / n)]]


class Canvas:
    def __init__(self, seed, pixels=SIDE):
        self.rng = random.Random(seed)
        self.tint = TINTS['day']
        self._surface = skia.Surface(pixels, pixels)
        self._skia = self._surface.getCanvas()
        self._skia.scale(pixels / SIDE, pixels / SIDE)

    def pixels(self):
        """(H, W, 3) uint8."""
        rgba = self._surface.toarray(colorType=skia.kRGBA_8888_ColorType)
        return np.ascontiguousarray(rgba[..., :3])

    def _paint(self, rgb, alpha=1.0, raw=False, stroke=0):
        if not raw:
            rgb = tuple(v * k for v, k in zip(rgb, self.tint))
        paint = skia.Paint(AntiAlias=True, Color4f=_color4f(rgb, alpha))
        if stroke:
            paint.setStyle(skia.Paint.kStroke_Style)
            paint.setStrokeWidth(stroke)
            paint.setStrokeCap(skia.Paint.kRound_Cap)
        return paint

    def fill(self, rgb):
        self._skia.clear(_color4f(rgb).toColor())

    def gradient(self, colors, bottom):
        """Vertical gradient from the top edge to `bottom` (units)."""
        shader = skia.GradientShader.MakeLinear(points=[(0, 0), (0, bottom)], colors=[_color4f(c).toColor() for c in colors])
        self._skia.drawPaint(skia.Paint(Shader=shader))

    def path(self, path, rgb, **style):
        self._skia.drawPath(path, self._paint(rgb, **style))

    def polygon(self, points, rgb, **style):
        path = skia.Path()
        path.addPoly([skia.Point(*p) for p in points], True)
        self.path(path, rgb, **style)

    def circle(self, x, y, radius, rgb, **style):
        self._skia.drawCircle(x, y, radius, self._paint(rgb, **style))

    def oval(self, x, y, rx, ry, rgb, **style):
        self._skia.drawOval(skia.Rect(x - rx, y - ry, x + rx, y + ry), self._paint(rgb, **style))

    def rect(self, x0, y0, x1, y1, rgb, **style):
        self._skia.drawRect(skia.Rect(x0, y0, x1, y1), self._paint(rgb, **style))

    def line(self, x0, y0, x1, y1, rgb, width, **style):
        self._skia.drawLine(x0, y0, x1, y1, self._paint(rgb, stroke=width, **style))

    def oval_inside(self, path, x, y, rx, ry, rgb):
        """An oval, cut off at the outline `path`."""
        self._skia.save()
        self._skia.clipPath(path, True)
        self.oval(x, y, rx, ry, rgb)
        self._skia.restore()

    def ridge(self, base, height, rgb, period=None):
        """Filled ground below a sum of two sines around y = base."""
        period = period or self.rng.uniform(140, 260)
        a, b = self.rng.uniform(0, 6.28), self.rng.uniform(0, 6.28)
        points = [(-4, SIDE + 4)]
        for x in range(-4, SIDE + 9, 6):
            points.append((x, base + height * (.7 * math.sin(x / period * 6.28 + a) + .3 * math.sin(x / period * 13.5 + b))))
        self.polygon(points + [(SIDE + 4, SIDE + 4)], rgb)


def union(*paths):
    whole = paths[0]
    for p in paths[1:]:
        whole = skia.Op(whole, p, skia.PathOp.kUnion_PathOp)
    return whole


def difference(a, b):
    return skia.Op(a, b, skia.PathOp.kDifference_PathOp)


def circle_path(x, y, radius):
    path = skia.Path()
    path.addCircle(x, y, radius)
    return path


def round_rect_path(x0, y0, x1, y1, radius):
    path = skia.Path()
    path.addRoundRect(skia.Rect(x0, y0, x1, y1), radius, radius)
    return path
