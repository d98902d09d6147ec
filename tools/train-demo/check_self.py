"""How far the checker can be trusted: its answers on true renders of the generator.

python check_self.py [--renders 600]
  yes on its own prompt (should be at least .97), and yes on the prompt of another picture of the same form
  (should be at most .03): any other picture, one that differs in one word only (kind, colour, relation,
  count, time), each measured apart.
"""
import argparse
import copy
import random
from collections import defaultdict

import numpy as np

from check.judge import judge
from paint import paint
from prompts import GROUPS
from world import KINDS, SHAPE_COLORS, SHAPES, TIMES, spec

FIRST_SCENE = 80_000_000
_OPPOSITE = {'above': 'below', 'below': 'above', 'left of': 'right of', 'right of': 'left of'}


def scenes_of(group, count):
    out, i = [], FIRST_SCENE
    while len(out) < count:
        scene = spec(i)
        i += 1
        if scene.get('weather') not in ('rain', 'snow') and GROUPS[group](scene):
            out.append(scene)
    return out


def one_word_wrong(scene, group, rng):
    """{what: the scene with that one word changed}."""
    def changed(edit):
        other = copy.deepcopy(scene)
        edit(other)
        return other

    def set_object(key, value, k=-1):
        return lambda s: s['objects'][k].update({key: value})

    if group == 'time':
        time = rng.choice([t for t in TIMES if t != scene['time']])
        return {'time': changed(lambda s: s.update(time=time))}
    if group == 'count':
        return {'count': changed(set_object('count', {2: 3, 3: 2}[scene['objects'][0]['count']]))}
    thing = scene['objects'][-1]
    kinds = [k for k in (KINDS if thing['kind'] in KINDS else SHAPES) if k != thing['kind']]
    known = KINDS[thing['kind']][3].split() if thing['kind'] in KINDS else SHAPE_COLORS
    colors = [c for c in known if c != thing['color']]
    out = {'kind': changed(set_object('kind', rng.choice(kinds))), 'color': changed(set_object('color', rng.choice(colors)))}
    if group == 'pair':
        if scene['rel'] in _OPPOSITE:
            out['relation'] = changed(lambda s: s.update(rel=_OPPOSITE[s['rel']]))
        a, b = scene['objects']
        if a['kind'] != b['kind'] and a['color'] != b['color']:
            def swap(s):
                s['objects'][0]['color'], s['objects'][1]['color'] = b['color'], a['color']
            out['colors swapped'] = changed(swap)
    return out


def _same_question(a, b, group):
    if group == 'time':
        return a['time'] == b['time']
    keys = ('kind', 'color', 'count')
    return a['rel'] == b['rel'] and [[x[k] for k in keys] for x in a['objects']] == [[x[k] for k in keys] for x in b['objects']]


def measure(group, renders):
    """{case: [yes or no]}; the case 'own' is split by kind too."""
    answers, rng = defaultdict(list), random.Random(0)
    scenes = scenes_of(group, renders)
    for k, scene in enumerate(scenes):
        picture = paint(scene)
        own = judge(picture, scene)
        answers['own'].append(own[group])
        if group in ('object', 'count'):
            answers[f"own {scene['objects'][0]['kind']}"].append(own[group])
        if 'place' in own:
            answers['own place'].append(own['place'])
        other = scenes[(k + 1) % renders]
        if other['type'] == scene['type'] and not _same_question(scene, other, group):
            answers['other'].append(judge(picture, other)[group])
        for what, wrong in one_word_wrong(scene, group, rng).items():
            answers[f'wrong {what}'].append(judge(picture, wrong)[group])
    return answers


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--renders', type=int, default=600, help='of each group')
    args = ap.parse_args()
    for group in GROUPS:
        for case, values in sorted(measure(group, args.renders).items()):
            good = np.mean(values) >= .97 if case.startswith('own') else np.mean(values) <= .03
            print(f"{'  ' if good else '! '}{group:7} {case:24} {np.mean(values):.3f} of {len(values)}", flush=True)


if __name__ == '__main__':
    main()
