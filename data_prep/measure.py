"""How fast each stage from text to binarised data is, and how much memory it takes.

    python -m data_prep.measure --data ../shared/data --jobs 1 2 --out results/data_prep.json

joins all English-German training text below --data and runs the stages of fairseq's WMT14 recipe
on it, each in a process of its own, with each number of jobs. Measured are

    seconds     wall clock of the stage's function alone: no start of the interpreter, no imports
    CPU         seconds of all its processes, user and system: the best guide on a loaded machine
    memory      the largest sum, over the processes of the stage, of their proportional set sizes
                (Pss in /proc/PID/smaps_rollup: resident memory, pages that forked processes
                share counted once), sampled every 50 ms

The numbers go to --out, and a table of them beside it (.table.md). Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tabulate import tabulate

from collab_common import processor
from collab_common.command import positive, run
from collab_common.errors import UserError
from collab_common.files import as_json, count_lines, make_folder, open_bytes, write_content
from collab_common.folder import Json
from collab_common.provenance import commit, today, versions
from data_prep import apply_bpe, bpe
from data_prep.binarise import binarise
from data_prep.child import die_with
from data_prep.clean_pairs import clean_pairs
from data_prep.faults import Action, Kind, Policy
from data_prep.moses import normalise_and_tokenise
from data_prep.parallel_text import pair_in
from data_prep.validate import validate

PROG = "data_prep.measure"
LANGUAGES = ("en", "de")
TRAINING = ("multi30k/train", "tatoeba_en_de/train", "mix_en_de/*")
MERGES = 40_000  # fairseq's; the papers' ready-made archive has 32,000
STAGES = (
    *("validate", "tokenise en", "tokenise de", "learn 32,000", f"learn {MERGES:,}"),
    *("apply en", "apply de", "clean", "binarise"),
)
LOOK_EVERY = 0.05  # seconds

# no text is refused, whatever is in it: nothing is trained on it
DROPPED = (Kind.UTF8, Kind.CR, Kind.NUL, Kind.EMPTY, Kind.LONG)
POLICY = Policy(
    dict.fromkeys(Kind, Action.COUNT)
    | dict.fromkeys(DROPPED, Action.DROP)
    | {Kind.LINE_COUNT: Action.REFUSE}
)

pair = partial(pair_in, languages=LANGUAGES)


def do(stage: str, folder: Path, jobs: int) -> Json:
    """One of STAGES, from files in the folder to files in it; counts, "lines" of what it read."""
    name, _, what = stage.partition(" ")
    clean = pair(folder, "clean")
    match name:
        case "validate":
            report = validate(*pair(folder, "raw"), POLICY, pair(folder, "valid"))
            return {"lines": 2 * report.read}
        case "tokenise":
            source, target = folder / f"valid.{what}", folder / f"tok.{what}"
            return normalise_and_tokenise(source, target, what, jobs=jobs, aggressive_hyphens=True)
        case "learn":
            texts, codes = list(pair(folder, "tok")), folder / f"codes.{what}"
            return bpe.learn(texts, int(what.replace(",", "")), codes, jobs=jobs)
        case "apply":
            source, target = folder / f"tok.{what}", folder / f"bpe.{what}"
            return apply_bpe.apply(folder / f"codes.{MERGES:,}", source, target, jobs=jobs)
        case "clean":
            rules: Json = {"ratio": 1.5, "shortest": 1, "longest": 250}
            counts = clean_pairs(pair(folder, "bpe"), clean, **rules, jobs=jobs)
            return {**counts, "lines": 2 * counts["read"]}
    for left in [*folder.glob("dict.*"), *folder.glob("train.*")]:  # fairseq would refuse them
        left.unlink()
    binarise(folder, {"train": "clean"}, LANGUAGES, jobs)
    return {"lines": 2 * count_lines(clean[0])}


def gather(data: Path, folder: Path, most: int | None) -> Json:
    """All training text in one, raw.en and raw.de; of each corpus at most `most` pairs."""
    corpora: Json = {}
    for lang, out in zip(LANGUAGES, pair(folder, "raw"), strict=True):
        with out.open("wb") as output:
            for pattern in TRAINING:
                found = sorted(data.glob(f"{pattern}.{lang}.gz"))
                if not found:
                    raise UserError(f"no {pattern}.{lang}.gz", data, "give the folder with --data")
                for path in found:
                    with open_bytes(path) as stream:
                        lines = list(islice(stream, most))
                    output.writelines(lines)
                    corpora[path.name.split(".")[0] + f" ({path.parent.name})"] = len(lines)
    return corpora


def _tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for one in found:  # which grows meanwhile
        with contextlib.suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def _pss(pid: int) -> int:
    """Proportional set size of a process in bytes; 0 for one that has ended."""
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB$", told, re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def measure(stage: str, folder: Path, jobs: int) -> Json:
    """Runs a stage in a process of its own; time, memory and counts."""
    command = [sys.executable, "-m", PROG, "--stage", stage, "--data", str(folder)]
    command += ["--jobs", str(jobs), "--parent", str(os.getpid())]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    output = None
    while output is None:
        try:
            output, _ = child.communicate(timeout=LOOK_EVERY)
        except subprocess.TimeoutExpired:
            peak = max(peak, sum(map(_pss, _tree(child.pid))))
    if child.returncode:
        raise UserError(f"failed with status {child.returncode}", stage)
    found = json.loads(output.splitlines()[-1])
    row = {"stage": stage, "jobs": jobs, **found, "peak_bytes": peak}
    print(json.dumps(row), flush=True)
    return row


def work(stage: str, folder: Path, jobs: int) -> None:
    """The work of such a process: the stage, then a line of JSON about it."""
    start, before = time.perf_counter(), _cpu()
    counts = do(stage, folder, jobs)
    seconds, cpu = time.perf_counter() - start, _cpu() - before
    speed = {"lines_per_second": round(counts["lines"] / seconds, 1)}
    times = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}
    print(json.dumps({**times, **counts, **speed}))


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def table(rows: Sequence[Json], *columns: str) -> str:
    """These columns of the rows, in Markdown."""
    chosen = [{name: row[name] for name in columns} for row in rows]
    return tabulate(chosen, "keys", "pipe", intfmt=",", floatfmt=",.1f") + "\n"


@contextlib.contextmanager
def gathered(args: argparse.Namespace, command: list[str]) -> Iterator[tuple[Path, Json]]:
    """A scratch folder with the text, and what the numbers in --out depend on."""
    make_folder(args.out.parent)
    content: Json = {
        "command": shlex.join(["python", "-m", *command]),
        "date": today(),
        "commit": commit(),
        "cpu": processor.name(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average_before": os.getloadavg(),
        **versions("sacremoses", "regex", "subword-nmt", "fairseq"),
    }
    with tempfile.TemporaryDirectory(prefix="measure-", dir=args.scratch) as name:
        content["corpora"] = gather(args.data, Path(name), args.pairs)
        content["pairs"] = count_lines(Path(name, "raw.en"))
        yield Path(name), content


def write(out: Path, content: Json, **more: Any) -> None:
    """Writes --out, whole, after each measurement."""
    whole = {**content, "load_average_after": os.getloadavg(), **more}
    write_content(out, as_json(whole).encode())


def measure_stages(args: argparse.Namespace, command: list[str]) -> None:
    """Every stage, with each number of jobs."""
    rows: list[Json] = []
    columns = ("stage", "jobs", "lines_per_second", "cpu_seconds", "peak_bytes")
    with gathered(args, command) as (folder, content):
        for jobs in args.jobs:
            for stage in STAGES:
                rows.append(measure(stage, folder, jobs))
                write(args.out, content, stages=rows)
                write_content(args.out.with_suffix(".table.md"), table(rows, *columns).encode())


def add_options(parser: argparse.ArgumentParser) -> None:
    """Of both commands."""
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the corpora")
    parser.add_argument("--pairs", type=positive, metavar="N", help="of each corpus, at most")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where to work (default: /tmp)")


def main(argv: Sequence[str] | None = None) -> int:
    """Speed and memory of every stage."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog=PROG, description=main.__doc__)
    add_options(parser)
    parser.add_argument("--jobs", type=positive, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--out", type=Path, default=Path("data_prep.json"), metavar="FILE")
    parser.add_argument("--stage", help=argparse.SUPPRESS)  # how it calls itself
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.stage:
        die_with(args.parent)
        return run(PROG, lambda: work(args.stage, args.data, args.jobs[0]))
    return run(PROG, lambda: measure_stages(args, [PROG, *argv]))


if __name__ == "__main__":
    sys.exit(main())
