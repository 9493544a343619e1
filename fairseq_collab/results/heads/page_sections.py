"""The sections of the report: each is made from its part of ``heads.json``, or is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fairseq_collab.results.figure_style import SITE_NAMES
from fairseq_collab.results.heads import page_text
from fairseq_collab.results.heads.page_parts import (
    KINDS,
    arrows,
    figure,
    heat_map,
    kind_of,
    legend,
    matrix,
    number,
    numbers_of,
    role_label,
    role_map,
)
from fairseq_collab.results.heads.palette import Scale, scale_of
from fairseq_collab.results.markup import Markup, element, join
from fairseq_collab.results.page import NOTHING, Number, decimals, grid

Content = Mapping[str, Any]
SHARES = Scale(0.0, 1.0)


def sites_in(part: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a part of ``heads.json`` has of each site, in their order; nothing for null."""
    return {site: part[site] for site in SITE_NAMES if part and part.get(site)}


def roles(content: Content) -> Markup | None:
    """Which head has which roles, and how many have one."""
    found = sites_in(content.get("roles"))
    if not found:
        return None
    heads = [names for layers in found.values() for layer in layers for names in layer]
    kinds = Counter(kind for names in heads for kind in {kind_of(name) for name in names})
    order = [*KINDS, *sorted(kinds.keys() - set(KINDS))]
    items = [element("li", role_label(kind), f" {kinds[kind]}") for kind in order]
    items.append(element("li", element("span", "no role", class_="role"), f" {heads.count([])}"))
    counts = f"{len(heads) - heads.count([])} of {len(heads)} heads have a role."
    without = [SITE_NAMES[site] for site in found if site not in with_roles(found)]
    if without:
        counts += f" None in {', '.join(without)}."
    maps = [role_map(layers, SITE_NAMES[site]) for site, layers in with_roles(found).items()]
    return element("p", counts) + figure(
        maps, element("ul", *items, class_="legend"), page_text.ROLES
    )


def with_roles(found: Mapping[str, Any]) -> dict[str, Any]:
    """The sites where a head has a role."""
    return {site: layers for site, layers in found.items() if any(any(layer) for layer in layers)}


def measured(content: Content) -> Iterator[tuple[str, page_text.About, dict[str, Any]]]:
    """Name, description and numbers of each measure that there is, by site."""
    measures = content.get("measures") or {}
    for name in [*page_text.MEASURES, *sorted(measures.keys() - page_text.MEASURES.keys())]:
        about = page_text.MEASURES.get(name) or page_text.About(
            name.replace("_", " "), "", small=True
        )
        found = {
            site: layers for site, layers in sites_in(measures.get(name)).items()
            if numbers_of(layers)
        }  # fmt: skip
        if found:
            yield name, about, found


def measures(content: Content) -> Markup | None:
    """A heat map of each measure and site."""
    parts = []
    for name, about, found in measured(content):
        scale = scale_of(
            [n for layers in found.values() for n in numbers_of(layers)], about.bounded
        )
        show = number if about.small else decimals
        maps = [heat_map(layers, scale, SITE_NAMES[site], show) for site, layers in found.items()]
        how = about.text + _counted(content, name)
        parts += [element("h3", about.title), figure(maps, legend(scale, show), how)]
    return join(parts) if parts else None


def _counted(content: Content, name: str) -> str:
    """What the score of rare tokens counts."""
    key = {"rare": "chance", "rare_of_two": "chance_of_two"}.get(name)
    found = content.get("rare")
    return page_text.about_rare(found["sentences"], found[key]) if key and found else ""


def offsets(content: Content) -> Markup | None:
    """Where the largest weights lie: the best relative position, and the shares of all."""
    found = content.get("offsets")
    if found is None or not sites_in(found):
        return None
    names = [signed(offset) for offset in found["offsets"]]
    maps, shares = [], []
    for site, layers in sites_in(found).items():
        best = [[_best_share(head) for head in layer] for layer in layers]
        texts = [[NOTHING if share is None else names[head.index(share)]
                  for head, share in zip(*pair, strict=True)]
                 for pair in zip(layers, best, strict=True)]  # fmt: skip
        maps.append(heat_map(best, SHARES, f"{SITE_NAMES[site]}: best position", texts=texts))
        shares.append(_shares(layers, names, SITE_NAMES[site]))
    return figure(maps, legend(SHARES, decimals), page_text.OFFSETS) + join(shares)


