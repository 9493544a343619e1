"""Seconds of one model in ONNX Runtime and in other engines.

Models of base size with random weights translate sentences of one length with beam 5: in
CTranslate2, in ONNX Runtime, in fairseq with this plug-in, and in stock fairseq.  MB are those of
the folder (in fairseq, of the weights), and seconds of a start those of loading the folder, without
the start of Python.  Peak memory is that of a process which translates one sentence of the
shortest length (:mod:`.peak`).  Bytes of the cache are those of the tensors that a step of ONNX
Runtime is given, per token.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from collab_lab.clock.bench import PRESETS, random_model, random_task
from collab_lab.clock.engines import Program, load, program, write
from collab_lab.clock.turns import clock, pause
from collab_lab.export import onnx
from collab_lab.export.plain import plain
from results import peak
from results.records import Content
from results.seconds import LONG, in_turns

STANDARD, QUARTER, EIGHTH = "standard", "latents 1/4", "latents 1/8, 4 bits"
#: Heads that only fairseq and ONNX Runtime have.
LATENT_HEADS = (QUARTER, EIGHTH)
STOCK, OURS = "stock fairseq", "fairseq"
CT2, ONNX = ("ct2-int8", "ct2-float32"), ("onnx-int8", "onnx-float32")


def heads_of(d: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Architectures and options; latents of a quarter cache a half of d in place of 2 d."""
    latent = {"latent_dim_in_encoder": d}
    return {
        STANDARD: ("transformer_headsize_n", {}),
        QUARTER: ("transformer_latent", {"latent_dim": d // 2, **latent}),
        EIGHTH: ("transformer_latent", {"latent_dim": d // 4, "cache_bits": "4", **latent}),
    }


class Engine(NamedTuple):
    """A model in an engine.

    Attributes:
        programs: by length.
        about: what rows say of it: MB, seconds of a start, bytes of the cache.
    """

    programs: dict[int, Program]
    about: dict[str, Any]


@dataclass(frozen=True)
class Models:
    """The models of a vocabulary, each in the engines that have it, made when they are needed."""

    preset: str
    vocabulary: int
    lengths: tuple[int, ...]
    latent_heads: tuple[str, ...]

    @functools.cached_property
    def standard(self) -> dict[str, Engine]:
        """Standard heads in all engines."""
        model = self.model(STANDARD)
        stock, of_stock = plain(model), {"heads": STANDARD}
        found = {STOCK: self.in_fairseq(stock, of_stock), OURS: self.in_fairseq(model, of_stock)}
        for name in CT2:
            found[name] = self.in_folder(model, name, of_stock)
        return found | self.in_onnx(model, STANDARD)

    @functools.cached_property
    def latents(self) -> dict[str, Engine]:
        """Latents in fairseq and in ONNX Runtime."""
        found = dict[str, Engine]()
        for heads in self.latent_heads:
            model = self.model(heads)
            engines = {OURS: self.in_fairseq(model, {"heads": heads}), **self.in_onnx(model, heads)}
            found |= {f"{name}: {heads}": engine for name, engine in engines.items()}
        return found

    def model(self, heads: str) -> Any:
        d = PRESETS[self.preset].options.get("decoder_embed_dim", 512)
        arch, options = heads_of(d)[heads]
        task = random_task(self.preset, 1, self.vocabulary)
        return random_model(arch, self.preset, task, **options)

    def in_fairseq(self, model: Any, about: Mapping[str, Any]) -> Engine:
        size = sum(tensor.nbytes for tensor in model.model.parameters())
        programs = {length: program(model, "fairseq", length) for length in self.lengths}
        return Engine(programs, {**about, "mb": round(size / 1e6, 1)})

    def in_folder(
        self, model: Any, engine: str, about: Mapping[str, Any], graphs: Any = None
    ) -> Engine:
        """Write the folder and load it, once for each length."""
        with tempfile.TemporaryDirectory() as path:
            folder, starts, programs = Path(path), [], {}
            write(model, engine, folder, graphs)
            size = sum(file.stat().st_size for file in folder.iterdir())
            for length in self.lengths:
                start = clock()
                programs[length] = load(model, engine, folder, length)
                starts.append(clock() - start)
            memory = peak_of(engine, folder, min(self.lengths))
        numbers = {"mb": round(size / 1e6, 1), "start": round(median(starts), 3), "peak": memory}
        return Engine(programs, {**about, **numbers})

    def in_onnx(self, model: Any, heads: str) -> dict[str, Engine]:
        """Graphs are exported once for both types of numbers."""
        graphs = onnx.graphs_of(model)
        about = {"heads": heads, "cache": graphs.bytes}  # of the tensors that a step is given
        return {name: self.in_folder(model, name, about, graphs) for name in ONNX}


def peak_of(engine: str, folder: Path, length: int) -> float:
    """Peak memory of a process that translates one sentence in an engine, in MB."""
    python = Path(sys.prefix, "bin", "python")
    words = [str(python), str(peak.__file__), engine, str(folder), str(length)]
    return float(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)


#: The models of the last vocabulary.
models_of = functools.lru_cache(1)(Models)


def engines(
    preset: str, vocabulary: int, lengths: tuple[int, ...], latents: tuple[str, ...],
    sentences: int, tokens: int, turns: int,
) -> Iterator[Content]:  # fmt: skip
    """Seconds of a batch in each engine, in turns: a record each; latents only in the longest."""
    models = models_of(preset, vocabulary, lengths, latents)
    found = models.standard | (models.latents if tokens == max(lengths) else {})
    programs = {name: engine.programs[tokens] for name, engine in found.items()}
    if tokens < LONG:
        for run in programs.values():  # the first translations allocate
            run(sentences)
    timed = in_turns(programs, turns, sentences, pause())
    for name, engine in found.items():
        seconds = [round(turn[name], 5) for turn in timed]
        names = {"engine": name.partition(":")[0], "threads": torch.get_num_threads()}
        yield {**names, **engine.about, "seconds": seconds}
