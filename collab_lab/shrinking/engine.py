"""Engines that run models: the packages that each needs, and the cuts that each supports.

A new engine NAME is a row of :data:`ENGINES`, and is among the ``engines`` of each cut that it
keeps (``cuts/``; ``EVERY_ENGINE`` has it already).  ``export/NAME.py`` imports its packages and has
five functions: ``check(trained)`` raises an error for a model that it cannot run,
``export(trained, folder)`` is called by the command ``export``, ``write(trained, ...)`` fills a
folder without checks, and ``translate`` and ``batch_attention`` run it for ``export --check``
(``export/check.py``; ONNX Runtime has ``onnx_check.py`` instead of both).  ``clock/engines.py``
times it: a function each in ``WRITERS`` and ``LOADERS``, and the version of its first package in
``settings``.  The options ``--format``, ``--for`` and ``--time-in`` take their choices from
:data:`ENGINES`; their help describes each choice.

Importing this file imports nothing else.
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
    def timed_in(self) -> dict[str, str]:
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
#: By the names of ``--time-in``, which are the values of ``timed_in``: engine and number type.
TIMED_IN = {
    name: (engine, kind) for engine in ENGINES.values() for name, kind in engine.timed_in.items()
}


def engine_of(timed_in: str) -> Engine:
    """The engine of a name of :data:`TIMED_IN`."""
    return TIMED_IN[timed_in][0]
