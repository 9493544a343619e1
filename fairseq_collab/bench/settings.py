"""What a benchmark runs: its options, the sizes of its models, and the cases of each part.

A *case* is one thing that is timed for two models in turn.  Each has a number of seconds and a
least number of pairs, so that a whole run takes about as long on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairseq_collab.models.config import PRESET_SIZES

PARTS = ("generate", "alone", "train", "grouped", "core", "memory", "counters")
DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "bfloat16")
BEAM = 5


@dataclass(frozen=True)
class Preset:
    """Sizes of a model and of the sentences that it is given where there is no data.

    Attributes:
        length: mean and standard deviation of source lengths, in subwords.
        train_tokens: of a batch in training.
    """

    options: dict[str, Any]
    vocabulary: int
    length: tuple[float, float]
    batch: int
    train_tokens: int


def _tiny(**sizes: int) -> dict[str, int]:
    return {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sizes.items()}


PRESETS = {
    "multi30k": Preset(PRESET_SIZES["_multi30k"], 6000, (15, 5), batch=64, train_tokens=2048),
    "wmt_en_de": Preset(PRESET_SIZES["_wmt_en_de"], 32768, (28, 12), batch=16, train_tokens=1000),
    # For tests of the benchmark itself.
    "tiny": Preset(
        _tiny(embed_dim=32, ffn_embed_dim=64, attention_heads=4, layers=1),
        50,
        (8, 3),
        batch=4,
        train_tokens=100,
    ),
}
#: Presets of a run unless told otherwise.
USUAL = ("multi30k", "wmt_en_de")


@dataclass(frozen=True)
class Settings:
    """The options of a run, as every worker gets them.

    Attributes:
        data, checkpoint, collab_checkpoint: for natural lengths; None for random weights only.
        threads: of torch, in every worker.
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
    main_only: bool = False

    @property
    def natural(self) -> bool:
        """Whether there is a trained model, whose translations end where it wants them to."""
        return self.checkpoint is not None or self.collab_checkpoint is not None


@dataclass(frozen=True)
class GenerateCase:
    """One way to translate.

    Attributes:
        sentences: how many at most, evenly spread over the set.
        fixed: length of every translation; None for natural lengths.
    """

    name: str
    beam: int
    batch: int
    sentences: int
    fixed: int | None
    seconds: float
    least: int


def natural_cases(settings: Settings) -> list[GenerateCase]:
    """Translations of a test set by trained models."""
    if settings.quick:
        return [GenerateCase("natural lengths, beam 5, batch 64", BEAM, 64, 128, None, 1, 2)]
    batched = GenerateCase("natural lengths, beam 5, batch 64", BEAM, 64, 512, None, 8, 8)
    greedy = GenerateCase("natural lengths, beam 1, batch 64", 1, 64, 512, None, 3, 8)
    single = GenerateCase("natural lengths, beam 5, batch 1", BEAM, 1, 40, None, 5, 30)
    return [batched] if settings.main_only else [batched, greedy, single]


def fixed_cases(preset: str, quick: bool) -> list[GenerateCase]:
    """Translations, all of one length, of one batch of random sentences by random models."""
    batch = PRESETS[preset].batch
    length = 10 if quick else 30
    seconds, least = (0.5, 2) if quick else (3, 3)
    name = f"fixed length {length}, beam {BEAM}, batch {batch}"
    return [GenerateCase(name, BEAM, batch, batch, length, seconds, least)]


def reductions(preset: str, settings: Settings) -> tuple[int, ...]:
    """The d/K that are timed: all where that is quick, and else those that matter most."""
    if settings.quick or (preset == "wmt_en_de" and settings.main_only):
        return (4,)
    if preset == "wmt_en_de" or settings.main_only:
        return (4, 8)
    return (1, 2, 4, 8)


@dataclass(frozen=True)
class DecodeCase:
    """Attention alone, step by step, for ``rows = sentences * BEAM`` hypotheses."""

    rows: int
    steps: int
    seconds: float
    least: int


@dataclass(frozen=True)
class LengthCase:
    """Attention alone, forward and backward, for ``batch`` sequences of one length."""

    length: int
    batch: int
    seconds: float
    least: int


def decode_cases(settings: Settings) -> list[DecodeCase]:
    """Few and many rows, short and long."""
    if settings.quick:
        return [DecodeCase(40, 8, 0.5, 2)]
    short = [DecodeCase(40, 32, 3, 5), DecodeCase(320, 32, 4, 4)]
    long = [DecodeCase(40, 128, 4, 3), DecodeCase(320, 128, 4, 2)]
    return short if settings.main_only else short + long


def length_cases(settings: Settings) -> list[LengthCase]:
    """About 4,096 tokens in sequences of 32 to 2,048, and one sequence of 2,048."""
    if settings.quick:
        return [LengthCase(32, 8, 0.5, 2)]
    lengths = (128, 512) if settings.main_only else (32, 128, 512, 2048)
    cases = [LengthCase(length, 4096 // length, 2, 3) for length in lengths]
    return cases if settings.main_only else [*cases, LengthCase(2048, 1, 2, 3)]


def training_budget(preset: str, quick: bool) -> tuple[float, int]:
    """Seconds and least pairs of each model's training."""
    if quick:
        return 1, 2
    return (4, 6) if preset == "multi30k" else (4, 3)


def constraint_budget(preset: str, quick: bool) -> tuple[float, int]:
    """Seconds and least turns of training with and without head groups.

    More than for other models, since a few percent are looked for.
    """
    if quick:
        return 0.5, 2
    return (8, 16) if preset == "multi30k" else (8, 6)
