"""Every parameter of the checker.  Lengths are pixels of a 256 x 256 picture, hues degrees, the rest 0..1."""

# Colour class: hue from, to; saturation from, to; value from, to.  After the tint of the time of day is taken out.
COLORS = {
    'red': (344, 15, .58, 1, .42, 1), 'orange': (15, 38, .68, 1, .62, 1), 'yellow': (40, 62, .60, 1, .66, 1),
    'green': (126, 172, .50, 1, .28, .80), 'blue': (212, 246, .58, 1, .56, 1), 'purple': (258, 300, .50, 1, .42, 1),
    'pink': (306, 346, .42, .74, .72, 1), 'white': (0, 360, 0, .10, .85, 1), 'black': (0, 360, 0, .50, 0, .28),
    'gray': (0, 360, 0, .18, .40, .74),
}
# Other classes, for marks next to an object.
MARKS = {
    'brown': (4, 44, .28, .70, .22, .66),
    'pale': (0, 360, 0, .22, .72, 1),
    'beak': (20, 50, .60, 1, .60, 1),
}
TINTS = {'day': (1, 1, 1), 'sunset': (1, .92, .88), 'night': (.74, .76, .90), None: (1, 1, 1)}

# Time of day, from the median colour of the upper sky (rows 0..SKY_ROWS).
SKY_ROWS, LOW_SKY_ROWS = 110, (100, 135)
NIGHT_LUMA = 88  # darker than this: night
DAY_BLUE, DAY_LOW_BLUE = 6, -25  # blue minus red of a day sky: above, and near the horizon

# A thing of a landscape is a group of pixels of its colour.
#   reach    parts closer than this (x, y) belong together
#   size     (least, largest) width and height of the group
#   aspect   width / height
#   fill     share of the box that has the colour
#   foot     the lower edge of the group
#   marks    (class, x0, y0, x1, y1, share): a window relative to the group's box (0..1 inside) of which at
#            least this share must have the class; at most, where it is negative.  Class 'own': the thing's colour
KINDS = {
    'house': dict(reach=(6, 6), width=(34, 116), height=(20, 110), aspect=(.85, 2.7), fill=(.42, .95), foot=(176, 250),
                  marks=[('brown', .36, .5, .64, 1.0, .25)]),
    'tree': dict(reach=(4, 6), width=(30, 112), height=(30, 124), aspect=(.50, 1.6), fill=(.35, .92), foot=(120, 256),
                 marks=[('brown', .42, 1.0, .58, 1.15, .35)]),
    'flower': dict(reach=(4, 4), width=(24, 90), height=(24, 90), aspect=(.75, 1.33), fill=(.45, .80), foot=(130, 230),
                   marks=[('own', .42, .42, .58, .58, -.50)]),
    'cat': dict(reach=(6, 6), width=(36, 116), height=(52, 136), aspect=(.50, 1.15), fill=(.42, .74), foot=(200, 250),
                marks=[('brown', .36, .7, .64, 1.0, -.15)]),
    'boat': dict(reach=(4, 4), width=(50, 140), height=(12, 46), aspect=(1.9, 5.5), fill=(.60, 1), foot=(180, 250),
                 marks=[('pale', .1, -2.6, .9, -.2, .10)]),
    'lighthouse': dict(reach=(3, 30), width=(16, 70), height=(70, 190), aspect=(.1, .62), fill=(.2, .85), foot=(150, 240),
                       marks=[('pale', .3, .2, .7, 1.0, .22)]),
    'balloon': dict(reach=(32, 4), width=(38, 110), height=(38, 120), aspect=(.62, 1.3), fill=(.35, .95), foot=(60, 160),
                    marks=[('brown', .25, 1.0, .75, 1.40, .12)]),
    'bird': dict(reach=(6, 6), width=(46, 136), height=(22, 96), aspect=(1.0, 3.2), fill=(.28, .72), foot=(40, 150),
                 marks=[('beak', -.25, -.1, 1.25, 1.0, .006)]),
}
REACH_BY_COUNT = {1: 1, 2: .82, 3: .64}  # several things are smaller and nearer to each other
LEAST_PART = 40  # smaller groups of pixels are noise

# Plain shapes have no shade, and a sunset sky has pinkish bands behind them.
SHAPE_COLORS = {'pink': (306, 346, .42, .74, .86, 1)}

# A plain shape: by the hole in it, the fill of its box (holes filled), and how low its centre of mass is.
SHAPE_REACH = (2, 2)
SHAPE_SIZE = (36, 220)
RING_HOLE = .24
SQUARE_FILL, CIRCLE_FILL = .90, .68  # above: square; above: circle; below: triangle or star
TRIANGLE_LOW = .585  # centre of mass of a triangle, as a share of the height

# Places: middle of the box.
LEFT_OF, RIGHT_OF = 104, 152  # single object: left of the first, right of the second, else in the middle
APART = 16  # least distance along the axis of a relation
INSIDE = 40  # most distance of two centres
