"""Translation: fairseq's generator with fairseq's model and with ours, in turn, and each measure.

What is called is what ``fairseq-generate`` calls: the task's generator, its ``inference_step`` and
its batches, after ``prepare_for_inference_``.  Before anything is timed, both models translate
every batch and must give the same hypotheses.
"""

from __future__ import annotations

import copy
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_collab.bench.models import (
    COLLAB,
    HEADSIZE,
    STOCK,
    Pair,
    Variant,
    random_pair,
    trained_pairs,
    variants,
)
from fairseq_collab.bench.settings import BEAM, PRESETS, Budget, Record, Settings
from fairseq_collab.bench.timing import NamePairs, Programs, timed, unequal
from fairseq_collab.bench.work import batches, random_task
from fairseq_collab.kernels.onednn import OneDnnLinear

#: How far the scores (log-probability a word) of two translations may be apart that rounding has
#: decided between.  One that is better by more must be found by both models.
TIE = {"float32": 1e-4, "bfloat16": 0.1}
LONGEST = 200  # fairseq's own limit, --max-len-b


@dataclass(frozen=True)
class Case:
    """One way to translate.

    Attributes:
        sentences: how many at most, evenly spread over the set.
        fixed: length of every translation; None for natural lengths.
    """

    beam: int
    batch: int
    sentences: int
    fixed: int | None
    budget: Budget

    @property
    def name(self) -> str:
        """As in tables."""
        length = "natural lengths" if self.fixed is None else f"fixed length {self.fixed}"
        return f"{length}, beam {self.beam}, batch {self.batch}"


def natural_cases(settings: Settings) -> list[Case]:
    """Translations of a test set by trained models, which end where these want to."""
    if settings.quick:
        return [Case(BEAM, 64, 128, None, (1, 2))]
    cases = [Case(BEAM, 64, 512, None, (8, 8)), Case(1, 64, 512, None, (3, 8))]
    return cases[:1] if settings.main_only else [*cases, Case(BEAM, 1, 40, None, (5, 30))]


def fixed_case(preset: str, quick: bool) -> Case:
    """Translations, all of one length, of one batch of random sentences by random models."""
    batch = PRESETS[preset].batch
    return Case(BEAM, batch, batch, 10 if quick else 30, (0.5, 2) if quick else (3, 3))


class Translator:
    """A model and its generator, as in ``fairseq-generate``: ``batch -> hypotheses``.

    The model is prepared for inference, which changes it.
    """

    def __init__(self, model: Any, task: Any, case: Case, settings: Settings):
        longest, least = (LONGEST, 1) if case.fixed is None else (case.fixed, case.fixed)
        options = {"beam": case.beam, "max_len_a": 0, "max_len_b": longest, "min_len": least}
        cfg = OmegaConf.structured(FairseqConfig)
        cfg.generation.beam = case.beam
        model.eval()
        model.prepare_for_inference_(cfg)
        self.model = settings.placed(model)
        self.task = task
        self.generator = task.build_generator([self.model], Namespace(**options, lenpen=1.0))

    def __call__(self, batch: Any) -> list[list[dict[str, Any]]]:
        """Hypotheses of each sentence, best first."""
        return self.task.inference_step(self.generator, [self.model], batch)


def subjects(settings: Settings) -> Iterator[tuple[Pair, list[Case]]]:
    """All models that translate, each pair with its cases."""
    for pair in trained_pairs(settings):
        yield pair, natural_cases(settings)
    for preset in settings.presets:
        for variant in variants(settings.reductions(preset)):
            case = fixed_case(preset, settings.quick)
            task = random_task(preset, case.sentences, settings.seed)
            yield random_pair(variant, preset, task, settings.seed), [case]


