"""The small world of the demo model: what can be in a picture, and which combinations training never sees.

A scene is a plain dict, a pure function of an integer index (spec, spec_held_out), read by
paint.py (pixels) and captions.py (words).  Keys:
  type      'scene' (a landscape) or 'shapes' (plain shapes on a background)
  objects   up to two of {kind, color, count, pos}; only a single object has count > 1 or pos != middle
  rel       relation of the first object to the second, or None
  scene:    time, ground, weather, sunmoon (sun or moon visible), stars
  shapes:   bg (a time of day if sky, else a plain colour), sky
  seed      of everything that the words do not decide
"""
import random
import zlib

# name: (Chinese, rgb).  Kept apart from grounds and skies, so that a coloured thing shows everywhere.
COLORS = {
    'red': ('红色', (214, 48, 44)), 'orange': ('橙色', (242, 130, 30)), 'yellow': ('黄色', (250, 212, 50)),
    'green': ('绿色', (24, 138, 74)), 'blue': ('蓝色', (40, 84, 220)), 'purple': ('紫色', (138, 58, 190)),
    'pink': ('粉色', (246, 124, 182)), 'white': ('白色', (250, 248, 242)), 'black': ('黑色', (40, 38, 46)),
    'gray': ('灰色', (140, 144, 152)),
}
# name: (plural, Chinese, Chinese measure word, colours, habitat)
KINDS = {
    'house': ('houses', '房子', '座', 'red orange yellow green blue purple pink white', 'land'),
    'tree': ('trees', '树', '棵', 'green orange red pink yellow', 'land'),
    'flower': ('flowers', '花', '朵', 'red yellow pink purple white blue orange', 'land'),
    'cat': ('cats', '猫', '只', 'orange black white gray', 'land'),
    'boat': ('boats', '船', '艘', 'red orange yellow green blue purple white black', 'sea'),
    'lighthouse': ('lighthouses', '灯塔', '座', 'red blue green black orange', 'sea'),
    'balloon': ('hot-air balloons', '热气球', '个', 'red orange yellow green blue purple pink white', 'sky'),
    'bird': ('birds', '鸟', '只', 'red yellow blue white black green', 'sky'),
}
# name: (plural, Chinese, Chinese measure word)
SHAPES = {
    'circle': ('circles', '圆形', '个'), 'square': ('squares', '正方形', '个'), 'triangle': ('triangles', '三角形', '个'),
    'star': ('stars', '星形', '个'), 'ring': ('rings', '圆环', '个'),
}
SHAPE_COLORS = 'red orange yellow green blue purple pink white black'.split()
FLYING = ('balloon', 'bird')
TIMES = ['day', 'sunset', 'night']
GROUNDS = ['meadow', 'hills', 'mountains', 'sea', 'desert', 'snow']
WEATHERS = ['clear', 'clouds', 'rain', 'snow']
POSITIONS = ['left', 'middle', 'right']
RELATIONS = ['above', 'below', 'left of', 'right of', 'inside']
PLAIN = {
    'white': (247, 246, 242), 'black': (34, 34, 42), 'gray': (196, 199, 204), 'blue': (168, 208, 240),
    'yellow': (252, 238, 178), 'green': (190, 226, 188), 'pink': (250, 214, 222),
}


def _bucket(modulus, *words):
    """A fixed pseudo-random number below `modulus` for a combination of words."""
    return zlib.crc32('|'.join(map(str, words)).encode()) % modulus


def held_out(scene):
    """True for combinations that training never sees: by object and colour, by place, by pair."""
    objects = scene['objects']
    pair = [x[k] for x in objects for k in ('kind', 'color')] if len(objects) == 2 else None
    if scene['type'] == 'shapes':
        if any(_bucket(9, 'shape', x['kind'], x['color']) == 0 for x in objects):
            return True
        return pair is not None and _bucket(8, *pair, scene['rel']) == 0
    for x in objects:
        if _bucket(11, 'obj', x['kind'], x['color']) == 0:
            return True
        if _bucket(12, scene['time'], scene['ground'], x['kind']) == 0:
            return True
    return pair is not None and _bucket(8, *pair) == 0


def visible(scene):
    """False where an object could hardly be told from what is behind it."""
    if scene['type'] == 'shapes':
        return True
    for x in scene['objects']:
        flies = x['kind'] in FLYING
        if x['color'] == 'white' and (scene['weather'] != 'clear' if flies else scene['ground'] == 'snow'):
            return False
        if x['color'] == 'black' and scene['time'] == 'night' and flies:
            return False
    return True


