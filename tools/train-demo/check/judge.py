"""Does a picture show what its prompt says?  Looks at pixels alone."""
from .blobs import fill_holes, groups, spread
from .colors import Pixels, time_of_day
from .table import GROUPS, KINDS, PLACES, SHAPES


def shape_of(blob):
    """circle, square, triangle, star or ring."""
    closed = spread(blob.mask, SHAPES['ring_gap'], SHAPES['ring_gap'])
    hole = fill_holes(closed).sum() - closed.sum()
    if hole / (hole + blob.area) > SHAPES['ring_hole']:
        return 'ring'
    whole = fill_holes(blob.mask)
    area = whole.sum()
    fill = area / whole.size
    if fill > SHAPES['square_fill']:
        return 'square'
    if fill > SHAPES['circle_fill']:
        return 'circle'
    rows = whole.sum(1)
    low = (rows * range(len(rows))).sum() / area / len(rows)
    return 'triangle' if low > SHAPES['triangle_low'] else 'star'


def _between(value, limits):
    return limits[0] <= value <= limits[1]


def _has_mark(blob, pixels, color, name, x0, y0, x1, y1, share):
    got = blob.share(pixels.mask(color if name == 'own' else name), x0, y0, x1, y1)
    return got >= share if share > 0 else got <= -share


def _is_kind(blob, kind, color, pixels):
    want = KINDS[kind]
    return (_between(blob.width, want['width']) and _between(blob.height, want['height']) and _between(blob.aspect, want['aspect'])
            and _between(blob.fill, want['fill']) and _between(blob.y1, want['foot'])
            and all(_has_mark(blob, pixels, color, *mark) for mark in want['marks']))


def find(picture, kind, color, count=1):
    """Blobs of this kind and colour, largest first, where `count` of them are looked for."""
    if kind in KINDS:
        pixels = Pixels(picture, time_of_day(picture))
        reach = [v * GROUPS['reach_by_count'][count - 1] for v in KINDS[kind]['reach']]
        return [b for b in groups(pixels.mask(color), reach) if _is_kind(b, kind, color, pixels)]
    blobs = groups(Pixels(picture, None).mask(color), SHAPES['reach'])
    blobs = [b for b in blobs if _between(b.width, SHAPES['size']) and _between(b.height, SHAPES['size'])]
    return [b for b in blobs if shape_of(b) == kind]


def _place(blob):
    return 'left' if blob.x < PLACES['left_of'] else 'right' if blob.x > PLACES['right_of'] else 'middle'


def related(first, second, rel):
    dx, dy = second.x - first.x, second.y - first.y
    if rel == 'inside':
        return abs(dx) < PLACES['inside'] and abs(dy) < PLACES['inside'] and first.width < second.width and first.height < second.height
    along = {'left of': dx, 'right of': -dx, 'above': dy, 'below': -dy}[rel]
    return along > PLACES['apart']


def judge(picture, scene):
    """{'time': bool, 'object': bool, 'place': bool, 'count': bool, 'pair': bool}; only what the scene has.

    object: a thing of the kind and colour is there.  pair: both are, in the right relation.
    count: as many as said.  scene: a dict with type, time, objects and rel, as in world.py.
    """
    out, objects = {}, scene['objects']
    if scene['type'] == 'scene':
        out['time'] = time_of_day(picture) == scene['time']
    found = [find(picture, x['kind'], x['color'], x['count']) for x in objects]
    if len(objects) == 1:
        count = objects[0]['count']
        out['count'] = len(found[0]) == count
        if count == 1:
            out['object'] = len(found[0]) > 0
            out['place'] = out['object'] and _place(found[0][0]) == objects[0]['pos']
    elif len(objects) == 2:
        out['pair'] = any(related(a, b, scene['rel']) for a in found[0] for b in found[1])
    return out
