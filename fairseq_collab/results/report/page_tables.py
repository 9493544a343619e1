"""The tables of a data set: methods, tests of every two, papers beside ours, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_collab.results.markup import Markup, element, join, scroll
from fairseq_collab.results.page import NOTHING, decimals, grid
from fairseq_collab.results.report.matrix import LEVEL
from fairseq_collab.results.report.words import (
    between,
    breakable,
    epochs_text,
    row_text,
    share,
    signed,
    small_p,
    whole,
)

Content = Mapping[str, Any]
NOT_RECORDED = "not recorded"
#: What stands beside a difference, so that colours are not needed to see it.
MARKS = {"all": "\N{BLACK CIRCLE}", "some": "\N{WHITE CIRCLE}", "none": "", "untested": ""}
MEANINGS = {
    "all": f"every seed p < {LEVEL:g}",
    "some": f"some seeds p < {LEVEL:g}",
    "none": f"no seed p < {LEVEL:g}",
    "untested": "no common seed",
}


def methods(section: Content, suffix: str) -> Markup:
    """A row a model, under the folder that its runs are in; ``suffix`` names the data set."""
    length = section["multiply_adds_length"]
    heads = [
        "seeds", "BLEU", "chrF", "parameters",
        f"multiply-adds ({length} source, {length} target tokens)",
        "key-cache bytes a target token (self-attention)",
        "key-cache bytes a source token (cross-attention)",
        "training tokens/s", "decoding sentences/s", "budget", "best, Pareto",
    ]  # fmt: skip
    places = _places(section)
    top = element(
        "tr",
        element("th", "row, method", scope="col"),
        *(element("th", head, scope="col") for head in heads),
    )
    bodies = []
    for experiment in dict.fromkeys(row["experiment"] for row in section["rows"]):
        name = element("span", breakable(experiment))
        line = element("th", name, scope="rowgroup", colspan=len(heads) + 1, class_="group")
        lines = [element("tr", line)]
        lines += [
            _method(row, places) for row in section["rows"] if row["experiment"] == experiment
        ]
        bodies.append(element("tbody", *lines))
    caption = f"Methods{suffix}"
    table = element(
        "table", element("caption", caption), element("thead", top), *bodies, class_="plain methods"
    )
    return scroll(table, caption)


def _places(section: Content) -> dict[int, tuple[str, list[str]]]:
    """Of each row's number its budget's letter, and what it is best in."""
    found: dict[int, tuple[str, list[str]]] = {}
    for budget in section["budgets"]:
        for number in budget["rows"]:
            parts = ["best BLEU"] if number in budget["best"] else []
            fronts = {"parameters": "parameters", "multiply_adds": "multiply-adds"}
            on = [name for cost, name in fronts.items() if number in budget["fronts"][cost]]
            parts += [f"Pareto: {', '.join(on)}"] if on else []
            found[number] = budget["letter"], parts
    return found


def _method(row: Content, places: Mapping[int, tuple[str, list[str]]]) -> Markup:
    letter, parts = places[row["number"]]
    seeds = ", ".join(map(str, row["seeds"]))
    speed = row["sentences_per_second"]
    cells = [
        element("td", str(len(row["seeds"])), small(f"({seeds})")),
        element("td", *_score(row["bleu"]), class_="score"),
        element("td", *_score(row["chrf"]), class_="score"),
        *(
            element("td", whole(row[field]))
            for field in (
                "parameters", "multiply_adds", "key_bytes_per_target_token",
                "key_bytes_per_source_token", "train_tokens_per_second",
            )
        ),
        element("td", NOT_RECORDED if speed is None else f"{speed:,.1f}"),
        element(
            "td",
            letter,
            small(epochs_text(row["epochs"])),
            small(f"{between(row['updates'])} updates"),
            small("fine-tuned") if row["fine_tuned"] else "",
        ),
        element("td", "; ".join(parts) or NOTHING, class_="words"),
    ]  # fmt: skip
    heading = element("th", row_heading(row), scope="row")
    return element("tr", heading, *cells)


def _score(score: Content) -> list[Markup]:
    found = [element("strong", decimals(score["mean"]))]
    found.append(small(f"{score['low']:.2f} to {score['high']:.2f}"))
    if score["sd"] is not None:
        found.append(small(f"SD {score['sd']:.2f}"))
    return found


def row_heading(row: Content) -> Markup:
    """Number and method, and what sets the row apart from others in a line below."""
    variant = element("small", breakable(row["variant"])) if row["variant"] else Markup()
    return breakable(f"{row['number']} {row['method']}") + variant


def small(text: str) -> Markup:
    """A second line in a cell."""
    return element("small", text)


def budgets(section: Content, suffix: str) -> Markup:
    """What the letters stand for, and which rows no other beats."""
    rows = []
    for budget in section["budgets"]:
        cells = [
            between(budget["epochs"]),
            between(budget["updates"]),
            "trained weights" if budget["fine_tuned"] else "scratch",
            _numbers(budget["rows"]),
            _numbers(budget["best"]),
            *(_numbers(front) for front in budget["fronts"].values()),
        ]
        rows.append((budget["letter"], [element("td", cell) for cell in cells]))
    heads = ["epochs", "updates", "started from", "rows", "best BLEU",
             "Pareto front: parameters", "Pareto front: multiply-adds"]  # fmt: skip
    return grid(f"Budgets{suffix}", "budget", heads, rows, "plain lists")


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def tests(section: Content, suffix: str) -> Markup:
    """Every row against every other: difference in BLEU, and the largest p of the seeds."""
    rows = section["rows"]
    found = {(pair["row"], pair["against"]): pair for pair in section["tests"]}
    columns = [str(row["number"]) for row in rows]
    lines = [(row_heading(row), [_cell(row, other, found) for other in rows]) for row in rows]
    name = f"BLEU of the row less BLEU of the column{suffix}"
    return grid(name, "row", columns, lines, "plain matrix")


def _cell(row: Content, other: Content, found: Mapping[tuple[int, int], Content]) -> Markup:
    if row is other:
        return element("td", NOTHING, class_="self")
    one, two = row["number"], other["number"]
    pair, sign = (found[one, two], 1) if (one, two) in found else (found[two, one], -1)
    if pair["difference"] is None:
        return element("td", small(MEANINGS["untested"]), title="no seed in both")
    gain = sign * pair["difference"]
    most = max(seed["p"] for seed in pair["seeds"])
    text = f"{row_text(row)} less {row_text(other)}: {_pair_text(pair, sign)}"
    verdict = pair["verdict"]
    side = "up" if gain > 0 else "down"
    return element(
        "td",
        element("span", f"{signed(gain)}{MARKS[verdict]}", title=text),
        small(f"p {small_p(most)}"),
        class_=f"{side} {verdict}",
    )


def _pair_text(pair: Content, sign: int = 1) -> str:
    """Mean difference, and that of every seed with its p."""
    if pair["difference"] is None:
        return MEANINGS["untested"]
    seeds = (
        f"seed {seed['seed']}: {signed(sign * seed['difference'])}, p = {small_p(seed['p'])}"
        for seed in pair["seeds"]
    )
    return f"{signed(sign * pair['difference'])} BLEU; {'; '.join(seeds)}"


def pairs_in_words(section: Content) -> Markup:
    """All cells of the table of tests as a list, folded."""
    rows = {row["number"]: row_text(row) for row in section["rows"]}
    items = [
        element("li", f"{rows[pair['row']]} less {rows[pair['against']]}: {_pair_text(pair)}")
        for pair in section["tests"]
    ]
    return element("details", element("summary", "Every pair in words"), element("ul", *items))


def tests_text(section: Content, samples: int, seed: int | None) -> str:
    """How the matrix was made and how to read it."""
    pairs = section["tests"]
    tested = sum(bool(pair["seeds"]) for pair in pairs)
    every = sum(pair["verdict"] == "all" for pair in pairs)
    some = sum(pair["verdict"] == "some" for pair in pairs)
    return (
        f"Paired bootstrap (sacreBLEU's, BLEU, {samples:,} draws of sentences, seed {seed}, "
        "two-sided) of the translations of every two rows, seed by seed: those of one seed with "
        "those of the same seed. The difference is the mean over the seeds that both have; below "
        "it stands the largest of the seeds' p, the others are in the cell's title; they are not "
        f"merged into one. {MARKS['all']} {MEANINGS['all']}, all with the same sign ({every} of "
        f"{tested} pairs); {MARKS['some']} {MEANINGS['some']} ({some}). A positive number speaks "
        "for the row, a negative one for the column; columns are numbered as the rows. Rows of "
        "different budgets are tested, too: see the column budget above."
    )


def paper(found: Content, rows: Mapping[int, Content], suffix: str) -> Markup:
    """A paper's gains over its own baselines, and ours over ours."""
    places = {claim["where"] for claim in found["claims"]}
    one_place = f"; {places.pop()}" if len(places) == 1 else ""
    caption = found["title"] + one_place + suffix
    lines = []
    before = None
    for claim in found["claims"]:
        same = claim["ours"] and claim["ours"] == before
        cells = [_as_above()] if same else [_ours(one, rows) for one in claim["ours"]]
        first, *others = cells or [_no_counterpart()]
        before = claim["ours"]
        lines.append(element("tr", *_printed(claim, 1 + len(others), not one_place), *first))
        lines += [element("tr", *other) for other in others]
    heads = ["paper's model", *([] if one_place else ["where"]), "paper: difference",
             "paper: parameters", "ours", "ours: BLEU difference", "ours: parameters"]  # fmt: skip
    top = element("tr", *(element("th", head, scope="col") for head in heads))
    table = element(
        "table",
        element("caption", caption),
        element("thead", top),
        element("tbody", *lines),
        class_="plain papers",
    )
    return scroll(table, caption) + element("p", found["caution"], class_="how")