def _thing(kind, color, count=1, pos='middle'):
    return {'kind': kind, 'color': color, 'count': count, 'pos': pos}


def _draw_shapes(rng):
    scene = {'type': 'shapes', 'time': None, 'rel': None}
    scene['sky'] = rng.random() < 0.3
    scene['bg'] = rng.choice(TIMES if scene['sky'] else list(PLAIN))
    unseen = 'black' if scene['bg'] == 'night' else scene['bg']
    colors = [c for c in SHAPE_COLORS if c != unseen or unseen not in ('white', 'black')]
    n = 1 if rng.random() < 0.4 else 2
    scene['objects'] = [_thing(rng.choice(list(SHAPES)), rng.choice(colors)) for _ in range(n)]
    if n == 1:
        only = scene['objects'][0]
        only['count'] = rng.choice([1, 1, 1, 2, 3])
        if only['count'] == 1:
            only['pos'] = rng.choice(POSITIONS + ['middle'])
        return scene
    a, b = scene['objects']
    if a['color'] == b['color']:
        b['color'] = rng.choice([c for c in colors if c != a['color']])
    scene['rel'] = rng.choice(RELATIONS)
    if scene['rel'] == 'inside' and b['kind'] in ('triangle', 'star'):
        b['kind'] = rng.choice(['circle', 'square', 'ring'])
    return scene


def _colors_of(kind):
    return KINDS[kind][3].split()


def _draw_landscape(rng):
    scene = {'type': 'scene', 'time': rng.choices(TIMES, [4, 3, 3])[0], 'ground': rng.choice(GROUNDS),
             'weather': rng.choices(WEATHERS, [5, 3, 1.3, 1.3])[0], 'rel': None}
    fair = scene['weather'] in ('clear', 'clouds')
    scene['sunmoon'] = rng.random() < (0.6 if fair else 0.0)
    if scene['time'] == 'sunset' and fair:
        scene['sunmoon'] = rng.random() < 0.85
    if scene['time'] == 'sunset' and scene['ground'] == 'mountains':
        scene['sunmoon'] = False  # it would set behind the peaks
    scene['stars'] = scene['time'] == 'night' and fair and rng.random() < 0.85
    land = ['boat', 'boat', 'lighthouse'] if scene['ground'] == 'sea' else ['house', 'tree', 'flower', 'cat']
    n = rng.choices([0, 1, 2], [0.08, 0.42, 0.50])[0]
    scene['objects'] = []
    if n == 1:
        kind = rng.choice(land + land + list(FLYING)) if rng.random() < 0.9 else rng.choice(land)
        color = rng.choice(_colors_of(kind))
        count = rng.choice([1, 1, 1, 2, 3]) if kind != 'lighthouse' else 1
        scene['objects'] = [_thing(kind, color, count, rng.choice(POSITIONS) if count == 1 else 'middle')]
    elif n == 2:
        scene['objects'], scene['rel'] = _draw_pair(rng, land)
    return scene


def _draw_pair(rng, land):
    """Two objects of a landscape, and the relation of the first to the second."""
    first, second = rng.choice(land), rng.choice(land + list(FLYING))
    if first == second == 'lighthouse':
        second = 'boat'
    objects = [_thing(k, rng.choice(_colors_of(k))) for k in (first, second)]
    if second in FLYING:
        if rng.random() < .5:
            return objects[::-1], 'above'
        return objects, 'below'
    rel = rng.choice(['left of', 'right of'])
    if first == second and objects[0]['color'] == objects[1]['color']:
        objects[1]['color'] = rng.choice([c for c in _colors_of(second) if c != objects[0]['color']])
    return objects, rel


def _draw(rng, wanted):
    """The first visible scene for which held_out(scene) is `wanted`."""
    while True:
        scene = _draw_shapes(rng) if rng.random() < 0.35 else _draw_landscape(rng)
        if visible(scene) and held_out(scene) == wanted:
            scene['seed'] = rng.getrandbits(32)
            return scene


def spec(index):
    """The training scene with this index."""
    return _draw(random.Random(index * 2654435761 % 2**61), False)


def spec_held_out(index):
    """The test scene with this index: a combination that training never sees."""
    return _draw(random.Random(10**9 + index), True)
