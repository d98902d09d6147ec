"""Every parameter of the checker, read from table.json, which the tests of tern read, too.

Lengths are pixels of a 256 x 256 picture, hues degrees, the rest 0..1.

  colors   colour class: hue from, to; saturation from, to; value from, to; after the tint of the time of day is taken out
  dark     the saturation of pixels below this value is measured as if they had it: what is almost black has little
  marks    other classes, for marks next to an object: wood (a trunk, a door) is warm and darker than any ground, a basket hangs
           in the sky and may be lighter
  tints    what a time of day multiplies red, green and blue with; plain: no landscape
  sky      time of day, from the median colour of the upper sky (rows from, to): luma below night_luma is night; a day
           sky has blue minus red above day_blue, and above day_low_blue near the horizon (low_rows)
  kinds    a thing of a landscape is a group of pixels of its colour
             reach    parts closer than this (x, y) belong together
             width, height  (least, largest) of the group
             aspect   width / height
             fill     share of the box that has the colour
             foot     the lower edge of the group
             marks    (class, x0, y0, x1, y1, share): a window relative to the group's box (0..1 inside) of which at least
                      this share must have the class; at most, where it is negative.  Class own: the thing's colour
  groups   reach_by_count: several things are smaller and nearer to each other; smaller groups than least_part are noise
  shape_colors  plain shapes have no shade and no ground behind them; a sunset sky has pinkish bands
  shapes   told apart by the hole in it (what is more than ring_gap away from the shape, so that a cut in a ring counts as closed;
           above ring_hole of both a ring), the fill of its box (holes filled; above square_fill a square, above circle_fill a
           circle), and how low its centre of mass is (a share of the height; above triangle_low a triangle, else a star)
  places   middle of the box: a single object is left, right, or else in the middle; apart: least distance along the axis
           of a relation; inside: most distance of two centres
"""
import json
import pathlib

_TABLE = json.loads(pathlib.Path(__file__).with_name('table.json').read_text(encoding='utf-8'))
COLORS, MARKS, TINTS, SHAPE_COLORS, KINDS = (_TABLE[k] for k in ('colors', 'marks', 'tints', 'shape_colors', 'kinds'))
SKY, DARK, GROUPS, SHAPES, PLACES = (_TABLE[k] for k in ('sky', 'dark', 'groups', 'shapes', 'places'))
