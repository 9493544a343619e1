"""How fast each stage from text to binarised data is, and how much memory it takes.

    python -m data_prep.measure --data ../shared/data --jobs 1 2 --out results/data_prep.json

puts all English-German training text below --data together and takes it through the stages of
fairseq's WMT14 recipe, each in a process of its own, with each number of jobs. The numbers go to
--out, a table beside it (.table.md). Measured are

    seconds     wall clock of the stage's function alone: no start of the interpreter, no imports
    CPU         seconds of all its processes, user and system: what a loaded machine tells best
    memory      the largest sum, over the processes of the stage, of their proportional set sizes
                (Pss in /proc/PID/smaps_rollup: resident memory, pages that forked processes
                share counted once), looked at every 50 ms

Linux only. `data_prep.measure_memory` tells how learning grows with the number of different words.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

from collab_common.command import positive, run
from collab_common.errors import UserError
from collab_common.files import count_lines, open_bytes, write_atomic, write_json
from collab_common.provenance import commit, processor, today, versions
from data_prep import bpe
from data_prep.binarise import binarise
from data_prep.child import die_with
from data_prep.clean_pairs import clean_pairs
from data_prep.faults import Kind
from data_prep.moses import normalise_and_tokenise
from data_prep.policy import Action, Policy
from data_prep.validate import validate

PROG = "data_prep.measure"
LANGUAGES = ("en", "de")
TRAINING = ("multi30k/train", "tatoeba_en_de/train", "mix_en_de/*")
# of both sides of WMT14's 4.5 million pairs, about: 27 a sentence, twice as long as those here
WMT14_TOKENS = 240_000_000
MERGES = 40_000  # fairseq's; the papers' ready-made archive has 32,000
LOOK_EVERY = 0.05  # seconds
_ENDED = (FileNotFoundError, ProcessLookupError)  # how /proc tells that a process has

# the text is to go through, whatever is in it: this is no training set
DROPPED = (Kind.UTF8, Kind.CR, Kind.NUL, Kind.EMPTY, Kind.LONG)
POLICY = Policy(
    {kind: Action.DROP if kind in DROPPED else Action.COUNT for kind in Kind}
    | {Kind.LINE_COUNT: Action.REFUSE}
)

Json = dict[str, Any]
STAGES = (
    "validate",
    "tokenise en",
    "tokenise de",
    "learn 32,000",
    "learn 40,000",
    "apply en",
    "apply de",
    "clean",
    "binarise",
)


def do(stage: str, folder: Path, jobs: int) -> Json:
    """One stage, from files in the folder to files in it; its counts, "lines" of both sides."""
    name, _, what = stage.partition(" ")
    if name == "validate":
        return {"lines": 2 * validate(*pair(folder, "raw"), POLICY, pair(folder, "valid")).read}
    if name == "tokenise":
        source, target = folder / f"valid.{what}", folder / f"tok.{what}"
        return normalise_and_tokenise(source, target, what, jobs=jobs, aggressive_hyphens=True)
    if name == "learn":
        merges = int(what.replace(",", ""))
        return bpe.learn(list(pair(folder, "tok")), merges, folder / f"codes.{merges}", jobs=jobs)
    if name == "apply":
        codes = folder / f"codes.{MERGES}"
        return bpe.apply(codes, folder / f"tok.{what}", folder / f"bpe.{what}", jobs=jobs)
    if name == "clean":
        before, after = pair(folder, "bpe"), pair(folder, "clean")
        counts = clean_pairs(before, after, ratio=1.5, shortest=1, longest=250, jobs=jobs)
        return {**counts, "lines": 2 * counts["read"]}
    for left in [*folder.glob("dict.*"), *folder.glob("train.*")]:  # fairseq would refuse them
        left.unlink()
    binarise(folder, {"train": "clean"}, *LANGUAGES, jobs)
    return {"lines": 2 * count_lines(folder / "clean.en")}


def pair(folder: Path, stem: str) -> tuple[Path, Path]:
    return folder / f"{stem}.en", folder / f"{stem}.de"


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


class Memory(threading.Thread):
    """Watches a process and its descendants; `peak` is the largest sum of Pss seen, in bytes."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.peak = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(LOOK_EVERY):
            self.peak = max(self.peak, sum(map(_pss, _tree(self.pid))))


def _tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for one in found:  # which grows as we go
        with contextlib.suppress(*_ENDED):
            for thread in os.listdir(f"/proc/{one}/task"):
                found += map(int, _told(f"/proc/{one}/task/{thread}/children").split())
    return found


