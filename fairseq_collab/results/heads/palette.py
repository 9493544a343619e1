"""Colours of numbers: a scale that looks even, with letters that can be read on every shade."""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

#: Even in lightness, and told apart by readers with any colour vision.
NAME = "viridis"
SHADES = 101


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, 1 to 21 (WCAG 2.2)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def letters_on(background: str) -> str:
    """Black or white, whichever is read more easily; contrast at least 4.5."""
    return max(("#000000", "#ffffff"), key=lambda letters: contrast(letters, background))


#: Background and letters of every shade, from the lowest to the highest.
PALETTE = [
    (shade, letters_on(shade))
    for shade in (to_hex(colormaps[NAME](i / (SHADES - 1))) for i in range(SHADES))
]


@dataclass(frozen=True)
class Scale:
    """Numbers from ``low`` to ``high`` on the palette; those beyond have its ends."""

    low: float
    high: float

    def style(self, value: float) -> str:
        """CSS of a cell."""
        background, letters = PALETTE[self.shade(value)]
        return f"background:{background};color:{letters}"

    def shade(self, value: float) -> int:
        """Which shade of the palette."""
        if self.high <= self.low:
            return 0
        part = (value - self.low) / (self.high - self.low)
        return round(min(max(part, 0.0), 1.0) * (SHADES - 1))


def scale_of(numbers: list[float], bounded: bool) -> Scale:
    """From 0 (or below, where numbers are) to 1 if ``bounded``, else to the highest number."""
    finite = [number for number in numbers if math.isfinite(number)]
    low = min(finite, default=0.0)
    return Scale(min(low, 0.0), 1.0 if bounded else max(finite, default=1.0))


def gradient() -> str:
    """The palette as CSS, low numbers on the left."""
    stops = ",".join(PALETTE[i][0] for i in range(0, SHADES, (SHADES - 1) // 10))
    return f"background:linear-gradient(to right,{stops})"
