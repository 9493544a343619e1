"""How fast each stage from text to binarised data is, and how much memory it takes.

    python -m data_prep.measure --data ../shared/data --jobs 1 2 --out results/data_prep.json

joins all English-German training text below --data and runs the stages of fairseq's WMT14 recipe
on it, each in a process of its own, with each number of jobs. Measured are

    seconds     wall clock of the stage's function alone: no start of the interpreter, no imports
    CPU         seconds of all its processes, user and system: the best guide on a loaded machine
    memory      the largest sum, over the processes of the stage, of their proportional set sizes
                (Pss in /proc/PID/smaps_rollup: resident memory, pages that forked processes
                share counted once), sampled every 50 ms

    python -m data_prep.measure_memory --data ../shared/data --every 16 4 1 \\
        --stress-types 2500000 --out results/data_prep_memory.json

measures how the memory of learning subwords grows with the number of different words: it learns
40,000 merges, with one job, from every 16th, 4th and single line of that text, tokenised; then,
with --stress-types, from a text of as many different words, each of them once: those of the text,
and pairs of them. T tokens have about c T^p different words (Heaps' law): the p between one part
of the text and the next predicts how many WMT14 would have, if that went on.

Both write the numbers to --out; the first also writes a table beside it (.table.md), the second
prints one. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from tabulate import tabulate

from collab_common.command import positive, run
from collab_common.errors import UserError
from collab_common.files import as_json, count_lines, make_folder, open_bytes, write_content
from collab_common.provenance import commit, processor, today, versions
from data_prep import bpe
from data_prep.binarise import binarise
from data_prep.child import die_with
from data_prep.clean_pairs import clean_pairs
from data_prep.faults import Kind
from data_prep.moses import normalise_and_tokenise
from data_prep.policy import Action, Policy
from data_prep.streams import read_blocks
from data_prep.validate import validate

PROG = "data_prep.measure"
LANGUAGES = ("en", "de")
TRAINING = ("multi30k/train", "tatoeba_en_de/train", "mix_en_de/*")
# of both sides of WMT14's 4.5 million pairs, about: 27 a sentence, twice as long as those here
WMT14_TOKENS = 240_000_000
MERGES = 40_000  # fairseq's; the papers' ready-made archive has 32,000
LOOK_EVERY = 0.05  # seconds
MADE_UP = "made-up words"
WORDS_A_LINE = 20
_ENDED = (FileNotFoundError, ProcessLookupError)  # what /proc raises for a process that has ended

# no text is refused, whatever is in it: nothing is trained on it
DROPPED = (Kind.UTF8, Kind.CR, Kind.NUL, Kind.EMPTY, Kind.LONG)
POLICY = Policy(
    {kind: Action.DROP if kind in DROPPED else Action.COUNT for kind in Kind}
    | {Kind.LINE_COUNT: Action.REFUSE}
)

Json = dict[str, Any]
STAGES: tuple[str, ...] = ("validate", "tokenise en", "tokenise de", "learn 32,000", "learn 40,000")
STAGES += ("apply en", "apply de", "clean", "binarise")


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


def _tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for one in found:  # which grows meanwhile
        with contextlib.suppress(*_ENDED):
            for thread in os.listdir(f"/proc/{one}/task"):
                found += map(int, _proc(f"{one}/task/{thread}/children").split())
    return found


def _pss(pid: int) -> int:
    """Proportional set size of a process in bytes; 0 for one that has ended."""
    found = re.search(r"^Pss:\s+(\d+) kB$", _proc(f"{pid}/smaps_rollup"), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def _proc(name: str) -> str:
    """A file of /proc; empty if its process has ended since it was listed."""
    try:
        return Path("/proc", name).read_text()
    except _ENDED:
        return ""


def measure(stage: str, folder: Path, jobs: int) -> Json:
    """Runs a stage in a process of its own; time, memory and counts."""
    arguments = ["--stage", stage, "--data", str(folder), "--jobs", str(jobs)]
    arguments += ["--parent", str(os.getpid())]
    child = subprocess.Popen(
        [sys.executable, "-m", PROG, *arguments], stdout=subprocess.PIPE, text=True
    )
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
    """What the numbers depend on besides the code."""
    return {
        "date": today(),
        "commit": commit(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average_before": os.getloadavg(),
        **versions("sacremoses", "regex", "subword-nmt", "fairseq"),
    }


def table(rows: Sequence[Json], *columns: str) -> str:
    """These columns of the rows, in Markdown."""
    chosen = [{name: row[name] for name in columns} for row in rows]
    return tabulate(chosen, "keys", "pipe", intfmt=",", floatfmt=",.1f") + "\n"


@contextlib.contextmanager
def _gathered(args: argparse.Namespace, command: str, **more: Any) -> Iterator[tuple[Path, Json]]:
    """A scratch folder with the text, and the start of what is written to --out."""
    make_folder(args.out.parent)
    content: Json = {"command": command, **surroundings(), **more}
    with tempfile.TemporaryDirectory(prefix="measure-", dir=args.scratch) as name:
        content["corpora"] = gather(args.data, Path(name), args.pairs)
        content["pairs"] = count_lines(Path(name, "raw.en"))
        yield Path(name), content


def _write(args: argparse.Namespace, content: Json, **more: Any) -> None:
    """Writes --out, whole, after each measurement."""
    whole = {**content, "load_average_after": os.getloadavg(), **more}
    write_content(args.out, as_json(whole).encode())


def measure_stages(args: argparse.Namespace, command: str) -> None:
    """Every stage, with each number of jobs."""
    rows: list[Json] = []
    columns = ("stage", "jobs", "lines_per_second", "cpu_seconds", "peak_bytes")
    with _gathered(args, command) as (folder, content):
        for jobs in args.jobs:
            for stage in STAGES:
                rows.append(measure(stage, folder, jobs))
                _write(args, content, stages=rows)
                write_content(args.out.with_suffix(".table.md"), table(rows, *columns).encode())


def take_every(folder: Path, nth: int, out: Path) -> None:
    """Writes every nth line of both sides of the tokenised text to another folder."""
    out.mkdir()
    for source, target in zip(pair(folder, "tok"), pair(out, "tok"), strict=True):
        with source.open("rb") as lines, target.open("wb") as output:
            output.writelines(islice(lines, 0, None, nth))


def make_up(words: Sequence[str], types: int) -> list[str]:
    """A list of so many different words, in random order: those given, and pairs of them.

    Raises:
        UserError: there are more words than that already, or too few to make so many of.
    """
    real = [word for word in words if word.isalpha()]
    most = len(real) ** 2 // 2  # nearer to all pairs, chance would hardly find a new one
    if not len(words) < types <= most:
        what = f"the text has {len(words):,} different words"
        raise UserError(what, f"--stress-types {types}", f"give more, and at most {most}")
    made = dict.fromkeys(words)
    rng = random.Random(1)
    while len(made) < types:
        made[rng.choice(real) + rng.choice(real).lower()] = None
    found = list(made)
    rng.shuffle(found)
    return found


def write_made_up(words: Sequence[str], out: Path) -> None:
    """Writes the words as a tokenised text, a few a line, half of the lines to either side."""
    out.mkdir()
    starts = range(0, len(words), WORDS_A_LINE)
    lines = [" ".join(words[start : start + WORDS_A_LINE]) + "\n" for start in starts]
    for number, path in enumerate(pair(out, "tok")):
        path.write_text("".join(lines[number :: len(LANGUAGES)]), encoding="utf-8")


def different_words(folder: Path) -> list[str]:
    """The words of both sides of the tokenised text, in the order of their first places."""
    words: dict[str, int] = {}
    for path in pair(folder, "tok"):
        for block in read_blocks(path):
            words |= bpe.count_words(block)[1]
    return list(words)


def growth(texts: Sequence[Json]) -> Json | None:
    """How different words grow with tokens, and how many WMT14 would have if that went on.

    Args:
        texts: records of the parts of one text, the smallest first; made-up words are left out.

    Returns:
        "powers", one for each part but the first, and "wmt14_words", which goes on with the last;
        None for a single part.

    Raises:
        UserError: a part has no more of them than the one before, as with very little text.
    """
    parts = [text for text in texts if text["text"] != MADE_UP]
    powers = []
    for before, after in pairwise(parts):
        if any(after[count] <= before[count] for count in ("types", "tokens")):
            what = f"no more different words, or no more tokens, than {before['text']}"
            raise UserError(what, after["text"], "give numbers further apart with --every")
        words, tokens = (after[count] / before[count] for count in ("types", "tokens"))
        powers.append(math.log(words) / math.log(tokens))
    if not powers:
        return None
    expected = parts[-1]["types"] * (WMT14_TOKENS / parts[-1]["tokens"]) ** powers[-1]
    return {"powers": [round(power, 3) for power in powers], "wmt14_words": round(expected)}


def measure_texts(args: argparse.Namespace, command: str) -> None:
    """Learning subwords from parts of the text, and from made-up words."""
    texts: list[Json] = []
    with _gathered(args, command, merges_wanted=MERGES) as (folder, content):
        for stage in STAGES[:3]:
            do(stage, folder, jobs=1)
        if args.stress_types:  # first, as it may be refused
            words = make_up(different_words(folder), args.stress_types)
            write_made_up(words, folder / "made-up")
        parts = {}
        for nth in sorted(set(args.every), reverse=True):
            parts["every line" if nth == 1 else f"1 line of {nth}"] = folder / str(nth)
            take_every(folder, nth, folder / str(nth))
        if args.stress_types:
            parts[MADE_UP] = folder / "made-up"
        for text, part in parts.items():
            texts.append({"text": text, **measure(f"learn {MERGES:,}", part, jobs=1)})
            _write(args, content, growth=growth(texts), texts=texts)
    print(table(texts, "text", "tokens", "types", "merges", "cpu_seconds", "peak_bytes"), end="")


def _options(parser: argparse.ArgumentParser) -> None:
    """What both commands accept."""
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the corpora")
    parser.add_argument("--pairs", type=positive, metavar="N", help="of each corpus, at most")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where to work (default: /tmp)")


def main(argv: Sequence[str] | None = None) -> int:
    """Speed and memory of every stage."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog=PROG, description=main.__doc__)
    _options(parser)
    parser.add_argument("--jobs", type=positive, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--out", type=Path, default=Path("data_prep.json"), metavar="FILE")
    parser.add_argument("--stage", help=argparse.SUPPRESS)  # how it calls itself
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.stage:
        die_with(args.parent)
        return run(PROG, lambda: work(args.stage, args.data, args.jobs[0]))
    command = shlex.join(["python", "-m", PROG, *argv])
    return run(PROG, lambda: measure_stages(args, command))


def memory_main(argv: Sequence[str] | None = None) -> int:
    """Memory of learning subwords against the number of different words."""
    argv = sys.argv[1:] if argv is None else argv
    prog = f"{PROG}_memory"
    parser = argparse.ArgumentParser(prog=prog, description=memory_main.__doc__)
    _options(parser)
    parser.add_argument(
        "--every", type=positive, nargs="+", default=[16, 4, 1], metavar="N", help="Nth line"
    )
    parser.add_argument("--stress-types", type=positive, metavar="N", help="also made-up words")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON to write")
    args = parser.parse_args(argv)
    return run(prog, lambda: measure_texts(args, shlex.join(["python", "-m", prog, *argv])))


if __name__ == "__main__":
    sys.exit(main())
