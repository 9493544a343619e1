"""Measure the rows of tables that have not been measured: writes results/NAME.json.

    python results/measure.py cache shrink --data data/multi30k --model m30k128-1=average.pt
    python results/measure.py rounded what_cuts_buy
    python results/measure.py --all --tiny

Rows are data: see rows.py.  A row is measured again if this project's code has changed since (any
file of its packages, with or without git), the checkpoint, the text, the number of calibration
sentences, or the row itself.  Each row is written when it is measured, so that a program that is
stopped goes on where it was.  Nothing is trained.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from collab_common.errors import UserError
from collab_lab.clock import parts
from collab_lab.clock.engines import settings
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.configuration import write_configuration
from results.changes import CHANGES
from results.measures import MEASURES, RANDOM, Case
from results.records import ROOT, Content, File, digest, origin
from results.rows import Call, Row, call, tables
from results.seconds import in_new_process
from results.work import DOCUMENTS, TEXTS, Work


class Model:
    """A trained model of the command line, opened when a row needs it."""

    def __init__(self, name: str, checkpoint: Path, args: argparse.Namespace, other: Path):
        self.name, self.checkpoint, self.args, self.other = name, checkpoint, args, other
        self.texts: dict[str, Path] = {DOCUMENTS: args.data, **args.text}
        self._work: Work | None = None
        self._made: tuple[Any, Any] = None, None

    def inputs_of(self, row: Row) -> list[Any]:
        """What a row is made of, next to the code and the row itself."""
        texts = [part for item in self.texts.items() for part in item]
        others = [self.other] if row.change == call("another_seed") else []
        args = self.args
        return [self.checkpoint, *others, *texts, args.sentences, args.block, args.group]

    @property
    def work(self) -> Work:
        if self._work is None:
            args = self.args
            self._work = Work.of(
                self.checkpoint, self.texts, args.sentences, args.block, args.group
            )
        return self._work

    def has(self, row: Row) -> bool:
        """Whether the row is of trained models, and the text is there that it is calibrated on."""
        texts = {*self.texts, *["sentences"] * (self.args.block is not None)}
        return row.change is not None and row.calibration in texts

    def case(self, row: Row) -> Case:
        """The changed model; rows that follow each other may share it."""
        assert row.change is not None
        text = self.work.texts[row.calibration]
        text.next = self.other
        if self._made[0] != (text, row.change):
            self._made = (text, row.change), run(CHANGES, row.change, text)
        return Case(self.work, text, self._made[1])


def run(functions: Mapping[str, Any], call: Call, *first: Any) -> Any:
    """Call a function by its name."""
    return functions[call.name](*first, **call.arguments)


def found(row: Row, case: Case | None) -> list[Content]:
    """What is measured of a row: one record, or those of its one measure."""
    functions, first = (MEASURES, [case]) if case else (RANDOM, [])
    measured = [run(functions, call, *first) for call in row.measures]
    if row.each:
        (records,) = measured
        return [*records]
    return [{name: value for one in measured for name, value in one.items()}]


def measure(file: File, row: Row, model: Model | None, made: Content, keep: Path | None) -> None:
    """Put a row into a file, if it is not there, or not made by this code of these inputs."""
    how = {} if model else settings()
    names = {**({"model": model.name} if model else how), **row.names}
    inputs = model.inputs_of(row) if model else [how]
    made_from, label = digest(*inputs, *row[2:]), f"{file.path.stem}: {label_of(row, model)}"
    keys = {name: names[name] for name in names if name not in how or name in row.names}
    if file.is_made(row.part, keys, made_from) and not keep:
        return
    try:
        case = model.case(row) if model else None
        seed = int(case.work.main.model.cfg.common.seed) if case else 1
        records = [{**names, **one, "seed": seed, **made, "made_from": made_from}
                   for one in found(row, case)]  # fmt: skip
    except UserError as error:  # such as units alone below their share
        print(f"{label}: left out: {error}", flush=True)
        return
    file.put(row.part, *(({**keys, **{n: one[n] for n in row.each}}, one) for one in records))
    for one in records:
        shown = [f"{name} {one[name]}" for name in (*row.each, "price", "lost") if name in one]
        print(f"{label}: {', '.join(shown) or 'measured'}", flush=True)
    if keep and case and case.made.model is not case.text.model:
        keep_model(case.made.model, keep, row.names)


def label_of(row: Row, model: Model | None) -> str:
    """``rows toy latents 0.25``: what --only looks for."""
    names = [*([model.name] if model else []), *row.names.values()]
    return " ".join([row.part, *(f"{v:.4g}" if isinstance(v, float) else str(v) for v in names)])


def keep_model(changed: Trained, folder: Path, names: Mapping[str, Any]) -> None:
    """Write a changed model and its configuration: ``model=heads-alone-0.66`` fine-tunes it."""
    name = f"{names['name']} {names['share']:.4g}".replace(" ", "-")
    checkpoint = folder / "model" / f"{name}.pt"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    changed.save(checkpoint)
    write_configuration(changed, checkpoint)


# ---- the program ---------------------------------------------------------------------------------


def pair(text: str) -> tuple[str, Path]:
    """``NAME=PATH``."""
    name, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"is not NAME=PATH: {text}")
    return name, Path(path)


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The options; rows and the folder of files are chosen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="NAME", help=f"of {', '.join(tables())}")
    parser.add_argument("--all", action="store_true", help="all tables")
    parser.add_argument("--data", type=Path, help="data folder of the trained models")
    parser.add_argument("--model", action="append", type=pair, metavar="NAME=CHECKPOINT")
    parser.add_argument(
        "--text", action="append", type=pair, default=[], metavar="NAME=DATA",
        help="another data folder of the same vocabulary: sentences (shorter texts), or other",
    )  # fmt: skip
    parser.add_argument("--block", type=int, metavar="N", help="tokens of a language model's "
                        "shorter texts, in place of --text sentences=DATA")  # fmt: skip
    parser.add_argument("--sentences", type=int, default=1000, help="calibration sentences")
    parser.add_argument("--group", help="of prices: models of one group are averaged")
    parser.add_argument("--parts", nargs="+", metavar="PART", help="lists of the files")
    parser.add_argument("--only", default="", metavar="WORDS", help="rows whose names have this")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="measure again, and keep changed models here"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of files (default: results)")
    parser.add_argument("--tiny", action="store_true", help="toys, for tests; nothing is kept")
    args = parser.parse_args(argv)
    args.text, args.of = dict(args.text), {}
    known = tables(args.tiny)
    if bool(args.tables) == args.all or not {*args.tables} <= {*known}:
        parser.error(f"give --all, or names of {', '.join(known)}")
    if bool(args.model) != bool(args.data):
        parser.error("--model goes with --data")
    if not {*args.text} <= {*TEXTS[1:]} or (args.block is not None and "sentences" in args.text):
        parser.error(f"--text is of {', '.join(TEXTS[1:])}; --block makes the sentences")
    args.rows = {
        name: [row for row in rows if row.part in (args.parts or [row.part])]
        for name, rows in known.items() if args.all or name in args.tables
    }  # fmt: skip
    return args


def toys(folder: Path, args: argparse.Namespace) -> None:
    """Give models and text of tests, where none are given."""
    sys.path.append(str(ROOT / "tests"))
    toy = import_module("toy_checkpoints")
    checkpoint = toy.write(folder / "toy.pt", encoder_layers=1)
    args.model = [("toy", checkpoint)]
    args.data = toy.with_raw_text(toy.words_as_text(folder / "data"), checkpoint)
    args.of = {
        "changed": [*args.model, ("other", toy.write(folder / "other.pt", decoder_layers=1))],
        "live_slots": [("toy", toy.write(folder / "ours.pt", "transformer_headsize_n"))],
        "long": [("manuals-1", checkpoint)],  # as its page calls it
    }
    args.text = dict.fromkeys(TEXTS[1:], args.data)
    args.sentences, args.group = 20, "toys"


def measured(args: argparse.Namespace, argv: Sequence[str]) -> None:
    """Measure the rows of all chosen tables: all rows of a model, then those of the next."""
    made, models = origin("measure.py", argv), dict[tuple[str, Path], Model]()
    for name, rows in args.rows.items():
        given, file = args.of.get(name, args.model or []), File(args.out / f"{name}.json")
        others = [checkpoint for _, checkpoint in [*given[1:], *given[:1]]]
        for one, other in zip(given, others, strict=True):
            models[one] = models.get(one) or Model(*one, args, other)
            models[one].other = other
        for model in (None, *(models[one] for one in given)):
            for row in rows:
                wanted = row.change is None if model is None else model.has(row)
                if wanted and args.only in label_of(row, model):
                    measure(file, row, model, made, args.keep)


def main(argv: Sequence[str]) -> int:
    args = parsed(argv)
    if {"long_steps", "live_slots"} & {*args.rows}:
        in_new_process(int)  # the server of such processes starts now
    with tempfile.TemporaryDirectory() as folder, ExitStack() as patches:
        if args.tiny:
            patches.enter_context(mock.patch.object(parts, "BUDGET", 0.1))
            if not args.model:
                toys(Path(folder), args)
        args.out = args.out or (Path(folder) if args.tiny else ROOT / "results")
        args.out.mkdir(parents=True, exist_ok=True)
        measured(args, argv)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
