"""English and Chinese captions of a scene (world.py), with varied wording.

caption(scene, language, rng, vague, inverted): `vague` is the share of two-object landscapes whose relation is
left out ("a cat and a tree"), `inverted` the share of Chinese relations that name the second object first
("树左边有猫" instead of "猫在树左边").
"""
import random

from world import COLORS, KINDS, SHAPES

EN, ZH = 'en', 'zh'
_COUNT_EN = {1: ['a', 'one'], 2: ['two'], 3: ['three']}
_COUNT_ZH = {1: '一', 2: '两', 3: '三'}

# where an object stands
_GROUND = {
    EN: {'meadow': ['in a meadow', 'on a green meadow', 'in a grassy field', 'on the grass'],
         'hills': ['in the hills', 'among green hills', 'with rolling hills'],
         'mountains': ['in the mountains', 'with mountains', 'in front of mountains', 'with snowy mountains behind'],
         'sea': ['at sea', 'on the sea', 'by the sea', 'on the ocean'],
         'desert': ['in the desert', 'in a sandy desert', 'among sand dunes'],
         'snow': ['in the snow', 'in a snowy field', 'on snowy ground', 'in a winter landscape']},
    ZH: {'meadow': ['草地上', '草原上', '绿色的草地上'], 'hills': ['山丘上', '丘陵间', '绿色的山丘上'],
         'mountains': ['山前', '群山前', '雪山脚下'], 'sea': ['海上', '大海上', '海面上'],
         'desert': ['沙漠里', '沙漠中', '沙丘上'], 'snow': ['雪地里', '雪地上', '冬天的雪地上']},
}
# the landscape alone
_VIEW = {
    EN: {'meadow': ['a meadow', 'a green meadow', 'a grassy field'], 'hills': ['hills', 'green hills', 'rolling hills'],
         'mountains': ['mountains', 'snowy mountains', 'a mountain landscape'], 'sea': ['the sea', 'the ocean', 'a calm sea'],
         'desert': ['a desert', 'the desert', 'sand dunes'], 'snow': ['a snowy field', 'a winter landscape', 'a field of snow']},
    ZH: {'meadow': ['草地', '草原'], 'hills': ['山丘', '丘陵'], 'mountains': ['群山', '雪山', '高山'], 'sea': ['大海', '海洋'],
         'desert': ['沙漠', '沙丘'], 'snow': ['雪地', '冬天的雪地']},
}
_TIME = {
    EN: {'day': ['by day', 'during the day', 'on a bright day', 'in daylight'], 'sunset': ['at sunset', 'at dusk', 'in the evening'],
         'night': ['at night', 'by night', 'in the dark night']},
    ZH: {'day': ['白天', '晴朗的白天', '日间'], 'sunset': ['日落时', '黄昏', '傍晚', '日落'], 'night': ['夜晚', '夜里', '晚上', '黑夜']},
}
_FAIR_WORDS = ('bright', '晴')  # only under a clear sky
_WEATHER = {
    EN: {'clouds': ['with clouds', 'under a cloudy sky', 'with white clouds in the sky'],
         'rain': ['in the rain', 'while it rains', 'on a rainy day', 'with rain falling'],
         'snow': ['with falling snow', 'while it snows', 'with snowflakes falling']},
    ZH: {'clouds': ['天上有云', '多云', '天空飘着白云'], 'rain': ['下雨', '正在下雨', '雨中'], 'snow': ['下雪', '正在下雪', '雪花飘落']},
}
_STARS = {EN: ['with stars', 'under a starry sky', 'with stars in the sky'], ZH: ['满天星星', '星空下', '天上有星星']}
_MOON = {EN: ['with a moon', 'under the moon', 'with the moon in the sky'], ZH: ['有月亮', '月光下', '天上有月亮']}
_SUN = {EN: ['with the sun', 'under the sun', 'with the sun in the sky'], ZH: ['有太阳', '阳光下', '天上有太阳']}
_POSITION = {
    EN: {'left': ['on the left', 'on the left side'], 'right': ['on the right', 'on the right side'], 'middle': ['in the middle', 'in the center']},
    ZH: {'left': ['在左边', '在左侧'], 'right': ['在右边', '在右侧'], 'middle': ['在中间', '在中央']},
}
_RELATION_EN = {'above': ['above', 'over'], 'below': ['below', 'under'], 'left of': ['to the left of', 'left of'],
                'right of': ['to the right of', 'right of'], 'inside': ['inside', 'in']}