def _best_share(shares: Sequence[Number] | None) -> Number:
    return max(numbers_of([shares or []]), default=None)


def _shares(layers: Sequence[Sequence[Any]], names: Sequence[str], site: str) -> Markup:
    rows = [
        (f"{i}.{j}", _cells(map(decimals, shares or [None] * len(names))))
        for i, layer in enumerate(layers)
        for j, shares in enumerate(layer)
    ]
    title = f"Shares of all positions, {site}"
    whole = grid(title, "layer.head", names, rows, "plain")
    return element("details", element("summary", title), whole)


def _cells(texts: Iterable[str]) -> list[Markup]:
    return [element("td", text) for text in texts]


def signed(offset: int) -> str:
    """-1, 0, +1."""
    return f"{offset:+d}" if offset else "0"


def syntax(content: Content) -> Markup | None:
    """The best head of each relation and direction, beside the best fixed position."""
    found = content.get("syntax")
    if not found or not found.get("relations"):
        return None
    rows, maps = [], []
    for relation, directions in found["relations"].items():
        for direction, result in directions.items():
            name = f"{relation} {arrows(direction)}"
            rows.append((name, _cells(_best(content, relation, direction, result))))
            maps += [
                heat_map(layers, SHARES, name, decimals)
                for layers in sites_in(result).values()
                if numbers_of(layers)
            ]
    head = [
        "pairs",
        "best layer.head",
        "accuracy",
        "baseline",
        "at position",
        "above it by",
        "role",
    ]
    whole = grid("Relations", "relation", head, rows, "plain")
    every = element("summary", "Accuracy of every head")
    side = element("div", *maps, class_="side")
    return join(
        [
            element(
                "p", f"{found['sentences']:,} sentences of {found['trees']}{_left_out(found)}."
            ),
            element("figure", whole, element("figcaption", page_text.SYNTAX)),
            element("details", every, side, legend(SHARES, decimals)) if maps else Markup(),
        ]
    )


def _left_out(found: Mapping[str, Any]) -> str:
    """What of the trees the scores do not count."""
    too_long, within = found.get("too_long"), found.get("pairs_within_a_unit")
    parts = [f"; {too_long:,} more are too long" if too_long else ""]
    parts.append(f"; {within:,} pairs lie within one subword" if within else "")
    return "".join(parts)


def best_head(result: Mapping[str, Any]) -> tuple[float, str, int, int] | None:
    """Accuracy, site, layer and head of the head that finds a relation most often."""
    heads = [
        (accuracy, site, i, j)
        for site, layers in sites_in(result).items()
        for i, layer in enumerate(layers)
        for j, accuracy in enumerate(layer)
        if accuracy is not None
    ]
    return max(heads, key=lambda head: head[0], default=None)


def _best(content: Content, relation: str, direction: str, result: Mapping[str, Any]) -> list[str]:
    pairs, baseline = f"{result['pairs']:,}", result.get("baseline")
    best = best_head(result)
    if best is None or baseline is None:
        return [pairs, *[NOTHING] * 6]
    accuracy, site, layer, head = best
    base = baseline["accuracy"]
    role = f"syntactic {relation} {direction}" in content["roles"][site][layer][head]
    return [
        pairs, f"{layer}.{head}", decimals(accuracy), decimals(base), signed(baseline["offset"]),
        f"{(accuracy - base) / base:+.0%}" if base else NOTHING, "yes" if role else "no",
    ]  # fmt: skip


def similarity(content: Content) -> Markup | None:
    """How alike the heads of a layer are, pair by pair."""
    parts: list[Markup] = []
    for kind, found in (content.get("similarity") or {}).items():
        by_site = sites_in(found)
        if not by_site:
            continue
        title, how = page_text.SIMILARITY.get(kind, (kind.replace("_", " "), ""))
        layers = [layer for site in by_site.values() for layer in site]
        scale = scale_of([n for layer in layers for n in numbers_of(layer)], bounded=False)
        parts += [element("h3", title), element("p", how, class_="how"), legend(scale, number)]
        for i, (site, matrices) in enumerate(by_site.items()):
            maps = [
                matrix(values, scale, f"layer {layer}") for layer, values in enumerate(matrices)
            ]
            side = element("div", *maps, class_="side")
            parts.append(element("details", element("summary", SITE_NAMES[site]), side, open=not i))
    return join(parts) if parts else None
