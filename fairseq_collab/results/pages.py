"""Pages from data: ``NAME.md.j2`` and the JSON that it reads become ``NAME.md``.

A template says the words, JSON files beside the results have the numbers, and nothing is computed
by hand, so that rendering again changes nothing.  Templates are Jinja2 with a few functions more:

    {{ load("key_dim_multi30k.json").tables.main.runs | length }}   a file of results/
    {{ value | num(".2f") }}                                         Python's format
    {{ grid(["method", "BLEU"], rows) }}                             a Markdown table
    {{ pick(rows, method="root", key_dim=64).bleu }}                 the one row with these values
    {{ where(rows, method="root") }}                                 all rows with these values
    {{ distinct(rows, "method", "heads") }}                          what rows have of these, once
    {{ gain(rows, others, "bleu").mean }}                            paired by seed: see `gain`
    {{ named("collab, key_dim=32") }}                                a method in words: `names.py`
    {{ main_table(in_words(table)) }}                                all methods of a table so
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from collab_common.errors import UserError
from collab_common.files import read_json, write_content
from fairseq_collab.metrics.seeds import holm, t_interval, t_test
from fairseq_collab.results import table
from fairseq_collab.results.html import STRICT
from fairseq_collab.results.names import METHODS, named
from fairseq_collab.results.table_content import table_of
from fairseq_collab.results.tables import grid, mean, num

TEMPLATE = ".md.j2"
Json = dict[str, Any]
#: Choices of a sweep that do not set a row apart from others of its method.
UNNAMED = ("model", "method", "common.seed")
#: Templates that pages extend or include.
TEMPLATES = Path(__file__).with_name("templates")


def pick(rows: Iterable[Any], **values: Any) -> Any:
    """The one row that has all ``values``; UserError if there is none, or several."""
    found = where(rows, **values)
    if len(found) != 1:
        raise UserError(f"{len(found)} rows have {values}, not one", todo="mend the template")
    return found[0]


def where(rows: Iterable[Any], **values: Any) -> list[Any]:
    """All rows that have these ``values``."""
    return [row for row in rows if all(row.get(key) == value for key, value in values.items())]


def distinct(rows: Iterable[Any], *keys: str) -> list[dict[str, Any]]:
    """The different values of ``keys`` that rows have, each once, in the order of the rows."""
    found = dict.fromkeys(tuple(row.get(key) for key in keys) for row in rows)
    return [dict(zip(keys, values, strict=True)) for values in found]


def gain(runs: Sequence[Json], baseline: Sequence[Json], score: str) -> Json:
    """What runs have more of a score than the baseline's runs of the same seeds.

    Returns:
        ``by_seed``, their ``mean``, its 95 % t-``interval`` and the t-test's ``p`` (both None of
        one seed, and where all gains are alike), and the mean scores of both, ``runs`` and
        ``baseline``.
    """
    ours, theirs = ({run["seed"]: run[score] for run in side} for side in (runs, baseline))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds or len(ours) < len(runs) or len(theirs) < len(baseline):
        found = [[run["seed"] for run in side] for side in (runs, baseline)]
        raise UserError(f"seeds {found[0]} and {found[1]} are no pairs", todo="mend the template")
    gains = [ours[seed] - theirs[seed] for seed in seeds]
    return {
        "by_seed": dict(zip(seeds, gains, strict=True)),
        "mean": mean(gains),
        "interval": t_interval(gains),
        "p": t_test(gains),
        "runs": mean(ours[seed] for seed in seeds),
        "baseline": mean(theirs[seed] for seed in seeds),
    }


def table_rows(
    content: Json, *columns: str
) -> list[tuple[str, float | None, list[str], list[Json]]]:
    """Of each row the method with the sweep's choices, its mean score, seeds and columns, and runs.

    Runs are what :func:`gain` takes, with the score's own name.
    """
    made = table_of(content)
    found = []
    for row in (row for row in made.rows if row.runs):
        choices = row.runs[0].record.overrides.items()
        chosen = [f"{key.split('.')[-1]}={it}" for key, it in choices if key not in UNNAMED]
        label, scores = ", ".join([row.method, *sorted(chosen)]), row.values(made.score)
        runs = [
            {"seed": run.record.seed, made.score: score}
            for run, score in zip(row.runs, scores, strict=True)
        ]
        cells = [str(len(row.runs)), *(table.cell(made, row, name) for name in columns)]
        found.append((label, mean(scores), cells, runs))
    return found


def in_words(content: Json, **names: str) -> Json:
    """The same table with its methods in words: by ``names``, or as :func:`named` has them."""
    words = functools.partial(named, names=METHODS | names)
    runs = {name: run | {"method": words(run["method"])} for name, run in content["runs"].items()}
    return content | {"runs": runs, "baseline": words(content["baseline"] or "") or None}


def runs_table(*contents: Json) -> str:
    """A row a run, of several tables with the same columns."""
    first, *others = (table.run_table(table_of(content)).split("\n") for content in contents)
    return "\n".join([*first, *(line for lines in others for line in lines[2:])])


def environment(root: Path, results: Path) -> SandboxedEnvironment:
    """Jinja2 for the templates below ``root``; ``load`` reads the files of ``results``."""

    @functools.cache
    def load(name: str) -> Any:
        try:
            return read_json(results / name)
        except FileNotFoundError as error:
            raise UserError("no such file", results / name) from error

    env = SandboxedEnvironment(
        loader=FileSystemLoader([root, TEMPLATES]),
        autoescape=False,  # Markdown, from our own files
        **STRICT,
    )
    env.filters["num"] = num
    tables = (table_rows, runs_table, in_words)
    for function in (load, grid, mean, pick, where, distinct, gain, holm, named, *tables):
        env.globals[function.__name__] = function
    # Of a table of runs that is kept as JSON.
    env.globals["main_table"] = lambda content: table.main_table(table_of(content))
    env.globals["differences_table"] = lambda content: table.differences_table(table_of(content))
    return env


def render(template: Path, root: Path, results: Path) -> str:
    """The page of a template; UserError names what is not there, or is no template."""
    name = template.relative_to(root).as_posix()
    try:
        return environment(root, results).get_template(name).render()
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        where = f"{template}:{line}" if line else str(template)
        raise UserError(str(error), where, "mend the template or its data") from error


def pages(root: Path) -> list[tuple[Path, str]]:
    """Every page in ``root/results`` with what its template makes of the data, sorted."""
    found = sorted((root / "results").glob(f"*{TEMPLATE}"))
    if not found:
        raise UserError(f"no *{TEMPLATE} there", root / "results", "give a project's folder")
    return [
        (path.with_name(path.name.removesuffix(".j2")), render(path, root, root / "results"))
        for path in found
    ]


def stale(root: Path) -> Iterator[tuple[Path, str]]:
    """The pages that are not what their templates make, with what they should be."""
    for page, text in pages(root):
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            yield page, text


def write(root: Path) -> list[Path]:
    """Write the pages that change; their paths."""
    changed = list(stale(root))
    for page, text in changed:
        write_content(page, text.encode())
    return [page for page, _ in changed]
