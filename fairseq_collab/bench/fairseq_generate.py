"""The real ``fairseq-generate``, start to end: trained models beside their twins, or one another.

Its own clock is the one of its last line, which runs while it searches: no loading, no
detokenising.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fairseq_collab
from collab_common.errors import UserError
from collab_common.progress import say
from collab_common.provenance import circumstances
from fairseq_collab.bench.models import STOCK, trained_pairs
from fairseq_collab.bench.settings import BEAM, Record, Settings
from fairseq_collab.bench.timing import compare
from fairseq_collab.runs.fairseq_output import UTF_8, Translated, last_line, translated
from fairseq_collab.trained.opener import GIVE_DATA, save

#: How far two scores of one translation may be apart, as printed.
SCORE_TOLERANCE = 1e-3
#: How often each model of a pair is run.
TURNS = 3
#: Sentences that it translates together, and those of which set.
BATCH, SUBSET = 64, "test"
#: Of the JSON file of decoding speeds.
VERSION = 1


class Finished(NamedTuple):
    """A finished ``fairseq-generate``: its last words, seconds by our clock, H- and D- lines."""

    summary: Translated
    wall: float
    lines: list[str]


def translate(path: Path, settings: Settings, length: int | None = None) -> Finished:
    """Translate the test set with the real command; raises UserError if it fails.

    Args:
        length: of every translation, in tokens before the end; else as long as the model finds.
    """
    command = [
        *(str(Path(sys.executable).with_name("fairseq-generate")), str(settings.data)),
        *("--user-dir", str(Path(fairseq_collab.__file__).parent), "--path", str(path)),
        *("--gen-subset", SUBSET, "--beam", str(BEAM), "--batch-size", str(BATCH)),
        *(["--cpu"] * (settings.device == "cpu")),
    ]
    if length is not None:
        command += [f"--min-len={length}", "--max-len-a=0", f"--max-len-b={length}"]
    environment = {**os.environ, **UTF_8, "OMP_NUM_THREADS": str(settings.threads)}
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
    wall = time.perf_counter() - start
    found = translated(done.stdout + done.stderr)
    if done.returncode or found is None:
        raise UserError(f"fairseq-generate failed: {last_line(done.stderr)}", path)
    return Finished(found, wall, re.findall(r"^[HD]-.*", done.stdout, re.MULTILINE))


def in_turn(
    models: Sequence[Path], rounds: int, settings: Settings, length: int | None = None
) -> list[list[Finished]]:
    """Translate with all models in rounds, every other one backwards; a list for each model."""
    found: list[list[Finished]] = [[] for _ in models]
    for number in range(rounds):
        for i in range(len(models))[:: -1 if number % 2 else 1]:
            say(f"round {number + 1} of {rounds}: {models[i]}")
            found[i].append(translate(models[i], settings, length))
    return found


# ---- a trained model and its twin ----------------------------------------------------------------


def run(settings: Settings) -> Iterator[Record]:
    """Both models of each pair in turn: two records, by either clock.

    With one matrix library only: starting fairseq takes longer than what it would show.  In float32
    only: fairseq-generate takes ``--bf16`` and goes on in float32.
    """
    turns = 1 if settings.quick else TURNS
    left_out = settings.main_only or settings.dtype != "float32"
    for pair in () if left_out else trained_pairs(settings):
        with tempfile.TemporaryDirectory() as folder:
            files = Path(folder, "stock.pt"), Path(folder, "ours.pt")
            for trained, file in zip((pair.stock, pair.ours), files, strict=True):
                save(trained, file)
            found = in_turn(files, turns, settings)
        for stock, ours in zip(*found, strict=True):
            check_files(stock.lines, ours.lines)
        labels: Record = dict.fromkeys(("sentences", "work"), found[0][0].summary.sentences)
        labels |= {"part": "generate", "preset": "trained", "model": pair.name, "against": STOCK}
        labels |= {"beam": BEAM, "batch": BATCH, "ties": 0, "unit": "sentences"}
        clocks = {
            "its own clock": [
                [one.summary.sentences / one.summary.speed for one in f] for f in found
            ],
            "start to end": [[one.wall for one in f] for f in found],
        }
        for clock, times in clocks.items():
            yield {**labels, "case": f"fairseq-generate, {clock}", **compare(*times)}


def check_files(stock: list[str], ours: list[str]) -> None:
    """``H-`` and ``D-`` lines (number, score, text) must agree; UserError names the first other."""
    if len(stock) != len(ours):
        counts = f"{len(stock)} lines of translations by fairseq's model, {len(ours)} by ours"
        raise UserError(counts)
    for lines in zip(stock, ours, strict=True):
        names, scores, texts = zip(*(line.split("\t", 2) for line in lines), strict=True)
        apart = abs(float(scores[0]) - float(scores[1]))
        if len({*names}) + len({*texts}) > 2 or apart > SCORE_TOLERANCE:
            raise UserError(f"translations differ in {names[0]}: {texts[0]!r} and {texts[1]!r}")


# ---- any trained models --------------------------------------------------------------------------


def decoding(
    models: Sequence[Path],
    names: Sequence[str],
    rounds: int,
    length: int | None,
    settings: Settings,
    command: str,
) -> dict[str, Any]:
    """How fast trained models translate, in turn: the content of the JSON file."""
    check(Path(str(settings.data)), models, names)
    load = os.getloadavg()
    found = in_turn(models, rounds, settings, length)
    return {
        "version": VERSION,
        "command": command,
        **circumstances(settings.device == "cpu"),
        "load_average_before": load,
        "threads": settings.threads,
        "data": settings.data,
        "subset": SUBSET,
        "beam": BEAM,
        "batch": BATCH,
        "length": length,
        "models": summarise(models, names, found),
    }


def check(data: Path, models: Sequence[Path], names: Sequence[str]) -> None:
    """Raises UserError for what can be known to be wrong before anything is timed."""
    if len(names) != len(models):
        what = f"{len(names)} for {len(models)} models"
        raise UserError(what, "--names", "give one for each model, in their order")
    if not any(data.glob(f"{SUBSET}.*.idx")):
        raise UserError(f"no binarised {SUBSET} set in it", data, GIVE_DATA)


def summarise(
    models: Sequence[Path], names: Sequence[str], found: Sequence[Sequence[Finished]]
) -> list[Record]:
    """One record a model: what every round found, and its spreads.

    A ratio is the sentences/s of a model to those of the first model in the same round, so that
    what slows the machine for longer than a round slows both.
    """
    speeds = [np.array([one.summary.speed for one in rounds]) for rounds in found]
    return [
        {
            "name": name,
            "file": str(model),
            "rounds": [
                {
                    "sentences": one.summary.sentences,
                    "sentences_per_second": one.summary.speed,
                    "target_tokens": one.summary.tokens,
                    "wall_seconds": round(one.wall, 2),
                }
                for one in rounds
            ],
            "sentences_per_second": spread(speed),
            "ratio": spread(speed / speeds[0]),
        }
        for model, name, rounds, speed in zip(models, names, found, speeds, strict=True)
    ]


def spread(values: Any) -> dict[str, float]:
    """Median, least and most."""
    found = {"median": np.median(values), "least": min(values), "most": max(values)}
    return {name: round(float(value), 4) for name, value in found.items()}
