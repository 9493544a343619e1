"""What is left along a series of pruned models: roles, sites and layers of the heads kept.

    {"version": 1, "models": [
        {"model": "all-0.01", "heads": {"encoder": [1, 2], ...},
         "roles": null or {"encoder": {"positional": 1, ..., "none": 2}, ...}}]}

roles.png    heads by role, a column a model: figure 8 of Voita et al. 2019 (arXiv 1905.09418)
layers.png   heads by site, then by layer, or by pair of layers where there are four or more,
             against the heads kept in all: its figures on attention types and decoder layers

Counts are of the checkpoints themselves; roles are those that ``fairseq-collab heads`` has found in
the same model once it was fine-tuned.  A head with several kinds of roles is counted once, as
``several``.  The paper looks at the encoder alone, as we do for syntactic roles; cross-attention is
asked for none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from collab_common.errors import UserError
from collab_common.files import as_json, write_contents
from fairseq_collab.analysis.heads import content
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.prune import shapes
from fairseq_collab.results.figure_style import COLOURS, SHAPES, SITE_NAMES, saved
from fairseq_collab.results.heads.figures import ROLES
from fairseq_collab.results.heads.shown import KINDS, kind_of
from fairseq_collab.results.tables import grid

VERSION = 1
NAME, TABLE = "kept.json", "kept.md"
SEVERAL, NONE = "several", "none"
COLUMNS = (*KINDS, SEVERAL, NONE)
COLOUR = {**ROLES, SEVERAL: "#8c6bb1", NONE: "#d9d9d9"}
#: The sites whose heads may have a role.
WITH_ROLES: tuple[Site, ...] = ("encoder", "decoder")
#: So many layers are shown two at a time, as in the paper.
PAIRED = 4


@dataclass(frozen=True)
class Kept:
    """The heads of one model of a series.

    Attributes:
        heads: of each layer, by site.
        roles: how many heads of a site have which kind; None of a model that was not analysed.
    """

    model: str
    heads: dict[Site, list[int]]
    roles: dict[Site, dict[str, int]] | None

    @property
    def total(self) -> int:
        return sum(map(sum, self.heads.values()))


def read(checkpoints: Sequence[Path], analyses: Path) -> list[Kept]:
    """The models of a series, that with the most heads first.

    Args:
        analyses: a folder with NAME/heads.json of the checkpoint NAME.pt, where there is one.
    """
    models = [_read(path, analyses / path.stem / content.NAME) for path in checkpoints]
    return sorted(models, key=lambda model: (-model.total, model.model))


def _read(checkpoint: Path, analysis: Path) -> Kept:
    heads = shapes.heads_of(checkpoint)
    if not analysis.exists():
        return Kept(checkpoint.stem, heads, None)
    found = content.read(analysis)
    if found.get("heads") != heads:
        what = f"is of another model: its heads are {found.get('heads')}, not {heads}"
        raise UserError(what, analysis, "analyse the model again")
    names = found.get("roles") or {}
    return Kept(checkpoint.stem, heads, {site: role_counts(names[site]) for site in WITH_ROLES})


def role_counts(layers: Sequence[Sequence[Sequence[str]]]) -> dict[str, int]:
    """How many heads have which kind of role; every head counts once."""
    counts: Counter[str] = Counter()
    for head in (head for layer in layers for head in layer):
        kinds = {kind_of(role) for role in head}
        counts[SEVERAL if len(kinds) > 1 else next(iter(kinds), NONE)] += 1
    return {kind: counts[kind] for kind in COLUMNS}


def write(models: Sequence[Kept], facts: Mapping[str, Any], out: Path) -> str:
    """Write numbers, table and figures; the table."""
    listed = [asdict(model) for model in models]
    text = table(models)
    files: dict[str, bytes | str] = {
        NAME: as_json({"version": VERSION, **facts, "models": listed}),
        TABLE: text,
        "layers.png": saved(layer_figure(models), "png", 120),
    }
    if any(model.roles for model in models):
        files["roles.png"] = saved(role_figure(models), "png", 120)
    write_contents(out, files)
    return text


def table(models: Sequence[Kept]) -> str:
    """Markdown: a line a model."""
    heads = ["model", "heads", *(f"{site} (by layer)" for site in SITES)]
    heads += [f"{site}: {', '.join(COLUMNS)}" for site in WITH_ROLES]
    lines = []
    for model in models:
        by_site = [f"{sum(of)} ({', '.join(map(str, of))})" for of in model.heads.values()]
        roles = [
            ", ".join(map(str, model.roles[site].values())) if model.roles else "not analysed"
            for site in WITH_ROLES
        ]
        lines.append([model.model, model.total, *by_site, *roles])
    return grid(heads, lines) + "\n"


def role_figure(models: Sequence[Kept]) -> Figure:
    """Stacked columns: the heads of each role, a panel a site; a gap where nothing is known."""
    page = Figure(figsize=(2 + 1.1 * len(models) * len(WITH_ROLES), 4), layout="constrained")
    panels = page.subplots(1, len(WITH_ROLES), squeeze=False)[0]
    for panel, site in zip(panels, WITH_ROLES, strict=True):
        at = range(len(models))
        below = [0] * len(models)
        for kind in COLUMNS:
            counts = [model.roles[site][kind] if model.roles else 0 for model in models]
            panel.bar(at, counts, bottom=below, color=COLOUR[kind], edgecolor="#666666", label=kind)
            below = [low + count for low, count in zip(below, counts, strict=True)]
        for i, model in enumerate(models):
            if model.roles is None:
                panel.text(i, 0, "not analysed", rotation=90, ha="center", va="bottom", fontsize=8)
        labels = [f"{sum(model.heads[site])}\n{model.model}" for model in models]
        panel.set_xticks(at, labels, fontsize=8)
        panel.set_title(SITE_NAMES[site], fontsize=10)
        panel.set_xlabel("heads kept, and the model")
        panel.set_ylabel("heads")
    handles, names = panels[0].get_legend_handles_labels()
    page.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
    return page


def layer_figure(models: Sequence[Kept]) -> Figure:
    """Lines: heads of each site, then of each layer or pair of layers of a site."""
    page = Figure(figsize=(14, 3.6), layout="constrained")
    panels = page.subplots(1, 1 + len(SITES), sharex=True)
    totals = [model.total for model in models]
    sums = {str(site): [sum(m.heads[site]) for m in models] for site in SITES}
    parts = {"heads by site": sums}
    parts |= {SITE_NAMES[site]: by_layer([m.heads[site] for m in models]) for site in SITES}
    for panel, (title, lines) in zip(panels, parts.items(), strict=True):
        for (name, counts), colour, shape in zip(lines.items(), COLOURS, SHAPES, strict=False):
            panel.plot(totals, counts, color=colour, marker=shape, label=name)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("heads kept in all")
        panel.set_ylabel("heads kept")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.25)
        panel.legend(fontsize=8)
    panels[0].invert_xaxis()  # pruning goes to the right
    return page


def by_layer(heads: Sequence[Sequence[int]]) -> dict[str, list[int]]:
    """Heads of each model in each layer, from 1, or in each two layers of deep models."""
    layers = len(heads[0])
    step = 2 if layers >= PAIRED else 1
    found = {}
    for first in range(0, layers, step):
        last = min(first + step, layers)
        name = f"layer {last}" if last - first == 1 else f"layers {first + 1} and {last}"
        found[name] = [sum(of[first:last]) for of in heads]
    return found
