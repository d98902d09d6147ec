"""Houses, trees, boats and the other things, and the plain shapes.

Each thing is drawn by f(c, x, y, s, rgb, night): (x, y) is the middle of its base, or its middle if it
flies; s is its size (1 = about 80 units high).
"""
import math

import skia

from canvas import mix, star_points

_WOOD, _LEAF = (104, 74, 58), (66, 120, 50)


def _is_dark(rgb):
    return sum(rgb) <= 200


def _is_white(rgb):
    return sum(rgb) > 700


def house(c, x, y, s, rgb, night):
    w, h = 36 * s * c.rng.uniform(.92, 1.1), 44 * s * c.rng.uniform(.92, 1.08)
    roof = (150, 74, 62) if _is_white(rgb) else mix(rgb, (64, 40, 44), .62)
    roof_height = 34 * s * c.rng.uniform(.9, 1.1)
    if c.rng.random() < .6:
        chimney = x + w * .5
        c.rect(chimney - 6 * s, y - h - roof_height * .9, chimney + 6 * s, y - h - 4, (120, 84, 78))
    c.rect(x - w, y - h, x + w, y, rgb)
    c.polygon([(x - w - 8 * s, y - h + 1), (x, y - h - roof_height), (x + w + 8 * s, y - h + 1)], roof)
    c.rect(x - 8 * s, y - 25 * s, x + 8 * s, y, (104, 70, 58))
    window = (255, 226, 120) if night else (214, 234, 246)
    for side in (-1, 1):
        middle = x + side * w * .58
        c.rect(middle - 7 * s, y - h + 9 * s, middle + 7 * s, y - h + 23 * s, window, raw=night)


def tree(c, x, y, s, rgb, night):
    h = 52 * s * c.rng.uniform(.92, 1.1)
    c.rect(x - 5 * s, y - h * .8, x + 5 * s, y, (116, 80, 58))
    if c.rng.random() < .3:  # a fir
        for k in range(3):
            w, foot = (34 - 7 * k) * s, y - h * .4 - k * 20 * s
            c.polygon([(x - w, foot), (x, foot - 38 * s), (x + w, foot)], mix(rgb, (20, 40, 30), .1 * (2 - k)))
        return
    shade = mix(rgb, (30, 40, 40), .12)
    c.circle(x - 17 * s, y - h * .95, 22 * s, shade)
    c.circle(x + 17 * s, y - h * .95, 22 * s, shade)
    c.circle(x, y - h * 1.22, 29 * s, rgb)


def flower(c, x, y, s, rgb, night):
    h = 46 * s * c.rng.uniform(.9, 1.12)
    c.line(x, y, x, y - h, _LEAF, 5 * s)
    c.oval(x - 11 * s, y - h * .36, 10 * s, 5 * s, _LEAF)
    c.oval(x + 11 * s, y - h * .46, 10 * s, 5 * s, _LEAF)
    turn = c.rng.uniform(0, 6.28)
    for k in range(5):
        a = turn + k * 6.283 / 5
        c.circle(x + 15 * s * math.cos(a), y - h + 15 * s * math.sin(a), 12.5 * s, rgb)
    heart = (250, 200, 60) if rgb[2] > 100 or rgb[1] < 120 else (150, 84, 40)
    c.circle(x, y - h, 9 * s, heart)


def cat(c, x, y, s, rgb, night):
    d = 1 if c.rng.random() < .5 else -1
    crease = mix(rgb, (120, 120, 130), .3) if _is_dark(rgb) else mix(rgb, (0, 0, 0), .18)
    tail = skia.Path()
    tail.moveTo(x - d * 20 * s, y - 6 * s)
    tail.cubicTo(x - d * 52 * s, y - 4 * s, x - d * 46 * s, y - 46 * s, x - d * 34 * s, y - 50 * s)
    c.path(tail, rgb, stroke=9 * s)
    c.oval(x, y - 26 * s, 26 * s, 27 * s, rgb)
    c.oval(x + d * 6 * s, y - 5 * s, 22 * s, 6 * s, rgb)
    hx, hy = x + d * 8 * s, y - 60 * s
    for side in (-1, 1):
        c.polygon([(hx + side * 21 * s, hy - 4 * s), (hx + side * 17 * s, hy - 31 * s), (hx + side * 2 * s, hy - 15 * s)], rgb)
    c.oval(hx, hy, 23 * s, 20 * s, rgb)
    for side in (-1, 1):
        c.circle(hx + side * 9 * s, hy - 2 * s, 3.6 * s, (250, 222, 90) if _is_dark(rgb) else (40, 60, 50), raw=_is_dark(rgb))
    c.oval(hx, hy + 6 * s, 3.4 * s, 2.4 * s, (230, 120, 130))
    c.line(x + d * 2 * s, y - 4 * s, x + d * 2 * s, y - 18 * s, crease, 2.2 * s)


