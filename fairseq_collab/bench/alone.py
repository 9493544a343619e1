"""What each measure brings alone: our model, against itself with that measure undone.

Measures that belong to one kind of heads (the shared key) or to the processor (the matrix library)
are seen in the other tables: against the authors' form, and in the second column.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from fairseq_collab.bench import checkpoints
from fairseq_collab.bench.generate import (
    TIE,
    Record,
    Translator,
    amount,
    check_alike,
    sentences,
)
from fairseq_collab.bench.models import HEADSIZE, Variant, random_pair
from fairseq_collab.bench.settings import (
    GenerateCase,
    Settings,
    fixed_cases,
    natural_cases,
)
from fairseq_collab.bench.timing import compare, in_turn
from fairseq_collab.bench.work import random_task, real_task
from fairseq_collab.kernels.onednn import OneDnnLinear


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


#: What a table calls the model without the measure, and what undoes it.
MEASURES: dict[str, Callable[[Any], None]] = {
    "keys and values of each beam": separate_beams,
    "attention weights at every step": show_weights,
    "weights not packed": unpack,
}


def run(settings: Settings, say: Callable[[str], None]) -> list[Record]:
    """Each measure on concatenated heads and on collaborative ones, where beams are batched."""
    records = []
    for preset, name, model, task, case in subjects(settings):
        for measure, undo in MEASURES.items():
            say(f"alone, {case.name}: {name}, {measure}")
            record = compared(model, undo, task, case, settings)
            records.append({**record, "preset": preset, "model": name, "against": measure})
    return records


def subjects(settings: Settings) -> Iterator[tuple[str, str, Any, Any, GenerateCase]]:
    """Preset, name, model, task and case: trained models where there are any."""
    if settings.natural:
        assert settings.data is not None  # the command has seen to it
        case = natural_cases(settings)[0]
        for trained in checkpoints.trained_pairs(settings):
            yield "trained", trained.name, trained.ours, real_task(settings.data, "test"), case
        return
    preset = settings.presets[0]
    case = fixed_cases(preset, settings.quick)[0]
    for variant in (Variant(HEADSIZE), Variant("transformer_collab", 4)):
        task = random_task(preset, case.sentences, settings.seed)
        yield preset, variant.name, random_pair(variant, preset, task, settings.seed)[1], task, case


def compared(
    model: Any, undo: Callable[[Any], None], task: Any, case: GenerateCase, settings: Settings
) -> Record:
    """Time a model without a measure, and with it.

    Raises:
        UserError: they translate differently.
    """
    without = Translator(copy.deepcopy(model), task, case, settings)
    undo(without.model)
    whole = Translator(copy.deepcopy(model), task, case, settings)
    programs = [without, whole]
    found = sentences(task, case, settings)
    ties = sum(
        check_alike(without(b), whole(b), TIE[settings.dtype], "itself without the measure")
        for b in found
    )
    times = in_turn(programs, found, case.seconds / 2, case.least, settings.device)
    return {
        "part": "alone",
        "case": case.name,
        "ties": ties,
        **amount(found),
        **compare([(a, b) for a, b in times]).as_dict(),
    }