_RELATION_ZH = {'above': '上面', 'below': '下面', 'left of': '左边', 'right of': '右边', 'inside': '里面'}
_SKY = {
    EN: {'day': ['in a blue sky', 'in the day sky'], 'sunset': ['in a sunset sky', 'in the sky at sunset'],
         'night': ['in a night sky', 'in the night sky']},
    ZH: {'day': ['蓝天上', '白天的天空中'], 'sunset': ['日落的天空中', '晚霞中'], 'night': ['夜空中', '夜晚的天空中']},
}
_PLAIN_EN = {'white': 'white', 'black': 'black', 'gray': 'gray', 'blue': 'light blue', 'yellow': 'light yellow',
             'green': 'light green', 'pink': 'light pink'}
_PLAIN_ZH = {'white': '白色', 'black': '黑色', 'gray': '灰色', 'blue': '浅蓝色', 'yellow': '浅黄色', 'green': '浅绿色', 'pink': '浅粉色'}
_OPENING = {
    EN: ['', '', '', '', 'a picture of ', 'an illustration of ', 'a drawing of ', 'a flat illustration of ', 'a painting of '],
    ZH: ['', '', '', '', '一幅画，', '插画，', '一张图，'],
}


def time_words(time, language):
    """Every wording of a time of day; tests use it to pick captions that say it."""
    return _TIME[language][time]


def color_word(color, language):
    """The part of a colour's name that every wording of it has."""
    return color if language == EN else COLORS[color][0][0]


def _name_en(thing, rng, color=True):
    kind, count = thing['kind'], thing['count']
    singular = 'hot-air balloon' if kind == 'balloon' else kind
    plural = (KINDS.get(kind) or SHAPES[kind])[0]
    if kind == 'balloon' and rng.random() < .3:
        singular, plural = 'balloon', 'balloons'
    words = (thing['color'] + ' ' if color else '') + (singular if count == 1 else plural)
    number = rng.choice(_COUNT_EN[count]) if count > 1 or rng.random() < .15 else 'a'
    if number == 'a' and words[0] in 'aeiou':
        number = 'an'
    return number + ' ' + words


def _name_zh(thing, rng, color=True):
    names = KINDS.get(thing['kind']) or SHAPES[thing['kind']]
    noun, measure = names[1], names[2]
    words = ''
    if color:
        words = COLORS[thing['color']][0]
        u = rng.random()
        if u < .55:
            words += '的'
        elif u < .7 and len(words) == 2 and len(noun) == 1:
            words = words[0]
    return _COUNT_ZH[thing['count']] + measure + words + noun


_NAME = {EN: _name_en, ZH: _name_zh}


def _related(scene, language, rng, inverted):
    """'a red cat left of a tree', '一棵树左边有一只红色的猫'."""
    first, second = scene['objects']
    if language == EN:
        return _name_en(first, rng) + ' ' + rng.choice(_RELATION_EN[scene['rel']]) + ' ' + _name_en(second, rng)
    a, b, where = _name_zh(first, rng), _name_zh(second, rng), _RELATION_ZH[scene['rel']]
    return f'{b}{where}有{a}' if rng.random() < inverted else f'{a}在{b}{where}'


def _shapes(scene, language, rng, inverted):
    objects = scene['objects']
    if scene['sky']:
        ground = rng.choice(_SKY[language][scene['bg']])
    elif language == EN:
        ground = f"on a {_PLAIN_EN[scene['bg']]} background"
    else:
        ground = rng.choice([f"{_PLAIN_ZH[scene['bg']]}背景上", f"{_PLAIN_ZH[scene['bg']]}背景"])
    place = ''
    if len(objects) == 2:
        main = _related(scene, language, rng, inverted)
    else:
        main = _NAME[language](objects[0], rng)
        if objects[0]['count'] == 1 and (objects[0]['pos'] != 'middle' or rng.random() < .3):
            place = rng.choice(_POSITION[language][objects[0]['pos']])
    u = rng.random()
    if language == EN:
        main = ' '.join(x for x in (main, place) if x)
        return rng.choice(_OPENING[EN]) + (main + ' ' + ground if u < .85 else main)
    if u < .15:
        return main + place
    return rng.choice(_OPENING[ZH]) + (f'{ground}，{main}{place}' if u < .55 else f'{main}{place}，{ground}')


