"""Engines that run models: the packages that each needs, and the cuts that each supports.

To add an engine, write a row of :data:`ENGINES` and a file with its name in ``export/``; to time
it, also functions in ``clock/engines.py``.  Importing this file imports no other module.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """An engine that runs models.

    Attributes:
        name: name in ``--for``.
        title: name in sentences.
        packages: Python packages that it needs, the runtime first; empty for fairseq.
        number_types: number types of an exported model (such as int8), each timed separately.
        multiple: widths of feed-forward blocks must be multiples of this number.
        even: whether it needs one number of heads in all attentions of the encoder, and one in
            all attentions of the decoder, neither of them 0.
        rounds: whether it can round a KV cache.
        kinds: kinds of heads that ``shrink`` tries by default for a smaller cache.
    """

    name: str
    title: str
    packages: tuple[str, ...] = ()
    number_types: tuple[str, ...] = ()
    multiple: int = 16
    even: bool = False
    rounds: bool = True
    kinds: tuple[str, ...] = ("latent", "unchanged")

    @property
    def is_exported(self) -> bool:
        """Whether it runs an exported folder; fairseq instead runs the checkpoint."""
        return bool(self.packages)

    @property
    def timed(self) -> dict[str, str]:
        """The names of its number types in ``--time-in``."""
        return {f"{self.name}-{kind}": kind for kind in self.number_types} or {self.name: ""}


#: The engines that a model can be for, by name.
ENGINES = {
    engine.name: engine
    for engine in (
        Engine("fairseq", "fairseq"),
        Engine(
            "ct2", "CTranslate2", ("ctranslate2",), ("int8", "float32"),
            multiple=64, even=True, rounds=False, kinds=("grouped-query",),
        ),
        Engine(
            "onnx", "ONNX Runtime", ("onnxruntime", "onnx", "onnxscript"), ("int8", "float32"),
        ),
    )
}  # fmt: skip
#: The engine and the type of its numbers, by the names of ``--time-in``.
TIMED = {name: (engine, kind) for engine in ENGINES.values() for name, kind in engine.timed.items()}


def engine_of(timed: str) -> Engine:
    """The engine with a name of :data:`TIMED`."""
    return TIMED[timed][0]
