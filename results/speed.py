"""Times of ``fairseq-collab bench``, and of trained models: writes speed.json.

    fairseq-collab bench --out bench.json
    fairseq-collab bench --lengths 32 128 512 2048 --out lengths.json
    python results/speed.py results/speed.json --bench bench.json --lengths lengths.json --data data/multi30k --model "standard heads=stock.pt" --model "shared keys, d/4=collab.pt"

A call adds one run to ``runs``: random weights, as ``bench`` has timed them, and trained models,
which this program times on the test set by the same turns (beam 1 and 5, batches of 1, 16 and 64):
stock fairseq, this project and, if it is installed, CTranslate2.  ``--lengths`` adds one to
``lengths``.  Close all other programs first.
"""  # noqa: E501

from __future__ import annotations

import argparse
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import torch
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from collab_common import command
from collab_common.files import read_json
from collab_common.provenance import cores
from collab_lab import open_model
from collab_lab.clock import bench
from collab_lab.clock.turns import take_turns
from collab_lab.export.plain import plain
from collab_lab.export.vocabulary import Vocabulary
from collab_lab.metrics.generate import words_of
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import dataset_of
from results.records import File, origin

CASES = tuple(product((1, 5), (1, 16, 64)))
Record = dict[str, Any]


def time_trained(path: Path, data: Path, threads: int) -> Iterator[Record]:
    """A record for each beam, batch and engine."""
    ours, cpu = open_model(path, data), torch.device("cpu")
    stock = plain(ours)
    for model in (ours, stock):
        dataset_of(model, "test")
    for beam, size in CASES:
        batches = bench.batches(ours.task, cpu, max_sentences=size)
        engines = {
            "fairseq": translator(stock, beam),
            "ours": translator(ours, beam),
            **ctranslate2(stock, beam, threads),
        }
        bench.count_ties(*(engines[name](batches[0]) for name in ("fairseq", "ours")))
        for name in [*engines][2:]:  # the others are warm
            engines[name](batches[0])
        case = f"natural lengths, beam {beam}, batch {size}"
        for record in take_turns(engines, batches):
            yield {"task": "translation", "case": case, **record, "work": size, "unit": "sentences"}


def translator(model: Trained, beam: int) -> Callable[[Any], Any]:
    """Translate batches as ``fairseq-generate`` does."""
    config = OmegaConf.structured(FairseqConfig)
    config.generation.beam = beam
    model.model.prepare_for_inference_(config)
    options = Namespace(beam=beam, lenpen=1.0, **LENGTH_LIMIT)
    generator = model.task.build_generator([model.model], options)
    return lambda batch: model.task.inference_step(generator, [model.model], batch)


def ctranslate2(stock: Trained, beam: int, threads: int) -> dict[str, Callable[[Any], Any]]:
    """CTranslate2 with equal weights; empty where it is not installed."""
    if find_spec("ctranslate2") is None:
        return {}
    write = import_module("collab_lab.export.ct2").write
    source, target = stock.task.source_dictionary, stock.task.target_dictionary
    with tempfile.TemporaryDirectory() as folder:
        write(stock, Vocabulary("en", "de", source, target), Path(folder))
        load = import_module("ctranslate2").Translator
        loaded = {
            name: load(folder, compute_type=kind, intra_threads=threads)
            for name, kind in bench.CTRANSLATE2.items()
        }

    def run(engine: Any) -> Callable[[Any], Any]:
        def of(batch: Any) -> Any:
            tokens = batch["net_input"]["src_tokens"]
            words = [words_of(source, line) for line in tokens]
            longest = LENGTH_LIMIT["max_len_a"] * tokens.size(1) + LENGTH_LIMIT["max_len_b"]
            return engine.translate_batch(words, beam_size=beam, max_decoding_length=longest)

        return of

    return {name: run(engine) for name, engine in loaded.items()}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="results/speed.json")
    parser.add_argument("--bench", type=Path, help="file of fairseq-collab bench")
    parser.add_argument("--lengths", type=Path, help="file of fairseq-collab bench --lengths")
    parser.add_argument("--data", type=Path, help="data folder of trained models")
    parser.add_argument("--model", action="append", default=[], metavar="HEADS=CHECKPOINT")
    parser.add_argument("--threads", type=int, default=cores())
    args = parser.parse_args(argv)
    if not (args.bench or args.lengths or args.model) or bool(args.model) != bool(args.data):
        parser.error("give --bench, --lengths, or --model with --data")
    file = File(args.file)
    if args.bench or args.model:
        torch.set_num_threads(args.threads)
        timed = {"preset": "trained"}
        records = [
            {**timed, "heads": heads, **record}
            for heads, _, path in (model.partition("=") for model in args.model)
            for record in time_trained(Path(path), args.data, args.threads)
        ]
        random = read_json(args.bench) if args.bench else origin("speed.py", argv)
        added = {"command": origin("speed.py", argv)["command"]}
        file.add("runs", {**random, **added, "records": [*records, *random.get("records", [])]})
    if args.lengths:
        file.add("lengths", read_json(args.lengths))
    return 0


if __name__ == "__main__":
    sys.exit(command.run("speed.py", lambda: main(sys.argv[1:])))
