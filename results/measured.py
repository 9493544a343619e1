"""Rows that programs measure on trained models: their command line, and files that resume.

A row replaces that of the same model and change; rows of other models stay.  Each row that is
measured here has its command, commit, machine and date, and a hash of its code and inputs: a
program that is run again measures the rows that others made.  Older rows keep what they have.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from collab_common.errors import UserError
from collab_common.files import read_json, sha256, updated, write_atomic
from collab_common.provenance import circumstances
from collab_lab import open_model
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking.evidence import Evidence
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.configuration import write_configuration
from collab_lab.trained.sentences import samples

Content = dict[str, Any]
#: The folders of this project's code.
CODE = ("collab_common", "collab_lab", "data_prep", "fairseq_collab", "fairseq_compat", "results")


class Wanted(NamedTuple):
    """A row: the list of the file that it is in, and what it is of.

    Attributes:
        of: what a program needs to know of it besides; it is not in the file.
        inputs: what it is made of besides the model and its data, for :func:`digest`.
    """

    part: str
    keys: Content
    of: Any = None
    inputs: Sequence[Any] = ()


class Work:
    """A trained model: one pass for prices, and its losses on two sets."""

    def __init__(self, checkpoint: Path, data: Path, sentences: int = 1000):
        self.model, self.sentences = open_model(checkpoint, data), sentences
        self.found = Evidence.of(self.model, sentences=sentences)
        self.sets = {name: samples(self.model, name) for name in ("valid", "test")}
        self.bits = {name: mean_bits(self.model.model, of) for name, of in self.sets.items()}
        self.changed = self.model
        self.read: Content = {"statistics": self.found.attentions, "sentences": sentences}

    def lost(self, changed: Trained) -> dict[str, float]:
        """The rise of both losses; the model is kept as :attr:`changed`."""
        self.changed = changed
        after = {name: mean_bits(changed.model, of) for name, of in self.sets.items()}
        rises = {name: round(after[name] - self.bits[name], 6) for name in after}
        return {"lost": rises["valid"], "lost_test": rises["test"]}

    def about(self) -> Content:
        """Its size and losses."""
        layers = [len(self.model.attentions[t]) for t in ("encoder", "decoder")]
        return {
            "d": int(self.model.options["decoder_embed_dim"]),
            "ffn_dim": int(self.model.options["decoder_ffn_embed_dim"]),
            "layers": "+".join(map(str, layers)),
            "parameters": sum(p.numel() for p in self.model.model.parameters()),
            "valid_bits": round(self.bits["valid"], 6),
            "test_bits": round(self.bits["test"], 6),
        }


def write(path: Path, content: Content) -> None:
    """Write a file of data atomically, in the form that stored ones have."""
    write_atomic(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


class File:
    """A file of data: lists of rows, by part."""

    def __init__(self, path: Path):
        self.path = path
        self.content: Content = read_json(path) if path.exists() else {}

    def find(self, part: str, keys: Mapping[str, Any]) -> Content | None:
        """The row that has these keys; one may lack a key that only newer rows have."""
        rows = self.content.get(part, [])
        return next((row for row in rows if is_same(row, keys)), None)

    def is_made(self, part: str, keys: Mapping[str, Any], made_from: str) -> bool:
        """Whether a row is there that this code made of these inputs: see :func:`digest`."""
        return (self.find(part, keys) or {}).get("made_from") == made_from

    def put(self, part: str, keys: Mapping[str, Any], row: Content) -> None:
        """Write a row in place of the former one; the file is replaced whole."""
        with updated(self.path, {}, write) as self.content:
            rows, former = self.content.setdefault(part, []), self.find(part, keys)
            if former is None:
                rows.append(row)
            else:
                rows[rows.index(former)] = row

    def add(self, part: str, row: Content) -> None:
        """Write one more row."""
        with updated(self.path, {}, write) as self.content:
            self.content.setdefault(part, []).append(row)


def is_same(row: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    """Whether a row has these keys; shares may be rounded."""
    return all(_equal(row.get(name, value), value) for name, value in keys.items())


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, abs_tol=1e-6)
    return bool(one == other)


def origin(program: str, argv: Sequence[str], *inputs: Any) -> Content:
    """Where rows come from that are measured now.

    Args:
        inputs: what the rows are made of, for :func:`digest`; none for rows that are made anew.
    """
    now = circumstances(cpu=True)
    command = shlex.join(["python", f"results/{program}", *argv])
    made = {"command": command, **{key: now[key] for key in ("commit", "hardware", "date")}}
    return {**made, "made_from": digest(*inputs)} if inputs else made


def digest(*inputs: Any) -> str:
    """A hash of this project's code, as it is in the files, and of a measure's inputs.

    A commit would not do: a copy may have none, and changed files none of their own.

    Args:
        inputs: checkpoints, data folders (their dictionaries and texts count), and options.
    """
    of = hashlib.sha256(_code().encode())
    for one in inputs:
        of.update(_content(one).encode())
    return of.hexdigest()[:16]


def _content(one: Any) -> str:
    """An input: hashes of a checkpoint or of a data folder's files, else the option itself."""
    if not isinstance(one, Path):
        return repr(one)
    folders = [Path(folder) for folder in str(one).split(os.pathsep)]
    parts = ("dict.*", "*.idx", "*.bin", "raw/*")  # words may change where no length does
    files = (sorted(one for part in parts for one in of.glob(part)) if of.is_dir() else [of]
             for of in folders)  # fmt: skip
    return "".join(sha256(file) for of_one in files for file in of_one)


