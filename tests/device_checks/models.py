"""Models on the device: beam search, steps of fixed shapes, and short trainings.

The reference of beam search is the same model in float32 on the CPU; that of fixed steps, which a
GPU replays as graphs, are ordinary steps on the device.
"""

from __future__ import annotations

import copy
import math
import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any
from unittest import mock

import torch

from collab_lab.clock.bench import (
    batches,
    count_ties,
    loss,
    random_model,
    random_task,
    trainer,
    translator,
)
from collab_lab.metrics.generate import BEAM
from fairseq_collab.attention import cache
from fairseq_collab.decoding.fixed_steps import BUFFERS, FIXED_STEPS_ENV
from fairseq_collab.models.families import TRANSLATION
from fairseq_collab.models.variants import VARIANTS

from .core import Check, Place, expect, speeds

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
TIMED = ("transformer_headsize_n", "transformer_collab", "transformer_latent")
SOURCE = ("src_tokens", "src_lengths")
FAST = ("--lr=0.005", "--warmup-updates=8", "--clip-norm=1")


def checks(place: Place) -> Iterator[Check]:
    """Beam search by each architecture, and training in each number format; then fixed steps.

    An error of a graph may leave nothing that works, so graphs come last.
    """
    architectures = ARCHITECTURES[:1] if place.quick else ARCHITECTURES
    beams, halves = (BEAM,) if place.quick else (1, BEAM), SCORES if place.name == "cuda" else ()
    for arch in architectures:
        for beam in beams:
            yield Check(f"decoding {arch} float32, beam {beam}", partial(same, arch, beam, place))
        for dtype in halves:
            yield Check(f"decoding {arch} {dtype}", partial(true_scores, arch, dtype, place))
        for form in place.formats:
            yield Check(f"training {arch} {form or 'float32'}", partial(trained, arch, form, place))
    yield Check("speed of live slots", partial(speed_of_live_slots, place))
    for arch in architectures:
        for beam in beams:
            run = partial(same_in_fixed_steps, arch, beam, place)
            yield Check(f"fixed steps {arch} float32, beam {beam}", run)
        for dtype in halves:
            run = partial(in_fixed_steps, true_scores, arch, dtype, place)
            yield Check(f"fixed steps {arch} {dtype}", run)
    timed = product(TIMED, ("float32", "float16"), (1, BEAM)) if place.name == "cuda" else ()
    for arch, dtype, beam in [("transformer_collab", "float32", BEAM)] if place.quick else timed:
        run = partial(speed_of_fixed_steps, arch, dtype, beam, place)
        yield Check(f"speed of fixed steps {arch} {dtype}, beam {beam}", run)


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


def in_fixed_steps(run: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a run with steps of fixed shapes."""
    with mock.patch.dict(os.environ, {FIXED_STEPS_ENV: "1"}):
        return run(*arguments)


def same_in_fixed_steps(arch: str, beam: int, place: Place) -> str:
    """Ordinary steps find the same, beyond a block; later batches replay graphs of earlier ones."""
    preset, size, longest = ("tiny", 8, 16) if place.quick else ("multi30k", 64, 70)
    task = random_task(preset, 3 * size - 1)
    model = random_model(arch, preset, task).model.to(place.device)
    with torch.no_grad():  # most models then end some sentences early
        eos = task.target_dictionary.eos()
        model.decoder.output_projection.weight[eos] *= 2 if place.quick else 6
    options = Namespace(beam=beam, max_len_a=0, max_len_b=longest, min_len=1, lenpen=1.0)
    generator = task.build_generator([model], options)
    translate, ties, ends = partial(task.inference_step, generator, [model]), 0, set()
    for batch in 2 * batches(task, place.device, max_sentences=size):
        ordinary = translate(batch)
        ties += count_ties(ordinary, in_fixed_steps(translate, batch))
        ends |= {len(best["tokens"]) for best, *_ in ordinary}
    expect(model in BUFFERS, "ordinary steps were used")
    return f"translations of {min(ends)} to {max(ends)} tokens are equal, {ties} of them ties"


def speed_of_fixed_steps(arch: str, dtype: str, beam: int, place: Place) -> str:
    """Of 64 sentences, d = 512, 6 layers, 32 tokens, in turns with ordinary steps."""
    preset, size, length = ("tiny", 4, 8) if place.quick else ("wmt_en_de", 64, 32)
    task = random_task(preset, size)
    (batch,) = batches(task, place.device, max_sentences=size)
    model = random_model(arch, preset, task).model.to(place.device, getattr(torch, dtype))
    ordinary = translator(model, task, beam, length=length)
    programs = {"ordinary": ordinary, "fixed": partial(in_fixed_steps, ordinary)}
    found = speeds(programs, batch, place, length)
    expect(model in BUFFERS, "ordinary steps were used")
    return found


def speed_of_live_slots(place: Place) -> str:
    """Of 64 sentences, d = 512, 6 layers, 512 tokens, in turns with caches of all slots."""
    preset, size, length = ("tiny", 4, 24) if place.quick else ("wmt_en_de", 64, 512)
    task = random_task(preset, size)
    (batch,) = batches(task, place.device, max_sentences=size)
    model = random_model("transformer_headsize_n", preset, task, max_target_positions=length + 2)
    dtype = torch.float16 if place.name == "cuda" else torch.float32
    live = translator(model.model.to(place.device, dtype), task, BEAM, length=length)

    def all_slots(batch: Any) -> None:
        with mock.patch.object(cache, "DROP_EVERY", 2**62):
            live(batch)

    return speeds({"all": all_slots, "live": live}, batch, place, length)


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
