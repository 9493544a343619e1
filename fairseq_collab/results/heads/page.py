"""The page and the summary of ``fairseq-collab heads``, from the content of ``heads.json``.

heads.md        the page (``templates/heads.md.j2``)
heads_*.png     its figures
"""

from __future__ import annotations

from pathlib import Path

from collab_common.files import write_contents
from fairseq_collab.results.figure_style import TYPE_NAMES
from fairseq_collab.results.heads import figures
from fairseq_collab.results.heads.figures import Content, best_heads, types_in
from fairseq_collab.results.render import render
from fairseq_collab.results.tables import grid, mean, num

NAME = "heads.md"


def write(content: Content, out: Path) -> None:
    """Write the page and its figures, each file atomically."""
    drawn = figures.draw(content)
    roles = [
        (f"{TYPE_NAMES[type_]}, layer {i}, head {j}", ", ".join(names))
        for type_, layers in types_in(content.get("roles")).items()
        for i, layer in enumerate(layers)
        for j, names in enumerate(layer)
        if names
    ]
    text = render(
        "heads.md.j2",
        content=content,
        heads=sum(map(sum, content["heads"].values())),
        figures=list(drawn),
        measures=[(name, figures.MEASURES[name][0]) for name, _ in figures.measured(content)],
        roles=roles,
        relations=best_heads(content),
    )
    write_contents(out, {NAME: text, **drawn})


def summary(content: Content) -> str:
    """Means of the heads of each layer and their roles; the best head of each relation."""
    names = ("confidence", "positional", "relevance")
    rows = []
    for type_, layers in types_in(content["heads"]).items():
        for i in range(len(layers)):
            found = [types_in(content["measures"].get(name)).get(type_) for name in names]
            means = [mean(x for x in one[i] if x is not None) if one else None for one in found]
            roles = content["roles"][type_][i]
            named = "; ".join(f"{j}: {', '.join(of)}" for j, of in enumerate(roles) if of)
            rows.append([TYPE_NAMES[type_], i, *(num(x, ".2f") for x in means), named or "-"])
    lines = [grid(["attention type", "layer", *names, "roles"], rows, left=(0, 5))]
    for one in best_heads(content):
        lines.append(
            f"{one['relation']}: {one['accuracy']:.1%} by head {one['head']} of layer "
            f"{one['layer']}, {one['baseline']['accuracy']:.1%} at offset "
            f"{one['baseline']['offset']:+d}, {one['pairs']:,} pairs"
        )
    return "\n".join(lines)
