"""Attention maps of single sentences: a few that need no script, and the data of all of them.

The maps that stand in the page are those of the heads that are most confident in the sentence, one
of each site; ``script.js`` draws any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_collab.results.figure_style import SITE_NAMES
from fairseq_collab.results.heads import page_text
from fairseq_collab.results.heads.page_parts import ARROW, THOUSAND, attention_map
from fairseq_collab.results.heads.page_sections import Content, sites_in
from fairseq_collab.results.heads.palette import PALETTE
from fairseq_collab.results.markup import Markup, element, join

EOS = "</s>"


def labels(example: Mapping[str, Any], site: str) -> tuple[list[str], list[str]]:
    """The tokens that attend, and those that are attended to.

    The decoder's self-attention reads the reference, shifted right: the end of sentence first.
    """
    source, target = example["source"], example["target"]
    read = [EOS, *target[:-1]]
    return {"encoder": (source, source), "decoder": (read, read), "cross": (target, source)}[site]


def thousandths(weights: Sequence[Sequence[float]]) -> list[list[int]]:
    """Weights ``(T, S)`` as whole thousandths."""
    return [[round(weight * THOUSAND) for weight in row] for row in weights]


def confident(
    layers: Sequence[Sequence[Any]], rows: Sequence[str], columns: Sequence[str]
) -> tuple[int, int]:
    """Layer and head whose largest weights are largest, on average, the end of sentence left out.

    Args:
        rows, columns: the tokens, see :func:`labels`
    """
    queries = [t for t, token in enumerate(rows) if token != EOS]
    keys = [s for s, token in enumerate(columns) if token != EOS]

    def confidence(place: tuple[int, int]) -> float:
        weights = layers[place[0]][place[1]]
        return sum(max((weights[t][s] for s in keys), default=0.0) for t in queries)

    return max(
        ((i, j) for i, layer in enumerate(layers) for j in range(len(layer))), key=confidence
    )


def names(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The sentences' lines in their data set, from 1; else their places."""
    return [str(example.get("line", place)) for place, example in enumerate(found, start=1)]


def examples(content: Content) -> Markup | None:
    """The section of attention maps."""
    found = content.get("examples")
    if not found:
        return None
    parts = [element("p", page_text.EXAMPLES, class_="how"), _chooser(found)]
    for name, example in zip(names(found), found, strict=True):
        parts += [
            element("h3", f"Sentence {name}"),
            element("p", f"{' '.join(example['source'])} {ARROW} {' '.join(example['target'])}",
                    class_="sentence"),
            element("div", *_confident_maps(example), class_="side"),
        ]  # fmt: skip
    # In JSON a "<" occurs in strings alone, where it may as well be written as a number: so no
    # token can end the script.
    data = json.dumps(_data(found), ensure_ascii=False, separators=(",", ":"))
    text = Markup(data.replace("<", "\\u003c"))
    parts.append(element("script", text, type="application/json", id="attention-data"))
    return join(parts)


def _confident_maps(example: Mapping[str, Any]) -> list[Markup]:
    maps = []
    for site, layers in sites_in(example["weights"]).items():
        rows, columns = labels(example, site)
        layer, head = confident(layers, rows, columns)
        name = f"{SITE_NAMES[site]}, layer {layer}, head {head}"
        maps.append(attention_map(thousandths(layers[layer][head]), rows, columns, name))
    return maps


def _data(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "sites": SITE_NAMES,
        "palette": PALETTE,
        "examples": [
            {
                "labels": {site: labels(example, site) for site in sites_in(example["weights"])},
                "weights": {
                    site: [[thousandths(head) for head in layer] for layer in layers]
                    for site, layers in sites_in(example["weights"]).items()
                },
            }
            for example in found
        ],
    }


def _chooser(found: Sequence[Mapping[str, Any]]) -> Markup:
    """Fields that ``script.js`` shows, of which it fills the last two."""
    options: dict[str, dict[str, str]] = {
        "sentence": {str(i): name for i, name in enumerate(names(found))},
        "site": {site: SITE_NAMES[site] for site in sites_in(found[0]["weights"])},
        "layer": {},
        "head": {},
    }
    fields = [
        element("label", name, element("select", *_options(values), name=name))
        for name, values in options.items()
    ]
    form = element("form", *fields, class_="chooser", id="chooser", hidden=True)
    place = element(
        "div", class_="scroll", id="chosen", role="region", tabindex="0", hidden=True,
        aria_live="polite",
    )  # fmt: skip
    return form + place


def _options(values: Mapping[str, str]) -> list[Markup]:
    return [element("option", text, value=value) for value, text in values.items()]
