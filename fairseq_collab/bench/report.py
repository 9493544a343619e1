"""What runs of a benchmark say: a table for the terminal, and a Markdown page of several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from collab_common.files import read_versioned
from fairseq_collab.bench.targets import TARGETS, reached

Run = dict[str, Any]
Record = dict[str, Any]
Key = tuple[str, ...]

#: Of the JSON file.
VERSION = 1
NOT_RUN = "not run"
TITLES = {
    "generate": "Translation",
    "alone": "Translation: each measure undone alone",
    "train": "Training: whole updates",
    "core": "Attention alone",
}
COUNTERS = {
    "cache_self_keys": "key bytes/target token",
    "cache_self_values": "value bytes/target token",
    "cache_cross_keys": "key bytes/source token",
    "cache_cross_values": "value bytes/source token",
    "multiply_adds": "multiply-adds",
    "copies": "copies a step",
    "copied_bytes": "bytes copied a step",
}
NOTES = """Each ratio is seconds of the model in *against* divided by seconds of *model*, on the
same work one directly after the other, in alternating order: above 1, *model* is faster. It is the
median over pairs, with the 5th and 95th percentile (nearly the extremes where pairs are few).
Before anything was timed, both gave the same translations (losses, outputs) on the same work;
*ties* counts translations that differ with equal scores. Rates are those of the median time. Random
weights and sentences, unless a case says otherwise; preset *trained* is the checkpoints that the
command names, on the test set of its data. *default* is the matrix library that our linear maps
choose on this processor, *same library* is with `FAIRSEQ_COLLAB_MATMUL=torch`: torch's own, which
fairseq's model uses always. *Heads in groups*: of an update with the constraint, how much more time
it takes than one of *against*; of translation without the other heads, the ratio as elsewhere."""


def read(path: Path) -> Run:
    """A JSON file of ``fairseq-collab bench``.

    Raises:
        UserError: it is none.
    """
    todo = "give what fairseq-collab bench --out wrote"
    found = read_versioned(path, VERSION, "results of a benchmark", todo)
    if "records" not in found:
        raise UserError("it has no records", path, todo)
    return found


def key(record: Record) -> Key:
    """What makes records of several runs comparable."""
    return tuple(record.get(k, "") for k in ("part", "preset", "case", "model", "against"))


def terminal(run: Run) -> str:
    """All records of one run in columns."""
    lines = []
    for part in TITLES:
        timed = {key(r): r for r in run["records"] if r["part"] == part}
        if not timed:
            continue
        lines += [
            "",
            f"{TITLES[part]}: seconds of against / seconds of ours (5th to 95th percentile)",
        ]
        rows = [["preset", "case", "model", "against", "pairs", *_columns(run)]]
        for found, record in timed.items():
            cells = [_ratio(_at(run, found, column)) for column in run["libraries"]]
            _, *names = found
            rows.append([*names, str(record["pairs"]), *cells])
        lines += aligned(rows)
    for table in (_grouped([run]), _memory([run]), _counters([run])):
        if table:
            plain = [[cell.replace("**", "") for cell in row] for row in table]
            lines += ["", *aligned(plain)]
    lines += ["", *aligned([["target", "least", *_columns(run)], *_targets([run])])]
    return "\n".join(lines[1:])


def markdown(runs: Sequence[Run], command: str, figure: str) -> str:
    """The page: who ran what where, targets, and all tables, runs side by side."""
    heads = [_head(number, run) for number, run in enumerate(runs, 1)]
    columns = [f"{h}, {name}" for h, run in zip(heads, runs, strict=True) for name in _columns(run)]
    lines = ["# Speed, memory and counters beside fairseq's transformer", ""]
    lines += [f"Made by `{command}`.", "", NOTES, ""]
    lines += [*as_markdown(_machines(runs, heads)), "", f"![ratios]({figure})", ""]
    lines += ["## Targets", ""]
    gpu = not any(run["settings"]["device"] == "cuda" for run in runs)
    targets = [["target", "least", *columns], *_targets(runs)]
    lines += [*as_markdown(_with_gpu(targets, gpu)), ""]
    for part, title in TITLES.items():
        keys = _keys(runs, part)
        if not keys:
            continue
        rows = [["preset", "case", "model", "against", *columns]]
        for found in keys:
            cells = [_cell(_at(run, found, c)) for run in runs for c in run["libraries"]]
            rows.append([*found[1:], *cells])
        lines += [f"## {title}", "", *as_markdown(_with_gpu(rows, gpu)), ""]
    for title, table in (
        ("Heads in groups", _grouped(runs, heads)),
        ("Peak resident memory", _memory(runs, heads)),
        ("Counters", _counters(runs[:1])),
    ):
        if table:
            lines += [f"## {title}", "", *as_markdown(table), ""]
    return "\n".join(lines)


def _head(number: int, run: Run) -> str:
    return "GPU" if run["settings"]["device"] == "cuda" else f"run {number}"


def _columns(run: Run) -> list[str]:
    names = {"default": "default", "same": "same library"}
    return [f"{names[c]} ({library})" for c, library in run["libraries"].items()]


def _with_gpu(rows: list[list[str]], missing: bool) -> list[list[str]]:
    """A last column that says that there was no GPU."""
    if not missing:
        return rows
    return [[*rows[0], "GPU"], *([*row, NOT_RUN] for row in rows[1:])]


def _machines(runs: Sequence[Run], heads: Sequence[str]) -> list[list[str]]:
    rows = [["", *heads]]
    for field in ("started", "seconds", "hardware", "commit", "command", "load_before"):
        rows.append([field.replace("_", " "), *(str(run[field]) for run in runs)])
    rows.append(["seed", *(str(run["settings"]["seed"]) for run in runs)])
    for field in ("versions", "allocator"):
        texts = [", ".join(f"{k} {v}" for k, v in run[field].items()) or "-" for run in runs]
        rows.append([field, *texts])
    return rows


def _keys(runs: Sequence[Run], part: str) -> list[Key]:
    """Of all records of a part, in the order of the first run that has them."""
    found = (key(r) for run in runs for r in run["records"] if r["part"] == part)
    return list(dict.fromkeys(found))


def _at(run: Run, wanted: Key, column: str) -> Record | None:
    found = (r for r in run["records"] if r["column"] == column and key(r) == wanted)
    return next(found, None)


def _ratio(record: Record | None) -> str:
    if record is None:
        return NOT_RUN
    return "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**record)


def _cell(record: Record | None) -> str:
    """Ratio, pairs and both rates."""
    if record is None:
        return NOT_RUN
    rates = [record["work"] / record[f"{which}_seconds"] for which in ("first", "second")]
    text = f"**{record['ratio']:.2f}** ({record['low']:.2f} to {record['high']:.2f}; "
    text += f"{record['pairs']} pairs"
    if record.get("ties"):
        text += f", {record['ties']} ties in {record['sentences']}"
    return f"{text}); {rates[0]:,.0f} and {rates[1]:,.0f} {record['unit']}/s"


def _grouped(runs: Sequence[Run], heads: Sequence[str] = ("median",)) -> list[list[str]]:
    """What the group constraint costs an update, and what models without the other heads bring."""
    keys = _keys(runs, "grouped")
    if not keys:
        return []
    rows = [["preset", "case", "model", "against", "parameters left", *heads]]
    for found in keys:
        records = [_at(run, found, "default") for run in runs]
        left = next(_left(record) for record in records if record is not None)
        rows.append([*found[1:], left, *map(_effect, records)])
    return rows


def _left(record: Record) -> str:
    share = record["parameters"] / record["whole_parameters"]
    return f"{share:.1%} of {record['whole_parameters']:,}"


def _effect(record: Record | None) -> str:
    """More time an update, in percent, or how many times as fast a translation."""
    if record is None:
        return NOT_RUN
    if record["measure"] == "translation":
        return _cell(record)
    more, least, most = (1 / record[name] - 1 for name in ("ratio", "high", "low"))
    seconds = (record[f"{which}_seconds"] for which in ("first", "second"))
    return "**{:+.1%}** ({:+.1%} to {:+.1%}; {} pairs); {:.3f} and {:.3f} s an update".format(
        more, least, most, record["pairs"], *seconds
    )


def _memory(runs: Sequence[Run], heads: Sequence[str] = ("peak MiB",)) -> list[list[str]]:
    keys = _keys(runs, "memory")
    if not keys:
        return []
    rows = [["preset", "case", "model", *heads]]
    for found in keys:
        cells = [_mebibytes(_at(run, found, "default")) for run in runs]
        rows.append([*found[1:4], *cells])
    return rows


def _mebibytes(record: Record | None) -> str:
    if record is None:
        return NOT_RUN
    peak, before = (record[f"{what}_bytes"] / 2**20 for what in ("peak", "before"))
    return f"{peak:,.0f} MiB ({before:,.0f} before decoding)"


def _counters(runs: Sequence[Run]) -> list[list[str]]:
    records = [r for run in runs for r in run["records"] if r["part"] == "counters"]
    if not records:
        return []
    rows = [["preset", "model", *COUNTERS.values()]]
    for record in records:
        rows.append([record["preset"], record["model"], *(f"{record[k]:,}" for k in COUNTERS)])
    return rows


def _targets(runs: Sequence[Run]) -> list[list[str]]:
    """A line a target and case: what each run and library reached."""
    rows = []
    for target in TARGETS:
        found = [
            (run, column, reached(target, run["records"], column))
            for run in runs
            for column in run["libraries"]
        ]
        for case in dict.fromkeys(case for _, _, values in found for case in values):
            cells = [_verdict(target.least, values.get(case)) for _, _, values in found]
            rows.append([f"{target.name}: {case}", f"{target.least:g}", *cells])
    return rows


def _verdict(least: float, value: float | None) -> str:
    if value is None:
        return NOT_RUN
    return f"{value:.2f} {'reached' if value >= least else 'NOT reached'}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def as_markdown(rows: Iterable[Sequence[str]]) -> list[str]:
    """The first row is the head."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return [f"| {' | '.join(line)} |" for line in lines]
