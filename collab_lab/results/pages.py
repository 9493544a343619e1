"""Pages of results: templates and JSON files become Markdown and figures.

``results/contents.py`` has ``PAGES``, the path that each file of ``results/templates/`` makes and a
function that returns its numbers, read from ``results/*.json``: the ``runs.json`` of
``fairseq-collab table --out`` and others.  A run is a flat object (``{"method": "collab", "bleu":
34.1}``).  Templates hold prose.  Functions here choose runs and pair them by seed:

    where(runs, method="collab", key_dim=64)         the runs with these values
    interval(gain(runs, others, "bleu"))             mean gain, paired by seed, and interval
    num(value, ".2f")                                Python's format
    grid(["method", "BLEU"], rows)                   a Markdown table
    Drawing("key_dim.svg", title, x, y, series)      a figure, see :mod:`.figure`
    sources(runs)                                    data, commits, machines, dates
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from collab_common.errors import UserError
from collab_common.files import write_atomic
from collab_lab.metrics.significance import Gain, gain_of
from collab_lab.results.figure import Points, draw, saved
from collab_lab.results.render import STRICT, grid, interval, mean, num

__all__ = [
    "Drawing", "gain", "gains", "grid", "interval", "mean", "num", "pages", "pick", "points",
    "sources", "values", "where",
]  # fmt: skip
CONTENTS, TEMPLATES = Path("results/contents.py"), Path("results/templates")
Json = dict[str, Any]


class Drawing:
    """A figure of a page: its file next to the page, and the arguments of :func:`.figure.draw`."""

    def __init__(
        self, name: str, title: str, x: str, y: str, series: Mapping[str, Points], **options: Any
    ):
        self.name, self.title = name, title
        self.figure = draw(series, x, y, title, **options)

    def __str__(self) -> str:
        return f"![{self.title}]({self.name})"


def where(runs: Iterable[Json], **values: Any) -> list[Json]:
    """The runs that have these ``values``, by seed; UserError for none."""
    found = [run for run in runs if all(run.get(key) == value for key, value in values.items())]
    if not found:
        raise UserError(f"no run has {values}", todo="correct the page's function")
    return sorted(found, key=lambda run: run.get("seed", 0))


def pick(rows: Iterable[Json], **values: Any) -> Json:
    """The one row that has these ``values``; UserError for none, or several."""
    first, *others = where(rows, **values)
    if others:
        raise UserError(f"{1 + len(others)} rows have {values}", todo="correct the page's function")
    return first


def gain(runs: Sequence[Json], baseline: Sequence[Json], score: str) -> Gain:
    """Gains of a score over the baseline's runs, paired by seed."""
    return gain_of(gains(runs, baseline, score))


def gains(runs: Sequence[Json], baseline: Sequence[Json], score: str) -> list[float]:
    """The gain of each seed that both have."""
    ours, theirs = ({run["seed"]: run[score] for run in side} for side in (runs, baseline))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds or len(ours) < len(runs) or len(theirs) < len(baseline):
        found = [[run["seed"] for run in side] for side in (runs, baseline)]
        raise UserError(
            f"seeds {found[0]} and {found[1]} are no pairs", todo="correct the page's function"
        )
    return [ours[seed] - theirs[seed] for seed in seeds]


def values(runs: Iterable[Json], score: str) -> list[float]:
    """A score of every run."""
    return [run[score] for run in runs]


def points(
    runs: Iterable[Json], x: str, score: str, baseline: Sequence[Json] = ()
) -> dict[Any, list[float]]:
    """The scores of the runs at each x, or their gains over a baseline, for a figure."""
    by_x: dict[Any, list[Json]] = {}
    for run in runs:
        by_x.setdefault(run[x], []).append(run)
    return {
        at: gains(of, baseline, score) if baseline else values(of, score) for at, of in by_x.items()
    }


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


def typeset(text: str) -> str:
    """Markdown with minus signs instead of hyphens before numbers, except in code."""
    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", text, flags=re.M | re.S)
    parts[::2] = (re.sub(r"(?<![\w-])-(?=\d)", "\N{MINUS SIGN}", part) for part in parts[::2])
    return "".join(parts)


class Page:
    """A template, rendered with its numbers: the text, and the figures next to it."""

    def __init__(self, template: Path, path: Path, content: Callable[[], Json]):
        self.path = path
        environment = SandboxedEnvironment(
            loader=FileSystemLoader(template.parent),
            autoescape=False,  # Markdown, from our own files
            **STRICT,
        )
        try:
            numbers = content()
            self.text = typeset(environment.get_template(template.name).render(numbers))
        except (
            TemplateError,
            OSError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            line = getattr(error, "lineno", None)
            where = f"{template}:{line}" if line else str(template)
            raise UserError(str(error), where, "correct the template or its data") from error
        drawings = (one for one in numbers.values() if isinstance(one, Drawing))
        self.figures = {path.with_name(one.name): one.figure for one in drawings}

    @property
    def stale(self) -> bool:
        """Whether the file is not what the template makes, or a figure is missing."""
        same = self.path.exists() and self.path.read_text(encoding="utf-8") == self.text
        return not same or not all(path.exists() for path in self.figures)

    def write(self) -> None:
        """Write the text and the figures, each also as PDF."""
        write_atomic(self.path, self.text)
        for path, figure in self.figures.items():
            for form in ("svg", "pdf"):
                write_atomic(path.with_suffix(f".{form}"), saved(figure, form))


def pages(root: Path) -> list[Page]:
    """Every page of a project's folder, in the order of its ``results/contents.py``."""
    contents = root / CONTENTS
    if not contents.is_file():
        raise UserError("file not found", contents, "give a project's folder")
    table = runpy.run_path(str(contents))["PAGES"]
    return [
        Page(root / TEMPLATES / name, root / path, content)
        for name, (path, content) in table.items()
    ]
