"""Heads in groups (arXiv 2305.14380): what the constraint costs, and what taking heads out brings.

    update        ``transformer_grouped_heads`` with its constraint, default groups and weights,
                  against the same model with the ordinary criterion, and against fairseq's model
    translation   ``transformer_headsize_n`` with ``C`` of its ``H`` heads, all of size ``d/H``,
                  against fairseq's model and against itself with all heads; on request as the paper
                  times it: beam 5, batches of 256 sentences, translations of length 10

Before updates are timed, all three models must have one loss on the first batch, without dropout.
A pruned model computes what the whole one does with the other heads' outputs set to zero: before
it is timed, both must give the same translations.  Heads go by chance, through the surgery of
``fairseq-collab prune``: which ones makes no difference to the time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from fairseq_collab.attention.head_groups import head_group_attentions
from fairseq_collab.bench import generate, train
from fairseq_collab.bench.generate import Case, Translator
from fairseq_collab.bench.models import HEADSIZE, STOCK, Pair, Variant, random_pair
from fairseq_collab.bench.settings import BEAM, PRESETS, Record, Settings
from fairseq_collab.bench.work import random_task
from fairseq_collab.metrics.cost import used_parameters
from fairseq_collab.models.layers import SITES
from fairseq_collab.prune import surgery
from fairseq_collab.prune.choices import random_heads
from fairseq_collab.prune.surgery import GROUPED, Kept, heads_by_attention
from fairseq_collab.trained.opener import Trained

CRITERION = "label_smoothed_cross_entropy_with_head_groups"
#: What tables and messages call the models that ours is compared with, beside fairseq's.
WITHOUT, WHOLE = "the same without the constraint", "the same with all heads"
MASKED = "the model whose other heads are masked"
#: ``H/C``, the share of the heads that stays: 1/2 and 1/4.
SHARES = (2, 4)


def run(settings: Settings) -> Iterator[Record]:
    """Both measurements for all presets: two records each, against fairseq's model and ours."""
    for preset in settings.presets:
        yield from constrained(preset, settings)
        pair, case = whole_model(preset, settings)
        for share in SHARES:
            yield from pruned(pair, pair.ours.heads["encoder"][0] // share, case, settings)


def run_paper_3(settings: Settings) -> Iterator[Record]:
    """Translation by a quarter of the heads, in the paper's protocol: two records.

    Its machine, a GPU, and its corpora are others, so that the ratio to the whole model compares,
    and sentences a second do not.  Random models end no translation: all have the whole length.
    """
    for preset in settings.presets:
        # One batch, whose size and length are no smaller in a quick run.
        paper_3 = Case(BEAM, 256, 256, 10, (0.5, 2) if settings.quick else (10, 5))
        pair, case = whole_model(preset, settings, paper_3)
        yield from pruned(pair, pair.ours.heads["encoder"][0] // SHARES[-1], case, settings)


def constrained(preset: str, settings: Settings) -> Iterator[Record]:
    """Updates with the constraint, against those without it and those of fairseq's model."""
    task, batches, case = train.sentences(preset, settings)
    pair = random_pair(Variant(GROUPED), preset, task, settings.seed)
    ours = pair.ours.model
    attentions = head_group_attentions(ours)
    name = f"{GROUPED} C={attentions[0].groups}"
    trainers = {
        STOCK: train.trainer(pair.stock.model, task, settings),
        WITHOUT: train.trainer(copy.deepcopy(ours), task, settings),
        name: train.trainer(ours, task, settings, f"--criterion={CRITERION}"),
    }
    budget = (0.5, 2) if settings.quick else (8, PRESETS[preset].turns[1])
    labels: Record = {"part": "grouped", "measure": "update", **parameters(ours, ours)}
    labels |= {"preset": preset, "case": f"update, {case}"}
    pairs = [(WITHOUT, name), (STOCK, name)]
    yield from train.updates(labels, trainers, batches, budget, settings, pairs)
    assert all(attention.membership.any() for attention in attentions), "no groups were made"


def whole_model(preset: str, settings: Settings, case: Case | None = None) -> tuple[Pair, Case]:
    """A model with all heads, its twin, and a case: the one given, or the preset's own."""
    case = case or generate.fixed_case(preset, settings.quick)
    task = random_task(preset, case.sentences, settings.seed)
    return random_pair(Variant(HEADSIZE), preset, task, settings.seed), case


def pruned(pair: Pair, count: int, case: Case, settings: Settings) -> Iterator[Record]:
    """Translation by ``count`` heads of each attention, against all heads and fairseq's model."""
    whole = pair.ours
    kept = random_heads(whole.heads, dict.fromkeys(SITES, count), settings.seed)
    small = surgery.pruned(whole, kept).model
    name = f"{HEADSIZE}, {count} of {whole.heads['encoder'][0]} heads"
    # The whole model is copied, since preparing it for inference changes it.
    models = {MASKED: masked(whole, kept), name: small}
    models |= {WHOLE: copy.deepcopy(whole.model), STOCK: pair.stock.model}
    translators = {n: Translator(m, whole.task, case, settings) for n, m in models.items()}
    labels: Record = {"part": "grouped", "measure": "translation", "preset": pair.preset}
    labels |= parameters(small, whole.model)
    pairs = [(WHOLE, name), (STOCK, name)]
    yield from generate.compared(labels, translators, case, settings, pairs)


def masked(trained: Trained, kept: Kept) -> Any:
    """A copy of the model in which the outputs of all heads but the ``kept`` are zero."""
    model = copy.deepcopy(trained.model)
    for one, heads in heads_by_attention(trained, kept):
        gone = sorted(set(range(one.module.num_heads)) - set(heads))
        columns = model.get_submodule(one.name).out_proj.weight.detach()  # (d, H * h_v)
        columns.unflatten(1, (one.module.num_heads, -1))[:, gone] = 0
    return model


def parameters(model: Any, whole: Any) -> dict[str, int]:
    """How many a model has, and the one that it was made from."""
    left, all_of_them = (sum(p.numel() for p in used_parameters(one)) for one in (model, whole))
    return {"parameters": left, "whole_parameters": all_of_them}