@functools.cache
def _code() -> str:
    """A hash of the files of all packages of this project."""
    root = Path(__file__).resolve().parents[1]
    files = sorted(path for name in CODE for path in root.glob(f"{name}/**/*.[cp]*"))
    code = [path for path in files if path.suffix in (".c", ".py")]
    return hashlib.sha256("".join(map(sha256, code)).encode()).hexdigest()


def run(
    program: str,
    text: str | None,
    argv: Sequence[str],
    rows_of: Callable[[str], Iterable[Wanted]],
    measure: Callable[[Work, Wanted], Content],
) -> int:
    """Measure the rows of files that this code has not yet made of these inputs.

    Args:
        text: what the program does, a docstring.
        rows_of: the rows of a file, by its name without ``.json``.
        measure: a row's numbers; UserError for a change that is impossible, which is left out.
    """
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="results/NAME.json")
    parser.add_argument("--data", type=Path, required=True, help="data folder")
    parser.add_argument("--model", action="append", required=True, metavar="NAME=CHECKPOINT")
    parser.add_argument("--sentences", type=int, default=1000, help="calibration sentences")
    parser.add_argument("--only", metavar="WORDS", help="names of rows that contain this")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="measure again, and keep changed models here"
    )
    args = parser.parse_args(argv)
    for name, _, checkpoint in (model.partition("=") for model in args.model):
        work: Work | None = None
        inputs = (Path(checkpoint), args.data, args.sentences)
        made = origin(program, argv, *inputs)
        for file in map(File, args.files):
            for wanted in rows_of(file.path.stem):
                keys = {"model": name, **wanted.keys}
                label = " ".join(map(_short, keys.values()))
                former = file.find(wanted.part, keys) or {}
                of_row = {**made, "made_from": digest(*inputs, *wanted.inputs)}
                is_made = file.is_made(wanted.part, keys, of_row["made_from"])
                if (is_made and not args.keep) or (args.only or "") not in label:
                    continue
                work = work or Work(Path(checkpoint), args.data, args.sentences)
                try:
                    found = measure(work, wanted)
                except UserError as error:  # such as units alone below their share
                    print(f"{file.path.stem}: {label}: {error}", flush=True)
                    continue
                row = {**keys, "d": work.about()["d"], **found, **of_row}
                file.put(wanted.part, keys, row)
                if args.keep:
                    keep(work.changed, args.keep, wanted.keys)
                before = f" (was {former['lost']})" if "lost" in former else ""
                print(f"{file.path.stem}: {label}: {found['lost']}{before}", flush=True)
            if work is not None:
                about = {"model": name, **work.about(), "sentences": args.sentences, **made}
                file.put("models", {"model": name}, about)
    return 0


def keep(changed: Trained, folder: Path, keys: Mapping[str, Any]) -> None:
    """Write a changed model and its configuration: ``model=heads-alone-0.66`` fine-tunes it."""
    name = f"{keys['name']} {keys['share']:.4g}".replace(" ", "-")
    checkpoint = folder / "model" / f"{name}.pt"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    changed.save(checkpoint)
    write_configuration(changed, checkpoint)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
