"""The figures of the report as HTML tables: the numbers are in the figure, for eyes and ears.

What belongs to heads is ``[[x per head] per layer]``; layers may have different numbers of heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairseq_collab.results.heads.palette import PALETTE, Scale, gradient
from fairseq_collab.results.markup import Markup, element, scroll
from fairseq_collab.results.page import NOTHING, Number, decimals, grid

ARROW = "\N{RIGHTWARDS ARROW}"
#: The kinds of roles that have a colour of their own: a role's first word.
KINDS = ("positional", "syntactic", "rare")
#: Attention weights are kept as whole thousandths and shown as per cent.
THOUSAND = 1000


def number(value: Number) -> str:
    """Three digits that count: 0.857, 12.3, 0.00123."""
    return NOTHING if value is None else f"{value:.3g}"


def numbers_of(layers: Iterable[Iterable[Number]]) -> list[float]:
    """All numbers that there are."""
    return [value for layer in layers for value in layer if value is not None]


def by_head(
    name: str, layers: Sequence[Sequence[Any]], cell: Callable[[int, int], Markup], kind: str
) -> Markup:
    """A ``results.page.grid`` with a row for each layer and a column for each head."""
    width = max((len(layer) for layer in layers), default=0)
    rows = (
        (str(i), [cell(i, head) for head in range(len(layer))]) for i, layer in enumerate(layers)
    )
    return grid(name, "layer \\ head", [str(head) for head in range(width)], rows, kind)


def heat_map(
    layers: Sequence[Sequence[Number]],
    scale: Scale,
    name: str,
    show: Callable[[Number], str] = number,
    texts: Sequence[Sequence[str]] | None = None,
) -> Markup:
    """Layer by head, in colours.

    Args:
        show: how numbers are written in cells; the whole number is in their titles
        texts: what is written in the cells instead
    """

    def cell(layer: int, head: int) -> Markup:
        value = layers[layer][head]
        if value is None:
            return element("td", NOTHING)
        text = show(value) if texts is None else texts[layer][head]
        title = f"layer {layer}, head {head}: {value}"
        return element("td", text, style=scale.style(value), title=title)

    return by_head(name, layers, cell, "heat")


def matrix(values: Sequence[Sequence[Number]], scale: Scale, name: str) -> Markup:
    """Head by head, ``(H, H)``, in colours."""

    def cell(one: int, other: int) -> Markup:
        value = values[one][other]
        if value is None:
            return element("td", NOTHING)
        title = f"heads {one} and {other}: {value}"
        return element("td", decimals(value), style=scale.style(value), title=title)

    heads = [str(head) for head in range(len(values))]
    rows = ((heads[i], [cell(i, j) for j in range(len(heads))]) for i in range(len(heads)))
    return grid(name, "head", heads, rows, "heat")


def role_map(layers: Sequence[Sequence[Sequence[str]]], name: str) -> Markup:
    """Layer by head: the names of a head's roles, each on the colour of its kind."""

    def cell(layer: int, head: int) -> Markup:
        roles = layers[layer][head]
        if not roles:
            return element("td", NOTHING, class_="none")
        return element("td", *map(role_label, roles))

    return by_head(name, layers, cell, "roles")


def role_label(role: str) -> Markup:
    """The name of a role on the colour of its kind."""
    kind = kind_of(role)
    return element("span", arrows(role), class_=f"role role-{kind}" if kind in KINDS else "role")


def kind_of(role: str) -> str:
    """``syntactic`` of ``syntactic nsubj dependent->head``."""
    return role.partition(" ")[0]


def arrows(text: str) -> str:
    """``dependent->head`` as people write it."""
    return text.replace("->", ARROW)


def attention_map(
    weights: Sequence[Sequence[int]], rows: Sequence[str], columns: Sequence[str], name: str
) -> Markup:
    """One head on one sentence, a row for each token that attends (``script.js`` draws the same).

    Args:
        weights: ``(T, S)``, in thousandths
        rows, columns: the tokens
    """

    def cell(weight: int, row: str, column: str) -> Markup:
        per_cent = (weight + 5) // 10
        background, letters = PALETTE[per_cent]
        return element(
            "td",
            str(per_cent) if per_cent else "",
            style=f"background:{background};color:{letters}",
            title=f"{row} {ARROW} {column}: {weight / THOUSAND:.3f}",
        )

    top = [element("th", element("span", token), scope="col") for token in columns]
    body = [
        element(
            "tr",
            element("th", token, scope="row"),
            *(cell(weight, token, column) for weight, column in zip(line, columns, strict=True)),
        )
        for token, line in zip(rows, weights, strict=True)
    ]
    whole = element(
        "table",
        element("caption", name),
        element("thead", element("tr", element("td"), *top)),
        element("tbody", *body),
        class_="attention",
    )
    return scroll(whole, name)


def legend(scale: Scale, show: Callable[[Number], str] = number) -> Markup:
    """The colours of a scale, from its lowest number to its highest."""
    low, high = show(scale.low), show(scale.high)
    label = f"Colours: dark is {low}, bright is {high}"
    bar = element("span", role="img", aria_label=label, style=gradient())
    return element("p", low, bar, high, class_="scale")


def figure(tables: Iterable[Markup], below: Markup, how: str) -> Markup:
    """Tables side by side, what is said of their colours, and how to read them."""
    side = element("div", *tables, class_="side")
    return element("figure", side, below, element("figcaption", how))
