"""What all figures share: colours, marks, the names of the attention types, and their files."""

from __future__ import annotations

import io

from matplotlib import rc_context
from matplotlib.figure import Figure

#: Okabe and Ito's colours, told apart by readers with any colour vision.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY_BLUE, BLACK = "#E69F00", "#56B4E9", "#000000"
#: One after the other for the curves of a figure, with marks that differ besides.
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY_BLUE, BLACK)
SHAPES = ("o", "s", "^", "D", "v", "P", "X")
TYPE_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
#: Left out of files, which then depend on what is drawn alone: the software's name, the date.
_METADATA = {"png": ["Software"], "svg": ["Creator", "Date", "Format", "Type"]}


def saved(figure: Figure, form: str, dots_per_inch: int = 200) -> bytes:
    """The file of a figure: "png" or "svg"."""
    content = io.BytesIO()
    metadata = dict.fromkeys(_METADATA[form])
    # The salt makes the identifiers in an SVG, random by default, the same every time.
    with rc_context({"svg.hashsalt": "fairseq-collab", "svg.fonttype": "none"}):
        figure.savefig(content, format=form, dpi=dots_per_inch, metadata=metadata)
    return content.getvalue()
