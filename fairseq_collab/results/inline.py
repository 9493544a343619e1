"""Figures inside an HTML page: text stays text, colours follow the page's style, light or dark."""

from __future__ import annotations

import re
from io import StringIO

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SIZE = (5.0, 3.9)  # inches: 360 points wide, about the pixels of a phone
FONT = 11.5  # points
#: Colours to draw in; the page shows the variables of ``style.css`` in their place.
TEXT, FAINT, LINE, LINK = "#010101", "#020202", "#030303", "#050505"
_VARIABLES = {TEXT: "text", FAINT: "faint", LINE: "line", LINK: "link"}
_STYLE = re.compile(
    r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL
)  # would be of the whole page
_NAME = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_FONTS = re.compile(r"""'DejaVu Sans'[^;"]*""")


def axes_of(x: str, y: str) -> tuple[Figure, Axes]:
    """An empty figure, and its axes with their names."""
    figure = Figure(figsize=SIZE)
    axes = figure.add_axes((0.1, 0.15, 0.86, 0.77))
    axes.set_xlabel(x, color=TEXT, fontsize=FONT)
    axes.set_title(y, color=TEXT, fontsize=FONT, loc="left", x=-0.1)
    axes.tick_params(color=LINE, labelcolor=TEXT, labelsize=FONT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE)
    axes.grid(axis="y", color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.locator_params(nbins=5)
    return figure, axes


def inline(figure: Figure, identity: str, title: str) -> Markup:
    """The figure as an ``svg`` element.

    Args:
        figure: drawn in the colours of this module
        identity: unique in the page; all names inside the drawing start with it
        title: read out in place of the drawing, whose values belong in a table
    """
    file = StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": identity}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    inside = file.getvalue().partition("<svg")[2].partition(">")[2]
    inside = _FONTS.sub("system-ui, sans-serif", _STYLE.sub("", inside, count=1))
    inside = _NAME.sub(rf"\g<1>{identity}-", inside)
    for colour, variable in _VARIABLES.items():
        inside = inside.replace(colour, f"var(--{variable})")
    width, height = (72 * inches for inches in figure.get_size_inches())
    return Markup(
        f'<svg class="chart" role="img" aria-labelledby="{identity}-title" '
        f'viewBox="0 0 {width:g} {height:g}"><title id="{identity}-title">{escape(title)}</title>'
        f"{inside.strip()}"
    )
