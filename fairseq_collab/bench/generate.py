"""Translation: fairseq's generator with fairseq's model and with ours, in turn, and each measure.

What is called is what ``fairseq-generate`` calls: the task's generator, its ``inference_step`` and
its batches, after ``prepare_for_inference_``.  Before anything is timed, both models translate
every batch and must give the same hypotheses.
"""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_collab.bench.models import COLLAB, HEADSIZE, STOCK, Variant, random_pair, variants
from fairseq_collab.bench.settings import BEAM, PRESETS, Budget, Record, Settings
from fairseq_collab.bench.timing import timed, unequal
from fairseq_collab.bench.trained import trained_pairs
from fairseq_collab.bench.work import batches, middling, placed, random_task, real_task
from fairseq_collab.kernels.onednn import OneDnnLinear

#: How far the scores (log-probability a word) of two translations may be apart that rounding has
#: decided between.  One that is better by more must be found by both models.
TIE = {"float32": 1e-4, "bfloat16": 0.1}
LONGEST = 200  # fairseq's own limit, --max-len-b

Hypotheses = list[list[dict[str, Any]]]


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
    """A model and its generator, as in ``fairseq-generate``: ``batch -> hypotheses``."""

    def __init__(self, model: Any, task: Any, case: Case, settings: Settings):
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


def subjects(settings: Settings) -> Iterator[tuple[str, str, Any, Any, Any, list[Case]]]:
    """Preset, our model's name, fairseq's model, ours, task and cases of all that translates."""
    for trained in trained_pairs(settings):
        assert settings.data is not None  # the command has seen to it
        task, cases = real_task(settings.data, "test"), natural_cases(settings)
        yield "trained", trained.name, trained.stock, trained.ours, task, cases
    for preset in settings.presets:
        for variant in variants(settings.reductions(preset)):
            case = fixed_case(preset, settings.quick)
            task = random_task(preset, case.sentences, settings.seed)
            pair = random_pair(variant, preset, task, settings.seed)
            yield preset, variant.name, *pair, task, [case]


def run(settings: Settings) -> Iterator[Record]:
    """All models and cases: a record each."""
    for preset, name, stock, ours, task, cases in subjects(settings):
        for case in cases:
            pair = {
                STOCK: Translator(stock, task, case, settings),
                name: Translator(ours, task, case, settings),
            }
            labels = {"part": "generate", "preset": preset}
            yield from compared(labels, pair, case, case.budget, settings)


# ---- what each measure brings alone --------------------------------------------------------------


def separate_beams(model: Any) -> None:
    """Let every beam have keys and values of its own, which a reorder copies."""
    model.encoder.beams_share_output = False


def show_weights(model: Any) -> None:
    """Return attention weights at every step."""
    model.decoder.need_attn = True


def unpack(model: Any) -> None:
    """Multiply by weights as they are stored, not as oneDNN likes them."""
    for module in model.modules():
        if isinstance(module, OneDnnLinear):
            module.packed = None


#: What a table calls the model without the measure, and what undoes it.  Measures that belong to
#: one kind of heads or to the processor are seen elsewhere: against the authors' form, and with
#: torch's own matrix library.
MEASURES: dict[str, Callable[[Any], None]] = {
    "keys and values of each beam": separate_beams,
    "attention weights at every step": show_weights,
    "weights not packed": unpack,
}
_ALONE = (Variant(HEADSIZE).name, Variant(COLLAB, 4).name)


def run_alone(settings: Settings) -> Iterator[Record]:
    """Our models, batched, against themselves with a measure undone; trained ones if any."""
    kind = None  # of the first subject: trained, or the first preset
    for preset, name, _, ours, task, (case, *_) in subjects(settings):
        kind = kind or preset
        if preset != kind:
            return
        if kind != "trained" and name not in _ALONE:
            continue
        for measure, undo in MEASURES.items():
            pair = {
                which: Translator(copy.deepcopy(ours), task, case, settings)
                for which in (measure, name)
            }
            undo(pair[measure].model)
            seconds, least = case.budget
            labels = {"part": "alone", "preset": preset}
            other = "itself without the measure"
            yield from compared(labels, pair, case, (seconds / 2, least), settings, other)


# ---- checked and timed ---------------------------------------------------------------------------


def compared(
    labels: Record,
    pair: dict[str, Translator],
    case: Case,
    budget: Budget,
    settings: Settings,
    other: str = "fairseq's model",
) -> Iterator[Record]:
    """Check that a pair translates alike, and time it.

    Raises:
        UserError: the two models translate differently.
    """
    first, second = pair
    found = sentences(pair[first].task, case, settings)
    # The first translation is the warm-up, too.
    ties = check_alike(pair[first], pair[second], found, settings, other)
    labels = {**labels, **described(case, found, ties)}
    yield from timed(labels, pair, found, budget, [(first, second)])


def sentences(task: Any, case: Case, settings: Settings) -> list[Any]:
    """The batches of a case."""
    number = -(-case.sentences // case.batch)
    return batches(task, "test", settings, number, max_sentences=case.batch)


def described(case: Case, found: list[Any], ties: int) -> Record:
    """A case, and how much there is to translate, in all and in a middling batch."""
    sizes = [len(batch["id"]) for batch in found]
    amount = {"sentences": sum(sizes), "work": middling(sizes), "unit": "sentences"}
    return {"case": case.name, "beam": case.beam, "batch": case.batch, "ties": ties, **amount}


def check_alike(
    stock: Translator,
    ours: Translator,
    found: list[Any],
    settings: Settings,
    other: str = "fairseq's model",
) -> int:
    """Two models must translate alike; the number of ties, see :func:`count_ties`."""
    tie = TIE[settings.dtype]
    return sum(count_ties(stock(batch), ours(batch), tie, other) for batch in found)


def count_ties(
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
    for number, ((theirs, *_), (own, *_)) in enumerate(zip(stock, ours, strict=True)):
        if theirs["tokens"].tolist() != own["tokens"].tolist():
            apart = abs(float(theirs["score"]) - float(own["score"]))
            if not apart <= tie:
                raise unequal(
                    f"sentence {number} of a batch is translated otherwise than by {other} "
                    f"(scores {apart:.2g} apart)"
                )
            ties += 1
    return ties
