"""What ``fairseq-collab heads`` writes beside ``heads.json``, and what it prints.

report.html     all that ``heads.json`` holds, for people (``templates/heads.html.j2``)
heads_*.png     figures of it, for a page of results
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2.utils import htmlsafe_json_dumps

from collab_common.files import write_contents
from fairseq_collab.results.figure_style import SITE_NAMES
from fairseq_collab.results.heads import figures, shown
from fairseq_collab.results.heads.shown import DECIMALS, Content, Number, sites_in
from fairseq_collab.results.html import render
from fairseq_collab.results.tables import EN_DASH, mean, num

NAME = "report.html"


def write(content: Content, out: Path) -> None:
    """Write the page and the figures of ``heads.json``, each file whole or not at all."""
    write_contents(out, {NAME: report(content), **figures.draw(content)})


def report(content: Content) -> str:
    """The whole page; the same content gives the same page."""
    similarity = (content.get("similarity") or {}).items()
    return render(
        "heads.html.j2",
        title=f"What the heads of {content['checkpoint']} do",
        site_names=SITE_NAMES,
        content=content,
        shown=shown,
        roles=sites_in(content.get("roles")),
        measures=list(shown.measured(content)),
        positional=list(_positional(content)),
        positions=_positions(content.get("offsets") or {}),
        syntax=list(_relations(content)),
        similarity={kind: found for kind, part in similarity if (found := sites_in(part))},
        attention=_attention(content.get("examples") or []),
    )


def _positional(content: Content) -> Iterator[tuple[str, str, Number, Number]]:
    """Of each positional head its name, the role, the share of its position, and confidence."""
    measures = content.get("measures") or {}
    of_sites = [sites_in(measures.get(name)) for name in ("positional", "confidence")]
    for site, layers in sites_in(content.get("roles")).items():
        for layer, heads in enumerate(layers):
            for head, roles in enumerate(heads):
                for role in roles:
                    if shown.kind_of(role) == "positional":
                        share, sure = (
                            one[site][layer][head] if site in one else None for one in of_sites
                        )
                        yield f"{SITE_NAMES[site]}, {layer}.{head}", role, share, sure


def _positions(offsets: Content) -> dict[str, Any] | None:
    """The share of the best relative position of each head, and which it is."""
    sites = sites_in(offsets)
    if not sites:
        return None
    names = [shown.signed(offset) for offset in offsets["offsets"]]

    def best(shares: Sequence[Number] | None) -> tuple[Number, str]:
        most = max(shown.numbers_of(shares), default=None)
        return most, EN_DASH if shares is None or most is None else names[shares.index(most)]

    found = {site: [list(map(best, layer)) for layer in sites[site]] for site in sites}
    return {"names": names, "best": found, "shares": sites}


def _relations(content: Content) -> Iterator[dict[str, Any]]:
    """Of each relation and direction: its name, pairs, best head, baseline, and all heads."""
    for relation, directions in ((content.get("syntax") or {}).get("relations") or {}).items():
        for direction, result in directions.items():
            best, role = shown.best_head(result), f"syntactic {relation} {direction}"
            yield {
                "name": f"{relation} {shown.arrows(direction)}",
                "pairs": result["pairs"],
                "best": best,
                "baseline": result.get("baseline"),
                "role": best and role in content["roles"][best[1]][best[2]][best[3]],
                "heads": result.get("encoder") or [],
            }


def _attention(examples: Sequence[Content]) -> dict[str, Any] | None:
    """Maps of the heads that are most confident, and the data of all for ``script.js``."""
    if not examples:
        return None
    found, data = [], []
    for place, example in enumerate(examples, start=1):
        sites = sites_in(example["weights"])
        tokens = {site: shown.labels(example, site) for site in sites}
        weights = {site: _thousandths(layers) for site, layers in sites.items()}
        maps = []
        for site, layers in sites.items():
            layer, head = shown.confident(layers, *tokens[site])
            name = f"{SITE_NAMES[site]}, layer {layer}, head {head}"
            maps.append((name, weights[site][layer][head], *tokens[site]))
        found.append({**example, "name": str(example.get("line", place)), "maps": maps})
        data.append({"labels": tokens, "weights": weights})
    # No token can end the script: "<" is written as a number.
    both = {"sites": SITE_NAMES, "examples": data}
    return {
        "examples": found,
        "sites": sites_in(examples[0]["weights"]),
        "data": htmlsafe_json_dumps(both, ensure_ascii=False, separators=(",", ":")),
    }


def _thousandths(weights: Any) -> Any:
    """Nested lists of weights as whole thousandths."""
    return [*map(_thousandths, weights)] if isinstance(weights, list) else round(weights * 1000)


def summary(found: Content) -> str:
    """A line a layer, with the means of its heads and their roles; and a line a relation."""
    form = "{:8} {:>5} {:>10} {:>10} {:>8}  {}"
    names = ("confidence", "positional", "entropy")
    lines = [form.format("site", "layer", *names, "roles")]
    for site in SITE_NAMES:
        for layer, named in enumerate(found["roles"][site]):
            measures = [found["measures"][name][site] for name in names]
            numbers = [shown.numbers_of(layers and layers[layer]) for layers in measures]
            means = [num(mean(of_heads), DECIMALS) for of_heads in numbers]
            roles = [f"{head}: {', '.join(names)}" for head, names in enumerate(named) if names]
            lines.append(form.format(site, layer, *means, "; ".join(roles) or "-"))
    for relation, directions in (found["syntax"] or {}).get("relations", {}).items():
        for direction, scores in directions.items():
            lines.append(f"{relation} {direction}: {_best(scores)}")
    return "\n".join(lines)


def _best(scores: Content) -> str:
    """The best head of a relation beside the baseline."""
    if (best := shown.best_head(scores)) is None:
        return "no pairs"
    accuracy, _, layer, head = best
    baseline = scores["baseline"]
    return (
        f"{accuracy:.1%} by head {head} of layer {layer}, {baseline['accuracy']:.1%} at offset "
        f"{baseline['offset']:+d}, {scores['pairs']:,} pairs"
    )