def _printed(claim: Content, height: int, with_place: bool) -> list[Markup]:
    """The paper's side, as high as all of ours beside it."""
    tall = height if height > 1 else None
    against = small(f"against {claim['baseline']}")
    scores = f"{claim['score']:.2f} and {claim['baseline_score']:.2f}"
    gain = f"{signed(claim['difference'])} {claim['metric']}"
    place = [element("td", claim["where"], class_="words", rowspan=tall)] if with_place else []
    return [
        element("th", claim["system"], against, scope="row", rowspan=tall),
        *place,
        element("td", gain, small(scores), rowspan=tall),
        element("td", share(claim["size_ratio"]), rowspan=tall),
    ]


def _ours(one: Content, rows: Mapping[int, Content]) -> list[Markup]:
    against = element("small", "against ", breakable(row_text(rows[one["baseline"]])))
    return [
        element("td", breakable(row_text(rows[one["row"]])), against, class_="words"),
        element("td", signed(one["difference"])),
        element("td", share(one["size_ratio"])),
    ]


def _as_above() -> list[Markup]:
    return [element("td", "as above", class_="words", colspan=3)]


def _no_counterpart() -> list[Markup]:
    return [
        element("td", "no counterpart among these runs", class_="words"),
        *[element("td", NOTHING)] * 2,
    ]


