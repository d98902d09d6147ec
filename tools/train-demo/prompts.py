"""The prompts by which a model is judged, and the checker: scenes that training never sees, with a wording that says all."""
import itertools
import random

from captions import EN, ZH, caption, color_word, time_words
from world import spec, spec_held_out

GROUPS = {
    'object': lambda s: len(s['objects']) == 1 and s['objects'][0]['count'] == 1,
    'pair': lambda s: len(s['objects']) == 2,
    'time': lambda s: s['type'] == 'scene',
    'count': lambda s: len(s['objects']) == 1 and s['objects'][0]['count'] > 1,
}
FIRST_SCENE = 90_000_000  # training indices are far below


def full_caption(scene, language, rng):
    """A wording that says every colour, the time of day and the relation."""
    for _ in range(100):
        text = caption(scene, language, rng, vague=0.)
        colors = all(color_word(x['color'], language) in text for x in scene['objects'])
        if colors and (scene['type'] != 'scene' or any(w in text for w in time_words(scene['time'], language))):
            return text
    return None


def test_prompts(group, count, held_out=True, skip=0):
    """[(prompt, language, scene)] behind the first `skip`, English and Chinese in turn; no rain or snow (their strokes hide edges)."""
    out, make = [], spec_held_out if held_out else spec
    for i in itertools.count(FIRST_SCENE):
        if len(out) == skip + count:
            return out[skip:]
        scene, language = make(i), (EN, ZH)[len(out) % 2]
        if scene.get('weather') in ('rain', 'snow') or not GROUPS[group](scene):
            continue
        text = full_caption(scene, language, random.Random(i))
        if text:
            out.append((text, language, scene))
