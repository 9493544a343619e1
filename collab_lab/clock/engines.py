"""Running a model in its engine: fairseq, or CTranslate2 or ONNX Runtime on a CPU.

Sentences are random, and all translations have the same length, so that models with any weights do
the same work.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_common.provenance import PACKAGES, versions
from collab_lab.clock.bench import translator
from collab_lab.export.translate import Translator
from collab_lab.export.vocabulary import Vocabulary
from collab_lab.metrics.generate import BEAM, words_of
from collab_lab.shrinking.engine import TIMED_IN, engine_of
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import to_device

#: Environment variable with which CTranslate2 lays weights out for Intel's library.
PACKED = "CT2_PACKED_GEMM"
#: A model in its engine: it translates a number of sentences.
Program = Callable[[int], Any]


class Work(NamedTuple):
    """The work to time: an engine translates a batch of sentences with beam search.

    Attributes:
        timed_in: engine and type of its numbers, of :data:`.engine.TIMED_IN`: ``ct2-int8``.
        batch: number of sentences.
        length: number of tokens of each source and each translation.
    """

    timed_in: str
    batch: int
    length: int


def check(trained: Trained, work: Work) -> None:
    """Raise UserError for an engine that is not installed, or a length that a model cannot have."""
    if work.timed_in not in TIMED_IN:
        raise UserError(f"{work.timed_in!r} must be one of {', '.join(TIMED_IN)}", "`timed_in`")
    for package in engine_of(work.timed_in).packages:
        if find_spec(package) is None:
            raise UserError(f"{package} is not installed", "`timed_in`", f"pip install {package}")
    for name in ("batch", "length"):
        if (number := getattr(work, name)) < 1:
            raise UserError(f"must be a whole number above 0, not {number}", f"`{name}`")
    if trained.is_language_model:
        raise UserError("is a language model, but only translation can be timed", trained.path)
    longest = min(trained.model.max_positions()) - 2
    if work.length > longest:
        raise UserError(f"the model has positions for {longest} tokens", "`length`")
    if engine_of(work.timed_in).is_exported:
        exporter(work.timed_in).check(trained)


def exporter(timed_in: str) -> Any:
    """The module that exports to an engine, which imports the engine's packages."""
    return import_module(f"collab_lab.export.{engine_of(timed_in).name}")


def program(trained: Trained, timed_in: str, length: int, shortlist: Sequence[str] = ()) -> Program:
    """The model in its engine, loaded: a call translates the given number of sentences.

    Args:
        shortlist: lines of CTranslate2's vocabulary map, which restricts the words to choose from.
    """
    if not engine_of(timed_in).is_exported:
        return _fairseq(trained, length)
    with tempfile.TemporaryDirectory() as folder:
        write(trained, timed_in, Path(folder))
        if shortlist:
            Path(folder, "vmap.txt").write_text("\n".join([*shortlist, ""]))
        return load(trained, timed_in, Path(folder), length)


def write(trained: Trained, timed_in: str, folder: Path, graphs: Any = None) -> None:
    """Fill the folder of an engine that is not fairseq.

    Args:
        graphs: for ONNX Runtime, the model's graphs, if they exist already.
    """
    WRITERS[engine_of(timed_in).name](trained, timed_in, folder, graphs)


def load(trained: Trained, timed_in: str, folder: Path, length: int) -> Program:
    """The program of a folder that :func:`write` filled; the folder may go afterwards."""
    return LOADERS[engine_of(timed_in).name](trained, timed_in, folder, length)


def _fairseq(trained: Trained, length: int) -> Program:
    # A copy, because it is prepared in place; its linear maps are torch's own on every processor.
    model = copy.deepcopy(trained.model)
    translate = translator(model, trained.task, BEAM, length=length)

    def run(number: int) -> Any:
        sources = random_sources(trained, number, length)
        lengths = torch.full((number,), sources.size(1))
        net_input = {"src_tokens": sources, "src_lengths": lengths}
        batch = {"id": torch.arange(number), "net_input": net_input}
        return translate(to_device(batch, trained.device))

    return run


def random_sources(trained: Trained, number: int, length: int) -> Tensor:
    """Random sources as indices that end in ``</s>``: ``(number, length + 1)``."""
    symbols = trained.task.source_dictionary
    words = np.random.default_rng(1).integers(symbols.nspecial, len(symbols), (number, length))
    ends = np.full((number, 1), symbols.eos())
    return torch.from_numpy(np.concatenate([words, ends], 1))


def _words(trained: Trained) -> Vocabulary:
    return Vocabulary("en", "de", trained.task.source_dictionary, trained.task.target_dictionary)


def _write_ct2(trained: Trained, timed_in: str, folder: Path, graphs: Any) -> None:
    exporter(timed_in).write(trained, _words(trained), folder)


def _write_onnx(trained: Trained, timed_in: str, folder: Path, graphs: Any) -> None:
    exporter(timed_in).write(trained, folder, TIMED_IN[timed_in][1] == "int8", graphs)


def _load_ct2(trained: Trained, timed_in: str, folder: Path, length: int) -> Program:
    """CTranslate2 has a word where fairseq has the end of the sentence."""
    words = _words(trained)
    options: dict[str, Any] = {"beam_size": BEAM, "use_vmap": (folder / "vmap.txt").exists()}
    options |= dict.fromkeys(("min_decoding_length", "max_decoding_length"), length + 1)
    kinds = {"compute_type": TIMED_IN[timed_in][1], "intra_threads": torch.get_num_threads()}
    model = import_module("ctranslate2").Translator(str(folder), inter_threads=1, **kinds)

    def run(number: int) -> Any:
        sources = random_sources(trained, number, length)
        lines = [words_of(words.source, line) for line in sources]
        return model.translate_batch(lines, max_input_length=0, **options)

    return run


def _load_onnx(trained: Trained, timed_in: str, folder: Path, length: int) -> Program:
    """ONNX Runtime with the program of an exported folder."""
    model = Translator(folder, torch.get_num_threads())
    limits: dict[str, Any] = {"max_len_a": 0, "max_len_b": length, "min_len": length}

    def run(number: int) -> Any:
        return model.search(random_sources(trained, number, length).tolist(), BEAM, **limits)

    return run


#: What fills the folder of an engine, and what loads it, by the engine's name.
WRITERS = {"ct2": _write_ct2, "onnx": _write_onnx}
LOADERS = {"ct2": _load_ct2, "onnx": _load_onnx}


def settings() -> dict[str, Any]:
    """The versions, threads and settings that times depend on."""
    return {
        "versions": versions(*PACKAGES),
        "ctranslate2": version("ctranslate2") if find_spec("ctranslate2") else None,
        "onnxruntime": version("onnxruntime") if find_spec("onnxruntime") else None,
        PACKED: os.environ.get(PACKED),
        "threads": torch.get_num_threads(),
    }
