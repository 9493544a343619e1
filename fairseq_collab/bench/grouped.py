"""Heads in groups (arXiv 2305.14380): what the constraint costs, and what taking heads out brings.

    update        ``transformer_grouped_heads`` with its constraint, default groups and weights,
                  against the same model with the ordinary criterion, and against fairseq's model
    translation   ``transformer_headsize_n`` with ``C`` of its ``H`` heads, all of size ``d/H``,
                  against fairseq's model and against itself with all heads

Before updates are timed, all three models must have one loss on the first batch, without dropout.
A pruned model computes what the whole one does with the other heads' outputs set to zero: before
it is timed, both must give the same translations.  Heads go by chance, through the surgery of
``fairseq-collab prune``: which ones makes no difference to the time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fairseq_collab.attention.head_groups import head_group_attentions
from fairseq_collab.bench import generate, train
from fairseq_collab.bench.generate import Translator, check_alike
from fairseq_collab.bench.models import (
    HEADSIZE,
    STOCK,
    Variant,
    preset_options,
    random_pair,
)
from fairseq_collab.bench.settings import (
    GenerateCase,
    Settings,
    constraint_budget,
    fixed_cases,
)
from fairseq_collab.bench.timing import compare, in_turn
from fairseq_collab.bench.work import random_task
from fairseq_collab.checkpoints.opener import Trained
from fairseq_collab.checkpoints.prune import surgery
from fairseq_collab.checkpoints.prune.choices import random_heads
from fairseq_collab.checkpoints.prune.surgery import GROUPED, Kept, heads_by_attention
from fairseq_collab.metrics.cost import used_parameters
from fairseq_collab.models.layers import SITES

CRITERION = "label_smoothed_cross_entropy_with_head_groups"
#: What tables call the models that ours is compared with, beside fairseq's.
WITHOUT, WHOLE = "the same without the constraint", "the same with all heads"
#: ``H/C``, the share of the heads that stays: 1/2 and 1/4.
SHARES = (2, 4)

Record = dict[str, Any]


def run(settings: Settings, say: Callable[[str], None]) -> list[Record]:
    """Both measurements for all presets: two records each, against fairseq's model and ours."""
    records = []
    for preset in settings.presets:
        say(f"grouped, {preset}: updates")
        found = [*constrained(preset, settings)]
        for trained, stock, case in whole_models(preset, settings):
            for share in SHARES:
                count = trained.heads["encoder"][0] // share
                say(f"grouped, {preset}, {case.name}: {count} heads stay")
                found += pruned(trained, stock, count, case, settings)
        records += [{**record, "part": "grouped", "preset": preset} for record in found]
    return records


# ---- updates with the constraint -----------------------------------------------------------------


def constrained(preset: str, settings: Settings) -> Iterator[Record]:
    """Updates with the constraint, against those without it and those of fairseq's model.

    Raises:
        UserError: the three models do not have one loss without dropout.
    """
    task, batches, case = train.sentences(preset, settings)
    stock, ours = random_pair(Variant(GROUPED), preset, task, settings.seed)
    trainers = [
        train.trainer(stock, task, settings),
        train.trainer(copy.deepcopy(ours), task, settings),
        train.trainer(ours, task, settings, f"--criterion={CRITERION}"),
    ]
    reference, *others = (train.loss(one, batches[0]) for one in trainers)
    for other in others:
        train.check_losses([reference, other], train.TOLERANCE[settings.dtype])
    budget = constraint_budget(preset, settings.quick)
    times = train.updates(trainers, batches, budget, settings)
    attentions = head_group_attentions(ours)
    assert all(attention.membership.any() for attention in attentions), "no groups were made"
    common = {
        "measure": "update",
        "case": f"update, {case}",
        "model": f"{GROUPED} C={attentions[0].groups}",
        "work": train.target_tokens(batches),
        "unit": "target tokens",
        **parameters(ours, ours),
    }
    for place, against in ((1, WITHOUT), (0, STOCK)):
        pairs = [(turn[place], turn[2]) for turn in times]
        yield {**common, "against": against, **compare(pairs).as_dict()}


# ---- translation with fewer heads ----------------------------------------------------------------


def whole_models(preset: str, settings: Settings) -> Iterator[tuple[Trained, Any, GenerateCase]]:
    """A model with all heads, as ``checkpoints.prune`` takes it, its twin, and a case."""
    for case in fixed_cases(preset, settings.quick):
        task = random_task(preset, case.sentences, settings.seed)
        stock, whole = random_pair(Variant(HEADSIZE), preset, task, settings.seed)
        cfg = OmegaConf.create({"model": preset_options(preset)})
        name = Path(f"the {preset} model")
        yield Trained(name, {"cfg": cfg}, whole.eval(), task), stock, case


def pruned(
    trained: Trained, stock: Any, count: int, case: GenerateCase, settings: Settings
) -> Iterator[Record]:
    """Translation by ``count`` heads of each attention, against all heads and fairseq's model.

    Raises:
        UserError: the pruned model translates otherwise than the masked one.
    """
    kept = random_heads(trained.heads, dict.fromkeys(SITES, count), settings.seed)
    small = surgery.pruned(trained, kept).model
    batches = generate.sentences(trained.task, case, settings)

    def translator(model: Any) -> Translator:
        return Translator(model, trained.task, case, settings)

    ours = translator(small)
    ties = check_pruned(translator(masked(trained, kept)), ours, batches, settings)
    # The whole model is copied, since preparing it for inference changes it.
    programs = [translator(copy.deepcopy(trained.model)), translator(stock), ours]
    for program in programs[:2]:  # ours is warm already
        program(batches[0])
    times = in_turn(programs, batches, case.seconds, case.least, settings.device)
    total = trained.heads["encoder"][0]
    common = {
        "measure": "translation",
        "case": case.name,
        "model": f"{HEADSIZE}, {count} of {total} heads",
        "beam": case.beam,
        "batch": case.batch,
        "ties": ties,
        **generate.amount(batches),
        **parameters(small, trained.model),
    }
    for place, against in ((0, WHOLE), (1, STOCK)):
        pairs = [(turn[place], turn[2]) for turn in times]
        yield {**common, "against": against, **compare(pairs).as_dict()}


def masked(trained: Trained, kept: Kept) -> Any:
    """A copy of the model in which the outputs of all heads but the ``kept`` are zero."""
    model = copy.deepcopy(trained.model)
    for one, heads in heads_by_attention(trained, kept):
        gone = sorted(set(range(one.module.num_heads)) - set(heads))
        columns = model.get_submodule(one.name).out_proj.weight.detach()  # (d, H * h_v)
        columns.unflatten(1, (one.module.num_heads, -1))[:, gone] = 0
    return model


def check_pruned(
    whole: Translator, small: Translator, batches: list[Any], settings: Settings
) -> int:
    """Masked and pruned heads must translate alike; the number of ties.

    Raises:
        UserError: they do not.
    """
    tie = generate.TIE[settings.dtype]
    name = "the model whose other heads are masked"
    return sum(check_alike(whole(batch), small(batch), tie, name) for batch in batches)


def parameters(model: Any, whole: Any) -> dict[str, int]:
    """How many a model has, and the one that it was made from."""
    counts = [sum(p.numel() for p in used_parameters(one)) for one in (model, whole)]
    return dict(zip(("parameters", "whole_parameters"), counts, strict=True))
