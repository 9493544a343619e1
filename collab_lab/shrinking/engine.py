"""Engines that run models: what each of them needs, and what it keeps of a smaller model.

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
        name: as in ``--for``.
        title: its name in sentences.
        packages: that it needs, the runtime first; none for fairseq, which runs checkpoints.
        number_types: types of the numbers of an exported model, of which each is timed.
        multiple: of widths of feed-forward blocks.
        even: whether attentions of the encoder have one number of heads, those of the decoder
            another, and each of them some.
        rounds: whether it can round a KV cache.
        kinds: of heads for a smaller cache, that are tried unless others are given.
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
        """Whether it runs an exported folder; fairseq runs the checkpoint itself."""
        return bool(self.packages)

    @property
    def timed(self) -> dict[str, str]:
        """The types of numbers in which it is timed, by their names in ``--time-in``."""
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


def engine_of(timed_in: str) -> Engine:
    """The engine of a name of :data:`TIMED`."""
    return TIMED[timed_in][0]
