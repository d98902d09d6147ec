"""Bars as SVG: one panel a measure, one bar an engine, each panel with a scale of its own."""
from xml.sax.saxutils import escape

WIDTH, NAMES, NUMBERS, BAR, GAP, HEAD = 760, 210, 80, 16, 5, 30
COLOURS = {"tern": "#d95f02", "OpenVINO": "#1f77b4", "PyTorch": "#7f7f7f", "stable-diffusion.cpp": "#9467bd"}
OTHER = "#2ca02c"


def colour(name):
    return next((c for start, c in COLOURS.items() if name.startswith(start)), OTHER)


def bars(title, panels):
    """panels: (title, unit, [(name, value)]). Returns the picture's text."""
    y, body = 34, [f'<text x="10" y="22" font-size="15">{escape(title)}</text>']
    for head, unit, rows in panels:
        body.append(f'<text x="10" y="{y + 18}" font-weight="bold">{escape(head)}</text>')
        y += HEAD
        most = max(value for _, value in rows) or 1
        for name, value in rows:
            width = value / most * (WIDTH - NAMES - NUMBERS)
            body += [f'<text x="{NAMES - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
                     f'<rect x="{NAMES}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour(name)}"/>',
                     f'<text x="{NAMES + width + 6:.1f}" y="{y + 12}">{value:.3g} {unit}</text>']
            y += BAR + GAP
        y += 8
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 10}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{WIDTH}" height="{y + 10}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")