def boat(c, x, y, s, rgb, night):
    d = 1 if c.rng.random() < .5 else -1
    w = 44 * s * c.rng.uniform(.92, 1.1)
    c.polygon([(x - w, y - 22 * s), (x + w, y - 22 * s), (x + w * .68, y + 4 * s), (x - w * .68, y + 4 * s)], rgb)
    rail = (110, 110, 120) if _is_dark(rgb) else mix(rgb, (0, 0, 0), .25)
    c.rect(x - w * .98, y - 24 * s, x + w * .98, y - 19 * s, rail)
    c.line(x, y - 22 * s, x, y - 92 * s, _WOOD, 4 * s)
    c.polygon([(x + d * 4 * s, y - 90 * s), (x + d * 4 * s, y - 32 * s), (x + d * 38 * s, y - 32 * s)], (252, 250, 244))
    c.polygon([(x - d * 4 * s, y - 80 * s), (x - d * 4 * s, y - 32 * s), (x - d * 26 * s, y - 32 * s)], (232, 230, 226))


def lighthouse(c, x, y, s, rgb, night):
    h = 104 * s * c.rng.uniform(.94, 1.06)
    rock = [(-46, 8), (-30, -10), (6, -14), (34, -8), (48, 8)]
    c.polygon([(x + dx * s, y + dy * s) for dx, dy in rock], (112, 108, 112))
    foot, bands = y - 10 * s, 5
    for k in range(bands):
        low, high = k / bands, (k + 1) / bands
        w0, w1 = (19 - 7 * low) * s, (19 - 7 * high) * s
        c.polygon([(x - w0, foot - h * low), (x + w0, foot - h * low), (x + w1, foot - h * high), (x - w1, foot - h * high)],
                  (248, 246, 240) if k % 2 else rgb)
    top = foot - h
    if night:
        d = 1 if c.rng.random() < .5 else -1
        c.polygon([(x, top - 8 * s), (x + d * 120, top - 30), (x + d * 120, top + 20)], (255, 240, 160), alpha=.4, raw=True)
    c.rect(x - 15 * s, top - 3 * s, x + 15 * s, top + 2 * s, (70, 66, 74))
    c.rect(x - 9 * s, top - 17 * s, x + 9 * s, top - 3 * s, (255, 232, 130), raw=True)
    c.polygon([(x - 13 * s, top - 17 * s), (x, top - 31 * s), (x + 13 * s, top - 17 * s)], rgb)


def balloon(c, x, y, s, rgb, night):
    r = 34 * s
    hull = skia.Path()
    hull.moveTo(x - r, y - 8 * s)
    hull.cubicTo(x - r, y - 56 * s, x + r, y - 56 * s, x + r, y - 8 * s)
    hull.cubicTo(x + r, y + 14 * s, x + 12 * s, y + 26 * s, x + 9 * s, y + 36 * s)
    hull.lineTo(x - 9 * s, y + 36 * s)
    hull.cubicTo(x - 12 * s, y + 26 * s, x - r, y + 14 * s, x - r, y - 8 * s)
    hull.close()
    c.path(hull, rgb)
    if c.rng.random() < .7:
        c.oval_inside(hull, x, y - 6 * s, 11 * s, 44 * s, (226, 222, 216) if _is_white(rgb) else mix(rgb, (255, 255, 255), .32))
    for side in (-1, 1):
        c.line(x + side * 8 * s, y + 36 * s, x + side * 7 * s, y + 47 * s, (90, 66, 54), 1.8 * s)
    c.rect(x - 9 * s, y + 46 * s, x + 9 * s, y + 59 * s, (138, 92, 58))


def bird(c, x, y, s, rgb, night):
    d = 1 if c.rng.random() < .5 else -1
    up = c.rng.uniform(-4, 6)
    wing = mix(rgb, (120, 124, 140), .25) if _is_dark(rgb) else mix(rgb, (0, 0, 0), .16)
    c.polygon([(x - d * 22 * s, y - 2 * s), (x - d * 46 * s, y - 12 * s), (x - d * 44 * s, y + 8 * s)], wing)
    c.oval(x, y, 28 * s, 15 * s, rgb)
    c.circle(x + d * 25 * s, y - 9 * s, 12 * s, rgb)
    c.polygon([(x + d * 35 * s, y - 12 * s), (x + d * 48 * s, y - 7 * s), (x + d * 35 * s, y - 3 * s)], (244, 160, 50))
    c.polygon([(x + d * 10 * s, y - 6 * s), (x - d * 14 * s, y - 4 * s), (x - d * 20 * s, y - (40 + up) * s)], wing)
    c.circle(x + d * 28 * s, y - 12 * s, 2.4 * s, (250, 250, 250) if _is_dark(rgb) else (30, 30, 36), raw=True)


THINGS = {'house': house, 'tree': tree, 'flower': flower, 'cat': cat, 'boat': boat, 'lighthouse': lighthouse, 'balloon': balloon, 'bird': bird}


def shape(c, kind, x, y, r, rgb):
    """A plain shape of about radius r around (x, y)."""
    if kind == 'circle':
        c.circle(x, y, r, rgb, raw=True)
    elif kind == 'square':
        c.rect(x - r * .89, y - r * .89, x + r * .89, y + r * .89, rgb, raw=True)
    elif kind == 'triangle':
        tips = (-math.pi / 2, math.pi / 6, math.pi * 5 / 6)
        c.polygon([(x + r * 1.12 * math.cos(a), y + r * .14 + r * 1.12 * math.sin(a)) for a in tips], rgb, raw=True)
    elif kind == 'star':
        c.polygon(star_points(x, y + r * .05, r * 1.12, r * .47), rgb, raw=True)
    else:
        c.circle(x, y, r * .8, rgb, raw=True, stroke=r * .38)
