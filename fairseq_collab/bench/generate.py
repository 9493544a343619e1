"""Translation: fairseq's generator on fairseq's batches, with fairseq's model and ours in turn.

What is called is what ``fairseq-generate`` calls: the task's generator, its ``inference_step`` and
its batches, after ``prepare_for_inference_``.  Before anything is timed, both models translate
every batch and must give the same hypotheses.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from collab_common.errors import UserError
from fairseq_collab.bench import checkpoints
from fairseq_collab.bench.models import STOCK, random_pair, variants
from fairseq_collab.bench.settings import (
    PRESETS,
    GenerateCase,
    Settings,
    fixed_cases,
    natural_cases,
    reductions,
)
from fairseq_collab.bench.timing import compare, in_turn
from fairseq_collab.bench.work import batches, placed, random_task, real_task, spread

#: How far the scores (log-probability a word) of two translations may be apart that rounding has
#: decided between.  One that is better by more must be found by both models.
TIE = {"float32": 1e-4, "bfloat16": 0.1}
LONGEST = 200  # fairseq's own limit, --max-len-b

Record = dict[str, Any]
Hypotheses = list[list[dict[str, Any]]]


def run(settings: Settings, say: Callable[[str], None]) -> list[Record]:
    """All cases of all presets: one record a case and model."""
    records = []
    if settings.natural:
        records += list(natural(settings, say))
    for preset in settings.presets:
        for variant in variants(reductions(preset, settings)):
            for case in fixed_cases(preset, settings.quick):
                say(f"generate, {preset}, {case.name}: {variant.name}")
                task = random_task(preset, case.sentences, settings.seed)
                pair = random_pair(variant, preset, task, settings.seed)
                records.append(
                    {
                        **compared(pair, task, case, settings),
                        "preset": preset,
                        "model": variant.name,
                    }
                )
    return records


def natural(settings: Settings, say: Callable[[str], None]) -> Iterator[Record]:
    """Trained models on the test set of a data folder: translations end where they want to."""
    assert settings.data is not None  # the command has seen to it
    for trained in checkpoints.trained_pairs(settings):
        for case in natural_cases(settings):
            say(f"generate, {case.name}: {trained.name}")
            task = real_task(settings.data, "test")
            record = compared((trained.stock, trained.ours), task, case, settings)
            yield {**record, "preset": "trained", "model": trained.name}


def compared(pair: tuple[Any, Any], task: Any, case: GenerateCase, settings: Settings) -> Record:
    """Check that a pair translates alike, and time it.

    Raises:
        UserError: the two models translate differently.
    """
    programs = [Translator(model, task, case, settings) for model in pair]
    found = sentences(task, case, settings)
    # The first translation is the warm-up, too.
    stock, ours = programs
    ties = sum(check_alike(stock(b), ours(b), TIE[settings.dtype]) for b in found)
    times = in_turn(programs, found, case.seconds, case.least, settings.device)
    return {
        "part": "generate",
        "case": case.name,
        "against": STOCK,
        "beam": case.beam,
        "batch": case.batch,
        "ties": ties,
        **amount(found),
        **compare([(a, b) for a, b in times]).as_dict(),
    }


def sentences(task: Any, case: GenerateCase, settings: Settings) -> list[Any]:
    """The batches of a case."""
    found = batches(task, "test", settings, max_sentences=case.batch)
    return spread(found, -(-case.sentences // case.batch))


def amount(found: list[Any]) -> Record:
    """How much there is to translate, in all and in a middling batch."""
    sizes = sorted(len(batch["id"]) for batch in found)
    return {"sentences": sum(sizes), "work": sizes[len(sizes) // 2], "unit": "sentences"}


class Translator:
    """A model and its generator, as in ``fairseq-generate``: ``batch -> hypotheses``."""

    def __init__(self, model: Any, task: Any, case: GenerateCase, settings: Settings):
        longest, least = (LONGEST, 1) if case.fixed is None else (case.fixed, case.fixed)
        options = {"beam": case.beam, "max_len_a": 0, "max_len_b": longest, "min_len": least}
        cfg = OmegaConf.structured(FairseqConfig)
        cfg.generation.beam = case.beam
        model.eval()
        model.prepare_for_inference_(cfg)
        self.model = placed(model, settings)
        self.task = task
        self.generator = task.build_generator([self.model], Namespace(**options, lenpen=1.0))

    def __call__(self, batch: Any) -> Hypotheses:
        """Best hypothesis first, for each sentence."""
        return self.task.inference_step(self.generator, [self.model], batch)


def check_alike(
    stock: Hypotheses, ours: Hypotheses, tie: float, other: str = "fairseq's model"
) -> int:
    """Best hypotheses must be the same words, or equally good ones.

    In a long search, rounding sooner or later decides between two that are equally good.

    Args:
        other: what a message calls the model of ``stock``.

    Returns:
        The number of sentences where they are others, with scores within ``tie``.

    Raises:
        UserError: a translation differs, and its score, too.
    """
    ties = 0
    for number, (theirs, own) in enumerate(zip(stock, ours, strict=True)):
        if theirs[0]["tokens"].tolist() == own[0]["tokens"].tolist():
            continue
        apart = abs(float(theirs[0]["score"]) - float(own[0]["score"]))
        if apart > tie:
            raise UserError(
                f"sentence {number} of a batch is translated otherwise than by {other} "
                f"(scores {apart:.2g} apart)",
                "the benchmark's check",
                "nothing was timed: these two models do not compute the same function",
            )
        ties += 1
    return ties


def memory_case(preset: str, quick: bool) -> GenerateCase:
    """Batch 64 and beam 5, once, to length 60, or 30 for a large vocabulary."""
    batch, length = (8, 10) if quick else (64, 30 if preset == "wmt_en_de" else 60)
    if preset == "tiny":
        batch = PRESETS[preset].batch
    return GenerateCase(f"beam 5, batch {batch}, length {length}", 5, batch, batch, length, 0, 1)
