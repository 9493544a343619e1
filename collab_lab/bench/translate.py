"""Decoding of one batch: fairseq's model, ours, and CTranslate2.

fairseq and ours are called as ``fairseq-generate`` calls them: the task's generator and its
``inference_step``, after ``prepare_for_inference_``.  All translations have one fixed length.
Language models read a given text step by step, so that both read the same words.
Before anything is timed, fairseq's model and ours must find the same translations.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from collab_common.progress import say
from collab_lab.bench.models import (
    PRESETS,
    Pair,
    batches,
    random_pair,
    random_task,
    unequal,
)
from collab_lab.bench.timing import Record, speedups, time_interleaved
from collab_lab.export.model import Vocabulary
from collab_lab.metrics.translate import BEAM, words_of
from fairseq_collab.models.families import TRANSLATION

#: CTranslate2's number formats, by their names in tables.
CTRANSLATE2 = {"CTranslate2 float32": "float32", "CTranslate2 int8": "int8"}
#: Tokens of each translation, at full size and with ``--quick``.
LENGTH, QUICK_LENGTH = 30, 10
#: Translations whose scores (log-probability a word) differ by less are equally good: rounding
#: decides between them.
TIE = 1e-4


class Translator:
    """A model and its generator, as in ``fairseq-generate``.

    Args:
        model: is prepared for inference, in place.
        length: tokens of every translation.
    """

    def __init__(self, model: Any, task: Any, beam: int = BEAM, *, length: int):
        options = {"beam": beam, "max_len_a": 0, "max_len_b": length, "min_len": length}
        cfg = OmegaConf.structured(FairseqConfig)
        cfg.generation.beam = beam
        model.eval()
        model.prepare_for_inference_(cfg)
        self.model, self.task = model, task
        self.generator = task.build_generator([model], Namespace(**options, lenpen=1.0))

    def __call__(self, batch: Any) -> list[list[dict[str, Any]]]:
        """Hypotheses of each sentence, best first."""
        return self.task.inference_step(self.generator, [self.model], batch)


class Item(NamedTuple):
    """Sentences, as a batch of fairseq's and as words."""

    batch: Any
    words: list[list[str]]


def run(
    arch: str, preset: str, quick: bool, device: torch.device, threads: int
) -> Iterator[Record]:
    """One record per engine."""
    size, translates = PRESETS[preset].batch, PRESETS[preset].family is TRANSLATION
    name, beam, length = "translation", BEAM, QUICK_LENGTH if quick else LENGTH
    if not translates:
        name, beam, length = "decoding", 1, int(PRESETS[preset].length[0])
    task = random_task(preset, size)
    pair = random_pair(arch, preset, task)
    (batch,) = batches(task, "test", device, max_sentences=size)
    source = batch["net_input"]["src_tokens"]
    item = Item(batch, [words_of(task.source_dictionary, line) for line in source])
    with tempfile.TemporaryDirectory() as folder:
        on_cpu = translates and device.type == "cpu"
        other_engines = ctranslate2(pair, Path(folder), length, threads) if on_cpu else {}
    stock = Translator(pair.stock.to(device), task, beam, length=length)
    ours = Translator(pair.ours.model.to(device), task, beam, length=length)
    count_ties(stock(batch), ours(batch))  # also the warm-up
    engines: dict[str, Callable[[Item], Any]] = {
        "fairseq": lambda item: stock(item.batch),
        "ours": lambda item: ours(item.batch),
        **other_engines,
    }
    for engine in other_engines.values():
        engine(item)
    turns, seconds = (2, 0.5) if quick else (7, 8)
    for record in speedups(time_interleaved(engines, [item], turns, seconds)):
        case = f"beam {beam}, batch {size}, length {length}"
        yield {"task": name, "case": case, **record, "work": size, "unit": "sentences"}


def count_ties(stock: list[Any], ours: list[Any]) -> int:
    """The number of sentences whose best hypotheses differ and are equally good.

    Raises:
        UserError: the scores of two different hypotheses are further apart than :data:`TIE`.
    """
    ties = 0
    for number, ((stock_best, *_), (our_best, *_)) in enumerate(zip(stock, ours, strict=True)):
        if stock_best["tokens"].tolist() != our_best["tokens"].tolist():
            difference = abs(float(stock_best["score"]) - float(our_best["score"]))
            if not difference <= TIE:
                problem = f"sentence {number}: our model and fairseq's translate it differently"
                raise unequal(f"{problem} (scores {difference:.2g} apart)")
            ties += 1
    return ties


def ctranslate2(
    pair: Pair, folder: Path, length: int, threads: int
) -> dict[str, Callable[[Item], Any]]:
    """CTranslate2 with the weights of fairseq's model; empty where it is not installed.

    Its translations have a word where fairseq's have the end of the sentence.
    """
    if find_spec("ctranslate2") is None:
        say("CTranslate2 is not installed and not timed; pip install ctranslate2")
        return {}
    task, path = pair.ours.task, folder / "model"
    words = Vocabulary("en", "de", task.source_dictionary, task.target_dictionary)
    # Imported here: the format imports the optional package.
    path.mkdir()
    import_module("collab_lab.export.ct2").write(pair.ours.with_model(pair.stock), words, path)
    options = {"min_decoding_length": length + 1, "max_decoding_length": length + 1}
    options |= {"beam_size": BEAM, "max_batch_size": 0, "max_input_length": 0}

    def engine(kind: str) -> Callable[[Item], Any]:
        translator = import_module("ctranslate2").Translator(
            str(path), compute_type=kind, inter_threads=1, intra_threads=threads
        )
        return lambda item: translator.translate_batch(item.words, **options)

    return {name: engine(kind) for name, kind in CTRANSLATE2.items()}
