"""Sky, sun, moon, stars, clouds, ground, rain and snow of a landscape."""
from canvas import GLOOMY_TINT, SIDE, TINTS, circle_path, difference, jitter, mix, round_rect_path, union

# time: top and bottom of the gradient in fair weather, then under rain or snow
_SKY = {
    'day': ((96, 174, 236), (204, 232, 248), (138, 160, 184), (196, 210, 222)),
    'sunset': ((110, 84, 160), (255, 172, 96), (104, 84, 128), (226, 156, 116)),
    'night': ((14, 20, 56), (44, 58, 112), (24, 28, 52), (52, 60, 90)),
}
_CLOUD = {'day': (250, 252, 255), 'sunset': (250, 206, 190), 'night': (88, 98, 140)}
_RAIN_CLOUD = {'day': (150, 160, 174), 'sunset': (146, 116, 136), 'night': (66, 72, 100)}
_MOON = (250, 244, 208)


def sky(c, time, gloomy=False):
    """Fills the picture with the sky and sets the tint for what follows."""
    top, bottom = _SKY[time][2:] if gloomy else _SKY[time][:2]
    top, bottom = jitter(c.rng, top, 7), jitter(c.rng, bottom, 7)
    middle = mix(top, bottom, .5)
    if time == 'sunset':
        middle = jitter(c.rng, (176, 120, 128) if gloomy else (238, 120, 122), 7)
    c.gradient([top, middle, bottom], 190)
    c.tint = tuple(k * (GLOOMY_TINT if gloomy else 1) for k in TINTS[time])


def stars(c, n=None):
    for _ in range(n or c.rng.randint(14, 24)):
        c.circle(c.rng.uniform(4, 252), c.rng.uniform(4, 125), c.rng.choice([1.3, 1.7, 2.3]), (255, 250, 220), raw=True)


def sun_or_moon(c, time, x, horizon):
    if time == 'day':
        y, radius = c.rng.uniform(30, 52), c.rng.uniform(17, 23)
        c.circle(x, y, radius * 1.45, (255, 240, 170), alpha=.45, raw=True)
        c.circle(x, y, radius, (255, 220, 70), raw=True)
    elif time == 'sunset':
        y, radius = horizon - c.rng.uniform(2, 26), c.rng.uniform(24, 32)
        c.circle(x, y, radius * 1.35, (255, 220, 150), alpha=.4, raw=True)
        c.circle(x, y, radius, (255, 232, 150), raw=True)
    else:
        y, radius = c.rng.uniform(32, 54), c.rng.uniform(16, 22)
        disc = circle_path(x, y, radius)
        if c.rng.random() >= .5:
            disc = difference(disc, circle_path(x + radius * .5, y - radius * .22, radius * .86))
        c.path(disc, _MOON, raw=True)


def cloud(c, x, y, width, rgb):
    h = width * .3
    body = round_rect_path(x - width / 2, y - h * .45, x + width / 2, y + h * .4, h * .42)
    left = circle_path(x - width * c.rng.uniform(.12, .2), y - h * .4, width * c.rng.uniform(.17, .21))
    right = circle_path(x + width * c.rng.uniform(.1, .18), y - h * .35, width * c.rng.uniform(.13, .18))
    c.path(union(body, left, right), rgb, raw=True)


def clouds(c, time, gloomy, sun_x):
    """Two or three clouds, none in front of the sun at sun_x (or None)."""
    rgb = (_RAIN_CLOUD if gloomy else _CLOUD)[time]
    for k in range(c.rng.randint(2, 3)):
        x, y, width = 40 + k * 84 + c.rng.uniform(-22, 22), c.rng.uniform(26, 78), c.rng.uniform(62, 92)
        if sun_x is None or abs(x - sun_x) > 24 + width / 2:
            cloud(c, x, y, width, rgb)


def rain(c):
    for _ in range(c.rng.randint(34, 44)):
        x, y, length = c.rng.uniform(0, 266), c.rng.uniform(-6, 250), c.rng.uniform(10, 16)
        c.line(x, y, x - length * .35, y + length, (206, 224, 244), 2.0, alpha=.75, raw=True)


def snowfall(c):
    for _ in range(c.rng.randint(38, 50)):
        c.circle(c.rng.uniform(0, 256), c.rng.uniform(0, 256), c.rng.choice([2.2, 2.8, 3.4]), (255, 255, 255), alpha=.95, raw=True)


def _meadow(c, y, shade):
    c.ridge(y, 4, shade(122, 190, 92))
    c.ridge(y + c.rng.uniform(32, 46), 6, shade(98, 170, 76))


def _hills(c, y, shade):
    c.ridge(y - 22, c.rng.uniform(14, 22), shade(146, 198, 122), c.rng.uniform(110, 170))
    c.ridge(y + 8, c.rng.uniform(8, 13), shade(112, 178, 92), c.rng.uniform(130, 200))
    c.ridge(y + 42, 6, shade(88, 156, 72))


def _peak(c, x, foot, height, half_width, rgb):
    top = foot - height + 8
    c.polygon([(x - half_width, foot + 12), (x, top), (x + half_width, foot + 12)], rgb)
    part, h = c.rng.uniform(.24, .32), height + 4
    w = half_width * part
    c.polygon([(x, top), (x + w, top + h * part), (x + w * .4, top + h * part * .8), (x, top + h * part * 1.1),
               (x - w * .45, top + h * part * .78), (x - w, top + h * part)], (240, 244, 250))


def _mountains(c, y, shade):
    rock = shade(112, 124, 156)
    xs = sorted([c.rng.uniform(10, 90), c.rng.uniform(90, 170), c.rng.uniform(170, 246)])
    for k in [0, 2, 1] if c.rng.random() < .5 else [1, 0, 2]:
        height, half_width = c.rng.uniform(72, 104), c.rng.uniform(66, 90)
        _peak(c, xs[k], y, height, half_width, mix(rock, (80, 92, 130), c.rng.uniform(0, .5)))
    c.ridge(y + 4, 4, shade(112, 170, 98))
    c.ridge(y + 44, 5, shade(92, 150, 82))


def _sea(c, y, shade):
    c.rect(0, y, SIDE, SIDE, shade(72, 160, 196))
    c.ridge(y + c.rng.uniform(26, 34), 2.5, shade(58, 146, 184), c.rng.uniform(50, 80))
    c.ridge(y + c.rng.uniform(60, 70), 3, shade(46, 132, 172), c.rng.uniform(50, 80))


def _desert(c, y, shade):
    c.ridge(y - 6, c.rng.uniform(8, 14), shade(236, 200, 132), c.rng.uniform(150, 240))
    c.ridge(y + 24, c.rng.uniform(6, 10), shade(226, 184, 112), c.rng.uniform(150, 240))
    c.ridge(y + 58, 6, shade(212, 168, 98))


def _snow(c, y, shade):
    c.ridge(y - 4, c.rng.uniform(6, 11), shade(226, 236, 246), c.rng.uniform(150, 240))
    c.ridge(y + 28, 6, shade(240, 246, 252))
    c.ridge(y + 60, 5, shade(228, 238, 248))


_GROUND = {'meadow': _meadow, 'hills': _hills, 'mountains': _mountains, 'sea': _sea, 'desert': _desert, 'snow': _snow}


def ground(c, kind, horizon):
    _GROUND[kind](c, horizon, lambda *rgb: jitter(c.rng, rgb, 8))
