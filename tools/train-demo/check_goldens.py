"""Pictures with the checker's answers, by which tests/test_demo_check.c finds that its port in C agrees.
-> OUT/check.json, OUT/check-*.webp

Some are the generator's, some a model's, whose edges are not clean.

python check_goldens.py --model MODEL --out ../../tests/data/demo-check
"""
import argparse
import json
import pathlib
import random

from PIL import Image

from check.judge import find, judge
from check.colors import time_of_day
from check.table import COLORS, KINDS
from check_self import one_word_wrong, scenes_of
from paint import paint
from prompts import GROUPS, test_prompts
from sample import Painter
from world import SHAPES

LIMIT = 60_000  # bytes, everything
KEPT = ('type', 'time', 'objects', 'rel')  # what the checker reads of a scene
# of the generator and of the model: a group of prompts, and which one of them
DRAWN = ('object', 5), ('pair', 1), ('pair', 5), ('pair', 13), ('time', 4), ('count', 3), ('count', 5)
PAINTED = ('pair', 5),


def questions(scene, group):
    """The scene itself, scenes that differ in one word, and the scene with its objects swapped."""
    swapped = {**scene, 'objects': scene['objects'][::-1]}
    return [scene, *one_word_wrong(scene, group, random.Random(1)).values(), *([swapped] if scene['rel'] else [])]


def all_found(picture):
    """{'kind color count': boxes [x0, y0, x1, y1, area]} of whatever is found."""
    out = {}
    for kind in (*KINDS, *SHAPES):
        for color in COLORS:
            for count in (1, 3) if kind in KINDS else (1,):
                blobs = find(picture, kind, color, count)
                if blobs:
                    out[f'{kind} {color} {count}'] = [[int(v) for v in (b.x0, b.y0, b.x1, b.y1, b.area)] for b in blobs]
    return out


def row_of(name, picture, scene, group):
    asked = [{k: s[k] for k in KEPT} for s in questions(scene, group)]
    answers = [{'scene': s, 'answers': {k: bool(v) for k, v in judge(picture, s).items()}} for s in asked]
    return {'picture': name, 'time': time_of_day(picture), 'found': all_found(picture), 'questions': answers}


def pictures_of(model):
    """(picture, scene, group) of the generator, then of the model."""
    for group, k in DRAWN:
        scene = scenes_of(group, k + 1)[k]
        yield paint(scene), scene, group
    painter = Painter(model)
    for group, k in PAINTED:
        text, _, scene = test_prompts(group, k + 1, held_out=False)[k]
        yield painter([text], [k])[0], scene, group


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--model', required=True)
    ap.add_argument('--out', required=True, type=pathlib.Path)
    args = ap.parse_args()
    rows = []
    for k, (picture, scene, group) in enumerate(pictures_of(args.model)):
        name = f'check-{k + 1}.webp'
        Image.fromarray(picture).save(args.out / name, lossless=True, quality=100, method=6)
        rows.append(row_of(name, picture, scene, group))
    text = ',\n'.join(json.dumps(r, separators=(',', ':')) for r in rows)
    (args.out / 'check.json').write_text(f'[{text}]\n', encoding='utf-8')
    size = sum(p.stat().st_size for p in args.out.glob('check*'))
    print(f'{len(rows)} pictures, {size} bytes')
    if size > LIMIT:
        raise SystemExit(f'more than {LIMIT} bytes')


if __name__ == '__main__':
    main()
