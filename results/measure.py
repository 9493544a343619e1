"""Measure the rows of tables that have not been measured: writes results/NAME.json.

    python results/measure.py cache shrink --data data/multi30k --model m30k128-1=average.pt
    python results/measure.py rounded what_cuts_buy
    python results/measure.py --all --tiny

Rows are data: see rows.py.  A row is measured again if this project's code has changed since (any
file of its packages, with or without git), the checkpoint, the text, the number of calibration
sentences, or the row itself; or if it has seconds that another machine measured.  Each row is
written when it is measured, so that a program that is stopped goes on where it was.  Nothing is
trained.
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

from collab_common import command
from collab_common.errors import UserError
from collab_lab.clock import parts
from collab_lab.clock.engines import settings
from collab_lab.clock.lengths import in_new_process
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.fine_tuning import write_configuration
from results.changes import CHANGES
from results.measures import MEASURES, RANDOM, SECONDS
from results.records import ROOT, Content, File, digest, origin
from results.rows import Call, Row, call, tables
from results.work import DOCUMENTS, TEXTS, Case, Work


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


def case_of(row: Row, work: Work) -> Case:
    """The changed model; rows that follow each other may share it."""
    assert row.change is not None
    text = work.texts[row.calibration]
    text.next = work.other
    key = row.calibration, row.change, work.other
    if work.made[0] != key:
        work.made = key, run(CHANGES, row.change, text)
    return Case(work, text, work.made[1])


def inputs_of(row: Row, work: Work) -> list[Any]:
    """What a row of a trained model is made of, next to the code and the row itself."""
    inputs: list[Any] = [work.checkpoint, *(part for text in work.folders.items() for part in text)]
    inputs += [work.other] if row.change == call("another_seed") else []
    inputs += [work.group] if call("about_group") in row.measures else []
    return [*inputs, work.sentences, work.block]


def machine(row: Row, made: Content) -> Content:
    """What seconds depend on: settings and the processor; nothing for a row without seconds."""
    is_timed = row.change is None or any(call.name in SECONDS for call in row.measures)
    return {**settings(), "hardware": made["hardware"]} if is_timed else {}


def measure(file: File, row: Row, work: Work | None, made: Content, keep: Path | None) -> None:
    """Put a row into a file, if it is not there, or not made by this code of these inputs."""
    how = {} if work else settings()
    keys = {**({"model": work.name} if work else {}), **row.names}
    inputs = inputs_of(row, work) if work else []
    made_from = digest(*inputs, machine(row, made), *row[2:])
    label = f"{file.path.stem}: {label_of(row, work)}"
    if file.is_made(row.part, keys, made_from) and not keep:
        return
    seed = int(work.main.model.cfg.common.seed) if work else 1
    try:
        case = case_of(row, work) if work else None
        records = [{**how, **keys, **one, "seed": seed, **made, "made_from": made_from}
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


def label_of(row: Row, work: Work | None) -> str:
    """``rows toy latents 0.25``: what --only looks for."""
    return " ".join([row.part, *([work.name] if work else []), *map(short, row.names.values())])


def short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def keep_model(changed: Trained, folder: Path, names: Mapping[str, Any]) -> None:
    """Write a changed model and its configuration: ``model=heads-alone-0.66`` fine-tunes it."""
    chosen = [names[name] for name in ("name", "share") if name in names] or names.values()
    name = " ".join(map(short, chosen)).replace(" ", "-")
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
    ours = {"encoder_layers": 1, "decoder_layers": 1}
    args.of = {
        "changed": [*args.model, ("other", toy.write(folder / "other.pt", decoder_layers=1))],
        "live_slots": [("toy", toy.write(folder / "ours.pt", "transformer_headsize_n", **ours))],
        "long": [("manuals-1", checkpoint)],  # as its page calls it
    }
    args.text = dict.fromkeys(TEXTS[1:], args.data)
    args.sentences, args.group = 20, "toys"


def measured(args: argparse.Namespace, argv: Sequence[str]) -> int:
    """Measure the rows of all chosen tables: all rows of a model, then those of the next.

    Returns:
        The number of rows that are wanted, measured before or now.
    """
    made, known, wanted = origin("measure.py", argv), dict[tuple[str, Path], Work](), 0
    folders = {DOCUMENTS: args.data, **args.text}
    for table, rows in args.rows.items():
        given, file = args.of.get(table, args.model or []), File(args.out / f"{table}.json")
        for one in given:
            more = (args.sentences, args.block, args.group)
            known.setdefault(one, Work(one[0], one[1], folders, *more))
        works = [known[one] for one in given]
        for work, other in zip(works, [*works[1:], *works[:1]], strict=True):
            work.other = other.checkpoint
        pairs: list[tuple[Row, Work | None]] = [(row, None) for row in rows if row.change is None]
        pairs += [(r, w) for w in works for r in rows if r.change and w.has(r.calibration)]
        pairs = [pair for pair in pairs if args.only in label_of(*pair)]
        for pair in pairs:
            measure(file, *pair, made, args.keep)
        missing = [row for row in rows if row.change and all(row is not one for one, _ in pairs)]
        if missing and not args.only:
            todo = "give --model and --data, or --text"
            print(f"{table}: {len(missing)} rows are left out: {todo}", flush=True)
        wanted += len(pairs)
    return wanted


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
        if not measured(args, argv):
            todo = "give --model and --data, or others of --only and --parts"
            raise UserError("no row is wanted", ", ".join(args.rows), todo)
    return 0


if __name__ == "__main__":
    sys.exit(command.run("measure.py", lambda: main(sys.argv[1:])))
