"""``python -m fairseq_collab.results.rouge_table``: ROUGE of many runs, as Markdown and JSON.

One line a run, sorted by its folder: ROUGE with intervals, and what it has more than the baseline,
the run of the method ``--against`` with the same seed in the same folder (paired bootstrap over
summaries).  Runs that are not finished are listed.  Intervals speak of other dialogues for these
trained models, not of other trainings.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collab_common.command import run as run_command
from collab_common.errors import UserError
from collab_common.files import write_atomic
from fairseq_collab.metrics.rouge import METRICS, Interval, f_measures, intervals, signature
from fairseq_collab.results.rows import Finished, check_same, distinct, finished_runs
from fairseq_collab.runs.run import find_runs
from fairseq_collab.runs.translations import System, read_system

PROG = "fairseq_collab.results.rouge_table"
#: What all runs must share: scores on other text do not compare.
SAME = ("data", "data_sha256", "subset", "sentences")
#: Fields of ``score.json`` that are passed on.
FACTS = (
    "seed", "parameters", "attention_parameters", "key_bytes_per_target_token",
    "value_bytes_per_target_token", "multiply_adds", "valid_loss", "train_updates", "epochs",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A run: its scores, and its differences to the baseline's (None: it is the baseline itself).

    Attributes:
        stage: the folder that the run is in.
        words: of a summary, on average.
        different: how many different summaries there are.
    """

    stage: str
    run: str
    method: str
    scores: dict[str, Interval]
    differences: dict[str, Interval] | None
    words: float
    different: int
    facts: dict[str, Any]


def score_lines(finished: Sequence[Finished], baseline: str) -> list[Line]:
    """A line a run, sorted by folder and name.

    Raises:
        UserError: runs are of different data, or one has no baseline.
    """
    check_same(finished, SAME, todo="make a table of each")
    systems = {run.folder: read_system(run.folder) for run in finished}
    values = {
        folder: f_measures(system.hypotheses, system.references)
        for folder, system in systems.items()
    }
    lines = []
    for folder, system in sorted(systems.items()):
        differences = None
        if system.facts["method"] != baseline:
            differences = intervals(values[folder] - values[_baseline(system, systems, baseline)])
        lines.append(_line(system, intervals(values[folder]), differences))
    return lines


def _baseline(system: System, systems: dict[Path, System], method: str) -> Path:
    for folder, other in systems.items():
        if folder.parent == system.path.parent and (
            (other.facts["method"], other.facts["seed"]) == (method, system.facts["seed"])
        ):
            return folder
    raise UserError(
        f"there is no finished run of the method {method!r} with seed {system.facts['seed']}",
        where=system.path.parent,
        todo="finish it, or give another --against",
    )


def _line(
    system: System, scores: dict[str, Interval], differences: dict[str, Interval] | None
) -> Line:
    return Line(
        stage=system.path.parent.name,
        run=system.path.name,
        method=system.facts["method"],
        scores=scores,
        differences=differences,
        words=statistics.fmean(len(text.split()) for text in system.hypotheses),
        different=len(set(system.hypotheses)),
        facts={name: system.facts[name] for name in FACTS},
    )


def markdown(content: dict[str, Any], lines: Sequence[Line]) -> str:
    """The table, with its notes and sources."""
    against = content["against"]
    names = [f"{name} more than {against}" for name in METRICS]
    heading = ["folder", "method", "seed", *METRICS, *names]
    heading += ["words", "different", "parameters", "cache bytes a target token"]
    rows = [heading, ["---", "---", *["---:"] * (len(heading) - 2)], *map(_cells, lines)]
    title = f"# ROUGE: {content['data']}, {content['subset']} ({content['sentences']} summaries)"
    notes = [
        "F-measures, mean over summaries; in brackets the 95 % interval of a bootstrap over "
        f"summaries, paired where it is a difference. Differences are to the run of {against} with "
        "the same seed in the same folder. The intervals speak of other dialogues for these "
        "trained models, not of other trainings. Words: of a summary, on average. Different: "
        "how many different summaries there are.",
    ]
    sources = [
        f"command: `{content['command']}`",
        f"ROUGE: `{content['signature']}`",
        f"data: {content['data']}, SHA-256 {content['data_sha256']}",
        *(f"{name}: {'; '.join(content[name])}" for name in ("commit", "hardware", "date")),
    ]
    found = [title, "", *(f"| {' | '.join(row)} |" for row in rows), "", *notes, ""]
    if content["unfinished"]:
        found += ["## Not in the table", "", *(f"- {it}" for it in content["unfinished"]), ""]
    return "\n".join([*found, "## Sources", "", *(f"- {source}" for source in sources), ""])


def _cells(line: Line) -> list[str]:
    facts = line.facts
    cache = facts["key_bytes_per_target_token"] + facts["value_bytes_per_target_token"]
    differences = line.differences or {}
    return [
        *(line.stage, line.method, str(facts["seed"])),
        *(str(line.scores[name]) for name in METRICS),
        *(_signed(differences.get(name)) for name in METRICS),
        *(f"{line.words:.1f}", str(line.different), f"{facts['parameters']:,}", f"{cache:,}"),
    ]


def _signed(found: Interval | None) -> str:
    if found is None:
        return "-"
    return f"{found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


def table(folders: Sequence[Path], baseline: str) -> tuple[dict[str, Any], list[Line]]:
    """All that is written: what the runs share, with the lines, and the lines themselves.

    Raises:
        UserError: no run is finished, or as :func:`score_lines`.
    """
    finished, unfinished = finished_runs(find_runs(folders))
    lines = score_lines(finished, baseline)
    shared = {name: finished[0].facts[name] for name in SAME}
    where = sorted(str(folder) for folder in folders)
    content = {
        **shared,
        "signature": signature(shared["sentences"]),
        "against": baseline,
        "command": shlex.join(["python", "-m", PROG, *where, "--against", baseline]),
        "commit": distinct(finished, lambda record: record.trained_at_commit or record.commit),
        "hardware": distinct(finished, lambda record: record.hardware),
        "date": distinct(finished, lambda record: record.date),
        "unfinished": unfinished,
        "runs": [asdict(line) for line in lines],
    }
    return content, lines


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=PROG, description="A table of runs' ROUGE.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="folders of runs")
    parser.add_argument("--against", default="concatenated", metavar="METHOD", help="the baseline")
    parser.add_argument("--out", type=Path, required=True, help="rouge.md and rouge.json go here")
    args = parser.parse_args(argv)
    return run_command(PROG, lambda: _write(args.runs, args.against, args.out))


def _write(folders: Sequence[Path], baseline: str, out: Path) -> None:
    content, lines = table(folders, baseline)
    text = markdown(content, lines)
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "rouge.json", json.dumps(content, indent=2) + "\n")
    write_atomic(out / "rouge.md", text)
    print(text, end="")


if __name__ == "__main__":
    sys.exit(main())
