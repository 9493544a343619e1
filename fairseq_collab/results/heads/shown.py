"""What of ``heads.json`` is shown, in which order and in which colours, on the page and in figures.

What belongs to heads is ``[[x per head] per layer]``; layers may have different numbers of heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Normalize, to_hex

from fairseq_collab.results.figure_style import SITE_NAMES

Content = Mapping[str, Any]
#: A number, or none where a measure does not apply.
Number = float | None
EOS = "</s>"
#: The kinds of roles that have a colour of their own: a role's first word.
KINDS = ("positional", "syntactic", "rare")
#: Even in lightness, and told apart by readers with any colour vision.
COLOURS = "viridis"
SHADES = 101
#: The first shade that black letters are read on more easily than white ones.
BRIGHT = 44
#: Background and letters of every shade, from the lowest to the highest.
PALETTE = [
    (to_hex(colormaps[COLOURS](i / (SHADES - 1))), "#000000" if i >= BRIGHT else "#ffffff")
    for i in range(SHADES)
]
#: How numbers are written: two decimals, or three digits that count where two may be all 0.
DECIMALS, DIGITS = ".2f", ".3g"


class About(NamedTuple):
    """A measure: its name for people; what is said of it is in ``heads.html.j2``."""

    title: str
    bounded: bool = False  # between 0 and 1
    spec: str = DECIMALS


MEASURES = {
    "confidence": About("Confidence", bounded=True),
    "positional": About("Positional score", bounded=True),
    "rare": About("Rare-token score", bounded=True),
    "rare_of_two": About("Rare-token score, one of the two rarest", bounded=True),
    "entropy": About("Entropy"),
    "relevance": About("Relevance"),
    "relevance_ours": About("Relevance, our rule"),
    "relevance_released": About("Relevance, the released code's rule", bounded=True),
    "loss_increase": About("Loss without the head", spec=DIGITS),
    "importance_token_normalised": About(
        "Gradient importance, per token, normalised", bounded=True
    ),
    "importance_token": About("Gradient importance, per token", spec=DIGITS),
    "importance_sample": About("Gradient importance, per sentence", spec=DIGITS),
}
#: Of shares.
WHOLE = Normalize(0, 1, clip=True)


def scale_of(nested: Any, bounded: bool = False) -> Normalize:
    """From 0 (or below, where numbers are) to 1 if ``bounded``, else to the highest number."""
    finite = [number for number in numbers_of(nested) if np.isfinite(number)]
    low, high = min(finite, default=0.0), 1.0 if bounded else max(finite, default=1.0)
    return Normalize(min(low, 0.0), high, clip=True)


def shade(scale: Normalize, value: float) -> int:
    """Which shade of the palette; numbers beyond the scale have its ends."""
    return round(float(scale(value)) * (SHADES - 1))


def signed(offset: int) -> str:
    """-1, 0, +1."""
    return f"{offset:+d}" if offset else "0"


def arrows(text: str) -> str:
    """``dependent->head`` as people write it."""
    return text.replace("->", "\N{RIGHTWARDS ARROW}")


def kind_of(role: str) -> str:
    """``syntactic`` of ``syntactic nsubj dependent->head``."""
    return role.partition(" ")[0]


def numbers_of(nested: Any) -> list[float]:
    """All numbers that there are in nested lists, or in what sites have."""
    if isinstance(nested, Mapping):
        nested = list(nested.values())
    if isinstance(nested, list):
        return [number for part in nested for number in numbers_of(part)]
    return [] if nested is None else [nested]


def sites_in(part: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a part of ``heads.json`` has of each site, in their order; nothing for null."""
    return {site: part[site] for site in SITE_NAMES if part and part.get(site)}


def with_roles(found: Mapping[str, Any]) -> dict[str, Any]:
    """The sites where a head has a role."""
    return {site: layers for site, layers in found.items() if any(any(layer) for layer in layers)}


def role_counts(found: Mapping[str, Any]) -> dict[str, int]:
    """How many heads have each kind of role; ``""`` for none."""
    heads = [names for layers in found.values() for layer in layers for names in layer]
    counts = Counter(kind for names in heads for kind in {kind_of(name) for name in names} or {""})
    return {kind: counts[kind] for kind in [*KINDS, *sorted(counts.keys() - {*KINDS, ""}), ""]}


def measured(content: Content) -> Iterator[tuple[str, About, dict[str, Any]]]:
    """Name, description and numbers of each measure that there is, by site."""
    measures = content.get("measures") or {}
    for name in [*MEASURES, *sorted(measures.keys() - MEASURES.keys())]:
        sites = sites_in(measures.get(name))
        found = {site: layers for site, layers in sites.items() if numbers_of(layers)}
        if found:
            yield name, MEASURES.get(name, About(name.replace("_", " "), spec=DIGITS)), found


def best_head(result: Content) -> tuple[float, str, int, int] | None:
    """Accuracy, site, layer and head of the head that finds a relation most often."""
    heads = [
        (accuracy, site, i, j)
        for site, layers in sites_in(result).items()
        for i, layer in enumerate(layers)
        for j, accuracy in enumerate(layer)
        if accuracy is not None
    ]
    return max(heads, key=lambda head: head[0], default=None)


def labels(example: Content, site: str) -> tuple[list[str], list[str]]:
    """The tokens that attend, and those that are attended to.

    The decoder's self-attention reads the reference, shifted right: the end of sentence first; a
    language model reads the source.
    """
    source, target = example["source"], example["target"]
    read = [EOS, *target[:-1]] if "encoder" in example["weights"] else source
    return {"encoder": (source, source), "decoder": (read, read), "cross": (target, source)}[site]


def confident(
    layers: Sequence[Sequence[Any]], rows: Sequence[str], columns: Sequence[str]
) -> tuple[int, int]:
    """Layer and head whose largest weights are largest on average, ends of sentences left out."""
    queries = [t for t, token in enumerate(rows) if token != EOS]
    keys = [s for s, token in enumerate(columns) if token != EOS]

    def confidence(place: tuple[int, int]) -> float:
        weights = layers[place[0]][place[1]]
        return sum(max((weights[t][s] for s in keys), default=0.0) for t in queries)

    places = ((i, j) for i, layer in enumerate(layers) for j in range(len(layer)))
    return max(places, key=confidence)