def runs(section: Content, suffix: str) -> Markup:
    """A line a run: what it scored, how long it was trained, and by which code."""
    heads = ["row", "seed", "BLEU", "chrF", "valid. loss", "updates", "epochs", "averaged",
             "beam, lenpen", "date", "trained at", "scored at", "hardware"]  # fmt: skip
    lines = []
    for run in section["runs"]:
        cells = [
            str(run["row"]), str(run["seed"]), decimals(run["bleu"]), decimals(run["chrf"]),
            f"{run['valid_loss']:.3f}", whole(run["updates"]), str(run["epochs"]),
            str(run["averaged"]), f"{run['beam']}, {run['lenpen']}", str(run["date"]),
            str(run["trained_at_commit"] or NOT_RECORDED), str(run["scored_at_commit"]),
            str(run["hardware"]),
        ]  # fmt: skip
        lines.append((breakable(run["name"]), [element("td", cell) for cell in cells]))
    return grid(f"Runs{suffix}", "run", heads, lines, "plain runs")


def commands(section: Content) -> Markup:
    """Every command, folded, with the runs that it has made."""
    parts = []
    for found in section["commands"]:
        names = found["runs"]
        count = f"{len(names)} run{'s' * (len(names) > 1)}: {names[0]}"
        head = element("summary", count + (", ..." if len(names) > 1 else ""))
        listed = element("ul", *(element("li", name) for name in names))
        parts.append(element("details", head, element("pre", found["command"]), listed))
    return join(parts)
