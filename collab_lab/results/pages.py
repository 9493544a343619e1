"""Pages of results: ``NAME.md.j2`` and ``NAME.json`` become ``NAME.md`` and its figures.

A template has the words, the JSON file the numbers. ``NAME.json`` is the ``runs.json`` of
``fairseq-collab table --out``; a run is a flat object (``{"method": "collab", "bleu": 34.1}``).
Templates are Jinja2 with a few functions more:

    {{ load("key_dim.json").runs }}                        a file of results/
    {{ where(runs, method="collab", key_dim=64) }}         the runs with these values
    {{ gain(runs, others, "bleu") | interval }}            mean gain, paired by seed, and interval
    {{ value | num(".2f") }}                               Python's format
    {{ grid(["method", "BLEU"], rows) }}                   a Markdown table
    {{ figure("key_dim.svg", title, x, y, series) }}       a figure, see :mod:`.figure`
    {{ sources(runs) }}                                    data, commits, machines, dates
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from collab_common.errors import UserError
from collab_common.files import read_json, write_atomic
from collab_lab.metrics.significance import Gain, gain_of, holm
from collab_lab.results.figure import Series, draw, saved
from collab_lab.results.render import STRICT, grid, interval, mean, named, num

TEMPLATE = ".md.j2"
Json = dict[str, Any]


def where(runs: Iterable[Json], **values: Any) -> list[Json]:
    """The runs that have these ``values``, by seed; UserError for none."""
    found = [run for run in runs if all(run.get(key) == value for key, value in values.items())]
    if not found:
        raise UserError(f"no run has {values}", todo="fix the template")
    return sorted(found, key=lambda run: run.get("seed", 0))


def pick(rows: Iterable[Json], **values: Any) -> Json:
    """The one row that has these ``values``; UserError for none, or several."""
    first, *others = where(rows, **values)
    if others:
        raise UserError(f"{1 + len(others)} rows have {values}", todo="fix the template")
    return first


def gain(runs: Sequence[Json], baseline: Sequence[Json], score: str) -> Gain:
    """Gains of a score over the baseline's runs, paired by seed."""
    ours, theirs = ({run["seed"]: run[score] for run in side} for side in (runs, baseline))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds or len(ours) < len(runs) or len(theirs) < len(baseline):
        found = [[run["seed"] for run in side] for side in (runs, baseline)]
        raise UserError(f"seeds {found[0]} and {found[1]} are no pairs", todo="fix the template")
    return gain_of([ours[seed] - theirs[seed] for seed in seeds])


def values(runs: Iterable[Json], score: str) -> list[float]:
    """A score of every run."""
    return [run[score] for run in runs]


def points(runs: Iterable[Json], x: str, score: str) -> dict[Any, list[float]]:
    """The scores of the runs at each x, for a series of a figure."""
    found: dict[Any, list[float]] = {}
    for run in runs:
        found.setdefault(run[x], []).append(run[score])
    return found


def sources(runs: Iterable[Json]) -> str:
    """Seeds, data, commits, machines and dates of runs, as a Markdown list."""

    def all_of(field: str) -> str:
        found = {run[field] for run in runs if run.get(field) is not None}
        return ", ".join(map(str, sorted(found))) or "unknown"

    runs = list(runs)
    days = sorted(run["date"] for run in runs)
    lines = {
        "runs": f"{len(runs)}, seeds {all_of('seed')}",
        "data": f"{all_of('data')}, SHA-256 {all_of('data_sha256')}",
        "commits": ", ".join(text[:7] for text in all_of("trained_at_commit").split(", ")),
        "machine": all_of("hardware").replace("(R)", "").replace(" Processor", ""),
        "dates": " to ".join(sorted({days[0], days[-1]})),
        "BLEU": f"`{all_of('bleu_signature')}`",
    }
    return "\n".join(f"- {name}: {text}" for name, text in lines.items() if text != "`unknown`")


class Page:
    """A template of ``results/``, rendered: its text, and the figures that it draws."""

    def __init__(self, template: Path):
        self.path = template.with_name(template.name.removesuffix(".j2"))
        self.figures: dict[Path, bytes] = {}
        environment = SandboxedEnvironment(
            loader=FileSystemLoader(template.parent),
            autoescape=False,  # Markdown, from our own files
            **STRICT,
        )
        environment.filters |= {"num": num, "interval": interval}
        for function in (
            self.load, self.figure, where, pick, gain, interval, values, points, sources, grid,
            mean, holm, named,
        ):  # fmt: skip
            environment.globals[function.__name__] = function
        try:
            self.text = environment.get_template(template.name).render()
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            line = getattr(error, "lineno", None)
            place = f"{template}:{line}" if line else str(template)
            raise UserError(str(error), place, "fix the template or its data") from error

    def load(self, name: str) -> Any:
        """A JSON file of ``results/``."""
        return _load(self.path.parent / name)

    def figure(
        self,
        name: str,
        title: str,
        x: str,
        y: str,
        series: Mapping[str, Mapping[Any, Sequence[float]]],
        levels: Mapping[str, Sequence[float]] | None = None,
        **options: Any,
    ) -> str:
        """Draw a figure (:func:`.figure.draw`) to a file; its link in Markdown."""
        lines = [Series(label, dict(of)) for label, of in series.items()]
        page = draw(lines, x, y, title, levels, **options)
        self.figures[self.path.parent / name] = saved(page, name.rpartition(".")[2])
        return f"![{title}]({name})"

    @property
    def stale(self) -> bool:
        """Whether the file is not what the template makes, or a figure is missing."""
        same = self.path.exists() and self.path.read_text(encoding="utf-8") == self.text
        return not same or not all(path.exists() for path in self.figures)

    def write(self) -> None:
        """Write the text and the figures."""
        contents: dict[Path, bytes | str] = {self.path: self.text, **self.figures}
        for path, content in contents.items():
            write_atomic(path, content)


@functools.cache
def _load(path: Path) -> Any:
    try:
        return read_json(path)
    except FileNotFoundError as error:
        raise UserError("file not found", path) from error


def pages(root: Path) -> list[Page]:
    """Every page of ``root/results``, sorted."""
    found = sorted((root / "results").glob(f"*{TEMPLATE}"))
    if not found:
        raise UserError(f"no *{TEMPLATE} there", root / "results", "give a project's folder")
    _load.cache_clear()
    return [Page(path) for path in found]
