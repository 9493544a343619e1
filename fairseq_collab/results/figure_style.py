"""What all figures share: colours, marks, and the names of the attention sites."""

from __future__ import annotations

#: Okabe and Ito's colours, told apart by readers with any colour vision.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY_BLUE, BLACK = "#E69F00", "#56B4E9", "#000000"
#: One after the other for the curves of a figure, with marks that differ besides.
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY_BLUE, BLACK)
SHAPES = ("o", "s", "^", "D", "v", "P", "X")
SITE_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
