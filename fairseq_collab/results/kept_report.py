"""Table and figure of :mod:`fairseq_collab.results.kept`, and the paper's table beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fairseq_collab.models.layers import SITES
from fairseq_collab.results.figure_style import COLOURS, SHAPES, SITE_NAMES
from fairseq_collab.results.kept_runs import Found, Result
from fairseq_collab.results.published import PRUNED, WHOLE_BLEU, WHOLE_HEADS

#: BLEU that a pruned model may lose in the count of heads that can go (Voita et al.: 0.15, 0.25).
LOSS = 0.25
KINDS = {
    "gated": "with gates",
    "tuned": "pruned, fine-tuned",
    "scratch": "same shape from scratch",
}
SITES_OF = {"all": "gates in all attentions", "encoder": "gates in the encoder"}
#: The penalty of the control: as long a training, which keeps all heads.
CONTROL = "0"
PAPER_SOURCE = "Voita et al. 2019 (arXiv 1905.09418), table 2, WMT English-Russian, 6 layers"
NOTHING = "-"


def markdown(found: Found, made: Mapping[str, Any]) -> str:
    """The whole of ``heads_kept.md``."""
    facts = found.facts
    title = (
        f"Heads kept against BLEU: {facts['data']}, {facts['subset']} "
        f"({facts['sentences']:,} sentences)"
    )
    lines = [f"# {title}", "", *main_table(found), ""]
    lines += [
        "Heads: in all, and by layer. A gate counts as closed below one half; an attention without "
        "an open one (*empty*) keeps one head. *From scratch* trains for as many epochs as the "
        "baseline, the gates and the fine-tuning together. With gates in the encoder alone the "
        "decoder is frozen until the fine-tuning, and so are embeddings that both share.",
        "",
        *free_heads(found),
        f"{PAPER_SOURCE}:",
        "",
        *paper_table(),
        "",
    ]
    if found.unfinished:
        lines += ["Not finished:", "", *(f"- {line}" for line in found.unfinished), ""]
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    lines += [
        f"- command: `{made['command']}`, from the runs' `score.json`",
        f"- BLEU: `{facts['bleu_signature']}`",
        f"- data: {facts['data']}, SHA-256 {facts['data_sha256']}",
        f"- {made['date']}, commit {made['commit']}; {versions}",
    ]
    return "\n".join(lines) + "\n"


def paper_table() -> list[str]:
    """The paper's models, with all heads first."""
    rows = [(WHOLE_HEADS, f"{WHOLE_BLEU:g}", "")]
    rows += [(one.heads, f"{one.bleu:.2f}", f"{one.from_scratch:.2f}") for one in PRUNED]
    head = ["encoder / decoder / cross", "pruned", "from scratch"]
    return _table(head, [(heads.replace("/", " / "), *bleu) for heads, *bleu in rows])


def main_table(found: Found) -> list[str]:
    """A row for each run with gates, under those of the models that it has started from."""
    head = [
        *("gates", "penalty", "seed", "heads", *SITES, "between 0 and 1", "empty"),
        *(f"BLEU {kind}" for kind in KINDS.values()),
    ]
    total = str(sum(map(sum, found.heads.values())))
    shape = [_layers(found.heads[site]) for site in SITES]
    rows = [
        ["none", NOTHING, str(seed), total, *shape, NOTHING, NOTHING, f"{bleu:.2f}", *[NOTHING] * 2]
        for seed, bleu in sorted(found.baseline.items())
    ]
    return _table(head, [*rows, *map(_row, found.results)])


def _row(result: Result) -> list[str]:
    heads = result.heads
    shape = [_layers(heads[site]) if heads else NOTHING for site in SITES]
    counts = [result.total, *shape, result.between, result.empty]
    bleu = [f"{result.bleu[kind]:.2f}" if kind in result.bleu else NOTHING for kind in KINDS]
    texts = [NOTHING if value is None else str(value) for value in counts]
    return [result.sites, result.penalty, str(result.seed), *texts, *bleu]