def _pss(pid: int) -> int:
    """Proportional set size of a process in bytes; 0 for one that is ending."""
    found = re.search(r"^Pss:\s+(\d+) kB$", _told(f"/proc/{pid}/smaps_rollup"), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def _told(file: str) -> str:
    """What /proc tells of a process; nothing, if it has ended since it was listed."""
    try:
        return Path(file).read_text()
    except _ENDED:
        return ""


def measure(stage: str, folder: Path, jobs: int) -> Json:
    """Runs a stage in a process of its own; time, memory and counts."""
    arguments = ["--stage", stage, "--data", str(folder), "--jobs", str(jobs)]
    arguments += ["--parent", str(os.getpid())]
    child = subprocess.Popen(
        [sys.executable, "-m", PROG, *arguments], stdout=subprocess.PIPE, text=True
    )
    memory = Memory(child.pid)
    memory.start()
    output, _ = child.communicate()
    memory.ended.set()
    memory.join()
    if child.returncode:
        raise UserError(f"failed with status {child.returncode}", stage)
    told = json.loads(output.splitlines()[-1])
    row = {"stage": stage, "jobs": jobs, **told, "peak_bytes": memory.peak}
    print(json.dumps(row), flush=True)
    return row


def work(stage: str, folder: Path, jobs: int) -> None:
    """What such a process does: the stage, and then a line of JSON about it."""
    start = time.perf_counter()
    before = _cpu()
    counts = do(stage, folder, jobs)
    seconds, cpu = time.perf_counter() - start, _cpu() - before
    speed = {"lines_per_second": round(counts["lines"] / seconds, 1)}
    times = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}
    print(json.dumps({**times, **counts, **speed}))


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def surroundings() -> Json:
    """What the numbers depend on beside the code."""
    return {
        "date": today(),
        "commit": commit(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average_before": os.getloadavg(),
        **versions("sacremoses", "regex", "subword-nmt", "fairseq"),
    }


def table(rows: list[Json]) -> str:
    """The rows in Markdown, with what they come to for WMT14, in proportion to tokens."""
    tokens = sum({r["stage"]: r["tokens"] for r in rows if "tokenise" in r["stage"]}.values())
    lines = [
        "| stage | jobs | lines/s | CPU s | peak memory | WMT14: wall clock | CPU |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        wmt14 = ["", ""]
        if tokens and not row["stage"].startswith("learn"):
            times = WMT14_TOKENS / tokens
            wmt14 = [f"{row[key] * times / 60:,.0f} min" for key in ("seconds", "cpu_seconds")]
        lines.append(
            f"| {row['stage']} | {row['jobs']} | {row['lines_per_second']:,.0f} | "
            f"{row['cpu_seconds']:,.1f} | {row['peak_bytes'] / 2**20:,.0f} MiB | "
            f"{wmt14[0]} | {wmt14[1]} |"
        )
    return "\n".join(lines) + "\n"


def measure_all(args: argparse.Namespace) -> None:
    rows: list[Json] = []
    told: Json = {"command": " ".join([f"python -m {PROG}", *sys.argv[1:]]), **surroundings()}
    args.out.parent.mkdir(parents=True, exist_ok=True)

    def add(stage: str, folder: Path, jobs: int) -> None:
        rows.append(measure(stage, folder, jobs))
        write_json(args.out, {**told, "load_average_after": os.getloadavg(), "stages": rows})
        write_atomic(args.out.with_suffix(".table.md"), table(rows))

    with tempfile.TemporaryDirectory(prefix="measure-", dir=args.scratch) as name:
        folder = Path(name)
        told["corpora"] = gather(args.data, folder, args.pairs)
        told["pairs"] = count_lines(folder / "raw.en")
        for jobs in args.jobs:
            for stage in STAGES:
                add(stage, folder, jobs)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=PROG, description="Speed and memory of every stage.")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the corpora")
    parser.add_argument("--jobs", type=positive, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--out", type=Path, default=Path("data_prep.json"), metavar="FILE")
    parser.add_argument("--pairs", type=positive, metavar="N", help="of each corpus, at most")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where to work (default: /tmp)")
    parser.add_argument("--stage", help=argparse.SUPPRESS)  # how it calls itself
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.stage:
        die_with(args.parent)
        return run(PROG, lambda: work(args.stage, args.data, args.jobs[0]))
    return run(PROG, lambda: measure_all(args))


if __name__ == "__main__":
    sys.exit(main())
