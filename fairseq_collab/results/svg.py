"""Matplotlib figures inside a page: text stays text, colours are those of its style sheet."""

from __future__ import annotations

import re
from io import StringIO

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure

#: Draw in these; the page shows the variables of ``style.css`` in their place, light or dark.
TEXT, FAINT, LINE, BAND, LINK = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {TEXT: "text", FAINT: "faint", LINE: "line", BAND: "band", LINK: "link"}
_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)  # of the whole page
_NAME = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_FONTS = re.compile(r"""'DejaVu Sans'[^;"]*""")


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