def _layers(heads: Sequence[int]) -> str:
    """``5 (4, 1)``."""
    return f"{sum(heads)} ({', '.join(map(str, heads))})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def free_heads(found: Found) -> list[str]:
    """A line for each place of gates and seed: how many heads its models can do without."""
    lines = []
    for sites, results in _by_sites(found).items():
        for seed in sorted({result.seed for result in results}):
            reference = _reference(found, seed)
            if reference is None:
                continue
            good = [
                result.total
                for result in results
                if result.seed == seed
                and result.total is not None
                and result.bleu.get("tuned", float("-inf")) >= reference - LOSS
            ]
            whole = sum(map(sum, found.heads.values()))
            text = f"{whole - min(good)} of {whole} heads can go" if good else "no model is"
            lines.append(
                f"**{SITES_OF.get(sites, sites)}**, seed {seed}: {text} within {LOSS} BLEU of "
                f"{reference:.2f}, the control that keeps all for as long."
            )
            lines.append("")
    return lines


def _reference(found: Found, seed: int) -> float | None:
    """BLEU of the control of a seed, fine-tuned."""
    for result in found.results:
        if (result.sites, result.penalty, result.seed) == ("all", CONTROL, seed):
            return result.bleu.get("tuned")
    return None


def _by_sites(found: Found) -> dict[str, list[Result]]:
    sites = dict.fromkeys(result.sites for result in found.results)
    return {site: [one for one in found.results if one.sites == site] for site in sites}


def draw(found: Found) -> Figure:
    """BLEU against heads kept, and which sites keep them; a column for each place of gates."""
    by_sites = _by_sites(found)
    page = Figure(figsize=(4.8 * len(by_sites) + 0.4, 7.2), layout="constrained")
    panels = page.subplots(2, len(by_sites), squeeze=False, sharex="all", sharey="row")
    for column, (sites, results) in zip(panels.T, by_sites.items(), strict=True):
        pruned = sorted(
            (result for result in results if result.total is not None),
            key=lambda result: result.total or 0,
        )
        column[0].set_title(SITES_OF.get(sites, sites))
        _draw_bleu(column[0], found, pruned)
        _draw_sites(column[1], found, pruned)
    panels[0, 0].set_ylabel("BLEU (sacreBLEU, detokenised, cased)")
    panels[1, 0].set_ylabel("heads kept, % of the site's")
    for panel in panels[:, 0]:
        panel.legend(fontsize=8)
    panels[0, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return page


def _draw_bleu(axes: Axes, found: Found, results: Sequence[Result]) -> None:
    for (kind, label), colour, shape in zip(KINDS.items(), COLOURS, SHAPES, strict=False):
        there = [result for result in results if kind in result.bleu]
        _draw_line(axes, there, [one.bleu[kind] for one in there], label, colour, shape)
    whole = sum(map(sum, found.heads.values()))
    for seed, bleu in found.baseline.items():
        name = "baseline" if seed == min(found.baseline) else None  # once in the legend
        axes.plot([whole], [bleu], "k*", markersize=9, label=name)
    axes.grid(alpha=0.25)


def _draw_sites(axes: Axes, found: Found, results: Sequence[Result]) -> None:
    for site, colour, shape in zip(SITES, COLOURS[3:], SHAPES[3:], strict=False):
        whole = sum(found.heads[site])
        shares = [100 * sum(one.heads[site]) / whole for one in results if one.heads]
        _draw_line(axes, results, shares, SITE_NAMES[site], colour, shape)
    axes.set_xlabel("heads kept in all")
    axes.set_ylim(0, 104)
    axes.grid(alpha=0.25)


def _draw_line(
    axes: Axes, results: Sequence[Result], values: Sequence[float], label: str, colour: str,
    shape: str,
) -> None:  # fmt: skip
    """A line for each seed."""
    for seed in sorted({result.seed for result in results}):
        points = [
            (one.total, value)
            for one, value in zip(results, values, strict=True)
            if one.seed == seed
        ]
        axes.plot(*zip(*points, strict=True), color=colour, marker=shape, label=label)
        label = ""
