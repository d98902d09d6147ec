"""Paints a scene (world.py): where everything goes, and in which order.

python paint.py OUT.png [N] [FIRST]     a sheet of N training scenes, their captions on the terminal
"""
import sys

import paint_sky
from canvas import SIDE, Canvas, jitter
from paint_objects import THINGS, shape
from world import COLORS, FLYING, PLAIN


def _near(rng, value, spread):
    return value + rng.uniform(-spread, spread)


def _color(rng, name):
    return jitter(rng, COLORS[name][1], 7)


def _backdrop(c, scene):
    if not scene['sky']:
        c.fill(jitter(c.rng, PLAIN[scene['bg']], 4))
        return
    paint_sky.sky(c, scene['bg'])
    if scene['bg'] == 'night':
        paint_sky.stars(c, c.rng.randint(8, 16))
    no_white = all(x['color'] != 'white' for x in scene['objects'])
    if scene['bg'] == 'day' and c.rng.random() < .5 and no_white:
        paint_sky.cloud(c, c.rng.uniform(40, 216), c.rng.uniform(30, 226), c.rng.uniform(60, 90), (250, 252, 254))


def _equal_shapes(c, thing):
    """One to three shapes of one kind and colour."""
    rng, kind, count = c.rng, thing['kind'], thing['count']
    if count == 1:
        x = {'left': 72, 'middle': 128, 'right': 184}[thing['pos']]
        shape(c, kind, _near(rng, x, 8), _near(rng, 128, 16), rng.uniform(44, 60), _color(rng, thing['color']))
        return
    radius = rng.uniform(32, 40) if count == 2 else rng.uniform(27, 33)
    rgb = _color(rng, thing['color'])
    down = rng.uniform(-12, 12)
    for x in (76, 180) if count == 2 else (50, 128, 206):
        shape(c, kind, _near(rng, x, 5), _near(rng, 128 + down, 5), radius, rgb)


def _related_shapes(c, first, second, rel):
    rng = c.rng
    rgb1, rgb2 = _color(rng, first['color']), _color(rng, second['color'])
    if rel == 'inside':
        x, y, radius = _near(rng, 128, 14), _near(rng, 128, 14), rng.uniform(80, 92)
        shape(c, second['kind'], x, y, radius, rgb2)
        shape(c, first['kind'], x, y, radius * rng.uniform(.36, .42), rgb1)
        return
    dx, dy = {'above': (0, -1), 'below': (0, 1), 'left of': (-1, 0), 'right of': (1, 0)}[rel]
    x, y, gap = _near(rng, 128, 10), _near(rng, 128, 10), rng.uniform(54, 60)
    for thing, rgb, sign in ((first, rgb1, 1), (second, rgb2, -1)):
        shape(c, thing['kind'], _near(rng, x + sign * dx * gap, 3), _near(rng, y + sign * dy * gap, 3), rng.uniform(36, 45), rgb)


def _places(rng, scene):
    """[(object, x, y, size)]: y is the foot of what stands, the middle of what flies."""
    objects, at_sea = scene['objects'], scene['ground'] == 'sea'
    foot = (204, 222) if at_sea else (210, 228)
    if len(objects) == 1:
        thing = objects[0]
        count = thing['count']
        xs = {1: [{'left': 66, 'middle': 128, 'right': 190}[thing['pos']]], 2: [70, 186], 3: [46, 128, 210]}[count]
        size = rng.uniform(*{1: (1.1, 1.3), 2: (.9, 1.02), 3: (.72, .82)}[count])
        places = []
        for x in xs:
            y = rng.uniform(66, 88) if thing['kind'] in FLYING else rng.uniform(*foot)
            places.append((thing, x + rng.uniform(-8, 8) / count, y, size * rng.uniform(.96, 1.04)))
        return places
    if any(x['kind'] in FLYING for x in objects):
        places = []
        for thing in objects:
            x = 128 + rng.uniform(-40, 40)
            y, size = ((56, 66), (.84, .92)) if thing['kind'] in FLYING else ((220, 234), (.84, .95))
            places.append((thing, x, rng.uniform(*y), rng.uniform(*size)))
        return places
    xs = (68, 188) if scene['rel'] == 'left of' else (188, 68)
    return [(thing, x + rng.uniform(-8, 8), rng.uniform(*foot), rng.uniform(.88, 1.02)) for thing, x in zip(objects, xs)]


def _sun(c, scene, places, horizon):
    """Draws sun or moon away from what flies (or from all objects); returns its x, or None."""
    if not scene['sunmoon']:
        return None
    taken = [x for thing, x, _, _ in places if thing['kind'] in FLYING] or [p[1] for p in places]
    free = [x for x in (34, 60, 196, 222) if all(abs(x - q) > 62 for q in taken)] or [24, 232]
    x = c.rng.choice(free) + c.rng.uniform(-8, 8)
    paint_sky.sun_or_moon(c, scene['time'], x, horizon)
    return x


def _landscape(c, scene):
    rng, time = c.rng, scene['time']
    gloomy = scene['weather'] in ('rain', 'snow')
    paint_sky.sky(c, time, gloomy)
    horizon = rng.uniform(138, 154) if scene['ground'] == 'sea' else rng.uniform(146, 162)
    if scene['stars']:
        paint_sky.stars(c)
    places = _places(rng, scene)
    sun_x = _sun(c, scene, places, horizon)
    if scene['weather'] != 'clear':
        paint_sky.clouds(c, time, gloomy, sun_x)
    paint_sky.ground(c, scene['ground'], horizon)
    for thing, x, y, size in sorted(places, key=lambda p: p[2]):
        THINGS[thing['kind']](c, x, y, size, _color(rng, thing['color']), time == 'night')
    if scene['weather'] == 'rain':
        paint_sky.rain(c)
    elif scene['weather'] == 'snow':
        paint_sky.snowfall(c)


def paint(scene, pixels=SIDE):
    """(pixels, pixels, 3) uint8; always the same for the same scene."""
    c = Canvas(scene['seed'], pixels)
    if scene['type'] == 'scene':
        _landscape(c, scene)
        return c.pixels()
    _backdrop(c, scene)
    if len(scene['objects']) == 1:
        _equal_shapes(c, scene['objects'][0])
    else:
        _related_shapes(c, *scene['objects'], scene['rel'])
    return c.pixels()


if __name__ == '__main__':
    from captions import EN, ZH, caption
    from sheet import save_sheet
    from world import spec
    n, first = (int(v) for v in (sys.argv[2:] + ['36', '0'][len(sys.argv) - 2:])[:2])
    scenes = [spec(first + k) for k in range(n)]
    for k, scene in enumerate(scenes):
        print(first + k, caption(scene, EN), '|', caption(scene, ZH))
    save_sheet([paint(s) for s in scenes], sys.argv[1], columns=6)