def run(settings: Settings) -> Iterator[Record]:
    """All models and cases: a record each."""
    for pair, cases in subjects(settings):
        for case in cases:
            translators = {
                name: Translator(trained.model, pair.ours.task, case, settings)
                for name, trained in ((STOCK, pair.stock), (pair.name, pair.ours))
            }
            labels = {"part": "generate", "preset": pair.preset}
            yield from compared(labels, translators, case, settings)


# ---- what each measure brings alone --------------------------------------------------------------


def unpack(model: Any) -> None:
    """Multiply by weights as they are stored, not as oneDNN likes them."""
    for module in model.modules():
        if isinstance(module, OneDnnLinear):
            module.packed = None


#: What a table calls the model without the measure, and what undoes it.  Measures that belong to
#: one kind of heads or to the processor are seen elsewhere: against the authors' form, and with
#: torch's own matrix library.
MEASURES: dict[str, Callable[[Any], None]] = {
    "keys and values of each beam": lambda it: setattr(it.encoder, "beams_share_output", False),
    "attention weights at every step": lambda it: setattr(it.decoder, "need_attn", True),
    "weights not packed": unpack,
}
_ALONE = (Variant(HEADSIZE).name, Variant(COLLAB, 4).name)


def run_alone(settings: Settings) -> Iterator[Record]:
    """Our models, batched, against themselves with a measure undone; trained ones if any."""
    kind = None  # of the first subject: trained, or the first preset
    for pair, (case, *_) in subjects(settings):
        kind = kind or pair.preset
        if pair.preset != kind:
            return
        if kind != "trained" and pair.name not in _ALONE:
            continue
        seconds, least = case.budget
        half = replace(case, budget=(seconds / 2, least))
        for measure, undo in MEASURES.items():
            translators = {
                name: Translator(copy.deepcopy(pair.ours.model), pair.ours.task, half, settings)
                for name in (measure, pair.name)
            }
            undo(translators[measure].model)
            labels = {"part": "alone", "preset": pair.preset}
            yield from compared(labels, translators, half, settings)


# ---- checked and timed ---------------------------------------------------------------------------


def compared(
    labels: Record, translators: dict[str, Translator], case: Case, settings: Settings,
    pairs: NamePairs = (),
) -> Iterator[Record]:  # fmt: skip
    """Check that the first two models translate alike, and time them, or ``pairs`` of models."""
    (first, one), (second, other), *others = translators.items()
    found = sentences(one.task, case, settings)
    # The first translation is the warm-up, too.
    ties = count_ties({first: one, second: other}, found, TIE[settings.dtype])
    for _, translator in others:
        translator(found[0])
    sizes = [len(batch["id"]) for batch in found]
    labels = {**labels, "case": case.name, "beam": case.beam, "batch": case.batch, "ties": ties}
    labels |= {"sentences": sum(sizes), "work": statistics.median_high(sizes), "unit": "sentences"}
    yield from timed(labels, translators, found, case.budget, pairs or [(first, second)])


def sentences(task: Any, case: Case, settings: Settings) -> list[Any]:
    """The batches of a case."""
    number = -(-case.sentences // case.batch)
    return batches(task, "test", settings, number, max_sentences=case.batch)


def count_ties(pair: Programs, found: list[Any], tie: float) -> int:
    """Best hypotheses of two models must be the same words, or equally good ones.

    In a long search, rounding sooner or later decides between two that are equally good.

    Returns:
        The number of sentences where they are others, with scores within ``tie``; UserError
        where scores differ, too.
    """
    (name, first), (other, second) = pair.items()
    ties = 0
    for batch in found:
        hypotheses = zip(first(batch), second(batch), strict=True)
        for number, ((theirs, *_), (own, *_)) in enumerate(hypotheses):
            if theirs["tokens"].tolist() != own["tokens"].tolist():
                apart = abs(float(theirs["score"]) - float(own["score"]))
                if not apart <= tie:
                    raise unequal(
                        f"sentence {number} of a batch is translated otherwise by {other} than by "
                        f"{name} (scores {apart:.2g} apart)"
                    )
                ties += 1
    return ties