def _surroundings(scene, language, rng):
    """Words for time, weather, and what is in the sky; '' where nothing is said."""
    say_time = scene['time'] != 'day' or rng.random() < .55
    clear = scene['weather'] == 'clear'
    wordings = [w for w in _TIME[language][scene['time']] if clear or not any(f in w for f in _FAIR_WORDS)]
    time = rng.choice(wordings) if say_time else ''
    weather = '' if clear else rng.choice(_WEATHER[language][scene['weather']])
    extras = []
    if scene['stars'] and rng.random() < .6:
        extras.append(rng.choice(_STARS[language]))
    if scene['sunmoon'] and rng.random() < .6:
        extras.append(rng.choice((_MOON if scene['time'] == 'night' else _SUN)[language]))
    return time, weather, extras


def _said(parts):
    return [p for p in parts if p]


def _view(scene, language, rng, time, weather, extras):
    ground = rng.choice(_VIEW[language][scene['ground']])
    parts = _said([ground, time, weather] + extras)
    if language == EN:
        return rng.choice(_OPENING[EN]) + ' '.join(parts)
    rng.shuffle(parts)
    return rng.choice(_OPENING[ZH]) + '，'.join(parts)


def _one_object(scene, language, rng, ground, time, weather, extras):
    thing = scene['objects'][0]
    main = _NAME[language](thing, rng, rng.random() > .06)
    place = ''
    if thing['count'] == 1 and (thing['pos'] != 'middle' and rng.random() < .85 or rng.random() < .3):
        place = rng.choice(_POSITION[language][thing['pos']])
    if language == EN:
        main = ' '.join(_said([main, place]))
        tail = _said([ground, time, weather] + extras)
        u = rng.random()
        if u < .6:
            return rng.choice(_OPENING[EN]) + ' '.join([main] + tail)
        if u < .8 and time:
            return time + ', ' + ' '.join([main] + _said([ground, weather] + extras))
        rng.shuffle(tail)
        return ', '.join([main] + tail)
    tail = _said([time, weather] + extras)
    body = (ground + rng.choice(['有', '']) if ground and rng.random() < .8 else '') + main + place
    if ground and not body.startswith(ground):
        body = body + '，' + ground
    if rng.random() < .5:
        return rng.choice(_OPENING[ZH]) + '，'.join([body] + tail)
    return rng.choice(_OPENING[ZH]) + '，'.join(tail + [body])


def _two_objects(scene, language, rng, vague, inverted, ground, time, weather, extras):
    if rng.random() >= vague:
        main = _related(scene, language, rng, inverted)
    else:
        first, second = (_NAME[language](x, rng) for x in scene['objects'])
        main = first + (' and ' if language == EN else '和') + second
    if language == EN:
        if rng.random() < .2 and time:
            return time + ', ' + ' '.join([main] + _said([ground, weather] + extras))
        return rng.choice(_OPENING[EN]) + ' '.join(_said([main, ground, time, weather] + extras))
    tail = _said([time, weather] + extras)
    body = (ground + '，' if ground else '') + main
    return rng.choice(_OPENING[ZH]) + '，'.join([body] + tail if rng.random() < .5 else tail + [body])


def caption(scene, language=EN, rng=None, vague=.12, inverted=.25):
    """One wording of the scene; without `rng` always the same one."""
    rng = rng or random.Random(scene['seed'] ^ (1 if language == EN else 2))
    if scene['type'] == 'shapes':
        return _shapes(scene, language, rng, inverted)
    around = _surroundings(scene, language, rng)
    if not scene['objects']:
        return _view(scene, language, rng, *around)
    ground = rng.choice(_GROUND[language][scene['ground']])
    if rng.random() < .1:
        ground = ''
    if len(scene['objects']) == 1:
        return _one_object(scene, language, rng, ground, *around)
    return _two_objects(scene, language, rng, vague, inverted, ground, *around)
