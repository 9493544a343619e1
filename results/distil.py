r"""Quality against seconds of cut, distilled and small models: writes results/distil.json.

    OMP_NUM_THREADS=1 python results/distil.py results/distil.json --data DATA 1=runs/distil-1 \
        --recipe 'MODEL=... SEED=N bash recipes/distil.sh'

Folders are those of recipes/distil.sh, with the seed of their trainings, which is N in
``--recipe``.  A row keeps that line, which also made the cuts, and the command of its own training.
Each model translates the test sets with int8 in ONNX Runtime and, if its heads go there, in
CTranslate2, the whole model also with float32.  BLEU and chrF are those of these translations; a
turn is the first set, translated by all models of a folder one after the other, in one process,
with beam 5.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from ctranslate2 import Translator as CTranslate2
from sentencepiece import SentencePieceProcessor

import fairseq_collab  # noqa: F401 (registers all architectures)
from collab_common import command
from collab_common.command import positive
from collab_common.errors import UserError
from collab_common.progress import bar, say
from collab_lab import open_model
from collab_lab.clock.engines import settings, write
from collab_lab.clock.turns import pause, turns
from collab_lab.export import ct2, onnx
from collab_lab.export.translate import Translator
from collab_lab.metrics.loss import mean_bits
from collab_lab.metrics.translation_scores import score
from collab_lab.runs.record import Record
from collab_lab.runs.run import Run, runs_under
from collab_lab.shrinking.engine import TIMED_IN, engine_of
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import samples
from results.records import Content, File, origin

#: Folders of recipes/distil.sh: what was distilled is in the first.
PARTS = ("measured", "text")
WHOLE = "whole"
INT8 = ("onnx-int8", "ct2-int8")
FLOAT32 = ("onnx-float32", "ct2-float32")
#: What a row keeps of the record of a training, next to its command.
TRAINING = ("trained_at_commit", "train_updates", "checkpoint_rule", "data_sha256")
BEAM = 5
BATCH = 32
#: From lines to their translations.
Translate = Callable[[Sequence[str]], list[str]]


class Engine(NamedTuple):
    """A model in an engine: its method, the MB of its folder, and how it translates."""

    method: str
    name: str
    mb: float
    translate: Translate


def in_onnx(folder: Path) -> Translate:
    """With the program of an exported folder."""
    model = Translator(folder, torch.get_num_threads())

    def translate(lines: Sequence[str]) -> list[str]:
        return [best.text for best, *_ in model.translate(lines, BEAM, BATCH)]

    return translate


def in_ctranslate2(trained: Trained, name: str, folder: Path, data: Path) -> Translate:
    """With the subwords of the data folder; like lengths are translated together."""
    threads = {"inter_threads": 1, "intra_threads": torch.get_num_threads()}
    model = CTranslate2(str(folder), compute_type=TIMED_IN[name][1], **threads)
    subwords = SentencePieceProcessor(model_file=str(data / "spm.model"))

    def translate(lines: Sequence[str]) -> list[str]:
        pieces = subwords.encode(list(lines), out_type=str)
        order = sorted(range(len(lines)), key=lambda line: len(pieces[line]))
        found = dict[int, str]()
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            sources = [pieces[row] for row in rows]
            options = ct2.search_options(trained.model, max(map(len, sources)))
            for row, result in zip(rows, model.translate_batch(sources, **options), strict=True):
                found[row] = subwords.decode(result.hypotheses[0])
        return [found[line] for line in range(len(lines))]

    return translate


def engine(method: str, trained: Trained, name: str, data: Path, graphs: onnx.Graphs) -> Engine:
    """Write the folder and load it.

    Args:
        graphs: those of the model, for ONNX Runtime.

    Raises:
        UserError: the engine does not have such heads.
    """
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        write(trained, name, folder, graphs)
        mb = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        is_onnx = engine_of(name).name == "onnx"
        translate = in_onnx(folder) if is_onnx else in_ctranslate2(trained, name, folder, data)
    return Engine(method, name, round(mb, 2), translate)


def models_of(folder: Path, data: Path) -> Iterator[tuple[str, Trained, Content]]:
    """The models of a folder by method, and how they were trained.

    The whole one is the first, which seconds are compared with.
    """
    parts = [folder / part for part in PARTS if (folder / part).is_dir()]
    runs = [run for part in parts for run in runs_under(part)]
    found = {record.method: (run, record) for run in runs if (record := run.record())}
    if WHOLE not in found:
        lacks = "whole model" if found else "models"
        raise UserError(f"has no {lacks}", folder, "run recipes/distil.sh to its end")
    for method in sorted(found, key=lambda method: (method != WHOLE, method)):
        run, record = found[method]
        yield method, open_model(run.average, data), how_trained(run, record)


def how_trained(run: Run, record: Record) -> Content:
    """What a row keeps of its training; of a model that was only measured here, of its own run.

    Paths in the command are relative to where it ran, as the folder of its runs is.
    """
    if given := run.started().checkpoint:
        run = Run(Path(given).parent)
        record = run.record() or record  # a cut was not trained
    how = {name: getattr(record, name) for name in TRAINING}
    command = run.started().command or []
    if "--out" in command:
        out = command[command.index("--out") + 1]
        ran_in = str(run.folder.parent.resolve()).removesuffix(out)
        command = [word.replace(ran_in, "") for word in command]
    return {**how, "trained_by": shlex.join(command) or None}


def engines_of(method: str, trained: Trained, data: Path) -> Iterator[Engine]:
    """A model in each engine that has its heads."""
    graphs = onnx.graphs_of(trained)  # once for both types of numbers
    for name in INT8 + (FLOAT32 if method == WHOLE else ()):
        try:
            yield engine(method, trained, name, data, graphs)
        except UserError as error:
            if engine_of(name).name == "onnx":  # which has all kinds
                raise
            say(f"{method}: not in CTranslate2: {error}")


def text(data: Path, name: str, language: str) -> list[str]:
    """The untouched text of a set."""
    return (data / "raw" / f"{name}.{language}").read_text(encoding="utf-8").splitlines()


def scores(translate: Translate, data: Path, sets: Sequence[str], languages: Sequence[str]) -> Any:
    """BLEU and chrF of each set, and sacreBLEU's signatures."""
    found: dict[str, Any] = {}
    source, target = languages
    for name in sets:
        of = score(translate(text(data, name, source)), text(data, name, target))
        found |= {f"{name}_bleu": round(of.bleu, 3), f"{name}_chrf": round(of.chrf, 3)}
        found |= {"bleu_signature": of.bleu_signature, "chrf_signature": of.chrf_signature}
    return found


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="results/distil.json")
    parser.add_argument("folders", nargs="+", metavar="SEED=FOLDER")
    parser.add_argument("--data", type=Path, required=True, help="data folder of the whole model")
    parser.add_argument("--sets", nargs="+", default=["test", "test1"], metavar="SET")
    parser.add_argument("--recipe", required=True, help="the command that made the folders")
    parser.add_argument("--turns", type=positive, default=10, metavar="N")
    args = parser.parse_args(argv)
    file = File(args.file)
    now = {**origin("distil.py", argv), **settings()}
    for text_of in args.folders:
        seed, _, folder = text_of.partition("=")
        found, about = list[Engine](), dict[str, Any]()
        for method, trained, how in models_of(Path(folder), args.data):
            task = trained.cfg.task
            languages = (task.source_lang, task.target_lang)
            bits = {f"{name}_bits": round(mean_bits(trained.model, samples(trained, name)), 5)
                    for name in ("valid", *args.sets)}  # fmt: skip
            parameters = sum(one.numel() for one in trained.model.parameters())
            about[method] = {"parameters": parameters, **bits, **how}
            found += engines_of(method, trained, args.data)
        sources = text(args.data, args.sets[0], languages[0])
        rows = [scores(one.translate, args.data, args.sets, languages) for one in found]
        programs = {f"{one.method} {one.name}": one.translate for one in found}
        timed = turns(programs, [sources], pause())
        taken = [next(timed) for _ in bar(f"seed {seed}", range(args.turns))]
        for one, row in zip(found, rows, strict=True):
            seconds = [turn[f"{one.method} {one.name}"] / len(sources) for turn in taken]
            keys = {"seed": int(seed), "method": one.method, "engine": one.name}
            size = {"mb": one.mb, **about[one.method], "recipe": args.recipe}
            taken_by = {"batch": BATCH, "seconds": [round(of, 7) for of in seconds]}
            file.put("rows", (keys, {**keys, **size, **row, **taken_by, **now}))
            say(f"{seed} {one.method} {one.name}: {1000 * median(seconds):.3f} ms a sentence")
    return 0


if __name__ == "__main__":
    sys.exit(command.run("distil.py", lambda: main(sys.argv[1:])))
