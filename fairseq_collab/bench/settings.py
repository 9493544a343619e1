"""What a benchmark runs: its options, and the sizes of its models and of their batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fairseq_collab.models.config import PRESET_SIZES

#: Parts of a run unless others are chosen, and one more.
USUAL_PARTS = ("generate", "alone", "train", "grouped", "core", "memory", "counters")
PARTS = (*USUAL_PARTS, "paper3")
BEAM = 5

#: One comparison, or one count: what the JSON file of a benchmark is a list of.
Record = dict[str, Any]
#: Seconds that a case goes on for at least, and its least number of turns: a whole run takes about
#: as long on every machine.
Budget = tuple[float, int]


@dataclass(frozen=True)
class Preset:
    """Sizes of a model and of the sentences that it is given where there is no data.

    Attributes:
        length: mean and standard deviation of source lengths, in subwords.
        train_tokens: of a batch in training.
        turns: least number of turns, of updates and of those with head groups (few percent need
            more).
    """

    options: dict[str, Any]
    vocabulary: int
    length: tuple[float, float]
    batch: int
    train_tokens: int
    turns: tuple[int, int] = (3, 6)


_TINY = {"embed_dim": 32, "ffn_embed_dim": 64, "attention_heads": 4, "layers": 1}
PRESETS = {
    "multi30k": Preset(PRESET_SIZES["_multi30k"], 6000, (15, 5), 64, 2048, (6, 16)),
    "wmt_en_de": Preset(PRESET_SIZES["_wmt_en_de"], 32768, (28, 12), 16, 1000),
    # For tests of the benchmark itself.
    "tiny": Preset(
        {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in _TINY.items()},
        vocabulary=50, length=(8, 3), batch=4, train_tokens=100,
    ),
}  # fmt: skip
#: Presets of a run unless others are chosen.
USUAL = ("multi30k", "wmt_en_de")


@dataclass(frozen=True)
class Settings:
    """The options of a run.

    Attributes:
        data, checkpoint, collab_checkpoint: for natural lengths; None for random weights only.
        engines: checkpoints that other engines translate with, too; None where none is asked for.
        main_only: leave out what is not worth the time of a second measurement.
    """

    presets: tuple[str, ...] = USUAL
    quick: bool = False
    threads: int = 2
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 1
    data: str | None = None
    checkpoint: str | None = None
    collab_checkpoint: str | None = None
    engines: list[str] | None = None
    main_only: bool = False

    def reductions(self, preset: str) -> tuple[int, ...]:
        """The d/K that are timed: all where that is quick, and else those that matter most."""
        if self.quick or (preset == "wmt_en_de" and self.main_only):
            return (4,)
        return (4, 8) if preset == "wmt_en_de" or self.main_only else (1, 2, 4, 8)

    def placed(self, x: Any) -> Any:
        """A model or floats on the device, in the number format asked for."""
        return x.to(device=self.device, dtype=getattr(torch, self.dtype))
