"""Models on the device: beam search and short trainings.

The reference of beam search is the same model in float32 on the CPU.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import partial

import torch

from collab_lab.bench import (
    batches,
    count_ties,
    loss,
    random_model,
    random_task,
    trainer,
    translator,
)
from collab_lab.metrics.translate import BEAM
from fairseq_collab.models.families import TRANSLATION
from fairseq_collab.models.variants import VARIANTS

from .core import Check, Place, expect

CPU = torch.device("cpu")
#: Largest error of a score, in nats a word: half precision may find other words.
SCORES = {"float16": 0.05, "bfloat16": 0.3}
#: The loss per token must fall by so much, in nats.
LESS = 0.3
#: Losses that train the heads of an architecture.
CRITERIONS = {
    "transformer_grouped_heads": "label_smoothed_cross_entropy_with_head_groups",
    "transformer_gated_heads": "label_smoothed_cross_entropy_with_head_gates",
}
#: All encoder-decoder architectures, without presets.
ARCHITECTURES = [f"transformer_{kind.name}" for kind in VARIANTS if TRANSLATION in kind.families]
SOURCE = ("src_tokens", "src_lengths")
FAST = ("--lr=0.005", "--warmup-updates=8", "--clip-norm=1")


def checks(place: Place) -> Iterator[Check]:
    """Beam search by each architecture, and training in each number format."""
    for arch in ARCHITECTURES:
        for beam in (BEAM,) if place.quick else (1, BEAM):
            yield Check(f"decoding {arch} float32, beam {beam}", partial(same, arch, beam, place))
        for dtype in SCORES if place.name == "cuda" else ():
            yield Check(f"decoding {arch} {dtype}", partial(true_scores, arch, dtype, place))
    for arch in ARCHITECTURES:
        for form in place.formats:
            yield Check(f"training {arch} {form or 'float32'}", partial(trained, arch, form, place))


def same(arch: str, beam: int, place: Place) -> str:
    """The best translations equal those on the CPU; equally good ones are counted."""
    preset, size = ("tiny", 4) if place.quick else ("multi30k", 16)
    task = random_task(preset, size)
    model = random_model(arch, preset, task).model
    (batch,) = batches(task, CPU, max_sentences=size)
    (here,) = batches(task, place.device, max_sentences=size)
    expected = translator(copy.deepcopy(model), task, beam, length=20)(batch)
    ties = count_ties(expected, translator(model.to(place.device), task, beam, length=20)(here))
    return f"{size} translations equal to those on the CPU, {ties} of them ties"


@torch.no_grad()
def true_scores(arch: str, dtype: str, place: Place) -> str:
    """The score of a translation found in half precision is its score in float32."""
    task = random_task("multi30k", 16)
    exact = random_model(arch, "multi30k", task).model
    (batch,) = batches(task, CPU, max_sentences=16)
    (here,) = batches(task, place.device, max_sentences=16)
    half = copy.deepcopy(exact).to(place.device, getattr(torch, dtype))
    ours = translator(half, task, length=20)
    apart, eos = 0.0, task.target_dictionary.eos()
    for number, (best, *_) in enumerate(ours(here)):
        tokens = best["tokens"].cpu()  # (T), closed by the end of the sentence
        previous = torch.cat([torch.tensor([eos]), tokens[:-1]]).unsqueeze(0)
        source = {name: batch["net_input"][name][[number]] for name in SOURCE}
        logits, _ = exact(**source, prev_output_tokens=previous)
        words = logits[0].log_softmax(dim=-1).gather(1, tokens.unsqueeze(1))  # (T, 1)
        apart = max(apart, abs(float(words.mean()) - float(best["score"])))
    bound = SCORES[dtype]
    expect(apart <= bound, f"a score is {apart:.2g} a word from float32's, at most {bound}")
    return f"scores at most {apart:.1g} a word from float32's, of at most {bound}"


def trained(arch: str, form: str, place: Place) -> str:
    """Updates on one batch of random sentences by fairseq's ``Trainer`` reduce the loss."""
    task = random_task("tiny", 16)
    (batch,) = batches(task, place.device, max_sentences=16)
    criterion = CRITERIONS.get(arch, "label_smoothed_cross_entropy")
    options = [*FAST, f"--criterion={criterion}", *([form] if form else [])]
    model = random_model(arch, "tiny", task).model
    one = trainer(model, task, place.device, *options)
    first = loss(one, batch)
    for _ in range(10 if place.quick else 40):
        one.train_step([batch])
    last = loss(one, batch)
    change = f"loss {first:.2f} to {last:.2f}"
    expect(math.isfinite(last) and first - last >= LESS, f"{change}: not by {LESS}")
    return change
